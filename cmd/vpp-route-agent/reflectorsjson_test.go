package main

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/bgp/reflector"
)

// TestReflectorsJSONIsDocumented: the tables of docs/reflectors.md have every field of the JSON,
// and no other.
func TestReflectorsJSONIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reflectors.md")
	if err != nil {
		t.Fatal(err)
	}
	for what, tc := range map[string]struct {
		after string // what stands before the table
		of    any
	}{
		"plan":   {"\n`-o json` has\nall nodes", reflector.Preview{}},
		"status": {"That of `reflectors status`:", reflectorsView{}},
		"adopt":  {"That of `reflectors adopt --dry-run`:", adoptView{}},
	} {
		_, rest, ok := strings.Cut(string(page), strings.TrimPrefix(tc.after, "\n"))
		_, table, more := strings.Cut(rest, "|---|---|\n")
		if !ok || !more {
			t.Errorf("%s: there is no table after %q", what, tc.after)
			continue
		}
		table, _, _ = strings.Cut(table, "\n\n")
		fields := map[string]bool{} // by path
		jsonPaths(reflect.TypeOf(tc.of), "", fields)
		named := map[string]bool{}
		for _, row := range strings.Split(table, "\n") {
			first, meaning, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
			parent, path := "", ""
			for _, word := range quoted.FindAllStringSubmatch(first, -1) {
				if path = word[1]; strings.HasPrefix(path, ".") {
					path = parent + path
				}
				parent = path[:max(0, strings.LastIndex(path, "."))]
				if named[path] = true; !fields[path] {
					t.Errorf("%s: the page names %s, which is not there", what, path)
				}
			}
			for _, word := range quoted.FindAllStringSubmatch(meaning, -1) {
				for _, of := range quoted.FindAllStringSubmatch(first, -1) {
					named[of[1]+"."+word[1]] = true
				}
				named[path+"."+word[1]] = true
			}
		}
		for path := range fields {
			parent := path[:max(0, strings.LastIndex(path, "."))]
			known := named[path] || named[strings.TrimSuffix(path, "[]")]
			if !known && !isParent(path, fields) && parent != "goal.config" {
				t.Errorf("%s: the page does not name %s", what, path)
			}
		}
	}
}

// isParent reports whether a field has fields of its own, which say what it is.
func isParent(path string, fields map[string]bool) bool {
	for other := range fields {
		if strings.HasPrefix(other, path+".") {
			return true
		}
	}
	return false
}

// jsonPaths adds the fields of a type as encoding/json names them, lists with [].
func jsonPaths(t reflect.Type, prefix string, into map[string]bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			jsonPaths(f.Type, prefix, into)
			continue
		case name == "-" || !f.IsExported():
			continue
		}
		path, of := prefix+name, f.Type
		if of.Kind() == reflect.Slice {
			path, of = path+"[]", of.Elem()
		}
		into[path] = true
		if of.Kind() == reflect.Struct && of != reflect.TypeFor[time.Time]() {
			jsonPaths(of, path+".", into)
		}
	}
}
