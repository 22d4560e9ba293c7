package selector

import (
	"fmt"
	"strings"
)

// String returns a canonical text. Parsing it gives an equal Selector.
func (s Selector) String() string {
	if s.root == nil {
		return ""
	}
	var b strings.Builder
	write(&b, s.root, looseOr)
	return b.String()
}

// binding orders the operators by precedence.
type binding int

const (
	looseOr binding = iota
	looseAnd
	tight
)

// write adds parentheses if e binds looser than least.
func write(b *strings.Builder, e expr, least binding) {
	switch x := e.(type) {
	case anyOf:
		printAll(b, x, " || ", looseOr, least)
	case allOf:
		printAll(b, x, " && ", looseAnd, least)
	case not:
		b.WriteByte('!')
		write(b, x.of, tight)
	case has:
		b.WriteString("has(" + x.label + ")")
	case every:
		b.WriteString("all()")
	case compare:
		b.WriteString(x.label + " " + string(x.op) + " " + quote(x.value))
	case among:
		operator := " in {"
		if x.absent {
			operator = " not in {"
		}
		values := make([]string, len(x.values))
		for i, v := range x.values {
			values[i] = quote(v)
		}
		b.WriteString(x.label + operator + strings.Join(values, ", ") + "}")
	default:
		panic(fmt.Sprintf("selector: %T has no text", e))
	}
}

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
		write(b, e, own+1)
	}
}

// quote chooses the quote that s does not contain. There are no escapes, so there always is one.
func quote(s string) string {
	if strings.Contains(s, `"`) {
		return "'" + s + "'"
	}
	return `"` + s + `"`
}
