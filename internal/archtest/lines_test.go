package archtest

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	maxColumns = 100 // a tab counts as four
	maxCell    = 200 // characters in a cell of a table
	maxComment = 4   // lines of a comment, but for those of packages
)

// unchecked are folders that hold nothing written by hand, or what was recorded.
var unchecked = map[string]bool{".git": true, "build": true, "out": true, "testdata": true}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// TestLinesFit covers Go, shell, YAML, Makefiles and Markdown. Tables and fenced blocks of Markdown
// may be wider: a row is one line, and a block may be recorded output.
func TestLinesFit(t *testing.T) {
	root := filepath.Join("..", "..")
	seen := 0
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		if e.IsDir() {
			if unchecked[e.Name()] {
				return filepath.SkipDir
			}
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !written(name, string(text)) {
			return err
		}
		seen++
		checkLines(t, name, string(text))
		if strings.HasSuffix(name, ".go") {
			checkComments(t, path, string(text))
		}
		return nil
	})
	if err != nil || seen < 300 {
		t.Fatalf("looked at %d files: %v", seen, err)
	}
}

// written says whether a file is one that people write in lines.
func written(name, text string) bool {
	switch filepath.Ext(name) {
	case ".go":
		return !generated.MatchString(text)
	case ".md", ".sh", ".yaml", ".yml", ".js", ".mjs", ".css":
		return true
	}
	return filepath.Base(name) == "Makefile" || strings.HasPrefix(text, "#!")
}

func checkLines(t *testing.T, name, text string) {
	markdown, fenced := filepath.Ext(name) == ".md", false
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if markdown && strings.HasPrefix(trimmed, "```") {
			fenced = !fenced
		}
		switch {
		case markdown && fenced:
		case markdown && strings.HasPrefix(trimmed, "|"):
			for _, cell := range strings.Split(trimmed, "|") {
				if n := utf8.RuneCountInString(strings.TrimSpace(cell)); n > maxCell {
					t.Errorf("%s:%d: a cell has %d characters; at most %d", name, i+1, n, maxCell)
				}
			}
		default:
			columns := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
			if columns > maxColumns {
				t.Errorf("%s:%d: %d columns; at most %d", name, i+1, columns, maxColumns)
			}
		}
	}
}

func checkComments(t *testing.T, path, text string) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, text, parser.ParseComments)
	if err != nil {
		t.Error(err)
		return
	}
	for _, c := range file.Comments {
		from, to := files.Position(c.Pos()), files.Position(c.End())
		if n := to.Line - from.Line + 1; n > maxComment && c != file.Doc {
			t.Errorf("%s: a comment has %d lines; at most %d", from, n, maxComment)
		}
	}
}
