package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// buildLabImage runs the image's script with an engine and a mmdebstrap that do nothing.
func buildLabImage(t *testing.T, vppDebs string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	fake := "#!/bin/sh\nfor a; do case $a in *rootfs.tar) echo files >\"$a\";; esac; done\n"
	check(t, os.WriteFile(filepath.Join(dir, "mmdebstrap"), []byte(fake), 0o755))
	agent, out := filepath.Join(dir, "vpp-route-agent"), filepath.Join(dir, "out")
	check(t, os.WriteFile(agent, nil, 0o755))
	check(t, os.WriteFile(filepath.Join(dir, "gobgp"), nil, 0o755))
	cmd := exec.Command("image/build", "lab", agent, "v0", out)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "DOCKER=true",
		"SOURCE_DATE_EPOCH=1", "VPP_DEBS="+vppDebs)
	text, err := cmd.CombinedOutput()
	if err != nil {
		return string(text), err
	}
	packed, err := exec.Command("tar", "-tf", filepath.Join(out, "context-lab/gobgp.tar")).Output()
	if err != nil || !strings.Contains(string(packed), "./usr/bin/gobgp\n") {
		t.Errorf("the lab's image has no gobgp: %v: %s", err, packed)
	}
	return string(text), nil
}

func TestLabImageSaysWhatItHasOfVPP(t *testing.T) {
	deb := filepath.Join(t.TempDir(), "vpp_25.10.deb")
	check(t, os.WriteFile(deb, nil, 0o644))
	const none = "vpp-route-agent-lab:v0 has no VPP: VPP_DEBS names no packages"
	if out, err := buildLabImage(t, ""); err != nil || !strings.Contains(out, none) {
		t.Errorf("without packages: %v: %s", err, out)
	}
	if out, err := buildLabImage(t, filepath.Join(filepath.Dir(deb), "*.deb")); err != nil ||
		strings.Contains(out, none) {
		t.Errorf("with a package: %v: %s", err, out)
	}
	if out, err := buildLabImage(t, "/nonexistent/*.deb"); err == nil ||
		!strings.Contains(out, "there is no file /nonexistent/*.deb") {
		t.Errorf("with packages that are not there: %v: %s", err, out)
	}
}

// go.mod names a folder that make fills from the clone: without it even `go mod download` fails.
func TestDockerfileRunsNothingBeforeTheCloneIsThere(t *testing.T) {
	before, _, found := strings.Cut(string(read(t, "image/Dockerfile")), "\nCOPY . .\n")
	if !found || strings.Contains(before, "\nRUN ") {
		t.Error("image/Dockerfile runs something before it copies the clone")
	}
}

// What make and overlay file systems cut in pieces fails with one sentence, not somewhere in the
// middle.
func TestMakeRefusesAPathThatItWouldCut(t *testing.T) {
	for name, refused := range map[string]bool{"plain": false, "a space": true, "a:colon": true} {
		dir := filepath.Join(t.TempDir(), name)
		check(t, os.Mkdir(dir, 0o755))
		check(t, os.WriteFile(filepath.Join(dir, "Makefile"), read(t, "../Makefile"), 0o644))
		out, err := exec.Command("make", "-s", "-C", dir, "clean").CombinedOutput()
		if refused != (err != nil) ||
			refused != strings.Contains(string(out), "has a space or a colon") {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// TestGoBuild: a build that takes long says how far it is, and one that fails says why.
func TestGoBuild(t *testing.T) {
	run := func(script string) (string, error) {
		dir := t.TempDir()
		check(t, os.WriteFile(filepath.Join(dir, "go"), []byte("#!/bin/sh\n"+script), 0o755))
		cmd := exec.Command("./go-build", "-trimpath", "./cmd/x")
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run(`[ "$*" = "list -deps ./cmd/x" ] && { echo a; echo b; echo c; exit; }
[ "$*" = "build -v -trimpath ./cmd/x" ] || exit 1
{ echo a; sleep 3; echo b; } >&2
`)
	if err != nil || out != "packages compiled: 2, of 3 at most\n" {
		t.Errorf("a slow build: %v, %q", err, out)
	}
	out, err = run("{ echo a; echo '# b'; echo 'x.go:1: undefined: y'; } >&2; exit 1\n")
	if err == nil || out != "# b\nx.go:1: undefined: y\n" {
		t.Errorf("a build that fails: %v, %q", err, out)
	}
}
