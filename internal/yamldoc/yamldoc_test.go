package yamldoc

import (
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"

	"sigs.k8s.io/yaml"
)

func utf16Of(text string, order binary.AppendByteOrder) (out []byte) {
	for _, u := range utf16.Encode([]rune("\ufeff" + text)) {
		out = order.AppendUint16(out, u)
	}
	return out
}

func TestNoDocumentIsDropped(t *testing.T) {
	for name, text := range map[string]string{
		"lines of ---":       "a: 1\n---\nb: 2\n",
		"a comment behind":   "a: 1\n--- # more\nb: 2\n",
		"content behind":     "a: 1\n--- {b: 2}\n",
		"a tag behind":       "a: 1\n--- !thing\nb: 2\n",
		"an end before":      "a: 1\n...\n---\nb: 2\n",
		"directives":         "%YAML 1.1\n---\na: 1\n...\n%YAML 1.1\n---\nb: 2\n",
		"bare CR":            "a: 1\r---\rb: 2\r",
		"CR LF":              "a: 1\r\n---\r\nb: 2\r\n",
		"empty ones between": "---\n# none\n---\na: 1\n---\n---\nb: 2\n---\n...\n",
		"byte-order mark":    "\ufeffa: 1\n---\nb: 2\n",
		"UTF-16, low first":  string(utf16Of("a: 1\n---\nb: 2\n", binary.LittleEndian)),
		"UTF-16, high first": string(utf16Of("a: 1\n---\nb: 2\n", binary.BigEndian)),
		"no line end":        "a: 1\n---\nb: 2",
	} {
		docs, err := All([]byte(text))
		if err != nil || len(docs) != 2 || string(docs[0]) != `{"a":1}` ||
			string(docs[1]) != `{"b":2}` {
			t.Errorf("%s: %s, %v", name, docs, err)
		}
		if _, err := One([]byte(text)); err == nil || !strings.Contains(err.Error(),
			"2 YAML documents") {
			t.Errorf("%s: one document: %v", name, err)
		}
	}
}

func TestWhatCannotBeReadIsAnErrorWithItsLine(t *testing.T) {
	for text, says := range map[string]string{
		// The library counts the lines before the one that it cannot read.
		"a: 1\n...\nb: 2\n":             "line 2: did not find expected <document start>",
		"a: 1\n---\nb: {\n":             "line 3: did not find expected node content",
		"a: 1\n---\nb: 2\nb: 3\n":       `line 4: key "b" already set in map`,
		"a: 1\n--- {}\nb: 2\n":          "line 2: did not find expected <document start>",
		"a\x00: 1\x00\n\x00":            "control characters are not allowed",
		"{1: a, '1': b}":                `key "1" is there twice`,
		"? [a]\n: b\n":                  "invalid map key",
		"a: .nan\n":                     "NaN",
		"\xff\xfe\x00\x00a\x00\x00\x00": "control characters",
	} {
		if docs, err := All([]byte(text)); err == nil || !strings.Contains(err.Error(), says) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %s, %v", text, docs, err)
		}
	}
}

func TestOne(t *testing.T) {
	for text, want := range map[string]string{
		"": "null", "# nothing\n---\n": "null", "a: 1\n---\n": `{"a":1}`, "[1]": "[1]",
	} {
		if got, err := One([]byte(text)); err != nil || string(got) != want {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
}

// FuzzOne: a single document means what it means to Kubernetes' tools.
func FuzzOne(f *testing.F) {
	for _, seed := range []string{
		"a: {1: x, true: y, 2.5: z}\nb: [yes, ~, 0x10, 1e3, 2001-01-01, 018446744073709551615]\n",
		"a: &x {b: 1}\nc: {<<: *x, d: !!binary aGk=}\n", "--- !t\n- |\n  text\n- >\n  folded\n",
		"'quoted\\n': \"\\u263a\"\n", "a: 18446744073709551615\nb: 1.0\n",
		"{01844674407370955: x, .inf: x, -.inf: x, .nan: x, 1e38: x}", "{11e38: x, -1e39: y}",
		"18446744073709551615: x",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := One([]byte(text))
		if err != nil {
			return
		}
		want, err := yaml.YAMLToJSONStrict([]byte(text))
		if docs, _ := All([]byte(text)); len(docs) != 1 {
			return // it reads the first alone, which may be an empty one
		}
		if strings.HasPrefix(text, "---") && err == nil && string(want) == "null" {
			return
		}
		if err != nil || string(got) != string(want) {
			t.Errorf("%q is %s; Kubernetes has %s, %v", text, got, want, err)
		}
	})
}
