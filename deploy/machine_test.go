package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/netlab"
)

var update = flag.Bool("update", false, "write what systemd-analyze says into docs/deploying.md")

const (
	unitFile       = "systemd/vpp-route-agent.service"
	controllerUnit = "systemd/vpp-route-agent-reflector-controller.service"
)

// TestUnit has systemd judge the units: it knows every word of them, and finds the services
// confined. Exposure goes from 0 to 10.
func TestUnit(t *testing.T) {
	for _, file := range []string{controllerUnit, unitFile} {
		t.Run(filepath.Base(file), func(t *testing.T) { testUnit(t, file) })
	}
}

func testUnit(t *testing.T, file string) {
	systemd, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze on PATH")
	}
	// verify wants to find the program; where the package is not installed, any will do.
	unit := filepath.Join(t.TempDir(), filepath.Base(file))
	text := bytes.Replace(read(t, file), []byte("/usr/bin/vpp-route-agent"),
		[]byte("/bin/true"), 1)
	check(t, os.WriteFile(unit, text, 0o644))
	if out, err := exec.Command(systemd, "verify", "--man=no", unit).CombinedOutput(); err != nil ||
		len(out) > 0 {
		t.Errorf("verify: %v\n%s", err, out)
	}
	// 2.0
	cmd := exec.Command(systemd, "security", "--offline=true", "--threshold=20", "--no-pager", unit)
	cmd.Env = append(os.Environ(), "SYSTEMD_EMOJI=0", "LC_ALL=C.UTF-8")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("security: %v\n%s", err, out)
	}
	_, overall, found := strings.Cut(string(out), "Overall exposure level")
	if !found {
		t.Fatalf("security printed no verdict:\n%s", out)
	}
	t.Log("overall exposure level" + overall)
	if *update && file == unitFile {
		writeBlock(t, "systemd-analyze", complaints(string(out)))
	}
}

// complaints keeps what the service still may do, and the verdict.
func complaints(out string) string {
	var kept []string
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, " \n")
		switch {
		case strings.Contains(line, "Overall exposure"):
			kept = append(kept, "", regexp.MustCompile(`[^ -~]+ *`).ReplaceAllString(line, ""))
		case strings.HasPrefix(line, "✗"), strings.Contains(line, "NAME"):
			kept = append(kept, strings.NewReplacer("✗ ", "", "  NAME", "NAME").Replace(line))
		}
	}
	return strings.Join(kept, "\n")
}

// writeBlock replaces the code block below the comment with this name.
func writeBlock(t *testing.T, name, text string) {
	t.Helper()
	const doc = "../docs/deploying.md"
	re := regexp.MustCompile("(?s)(<!-- " + name + " -->\n```\n).*?```\n")
	old := read(t, doc)
	if !re.Match(old) {
		t.Fatalf("%s has no block %s", doc, name)
	}
	check(t, os.WriteFile(doc,
		re.ReplaceAll(old, []byte("${1}"+strings.ReplaceAll(text, "$", "$$")+"\n```\n")), 0o644))
}

// fakeAgent writes its pages and completions, as the package's build asks it to.
func fakeAgent(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "agent")
	check(t, os.WriteFile(path, []byte(`#!/bin/sh
[ $1 = man ] || exec echo completion of $2
mkdir -p $2/man1 && echo .TH agent >$2/man1/agent.1
`), 0o755))
	return path
}

// TestPackage builds the Debian package twice, from a stand-in for the binary.
func TestPackage(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("no dpkg-deb on PATH")
	}
	binary := fakeAgent(t)
	build := func(version string, env ...string) (path string, bytes []byte) {
		t.Helper()
		out := t.TempDir()
		cmd := exec.Command("debian/build", binary, version, out)
		cmd.Env = append(append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000"), env...)
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		found := files(t, out+"/*.deb")
		return found[0], read(t, found[0])
	}
	path, first := build("v1.2.3")
	if _, second := build("v1.2.3"); !bytes.Equal(first, second) {
		t.Error("two builds of the same things differ")
	}
	for command, want := range map[string][]string{
		"-I": {"Version: 1.2.3\n", "Depends: passwd\n"},
		"-c": {
			"-rwxr-xr-x root/root", "./usr/bin/vpp-route-agent\n",
			"./usr/share/man/man1/agent.1.gz\n", "./lib/systemd/system/vpp-route-agent.service\n",
			"./lib/systemd/system/vpp-route-agent-reflector-controller.service\n",
			"-rw-r----- root/root", "./etc/vpp-route-agent/agent.yaml\n", "2023-11-14 22:13",
			"./usr/share/doc/vpp-route-agent/copyright\n",
		},
	} {
		cmd := exec.Command("dpkg-deb", command, path)
		cmd.Env = append(os.Environ(), "TZ=UTC")
		out, err := cmd.Output()
		check(t, err)
		for _, w := range want {
			if !strings.Contains(string(out), w) {
				t.Errorf("dpkg-deb %s does not say %q:\n%s", command, w, out)
			}
		}
	}
	published, _ := build("v1.2.3", "MAINTAINER=Ann Example <ann@example.com>")
	const ask = `dpkg-deb -f "$1" Maintainer
dpkg-deb --fsys-tarfile "$1" | tar -xO ./usr/share/doc/vpp-route-agent/changelog.gz | gzip -d`
	out, err := exec.Command("sh", "-c", ask, "sh", published).Output()
	check(t, err)
	const maintainer = "Ann Example <ann@example.com>"
	if text := string(out); !strings.HasPrefix(text, maintainer+"\n"+
		"vpp-route-agent (1.2.3) unstable; urgency=medium\n\n  * ") ||
		!strings.HasSuffix(text, "\n\n -- "+maintainer+"  Tue, 14 Nov 2023 22:13:20 +0000\n") {
		t.Errorf("maintainer and changelog:\n%s", text)
	}
	// For another machine than this one: the program cannot be asked for its pages, and yet they
	// are there.
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	foreign, _ := build("v1.2.3", "GOARCH="+other)
	out, err = exec.Command("sh", "-c", `dpkg-deb -f "$1" Architecture; dpkg-deb -c "$1"`,
		"sh", foreign).Output()
	check(t, err)
	if !strings.HasPrefix(string(out), other+"\n") ||
		!strings.Contains(string(out), "man8/vpp-route-agent-run.8.gz\n") {
		t.Errorf("for %s:\n%s", other, out)
	}
	untagged, _ := build("0a1b2c3-dirty")
	if !strings.Contains(untagged, "_0~20231114221320.0a1b2c3+dirty_") {
		t.Errorf("version without a tag: %s", untagged)
	}
	if exec.Command("dpkg", "--compare-versions", "0~20231114221320.0a1b2c3+dirty", "lt",
		"0.1.0").Run() != nil {
		t.Error("a version without a tag must be older than the first release")
	}
}

// TestPackageIsDebians asks lintian, where it is here, about the package of a real binary.
func TestPackageIsDebians(t *testing.T) {
	if _, err := exec.LookPath("lintian"); err != nil {
		t.Skip("no lintian on PATH")
	}
	dir := t.TempDir()
	release := releaseInto(t, "v9.9.9")
	cmd := exec.Command("debian/build",
		filepath.Join(release, "vpp-route-agent_v9.9.9_linux_"+runtime.GOARCH), "v9.9.9", dir)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command("lintian", "--allow-root", "--fail-on", "error,warning",
		files(t, dir+"/*.deb")[0]).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A build that breaks off leaves nothing that could be installed.
func TestPackageIsWholeOrNotThere(t *testing.T) {
	binary, path := fakeAgent(t), t.TempDir()
	script := "#!/bin/sh\nfor last; do :; done; echo half >\"$last\"; exit 1\n"
	if err := os.WriteFile(filepath.Join(path, "dpkg-deb"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command("debian/build", binary, "v9.9.9", dir)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000",
		"PATH="+path+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Fatalf("it ended with 0: %s", out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A version before a release is an older one for Debian, and commits behind a tag are newer than
// it.
func TestPackageVersionsAreInOrder(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("no dpkg-deb on PATH")
	}
	binary := fakeAgent(t)
	older := ""
	for _, version := range []string{
		"0a1b2c3", "v1.0.0-beta.1", "v1.0.0-rc1", "v1.0.0-rc1-2-g0a1b2c3", "v1.0.0-rc2", "v1.0.0",
		"v1.0.0-3-g0a1b2c3", "v1.0.0-3-g0a1b2c3-dirty", "v1.0.1-rc1", "v1.0.1",
	} {
		out := t.TempDir()
		cmd := exec.Command("debian/build", binary, version, out)
		cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", version, err, text)
		}
		text, err := exec.Command("dpkg-deb", "-f", files(t, out+"/*.deb")[0], "Version").Output()
		check(t, err)
		newer := strings.TrimSpace(string(text))
		if older != "" &&
			exec.Command("dpkg", "--compare-versions", older, "lt", newer).Run() != nil {
			t.Errorf("%s: %s is not newer than %s", version, newer, older)
		}
		older = newer
	}
}

// Who has no agent.yaml, since drop-ins and variables say all, has removed it, and dpkg leaves it
// so: an upgrade must go through.
func TestPackageIsSetUpWithoutItsConfiguration(t *testing.T) {
	if _, err := os.Stat("/etc/vpp-route-agent/agent.yaml"); err == nil {
		t.Skip("the package is installed here")
	}
	dir := t.TempDir()
	for _, name := range []string{"getent", "groupadd", "useradd", "usermod", "systemctl"} {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755))
	}
	check(t, os.WriteFile(filepath.Join(dir, "chgrp"), []byte("#!/bin/sh\nls \"$2\"\n"), 0o755))
	cmd := exec.Command("sh", "debian/postinst", "configure", "1.0")
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestSysctls finds every variable on this machine: a misspelt one is an error at boot that nobody
// reads.
func TestSysctls(t *testing.T) {
	n := 0
	for line := range strings.Lines(string(read(t, "sysctl/vpp-route-agent.conf"))) {
		key, _, ok := strings.Cut(strings.TrimSpace(line), " = ")
		if !ok || strings.HasPrefix(key, "#") {
			continue
		}
		n++
		if _, err := os.Stat("/proc/sys/" + strings.ReplaceAll(key, ".", "/")); err != nil {
			t.Error(err)
		}
	}
	if n < 5 {
		t.Errorf("only %d variables", n)
	}
}

// TestAlerts has promtool check the rules and run their own tests. It comes from PATH or from
// Debian's package, unpacked.
func TestAlerts(t *testing.T) {
	promtool := findPromtool(t)
	for _, args := range [][]string{
		{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"},
	} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = "prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// TestDashboard has promtool read each expression of the dashboard as a recording rule's.
func TestDashboard(t *testing.T) {
	var dashboard struct {
		UID    string
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	check(t, json.Unmarshal(read(t, "grafana/vpp-route-agent.json"), &dashboard))
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []rule
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$instance", ".*", "$__rate_interval", "1m").Replace(
				target.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("%s: variable in %s", p.Title, target.Expr)
			}
			rules = append(rules, rule{"panel", expr})
		}
	}
	if dashboard.UID == "" || len(rules) < 15 {
		t.Fatalf("uid %q, %d expressions", dashboard.UID, len(rules))
	}
	raw, err := json.Marshal(map[string]any{
		"groups": []any{map[string]any{"name": "dashboard", "rules": rules}},
	})
	check(t, err)
	file := filepath.Join(t.TempDir(), "rules.yaml") // JSON is YAML
	check(t, os.WriteFile(file, raw, 0o644))
	if out, err := exec.Command(findPromtool(t), "check", "rules", "--lint=none",
		file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func findPromtool(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("promtool"); err == nil {
		return path
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	p, err := netlab.Unpack(ctx, "../build/packages", "prometheus", "2.")
	if err != nil {
		t.Skip("no promtool: ", err)
	}
	path, err := p.Program(ctx, "promtool")
	if err != nil {
		t.Skip("no promtool: ", err)
	}
	return path
}
