package selector

import (
	"fmt"
	"slices"
	"strings"
)

// Error describes a text that is not a valid selector.
type Error struct {
	Text string
	// offset in bytes, from 1, of the unexpected character; one past the end if something is
	// missing
	Position int
	Reason   string
}

func (e *Error) Error() string {
	return fmt.Sprintf("selector %q, position %d: %s", e.Text, e.Position, e.Reason)
}

const (
	maxLabel = 512
	// maxDepth bounds nested parentheses, which use stack. Calico has no bound.
	maxDepth = 256
)

// Parse parses a selector. Empty or blank text matches everything: a caller for whom an empty field
// means "not given" checks first. Errors are of type *Error.
func Parse(text string) (Selector, error) {
	p := parser{text: text}
	p.blanks()
	if p.at == len(text) {
		return Selector{}, nil
	}
	e := p.anyOf()
	if p.failed == nil && p.at < len(text) {
		p.fail("&& or || is expected, or the end")
	}
	if p.failed != nil {
		return Selector{}, p.failed
	}
	return Selector{e, p.labels}, nil
}

// parser reads text from left to right. After the first error every method returns at once.
type parser struct {
	text   string
	at     int
	depth  int
	labels []string
	failed *Error
}

func (p *parser) fail(format string, args ...any) {
	if p.failed == nil {
		p.failed = &Error{p.text, p.at + 1, fmt.Sprintf(format, args...)}
	}
}

// blanks skips spaces and tabs. Other white space is an error everywhere.
func (p *parser) blanks() {
	for p.at < len(p.text) && (p.text[p.at] == ' ' || p.text[p.at] == '\t') {
		p.at++
	}
}

// take skips token and the blanks after it, if the text continues with it.
func (p *parser) take(token string) bool {
	if p.failed != nil || !strings.HasPrefix(p.text[p.at:], token) {
		return false
	}
	p.at += len(token)
	p.blanks()
	return true
}

func (p *parser) anyOf() expr {
	of := []expr{p.allOf()}
	for p.take("||") {
		of = append(of, p.allOf())
	}
	if len(of) == 1 {
		return of[0]
	}
	return anyOf(of)
}

func (p *parser) allOf() expr {
	of := []expr{p.factor()}
	for p.take("&&") {
		of = append(of, p.factor())
	}
	if len(of) == 1 {
		return of[0]
	}
	return allOf(of)
}

// factor reads a primary and its "!", each of which negates the whole comparison that follows.
func (p *parser) factor() expr {
	negated := false
	for p.take("!") {
		negated = !negated
	}
	e := p.primary()
	if !negated {
		return e
	}
	if inner, ok := e.(not); ok { // it stood in parentheses
		return inner.of
	}
	return not{e}
}

// primary tries calls first. They are one word up to "(": "has (x)" is the label "has" and an
// error, while `has == "x"` compares a label of that name.
func (p *parser) primary() expr {
	switch {
	case p.take("("):
		p.depth++
		if p.depth > maxDepth {
			p.fail("more than %d parentheses inside each other", maxDepth)
			return nil
		}
		e := p.anyOf()
		p.depth--
		p.closing()
		return e
	case p.take("has("):
		e := has{p.label()}
		p.closing()
		return e
	case p.take("all("), p.take("global("):
		p.closing()
		return every{}
	}
	return p.comparison()
}

func (p *parser) closing() {
	if !p.take(")") {
		p.fail(") is expected")
	}
}

func (p *parser) comparison() expr {
	label := p.label()
	for _, op := range []operator{equal, notEqual, contains} {
		if p.take(string(op)) {
			return compare{label, op, p.str()}
		}
	}
	// Calico accepts these operators without the blank: "startswith", "notin".
	switch {
	case p.take("starts"):
		p.word("with")
		return compare{label, startsWith, p.str()}
	case p.take("ends"):
		p.word("with")
		return compare{label, endsWith, p.str()}
	case p.take("not"):
		p.word("in")
		return among{label, true, p.set()}
	case p.take("in"):
		return among{label, false, p.set()}
	}
	p.fail("an operator is expected behind a label: ==, !=, in, not in, contains, starts " +
		"with, ends with")
	return nil
}

func (p *parser) word(w string) {
	if !p.take(w) {
		p.fail("%q is expected", w)
	}
}

func (p *parser) label() string {
	start := p.at
	end := start
	for end < len(p.text) && isLabel(p.text[end]) {
		end++
	}
	switch {
	case end == start:
		p.fail("a label is expected, or has(), all(), ( or !")
	case end-start > maxLabel:
		p.fail("a label has at most %d characters", maxLabel)
	}
	if p.failed != nil {
		return ""
	}
	p.at = end
	p.blanks()
	p.labels = append(p.labels, p.text[start:end])
	return p.text[start:end]
}

func isLabel(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		strings.IndexByte("_./-", c) >= 0
}

// str reads a string in single or double quotes. There are no escapes.
func (p *parser) str() string {
	if p.failed != nil {
		return ""
	}
	if p.at == len(p.text) || p.text[p.at] != '"' && p.text[p.at] != '\'' {
		p.fail("a string in quotes is expected")
		return ""
	}
	value, _, ended := strings.Cut(p.text[p.at+1:], p.text[p.at:p.at+1])
	if !ended {
		p.fail("the string that begins here has no end")
		return ""
	}
	p.at += len(value) + 2
	p.blanks()
	return value
}

// set reads a set and sorts it. A comma may follow the last string.
func (p *parser) set() []string {
	values := []string{}
	if !p.take("{") {
		p.fail("{ is expected")
	}
	for more := true; more && !p.take("}") && p.failed == nil; {
		values = append(values, p.str())
		if more = p.take(","); !more && !p.take("}") {
			p.fail(", or } is expected")
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}
