// Package changes finds what one struct has otherwise than another, field by field and of maps item
// by item, and writes it down as JSON. It knows nothing of what the structs are.
package changes

import (
	"encoding/json"
	"fmt"
	"iter"
	"reflect"
	"strings"
)

// Changes are what one struct has otherwise than the one before. They go to disk as JSON, by the
// names that JSON has for its fields.
type Changes struct {
	// Set has the fields that differ; of maps just the items that are new or differ.
	Set map[string]any `json:"set"`
	// Gone are the keys of items that are there no more.
	Gone map[string][]any `json:"gone,omitempty"`
}

// MaxItems bounds Changes: those of a large cluster are not encoded at once.
const MaxItems = 1000

// Of yields what after has otherwise than before, in pieces of bounded size, to be applied in this
// order. Both are pointers to structs of one type, before may be nil. It looks into no map that
// they share.
func Of(before, after any) iter.Seq[Changes] {
	return func(yield func(Changes) bool) {
		d := differ{yield: yield, more: true}
		d.start()
		d.compare(reflect.ValueOf(before), reflect.ValueOf(after).Elem())
		d.end()
	}
}

// differ collects Changes.
type differ struct {
	Changes
	items int // in Changes
	yield func(Changes) bool
	more  bool // is wanted
}

func (d *differ) start() {
	d.Changes, d.items = Changes{Set: map[string]any{}, Gone: map[string][]any{}}, 0
}

func (d *differ) end() {
	if d.more && len(d.Set)+len(d.Gone) > 0 {
		d.more = d.yield(d.Changes)
	}
}

// full ends a piece that has enough, and reports whether it did.
func (d *differ) full() bool {
	if d.items++; d.items < MaxItems {
		return false
	}
	d.end()
	d.start()
	return true
}

func (d *differ) compare(before, is reflect.Value) {
	was := reflect.Zero(is.Type())
	if before.IsValid() && !before.IsNil() {
		was = before.Elem()
	}
	for i, f := range reflect.VisibleFields(is.Type()) {
		switch a, b := was.Field(i), is.Field(i); {
		case f.Tag.Get("json") == "-":
		case f.Type.Kind() == reflect.Map && a.Pointer() == b.Pointer():
		case f.Type.Kind() == reflect.Map && !b.IsNil():
			if a.IsNil() {
				d.Set[name(f)] = reflect.MakeMap(f.Type).Interface()
			}
			d.diff(name(f), a, b)
		case !reflect.DeepEqual(a.Interface(), b.Interface()):
			d.Set[name(f)] = b.Interface()
		}
	}
}

// name is what JSON calls a field.
func name(f reflect.StructField) string {
	if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag != "" {
		return tag
	}
	return f.Name
}

// diff compares two maps of one type.
func (d *differ) diff(field string, was, is reflect.Value) {
	changed, kept := reflect.MakeMap(is.Type()), 0
	// The items are compared in these places: new ones for each would be garbage.
	key := reflect.New(is.Type().Key()).Elem()
	a, b := reflect.New(is.Type().Elem()), reflect.New(is.Type().Elem())
	for items := is.MapRange(); items.Next(); {
		key.SetIterKey(items)
		b.Elem().SetIterValue(items)
		before := was.MapIndex(key)
		if before.IsValid() {
			kept++
			a.Elem().Set(before)
		}
		if !before.IsValid() || !reflect.DeepEqual(a.Interface(), b.Interface()) {
			changed.SetMapIndex(key, b.Elem())
			d.Set[field] = changed.Interface()
			if d.full() {
				changed = reflect.MakeMap(is.Type())
			}
		}
	}
	if kept == was.Len() {
		return
	}
	for keys := was.MapRange(); keys.Next(); {
		if !is.MapIndex(keys.Key()).IsValid() {
			d.Gone[field] = append(d.Gone[field], keys.Key().Interface())
			d.full()
		}
	}
}

// Recorded are Changes as JSON has them.
type Recorded struct {
	Set  map[string]json.RawMessage `json:"set"`
	Gone map[string]json.RawMessage `json:"gone"`
}

// Apply makes the changes in what to points to, also in its maps. It takes as long as there are
// changes, however much there is besides. An error leaves some of them made.
func Apply[T any](c Recorded, to *T) error {
	all := reflect.ValueOf(to).Elem()
	for _, f := range reflect.VisibleFields(all.Type()) {
		field := all.FieldByIndex(f.Index)
		set, gone := c.Set[name(f)], c.Gone[name(f)]
		if set != nil {
			if f.Type.Kind() != reflect.Map {
				field.SetZero() // json would write into what is there, which others may have
			}
			if err := json.Unmarshal(set, field.Addr().Interface()); err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
		}
		if gone == nil {
			continue
		}
		if f.Type.Kind() != reflect.Map || field.IsNil() {
			return fmt.Errorf("%s: nothing is there that could go", f.Name)
		}
		keys := reflect.New(reflect.SliceOf(f.Type.Key()))
		if err := json.Unmarshal(gone, keys.Interface()); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		for i := range keys.Elem().Len() {
			field.SetMapIndex(keys.Elem().Index(i), reflect.Value{})
		}
	}
	return nil
}
