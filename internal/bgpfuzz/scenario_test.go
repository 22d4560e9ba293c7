package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// Scenarios are kept as text: what comes back must be what was written.
func TestScenariosSurviveTheirText(t *testing.T) {
	for i := range 3000 {
		want := generate(1, i)
		got, err := parse(want.name, want.String())
		if err != nil {
			t.Fatalf("number %d: %v", i, err)
		}
		if !reflect.DeepEqual(got.steps, want.steps) {
			t.Fatalf("number %d, read again:\n%swas\n%s", i, got, want)
		}
	}
}

func TestSeedDecides(t *testing.T) {
	for i := range 500 {
		if a, b := generate(7, i), generate(7, i); a.String() != b.String() {
			t.Fatalf("number %d is\n%sand then\n%s", i, a, b)
		}
	}
	if generate(7, 0).String() == generate(8, 0).String() {
		t.Error("two seeds have the same first scenario")
	}
}

// Every kind of scenario comes up in a run of CI.
func TestEveryPlotIsWritten(t *testing.T) {
	seen := map[string]bool{}
	for i := range 1000 {
		_, plot, _ := strings.Cut(generate(1, i).name, fmt.Sprintf("number %d, ", i))
		seen[plot] = true
	}
	for _, p := range plots {
		if !seen[p.name] {
			t.Errorf("no scenario of kind %q", p.name)
		}
	}
}

func TestCorpusIsReadable(t *testing.T) {
	all, err := readCorpus(nil, "testdata/corpus")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if len(s.about) == 0 || len(s.steps) == 0 {
			t.Errorf("%s says nothing or does nothing", s.name)
		}
	}
}

func TestParseNamesTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"a":               `x:1: "a": want a connection and a verb`,
		"# fine\na dance": `x:2: dance takes one word`,
		"a dance wild":    `x:1: no verb "dance"`,
		"a dial i5.1":     `x:1: there is no speaker "i5.1"`,
		"a mute now":      `x:1: mute takes nothing`,
		"a await godot":   `x:1: no message is called "godot"`,
		"a send 3x f":     `x:1: encoding/hex: odd length hex string`,
		"a send ff*x":     `x:1: ff*x: want a count`,
	} {
		_, err := parse("x", text)
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestBytesOfAStep(t *testing.T) {
	s, err := parseStep(`a send 2x ff*3 00 "GET /\r\n" 01`)
	if err != nil {
		t.Fatal(err)
	}
	if want := "\xff\xff\xff\x00GET /\r\n\x01"; string(s.bytes) != want || s.times != 2 {
		t.Errorf("%d times %q, want %q", s.times, s.bytes, want)
	}
}

// Shrinking leaves out all that is not needed, and nothing else.
func TestShrink(t *testing.T) {
	var all []int
	for i := range 40 {
		all = append(all, i)
	}
	tried := 0
	got := shrink(all, func(list []int) bool {
		tried++
		return slices.Contains(list, 3) && slices.Contains(list, 29)
	})
	if !slices.Equal(got, []int{3, 29}) || tried > 60 {
		t.Errorf("%v after %d tries", got, tried)
	}
}

func TestBudget(t *testing.T) {
	var b budget
	if err := b.Set("20000x"); err != nil || b.count != 20000 || b.String() != "20000x" {
		t.Errorf("%+v %v", b, err)
	}
	if err := b.Set("1h"); err != nil || b.time != time.Hour || b.count != 0 {
		t.Errorf("%+v %v", b, err)
	}
	if err := b.Set("soon"); err == nil {
		t.Error("no error for nonsense")
	}
}

// Lines about prefixes of attackers are told from those of the honest.
func TestWild(t *testing.T) {
	for line, want := range map[string]bool{
		"10.1.0.0/26 via 10.0.0.11": false, "10.1.255.255/32": false, "fd01::1:0/122 x": false,
		"10.66.0.0/24 via": true, "0.0.0.0/0 via": true, "10.0.0.0/8 via": true, "fd66::/48": true,
	} {
		if got := wild(line); got != want {
			t.Errorf("wild(%q) = %t", line, got)
		}
	}
}

func TestDifference(t *testing.T) {
	if err := difference([]string{"a", "b"}, []string{"a", "b"}); err != nil {
		t.Error(err)
	}
	for _, got := range [][]string{{"a"}, {"a", "b", "c"}, {"a", "c"}, {"a", "b", "b"}, nil} {
		if err := difference([]string{"a", "b"}, got); err == nil {
			t.Errorf("no difference to %v", got)
		}
	}
}
