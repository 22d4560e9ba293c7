package support

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Redacted stands where a secret was.
const Redacted = "(redacted)"

const (
	// leastSecret is the shortest text that is searched for: a shorter one is in many words.
	leastSecret = 4
	// leastEncoded is the shortest of which enough is left in base64.
	leastEncoded = 6
	// longestLine is the longest that is kept. It bounds the memory, and a secret that lies across
	// two reads is found.
	longestLine = 1 << 20
)

// Secrets are texts that must be in no archive, in plain, in base64, or quoted.
type Secrets struct {
	forms *strings.Replacer
	// Short counts those that are too short to be searched for.
	Short int
}

// NewSecrets prepares the search. Of a secret of several lines, such as a key, each is one.
func NewSecrets(all []string) *Secrets {
	s := &Secrets{}
	forms := map[string]bool{}
	add := func(all []string) {
		for _, f := range all {
			forms[f] = true
		}
	}
	for _, secret := range all {
		secret = strings.TrimSpace(secret)
		if len(secret) < leastSecret {
			if secret != "" {
				s.Short++
			}
			continue
		}
		add(encoded(secret)) // as a whole: kubeconfigs have keys so
		for line := range strings.Lines(secret) {
			line = strings.TrimSpace(line)
			if len(line) >= leastSecret && !strings.HasPrefix(line, "-----") {
				add(quoted(line))
				add(encoded(line))
			}
		}
	}
	// Of two forms that begin at one place the first in the list counts.
	var pairs []string
	for _, f := range slices.SortedFunc(maps.Keys(forms), func(a, b string) int {
		return len(b) - len(a)
	}) {
		pairs = append(pairs, f, Redacted)
	}
	s.forms = strings.NewReplacer(pairs...)
	return s
}

// quoted are the forms in which a text stands as it is, or quoted by URLs, JSON, logs and Go, the
// last three also one in the other: a log quotes errors that quote.
func quoted(s string) []string {
	all := []string{s, url.QueryEscape(s), url.PathEscape(s),
		strings.TrimPrefix(url.UserPassword("", s).String(), ":")}
	for _, once := range inQuotes(s) {
		all = append(append(all, once), inQuotes(once)...)
	}
	return all
}

// inQuotes are the forms of a text between quotes: in JSON, in a log in JSON, and in Go.
func inQuotes(s string) (all []string) {
	inJSON, _ := json.Marshal(s) // every string can be
	var inLog strings.Builder
	e := json.NewEncoder(&inLog)
	e.SetEscapeHTML(false)
	_ = e.Encode(s)
	for _, f := range []string{string(inJSON), strings.TrimSpace(inLog.String()),
		strconv.Quote(s)} {
		all = append(all, f[1:len(f)-1])
	}
	return all
}

// encoded are the forms of a text in base64, wherever it stands in what is encoded: without the
// characters at its ends, which depend on what is beside it.
func encoded(s string) (all []string) {
	if len(s) < leastEncoded {
		return nil
	}
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			text := e.EncodeToString(append(make([]byte, before), s...))
			all = append(all, text[(before*8+5)/6:(before+len(s))*8/6])
		}
	}
	return all
}

// What gives away a secret that nobody knows of.
var (
	// A password in a URL may have / and @, though it should not.
	inURL  = regexp.MustCompile(`://[^\s"']*:[^\s"']*@`)
	header = regexp.MustCompile(`(?i)\b(authorization\W{1,5}(?:bearer|basic)) [^\s"'\]]+`)
	// keyInLine is a whole key, as in JSON.
	keyInLine = regexp.MustCompile(
		`-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`)
)

// redact returns a line, or a text of one, without secrets.
func (s *Secrets) redact(line string) string {
	line = s.forms.Replace(line)
	if strings.Contains(line, "://") {
		line = inURL.ReplaceAllString(line, "://"+Redacted+"@")
	}
	line = header.ReplaceAllString(line, "$1 "+Redacted)
	if strings.Contains(line, "-----BEGIN") {
		line = keyInLine.ReplaceAllString(line, Redacted)
	}
	return line
}

// cleaner takes the secrets out of what is written, line by line. Close it for the last one.
type cleaner struct {
	w       io.Writer
	secrets *Secrets
	line    []byte // the last one, which has not ended
	tooLong bool   // it has more than is kept
	inKey   bool   // lines up to END are of a private key
}

func (c *cleaner) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		part, after, whole := bytes.Cut(rest, []byte{'\n'})
		if rest = after; len(c.line)+len(part) > longestLine {
			c.tooLong = true
		} else {
			c.line = append(c.line, part...)
		}
		if whole {
			if err := c.end("\n"); err != nil {
				return 0, err
			}
		}
	}
	return len(p), nil
}

// Close writes the last line, if it has no end.
func (c *cleaner) Close() error {
	if len(c.line) == 0 && !c.tooLong {
		return nil
	}
	return c.end("")
}

func (c *cleaner) end(newline string) error {
	line, tooLong := string(c.line), c.tooLong
	c.line, c.tooLong = c.line[:0], false
	if tooLong {
		_, err := fmt.Fprintf(c.w, "(a line of more than %d bytes is left out)%s", longestLine,
			newline)
		return err
	}
	if c.inKey {
		c.inKey = !strings.Contains(line, "-----END")
		return nil
	}
	c.inKey = strings.Contains(line, "PRIVATE KEY-----") && !strings.Contains(line, "-----END")
	_, err := io.WriteString(c.w, c.secrets.redact(line)+newline)
	return err
}
