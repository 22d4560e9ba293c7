package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// variable finds what containerlab's expansion of environment variables (github.com/hellt/envsubst)
// does something about, and what begins like it: groups are the name in $NAME, the name in
// ${NAME…}, the operator and the word behind it.
var variable = regexp.MustCompile(
	`\$\$|\$\{?[0-9]|\$([A-Za-z_]\w*)|` +
		`\$\{([A-Za-z_]\w*)(?:(:?[-=+])(\$[A-Za-z_]\w*|[^}$\n:=+-][^}$\n]*)?)?\}|\$\{`)

// lookup is os.LookupEnv of a topology file.
type lookup func(name string) (value string, set bool)

// expand puts environment variables in, as containerlab does: in the whole text, comments too. What
// has no value stays, for the shell that may come later.
func expand(text []byte, env lookup) ([]byte, error) {
	var out strings.Builder
	var errs []error
	next := 0
	for _, at := range variable.FindAllSubmatchIndex(text, -1) {
		group := func(i int) string {
			if at[2*i] < 0 {
				return ""
			}
			return string(text[at[2*i]:at[2*i+1]])
		}
		out.Write(text[next:at[0]])
		next = at[1]
		switch all := group(0); {
		case all == "$$":
			out.WriteByte('$')
		case all == "${":
			line := strings.Count(string(text[:at[0]]), "\n") + 1
			errs = append(errs,
				fmt.Errorf("line %d: ${ is not followed by NAME} or NAME, one of - :- = := + "+
					":+, a word and }", line))
		case group(1) == "_" || group(1) == "" && group(2) == "":
			out.WriteString(all)
		default:
			out.WriteString(env.replace(group(1)+group(2), group(3), group(4)))
		}
	}
	out.Write(text[next:])
	return []byte(out.String()), errors.Join(errs...)
}

// replace is what stands for a variable with an operator and a word. Without a word an operator
// means nothing, and a colon in front of plus neither.
func (env lookup) replace(name, operator, word string) string {
	value, set := env(name)
	use := false // the word
	switch operator {
	case "-", "=":
		use = !set
	case ":-", ":=":
		use = value == ""
	case "+", ":+":
		if use = set; !set && word != "" {
			return ""
		}
	}
	if !use || word == "" {
		return env.value(name)
	}
	if other, ok := strings.CutPrefix(word, "$"); ok {
		return env.value(other)
	}
	return word
}

func (env lookup) value(name string) string {
	if value, _ := env(name); value != "" {
		return value
	}
	return "$" + name
}
