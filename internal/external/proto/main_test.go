package main

import (
	"bytes"
	"os"
	"testing"
)

func TestGeneratedCodeIsCurrent(t *testing.T) {
	files, err := generate(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 2 {
		t.Errorf("only %d files are generated", len(files))
	}
	for name, want := range files {
		if have, err := os.ReadFile(name); err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s is not what its .proto gives: run make proto (%v)", name, err)
		}
	}
}
