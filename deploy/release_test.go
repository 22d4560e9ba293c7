package deploy

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestRelease builds a release for this machine's architecture twice and looks at what a user would
// download.
func TestRelease(t *testing.T) {
	const version = "v9.9.9-test"
	dir := releaseInto(t, version)
	again := releaseInto(t, version)

	name := filepath.Join(dir, "vpp-route-agent_"+version+"_linux_"+runtime.GOARCH)
	checkSums := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	checkSums.Dir = dir
	out, err := checkSums.CombinedOutput()
	if err != nil || strings.Count(string(out), ": OK") != 4 {
		t.Errorf("checksums: %v\n%s", err, out)
	}
	first := read(t, filepath.Join(dir, "SHA256SUMS"))
	second := read(t, filepath.Join(again, "SHA256SUMS"))
	if !bytes.Equal(first, second) {
		t.Errorf("built twice:\n%s\n%s", first, second)
	}
	if out, err := exec.Command(name, "version").CombinedOutput(); err != nil ||
		!strings.HasPrefix(string(out), "vpp-route-agent "+version+" ") {
		t.Errorf("version: %v, %s", err, out)
	}
	checkStatic(t, name)
	checkImageSize(t, name)
	checkBill(t, name+".cdx.json", version)
	notes := read(t, filepath.Join(dir, "vpp-route-agent_"+version+"_notes.md"))
	if !bytes.HasPrefix(notes, []byte("# vpp-route-agent "+version+"\n\n")) {
		t.Errorf("notes:\n%s", notes)
	}
	pages, err := exec.Command("tar", "-tzf",
		filepath.Join(dir, "vpp-route-agent_"+version+"_doc.tar.gz")).CombinedOutput()
	if err != nil || !strings.Contains(string(pages), "man8/vpp-route-agent-run.8\n") ||
		!strings.Contains(string(pages), "completions/vpp-route-agent.zsh\n") {
		t.Errorf("pages: %v\n%s", err, pages)
	}
}

// TestReleaseNotes: a version has the notes under its own heading, and one without a heading those
// of what is unreleased.
func TestReleaseNotes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "CHANGELOG.md")
	check(t, os.WriteFile(file,
		[]byte("# Changelog\n\nWords.\n\n## Unreleased\n\n- new\n\n## v1.1.0 (2026-11-21)\n\n- "+
			"one\n\n- two\n\n## v1.1.0-rc1\n\n- old\n"), 0o644))
	for version, want := range map[string]string{
		"v1.1.0": "- one\n\n- two", "v1.1.0-rc1": "- old", "v1.1.0-3-g0a1b2c3": "- new",
		"0a1b2c3": "- new",
	} {
		out, err := exec.Command("./notes", version, file).CombinedOutput()
		if want = "# vpp-route-agent " + version + "\n\n" + want + "\n"; err != nil ||
			string(out) != want {
			t.Errorf("%s: %v\n%s", version, err, out)
		}
	}
	check(t, os.WriteFile(file, []byte("# Changelog\n"), 0o644))
	if out, err := exec.Command("./notes", "v1.1.0", file).CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "says nothing of v1.1.0") {
		t.Errorf("of nothing: %v\n%s", err, out)
	}
}

func releaseInto(t *testing.T, version string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "release")
	cmd := exec.Command("./release", version, dir, runtime.GOARCH)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("release: %v\n%s", err, out)
	}
	return dir
}

// checkStatic: a binary without an interpreter needs no libraries of the machine.
func checkStatic(t *testing.T, name string) {
	t.Helper()
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Errorf("%s is linked dynamically", name)
	}
}

// checkImageSize: the agent's image is its binary and a few names, so the page is true of that.
func checkImageSize(t *testing.T, name string) {
	t.Helper()
	const page = "../docs/deploying.md"
	found := regexp.MustCompile("prints ([0-9]+) MB for the agent's").FindSubmatch(read(t, page))
	if found == nil {
		t.Fatalf("%s does not say how large the agent's image is", page)
	}
	said, err := strconv.Atoi(string(found[1]))
	check(t, err)
	info, err := os.Stat(name)
	check(t, err)
	if size := float64(info.Size()) / 1e6; math.Abs(size-float64(said)) > 2 {
		t.Errorf("%s says %d MB, and the binary has %.1f MB", page, said, size)
	}
}

// listed is what a bill of materials says of a module.
type listed struct {
	Name, Version string
	Licenses      []struct {
		License    struct{ ID string }
		Expression string
	}
}

func checkBill(t *testing.T, file, version string) {
	t.Helper()
	var bill struct {
		Metadata struct {
			Component struct{ Name, Version string }
		}
		Components []listed
	}
	if err := json.Unmarshal(read(t, file), &bill); err != nil {
		t.Fatal(err)
	}
	if bill.Metadata.Component.Name != "vpp-route-agent" ||
		bill.Metadata.Component.Version != version {
		t.Errorf("bill of %+v", bill.Metadata.Component)
	}
	for _, want := range []string{
		"std", "github.com/osrg/gobgp/v3", "go.fd.io/govpp", "go.etcd.io/etcd/client/v3",
	} {
		if !slices.ContainsFunc(bill.Components, func(c listed) bool {
			return c.Name == want && c.Version != ""
		}) {
			t.Errorf("the bill lacks %s", want)
		}
	}
	licenses := map[string]string{}
	for _, c := range bill.Components {
		if len(c.Licenses) != 1 ||
			c.Licenses[0].License.ID == "" && c.Licenses[0].Expression == "" {
			t.Fatalf("%s has licenses %+v", c.Name, c.Licenses)
		}
		licenses[c.Name] = c.Licenses[0].License.ID + c.Licenses[0].Expression
	}
	for name, want := range map[string]string{
		"std": "BSD-3-Clause", "github.com/osrg/gobgp/v3": "Apache-2.0", "go.uber.org/zap": "MIT",
		"gopkg.in/yaml.v3":             "Apache-2.0 AND MIT",
		"github.com/gorilla/websocket": "BSD-2-Clause", "github.com/hashicorp/hcl": "MPL-2.0",
	} {
		if licenses[name] != want {
			t.Errorf("license of %s is %q, want %s", name, licenses[name], want)
		}
	}
}
