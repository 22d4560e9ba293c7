package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEditExpectsItsTextOnce(t *testing.T) {
	folder := t.TempDir()
	e := edit{"x.go", "\nfunc a() {\n", "\nfunc b() {\n"}
	if err := e.apply(folder); err == nil {
		t.Error("no file, no error")
	}
	file := filepath.Join(folder, "x.go")
	for name, text := range map[string]string{
		"missing":               "package x\n",
		"with other parameters": "package x\n\nfunc a(int) {\n}\n",
		"twice":                 "package x\n" + e.old + "}\n" + e.old + "}\n",
	} {
		write(t, file, []byte(text))
		if err := e.apply(folder); err == nil || !strings.Contains(err.Error(), "x.go has ") || read(t, file) != text {
			t.Errorf("%s: %v\n%s", name, err, read(t, file))
		}
	}
	write(t, file, []byte("package x\n"+e.old+"}\n"))
	if err := e.apply(folder); err != nil || read(t, file) != "package x\n"+e.new+"}\n" {
		t.Errorf("%v\n%s", err, read(t, file))
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
	for _, e := range allEdits {
		text := read(t, folder+"/gobgp/"+e.file)
		if strings.Count(text, e.new) != 1 || strings.Contains(strings.Replace(text, e.new, "", 1), e.old) {
			t.Errorf("%s was not edited to %q", e.file, e.new)
		}
	}
	for _, files := range allAdded {
		for name, content := range files {
			if read(t, folder+"/gobgp/"+name) != string(content) {
				t.Errorf("%s is not in", name)
			}
		}
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
