package selector

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNames(t *testing.T) {
	s, err := Parse("has(a) && (b == 'x' || !(c/d not in {'y'}))")
	if err != nil {
		t.Fatal(err)
	}
	for label, want := range map[string]bool{
		"a": true, "b": true, "c/d": true, "x": false, "c": false,
	} {
		if s.Names(label) != want {
			t.Errorf("names %s: %t", label, !want)
		}
	}
}

func TestMatches(t *testing.T) {
	labels := map[string]string{"rack": "r2", "bgp-role": "spine", "node.kind/x_y": "rr-7",
		"empty": "", "in": "y", "has": "h"}
	for _, tc := range []struct {
		text string
		want bool
	}{
		{"", true},
		{" \t ", true},
		{"all()", true},
		{"all( )", true},
		{"global()", true},
		{"!all()", false},

		{`rack == "r2"`, true},
		{`rack == 'r2'`, true},
		{`rack=="r2"`, true},
		{"\track\t==\t'r2' ", true},
		{`rack == "R2"`, false},
		{`rack != "r2"`, false},
		{`rack != "r1"`, true},
		{`gone == ""`, false},
		{`empty == ""`, true},
		{`gone != "x"`, true},
		{`bgp-role == 'spine' || node.kind/x_y starts with "rr-"`, true},
		{`rack == "r2'" || rack == 'r2"'`, false},

		{`rack in {"r1","r2"}`, true},
		{`rack in {"r1", "r2",}`, true},
		{`rack in {}`, false},
		{`rack not in {}`, true},
		{`rack not in {"r1"}`, true},
		{`rack notin {"r2"}`, false},
		{`rack in{"r2"}`, true},
		{`gone in {"x", ""}`, false},
		{`gone not in {"x", ""}`, true},

		{`rack contains "2"`, true},
		{`rack contains ""`, true},
		{`gone contains ""`, false},
		{`rack contains"3"`, false},
		{`rack starts with "r"`, true},
		{`rack startswith "r"`, true},
		{`gone starts with ""`, false},
		{`rack ends with "2"`, true},
		{`rack endswith "r"`, false},
		{`gone endswith ""`, false},

		{"has(rack)", true},
		{"has( rack\t)", true},
		{"has(gone)", false},
		{"has(empty)", true},
		{"!has(gone)", true},
		{"! ! has(rack)", true},
		{"!!!has(rack)", false},
		{"!(!has(rack))", true},

		{`!rack == "r2"`, false}, // all of the comparison
		{`!rack == "r1"`, true},
		{`!(rack == "r2")`, false},
		{`!rack != "r2" && has(rack)`, true}, // and not of what follows

		{`has(rack) || has(gone) && has(gone)`, true}, // && binds tighter
		{`(has(rack) || has(gone)) && has(gone)`, false},
		{`has(gone) && has(gone) || has(rack)`, true},
		{`rack in {"r1","r2"} && !has(drain)`, true},
		{`((((has(rack)))))`, true},

		{`in in {"y"}`, true}, // words are labels where a label stands
		{`in not in {"y"}`, false},
		{`has == "h"`, true},
		{`contains contains "x"`, false},
		{`not == "x"`, false},
		{`all != "x"`, true},
		{"rack == \"a\nb\"", false}, // inside quotes everything is text
	} {
		s, err := Parse(tc.text)
		if err != nil {
			t.Errorf("%s: %v", tc.text, err)
			continue
		}
		if got := s.Matches(labels); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.text, got, tc.want)
		}
	}
	if none, _ := Parse(`a != "b"`); !none.Matches(nil) {
		t.Error("an object without labels is not taken for one with an absent label")
	}
}

func TestErrors(t *testing.T) {
	for _, tc := range []struct {
		text     string
		position int
		reason   string
	}{
		{"rack", 5, "an operator is expected"},
		{`"r2" == rack`, 1, "a label is expected"},
		{"rack == r2", 9, "a string in quotes"},
		{"rack == ", 9, "a string in quotes"},
		{`rack = "r2"`, 6, "an operator"},
		{`rack & "r2"`, 6, "an operator"},
		{"has(a) & has(b)", 8, "&& or ||"},
		{"has(a) | has(b)", 8, "&& or ||"},
		{"has(a) has(b)", 8, "&& or ||"},
		{"has(a) &&", 10, "a label is expected"},
		{"has(a) || ", 11, "a label is expected"},
		{"|| has(a)", 1, "a label is expected"},
		{"!", 2, "a label is expected"},
		{"()", 2, "a label is expected"},
		{"(has(a)", 8, ") is expected"},
		{"has(a))", 7, "&& or ||"},
		{"has()", 5, "a label is expected"},
		{"has (a)", 5, "an operator"},
		{"has(a b)", 7, ") is expected"},
		{"all(x)", 5, ") is expected"},
		{"all ()", 5, "an operator"},
		{"global(", 8, ") is expected"},
		{"rack == 'r2", 9, "has no end"},
		{`rack == "r2'`, 9, "has no end"},
		{`rack in "r2"`, 9, "{ is expected"},
		{`rack in {"r1" "r2"}`, 15, ", or } is expected"},
		{`rack in {,}`, 10, "a string in quotes"},
		{`rack in {"a",,}`, 14, "a string in quotes"},
		{`rack in {"a"`, 13, ", or } is expected"},
		{`rack in {`, 10, "a string in quotes"},
		{`rack in {r1}`, 10, "a string in quotes"},
		{`rack not "x"`, 10, `"in" is expected`},
		{`rack starts "x"`, 13, `"with" is expected`},
		{"has(a)\n", 7, "&& or ||"},
		{"\nhas(a)", 1, "a label is expected"},
		{"has(a) &&\r has(b)", 10, "a label is expected"},
		{`rack ! = "x"`, 6, "an operator"},
		{`räck == "x"`, 2, "an operator"},
		{strings.Repeat("a", 513) + ` == "x"`, 1, "at most 512"},
		{strings.Repeat("(", 1e6), 258, "more than 256 parentheses"},
	} {
		name := tc.text[:min(len(tc.text), 30)]
		_, err := Parse(tc.text)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%q: got %v, want an error", name, err)
			continue
		}
		if e.Position != tc.position || !strings.Contains(e.Reason, tc.reason) {
			t.Errorf("%q: got position %d, %q; want %d, %q", name, e.Position, e.Reason,
				tc.position, tc.reason)
		}
	}
	_, err := Parse("rack == r2")
	if want := `selector "rack == r2", position 9: a string in quotes is expected`; err == nil ||
		err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if _, err := Parse(strings.Repeat("a", 512) + ` == "x" && ` + strings.Repeat("(", 256) +
		"has(a)" + strings.Repeat(")", 256)); err != nil {
		t.Errorf("at the bounds: %v", err)
	}
}

// drawn is a selector as the property test draws it: how it may be written, and, without any
// parsing, when it holds.
type drawn struct {
	text  string
	holds func(map[string]string) bool
}

// anyDrawn draws a selector with spaces, quotes and parentheses where they may stand. loose says
// that the text need not be safe as an operand.
func anyDrawn(t *rapid.T, depth int, loose bool) drawn {
	blank := func() string {
		return rapid.SampledFrom([]string{"", " ", "\t", "  "}).Draw(t, "blank")
	}
	label := rapid.SampledFrom([]string{"a", "b", "in", "has", "x.y/z_-1"}).Draw(t, "label")
	value := rapid.SampledFrom([]string{"", "1", "12", `1"`, "'2", "in {"})
	text := func(v string) string {
		if strings.Contains(v, `"`) || !strings.Contains(v, "'") && rapid.Bool().Draw(t, "single") {
			return "'" + v + "'"
		}
		return `"` + v + `"`
	}
	kind := rapid.IntRange(0, 11).Draw(t, "kind")
	if depth == 0 {
		kind %= 8
	}
	v := value.Draw(t, "value")
	of := func(op string, f func(have string, ok bool) bool) drawn {
		return drawn{label + " " + blank() + op + blank() + text(v),
			func(l map[string]string) bool {
				have, ok := l[label]
				return f(have, ok)
			}}
	}
	switch kind {
	case 0:
		return of("==", func(have string, ok bool) bool { return ok && have == v })
	case 1:
		return of("!=", func(have string, ok bool) bool { return !(ok && have == v) })
	case 2:
		return of("contains", func(have string, ok bool) bool {
			return ok && strings.Replace(have, v, "#", 1) != have
		})
	case 3:
		return of("starts"+blank()+"with", func(have string, ok bool) bool {
			return ok && len(have) >= len(v) && have[:len(v)] == v
		})
	case 4:
		return of("ends"+blank()+"with", func(have string, ok bool) bool {
			return ok && len(have) >= len(v) && have[len(have)-len(v):] == v
		})
	case 5:
		values := rapid.SliceOfN(value, 0, 3).Draw(t, "values")
		negated := rapid.Bool().Draw(t, "not in")
		words := []string{}
		for _, v := range values {
			words = append(words, text(v)+blank())
		}
		set := "{" + blank() + strings.Join(words, ","+blank())
		if len(words) > 0 && rapid.Bool().Draw(t, "last comma") {
			set += ","
		}
		op := " in"
		if negated {
			op = " not" + blank() + "in"
		}
		return drawn{label + op + blank() + set + blank() + "}", func(l map[string]string) bool {
			have, ok := l[label]
			found := false
			for _, v := range values {
				found = found || ok && have == v
			}
			return found != negated
		}}
	case 6:
		return drawn{"has(" + blank() + label + blank() + ")", func(l map[string]string) bool {
			_, ok := l[label]
			return ok
		}}
	case 7:
		return drawn{rapid.SampledFrom([]string{"all()", "global( )"}).Draw(t, "call"),
			func(map[string]string) bool {
				return true
			}}
	case 8:
		w := anyDrawn(t, depth-1, false)
		return drawn{"!" + blank() + w.text, func(l map[string]string) bool { return !w.holds(l) }}
	case 9:
		w := anyDrawn(t, depth-1, true)
		return drawn{"(" + blank() + w.text + blank() + ")", w.holds}
	}
	op := []string{"&&", "||"}[kind-10]
	// What stands beside && is safe; beside || an && may stand without parentheses, which is drawn
	// by the next level only inside them.
	x, y := anyDrawn(t, depth-1, false), anyDrawn(t, depth-1, false)
	w := drawn{x.text + blank() + op + blank() + y.text, func(l map[string]string) bool {
		if op == "&&" {
			return x.holds(l) && y.holds(l)
		}
		return x.holds(l) || y.holds(l)
	}}
	if op == "&&" && rapid.Bool().Draw(t, "or behind") {
		z, and := anyDrawn(t, depth-1, false), w.holds
		w = drawn{w.text + " || " + z.text, func(l map[string]string) bool {
			return and(l) || z.holds(l)
		}}
	}
	if !loose {
		w.text = "(" + w.text + ")"
	}
	return w
}

var anyLabels = rapid.MapOf(rapid.SampledFrom([]string{"a", "b", "in", "has", "x.y/z_-1"}),
	rapid.SampledFrom([]string{"", "1", "12", `1"`, "'2", "21", "in {"}))

// TestMeaning: what is parsed from a text means what its author meant, and what is printed from it
// is the same selector.
func TestMeaning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := anyDrawn(t, 4, true)
		s, err := Parse(w.text)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(s.String())
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("%s\nprinted  %s\nread as  %s, %v", w.text, s, again, err)
		}
		for range 5 {
			labels := anyLabels.Draw(t, "labels")
			if got, want := s.Matches(labels), w.holds(labels); got != want {
				t.Fatalf("%s\nread as %s\nlabels %v: got %v, want %v", w.text, s, labels, got, want)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"", "all()", `a == "1"`, `!a in {"1",'2',} && (has(b) || !!c startswith "x")`, "((",
		`a in {`, "has( a )", "a notin {}", `a == "`, "\x00", `global() || a ends with ''`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Position < 1 || e.Position > len(text)+1 {
				t.Fatalf("%q: error %#v", text, err)
			}
			return
		}
		again, err := Parse(s.String())
		if err != nil || again.String() != s.String() {
			t.Fatalf("%q is printed %q, and that %q, %v", text, s, again, err)
		}
		for _, labels := range []map[string]string{nil, {"a": "1"}, {"a": "2", "b": ""}} {
			if s.Matches(labels) != again.Matches(labels) {
				t.Fatalf("%q and its printed form %q differ for %v", text, s, labels)
			}
		}
	})
}

func ExampleParse() {
	s, err := Parse(`rack in {"r2", "r1"} && !has(drain)`)
	fmt.Println(s, err, s.Matches(map[string]string{"rack": "r1"}))
	// Output: rack in {"r1", "r2"} && !has(drain) <nil> true
}
