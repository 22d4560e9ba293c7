package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	mit = `Permission is hereby granted, free of charge, to any person obtaining a
		copy of this software … The above copyright notice and this permission notice shall be
		included in all copies or substantial portions of the Software.`
	bsd2 = `Redistribution and use in source and binary forms, with or without modification, are
		permitted …
		* Redistributions in binary form must reproduce the above copyright notice …`
	bsd3 = bsd2 +
		` Neither the name of X may be used to endorse or promote products derived from ` +
		`this software …`
	byApache = `Licensed under the Apache License, Version 2.0 (the "License"); you may not ` +
		`use this file …`
	ownWording = `You may use this on Sundays.`
)

func TestRecognize(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"MIT": {mit, []string{"MIT"}},
		"in capitals, on one line": {
			strings.ToUpper(strings.Join(strings.Fields(mit), " ")), []string{"MIT"},
		},
		"BSD with two clauses":             {bsd2, []string{"BSD-2-Clause"}},
		"BSD with three is not two":        {bsd3, []string{"BSD-3-Clause"}},
		"parts under different ones":       {mit + "\n" + byApache, []string{"Apache-2.0", "MIT"}},
		"one that nobody knows":            {ownWording, nil},
		"a notice that only names license": {"MIT License, see https://example.net", nil},
	} {
		if got := recognize([]byte(tt.text)); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestLicensesOfAModule(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		want  string // an identifier, or an expression; empty: an error
	}{
		"one file": {
			map[string]string{"LICENSE": mit, "README": bsd2}, "MIT",
		},
		"another spelling": {
			map[string]string{"licence.md": bsd3}, "BSD-3-Clause",
		},
		"two files": {
			map[string]string{"LICENSE": byApache, "LICENSE.libyaml": mit}, "Apache-2.0 AND MIT",
		},
		"none": {map[string]string{"README": mit}, ""},
		"one that is known, one that is not": {
			map[string]string{"LICENSE": mit, "LICENSE.extra": ownWording}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range tt.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := licensesIn(dir)
			if (err != nil) != (tt.want == "") {
				t.Fatalf("%v, %v", got, err)
			}
			if err != nil {
				return
			}
			text := got[0].Expression
			if got[0].License != nil {
				text += got[0].License.ID
			}
			if len(got) != 1 || text != tt.want {
				t.Errorf("%+v, want %s", got, tt.want)
			}
		})
	}
}

// TestLicensesAreFound: go's own, a module's and ours. `make release` asks for all of them.
func TestLicensesAreFound(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	const gobgp = "github.com/osrg/gobgp/v3"
	version, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", gobgp).Output()
	if err != nil {
		t.Fatal(err)
	}
	b := bill{Components: []component{
		part("library", goLibrary, "1"), part("library", gobgp, strings.TrimSpace(string(version))),
	}}
	if err := addLicenses(&b); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"BSD-3-Clause", "Apache-2.0"} {
		l := b.Components[i].Licenses
		if len(l) != 1 || l[0].License == nil || l[0].License.ID != want {
			t.Errorf("%s: %+v, want %s", b.Components[i].Name, l, want)
		}
	}
	if l := b.Metadata.Component.Licenses; len(l) != 1 || l[0].License == nil ||
		l[0].License.ID != "Apache-2.0" {
		t.Errorf("our own: %+v", l)
	}
}
