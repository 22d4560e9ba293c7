package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// clone is a repository with this Makefile and one commit.
func clone(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "Makefile"), read(t, "../Makefile"), 0o644))
	run(t, dir, "git", "init", "-q")
	run(t, dir, "git", "add", "Makefile")
	run(t, dir, "git", "-c", "user.name=a", "-c", "user.email=a@example.net", "commit", "-qm", "a")
	return dir
}

func run(t *testing.T, dir string, command ...string) (out string) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, text)
	}
	return string(text)
}

// A tag of somebody's own, on the same commit, is no version.
func TestTheVersionIsThatOfARelease(t *testing.T) {
	dir := clone(t)
	version := func() string {
		t.Helper()
		found := regexp.MustCompile(`main\.version=([^']*)'`).FindStringSubmatch(
			run(t, dir, "make", "-n", "build"))
		if found == nil {
			t.Fatal("no version")
		}
		return found[1]
	}
	run(t, dir, "git", "tag", "works-for-me")
	if got := version(); !regexp.MustCompile(`^[0-9a-f]{12}$`).MatchString(got) {
		t.Errorf("without a release: %s", got)
	}
	run(t, dir, "git", "tag", "v1.2.3")
	if got := version(); got != "v1.2.3" {
		t.Errorf("at v1.2.3: %s", got)
	}
}

// A package for another machine leaves this machine's programs, which the demo and the labs use.
func TestAnotherMachinesProgramsAreApart(t *testing.T) {
	dir := clone(t)
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	for arch, want := range map[string]string{
		runtime.GOARCH: " -o build/ ", other: " -o build/" + other + "/ ",
	} {
		out := run(t, dir, "make", "-n", "deb", "GOARCH="+arch)
		packed := strings.TrimSpace(strings.TrimPrefix(want, " -o ")) + "vpp-route-agent '"
		if strings.Count(out, want) != 2 || !strings.Contains(out, "deploy/debian/build "+packed) {
			t.Errorf("%s:\n%s", arch, out)
		}
	}
}
