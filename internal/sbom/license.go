package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// known are the licenses that are recognized, by SPDX identifier: each by words that its copies
// have and others have not. The whole text is not compared: whoever adds a module reads its
// license.
var known = []struct {
	id  string
	has []string
	not string
}{
	{
		id:  "Apache-2.0",
		has: []string{"apache license version 2 0 january 2004", "grant of patent license"},
	},
	// of a part, by reference
	{id: "Apache-2.0", has: []string{"licensed under the apache license version 2 0"}},
	{
		id: "BSD-2-Clause",
		has: []string{"redistribution and use in source and binary forms",
			"binary form must reproduce"},
		not: "endorse or promote",
	},
	{
		id: "BSD-3-Clause",
		has: []string{"redistribution and use in source and binary forms",
			"binary form must reproduce", "endorse or promote"},
	},
	{
		id: "ISC",
		has: []string{
			"permission to use copy modify and or distribute this software for any purpose with " +
				"or without fee is hereby granted",
		},
	},
	{
		id: "MIT",
		has: []string{"permission is hereby granted free of charge to any person obtaining a copy",
			"permission notice shall be included in all copies"},
	},
	{
		id:  "MPL-2.0",
		has: []string{"mozilla public license version 2 0", "source code form license notice"},
	},
}

var notWords = regexp.MustCompile(`[^a-z0-9]+`)

// recognize returns the identifiers of all licenses that stand in text, sorted.
func recognize(text []byte) (ids []string) {
	words := notWords.ReplaceAllString(strings.ToLower(string(text)), " ")
	for _, l := range known {
		missing := func(s string) bool { return !strings.Contains(words, s) }
		if !slices.ContainsFunc(l.has, missing) && (l.not == "" || missing(l.not)) {
			ids = append(ids, l.id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// license is one choice of CycloneDX' licenses: the identifier of one license, or an expression
// where a module has several.
type license struct {
	License    *identifier `json:"license,omitempty"`
	Expression string      `json:"expression,omitempty"`
}

type identifier struct {
	ID string `json:"id"`
}

// licensesIn reads the licenses of a module from the files of that name in its root. That none is
// found is an error: then someone must look.
func licensesIn(dir string) ([]license, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, f := range files {
		name := strings.ToUpper(f.Name())
		if f.IsDir() ||
			!strings.HasPrefix(name, "LICENSE") && !strings.HasPrefix(name, "LICENCE") &&
				!strings.HasPrefix(name, "COPYING") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		found := recognize(text)
		if len(found) == 0 {
			return nil, fmt.Errorf("%s has a license that is not known here",
				filepath.Join(dir, f.Name()))
		}
		ids = append(ids, found...)
	}
	slices.Sort(ids)
	switch ids = slices.Compact(ids); len(ids) {
	case 0:
		return nil, fmt.Errorf("%s has no license", dir)
	case 1:
		return []license{{License: &identifier{ids[0]}}}, nil
	}
	return []license{{Expression: strings.Join(ids, " AND ")}}, nil
}

// addLicenses fills in the licenses of everything in b. It runs in the root of the main module, and
// asks go where the others are.
func addLicenses(b *bill) error {
	var versions []string
	for _, c := range b.Components {
		if c.Name != goLibrary {
			versions = append(versions, c.Name+"@"+c.Version)
		}
	}
	dirs, err := moduleDirs(versions)
	if err != nil {
		return err
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	of := func(c *component, dir string) (err error) {
		c.Licenses, err = licensesIn(dir)
		return err
	}
	errs := []error{of(&b.Metadata.Component, ".")}
	for i := range b.Components {
		c := &b.Components[i]
		if c.Name == goLibrary {
			errs = append(errs, of(c, strings.TrimSpace(string(root))))
		} else {
			errs = append(errs, of(c, dirs[c.Name+"@"+c.Version]))
		}
	}
	return errors.Join(errs...)
}

// moduleDirs finds modules, named with their versions, in go's cache; what is not there is
// downloaded.
func moduleDirs(versions []string) (map[string]string, error) {
	dirs := map[string]string{}
	if len(versions) == 0 {
		return dirs, nil
	}
	cmd := exec.Command("go", append([]string{"mod", "download", "-json"}, versions...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go mod download: %w", err)
	}
	for answers := json.NewDecoder(strings.NewReader(string(out))); answers.More(); {
		var m struct{ Path, Version, Dir string }
		if err := answers.Decode(&m); err != nil {
			return nil, fmt.Errorf("go mod download: %w", err)
		}
		dirs[m.Path+"@"+m.Version] = m.Dir
	}
	return dirs, nil
}
