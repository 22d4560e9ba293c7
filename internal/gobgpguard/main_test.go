package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRenameExpectsTheDecoderOnce(t *testing.T) {
	for name, text := range map[string]string{
		"missing":               "package bgp\n",
		"with other parameters": "package bgp\n\nfunc parseBody(h *BGPHeader, data []byte) (*BGPMessage, error) {\n}\n",
		"twice":                 "package bgp\n" + decoder + "}\n" + decoder + "}\n",
	} {
		if _, err := rename([]byte(text)); err == nil || !strings.Contains(err.Error(), decoderFile) {
			t.Errorf("%s: %v", name, err)
		}
	}
	got, err := rename([]byte("a" + decoder + "b"))
	if err != nil || string(got) != "a"+renamed+"b" {
		t.Errorf("%q, %v", got, err)
	}
}

// The real module, in a module of its own: made once, left alone while nothing changes, made anew when go.mod does.
func TestPrepare(t *testing.T) {
	const folder = "build/guard"
	root := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(root, name), content)
	}
	t.Chdir(root)
	t.Setenv("GOFLAGS", "") // make's names another go.mod
	prepareNow(t, folder)
	if text := read(t, folder+"/gobgp/"+decoderFile); strings.Contains(text, decoder) || strings.Count(text, renamed) != 1 {
		t.Error("the decoder has its old name still")
	}
	if read(t, folder+"/gobgp/"+guardFile) != string(guarded) {
		t.Error("the guard is not in")
	}
	read(t, folder+"/gobgp/LICENSE")
	if want := read(t, "go.mod") + "\nreplace " + module + " => ./build/guard/gobgp\n"; read(t, folder+"/go.mod") != want {
		t.Errorf("go.mod is\n%s", read(t, folder+"/go.mod"))
	}

	mark := filepath.Join(folder, "mark")
	write(t, mark, nil)
	prepareNow(t, folder)
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("made again though nothing changed: %v", err)
	}
	write(t, "go.mod", []byte(read(t, "go.mod")+"\n// changed\n"))
	prepareNow(t, folder)
	if _, err := os.Stat(mark); err == nil {
		t.Error("not made again after go.mod changed")
	}
	if !strings.Contains(read(t, folder+"/go.mod"), "// changed") {
		t.Error("go.mod is an old one")
	}
	if left, _ := filepath.Glob("build/*"); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func prepareNow(t *testing.T, folder string) {
	t.Helper()
	if err := prepare(folder); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name, content, 0o644); err != nil {
		t.Fatal(err)
	}
}
