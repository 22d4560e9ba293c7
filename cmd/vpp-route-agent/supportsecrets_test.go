package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What has the name of a secret may be none.
func TestIsHarmless(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte("planted"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for value, want := range map[string]bool{"true": true, "false": true, "9179": true, "0.5": true,
		dir: true, file: true, file + "s": false, "token": false, "planted": false, "1a": false} {
		if isHarmless(value) != want {
			t.Errorf("%s: %t", value, !want)
		}
	}
}

// What is searched for does not grow with the square of the URLs in one variable: 200 of them took
// 900 MB.
func TestManyURLsWithPasswords(t *testing.T) {
	var f secretFinder
	const urls = 1000
	var text strings.Builder
	for i := range urls {
		fmt.Fprintf(&text, "https://user%d:planted%d@host%d/p ", i, i, i)
	}
	f.addURLs(text.String())
	for _, i := range []int{0, 1, urls - 1} {
		if !slices.Contains(f.all, fmt.Sprintf("planted%d", i)) {
			t.Errorf("that of URL %d is not found", i)
		}
	}
	if len(f.all) > 40*urls {
		t.Errorf("%d texts are searched for", len(f.all))
	}
}

// What is no URL has no password: its lines stay in the archive.
func TestSlashesAreNoScheme(t *testing.T) {
	for text, want := range map[string]string{
		"/usr/local//bin:/tmp/demo@2/bin":              "",
		"x=${1//:/ }\nprogrammed\n\"$@\"":              "",
		"//root:planted@127.0.0.1:2379":                "planted",
		"see http://root:planted@127.0.0.1:2379 there": "planted",
	} {
		var f secretFinder
		f.addURLs(text)
		f.all = slices.DeleteFunc(f.all, func(s string) bool { return s == "" })
		if got := strings.Join(f.all, " "); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
