package patches

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The script and this package compute the same level, or every binary would call itself outdated.
func TestDigestIsThatOfTheScript(t *testing.T) {
	file := filepath.Join("..", "..", "build", "run-make-first", "gobgp", "pkg",
		"patchlevel", "patchlevel.go")
	level, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(level), `"`+Digest()+`"`) {
		t.Errorf("the digest is %s; the folder that make fills has\n%s", Digest(), level)
	}
}

// go.mod and upstream.mod name the same GoBGP.
func TestOneVersion(t *testing.T) {
	ours, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.ReadFile("upstream.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`osrg/gobgp/v3 (v3\S+)`)
	a, b := version.FindSubmatch(ours), version.FindSubmatch(theirs)
	if a == nil || b == nil || string(a[1]) != string(b[1]) {
		t.Errorf("go.mod has %s, upstream.mod %s", a, b)
	}
}

// Each patch says what it is for and which of our tests fails without it; that test exists.
func TestPatchesNameTheirTests(t *testing.T) {
	names, err := filepath.Glob("*.patch")
	if err != nil || len(names) == 0 {
		t.Fatalf("no patches: %v", err)
	}
	test := regexp.MustCompile(`\b(?:Test|Fuzz)\w+`)
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut(string(text), "\ndiff --git ")
		for _, field := range []string{"\nUpstream: ", "\nTest: "} {
			if !strings.Contains(head, field) {
				t.Errorf("%s has no line %q", name, strings.TrimSpace(field))
			}
		}
		_, tests, _ := strings.Cut(head, "\nTest: ")
		all := test.FindAllString(tests, -1)
		if len(all) == 0 {
			t.Errorf("%s names no test", name)
		}
		for _, f := range all {
			cmd := exec.Command("grep", "-rqE", "^func "+f+`\(`, "--include=*_test.go",
				"bgp", "cmd", "internal", "third_party")
			cmd.Dir = filepath.Join("..", "..")
			if err := cmd.Run(); err != nil {
				t.Errorf("%s: there is no test %s", name, f)
			}
		}
	}
}
