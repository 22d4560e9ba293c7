// Package selector parses Calico's selectors, such as `rack in {"r1","r2"} && !has(drain)`, and
// matches them against labels. Its caller decides what an absent selector means.
//
//	expr    := term { "||" term }            term := factor { "&&" factor }
//	factor  := { "!" } primary
//	primary := "(" expr ")" | "has(" label ")" | "all()" | "global()"
//	         | label "==" str | label "!=" str | label "in" set | label "not in" set
//	         | label "contains" str | label "starts with" str | label "ends with" str
//	set     := "{" [ str { "," str } [ "," ] ] "}"        str := '…' or "…"
//
// The language is that of libcalico-go lib/selector; its odd cases are kept, see parse.go.
package selector

import (
	"iter"
	"slices"
	"strings"
)

// Selector is a parsed, immutable expression. The zero Selector matches everything.
type Selector struct {
	root   expr
	labels []string // that it names
}

// Labels are those that the selector asks for, as often as it does.
func (s Selector) Labels() iter.Seq[string] { return slices.Values(s.labels) }

// Names reports whether a comparison in the selector is with this label.
func (s Selector) Names(label string) bool { return slices.Contains(s.labels, label) }

// Matches reports whether the selector matches an object with these labels, which may be nil.
func (s Selector) Matches(labels map[string]string) bool {
	return s.root == nil || s.root.matches(labels)
}

// expr is a node of the expression tree.
type expr interface {
	matches(labels map[string]string) bool
}

type (
	anyOf []expr // at least two
	allOf []expr // at least two
	not   struct{ of expr }
	has   struct{ label string }
	every struct{} // all() and global()
	// compare compares a label with a string.
	compare struct {
		label string
		op    operator
		value string
	}
	// among tests a label against a set of values, sorted and unique.
	among struct {
		label  string
		absent bool // "not in"
		values []string
	}
)

type operator string

const (
	equal      operator = "=="
	notEqual   operator = "!="
	contains   operator = "contains"
	startsWith operator = "starts with"
	endsWith   operator = "ends with"
)

func (x anyOf) matches(labels map[string]string) bool {
	return slices.ContainsFunc(x, func(e expr) bool { return e.matches(labels) })
}

func (x allOf) matches(labels map[string]string) bool {
	return !slices.ContainsFunc(x, func(e expr) bool { return !e.matches(labels) })
}

func (x not) matches(labels map[string]string) bool { return !x.of.matches(labels) }

func (x has) matches(labels map[string]string) bool {
	_, ok := labels[x.label]
	return ok
}

func (every) matches(map[string]string) bool { return true }

// An absent label differs from every value: "!=" and "not in" hold, all other comparisons fail.
func (x compare) matches(labels map[string]string) bool {
	v, ok := labels[x.label]
	switch x.op {
	case equal:
		return ok && v == x.value
	case notEqual:
		return !ok || v != x.value
	case contains:
		return ok && strings.Contains(v, x.value)
	case startsWith:
		return ok && strings.HasPrefix(v, x.value)
	case endsWith:
		return ok && strings.HasSuffix(v, x.value)
	}
	panic("selector: unknown operator " + string(x.op))
}

func (x among) matches(labels map[string]string) bool {
	v, ok := labels[x.label]
	_, found := slices.BinarySearch(x.values, v)
	return (ok && found) != x.absent
}
