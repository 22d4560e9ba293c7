package main

import (
	"os"
	"path/filepath"
	"testing"
)

// What has the name of a secret may be none.
func TestIsHarmless(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte("planted"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for value, want := range map[string]bool{"true": true, "false": true, "9179": true, "0.5": true,
		dir: true, file: true, file + "s": false, "token": false, "planted": false, "1a": false} {
		if isHarmless(value) != want {
			t.Errorf("%s: %t", value, !want)
		}
	}
}
