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
	"slices"
	"strings"
)

// Selector is a parsed, immutable expression. The zero Selector matches everything.
type Selector struct{ root expr }

// Matches reports whether the selector matches an object with these labels, which may be nil.
func (s Selector) Matches(labels map[string]string) bool {
	return s.root == nil || s.root.matches(labels)
}

// String returns a canonical text. Parsing it gives an equal Selector.
func (s Selector) String() string {
	if s.root == nil {
		return ""
	}
	var b strings.Builder
	s.root.print(&b, looseOr)
	return b.String()
}

// expr is a node of the expression tree. print adds parentheses if it binds looser than least.
type expr interface {
	matches(labels map[string]string) bool
	print(b *strings.Builder, least binding)
}

// binding orders the operators by precedence.
type binding int

const (
	looseOr binding = iota
	looseAnd
	tight
)

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

func (x anyOf) print(b *strings.Builder, least binding) { printAll(b, x, " || ", looseOr, least) }
func (x allOf) print(b *strings.Builder, least binding) { printAll(b, x, " && ", looseAnd, least) }

// printAll parenthesizes operands that bind no tighter than own: "a || (b || c)" and "a || b || c"
// are different trees.
func printAll(b *strings.Builder, of []expr, operator string, own, least binding) {
	if least > own {
		b.WriteByte('(')
		defer b.WriteByte(')')
	}
	for i, e := range of {
		if i > 0 {
			b.WriteString(operator)
		}
		e.print(b, own+1)
	}
}

func (x not) print(b *strings.Builder, _ binding) {
	b.WriteByte('!')
	x.of.print(b, tight)
}

func (x has) print(b *strings.Builder, _ binding) { b.WriteString("has(" + x.label + ")") }
func (every) print(b *strings.Builder, _ binding) { b.WriteString("all()") }

func (x compare) print(b *strings.Builder, _ binding) {
	b.WriteString(x.label + " " + string(x.op) + " " + quote(x.value))
}

func (x among) print(b *strings.Builder, _ binding) {
	b.WriteString(x.label)
	if x.absent {
		b.WriteString(" not")
	}
	b.WriteString(" in {")
	for i, v := range x.values {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quote(v))
	}
	b.WriteByte('}')
}

// quote chooses the quote that s does not contain. There are no escapes, so there always is one.
func quote(s string) string {
	if strings.Contains(s, `"`) {
		return "'" + s + "'"
	}
	return `"` + s + `"`
}
