package secrets

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/calico"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDir(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "passwords")
	write(t, filepath.Join(dir, "bgp/tor"), "pass word")
	write(t, filepath.Join(dir, "bgp/echoed"), "from echo\n")
	write(t, filepath.Join(dir, "bgp/windows"), "from afar\r\n")
	write(t, filepath.Join(dir, "bgp/two"), "two\n\n")
	write(t, filepath.Join(dir, "bgp/empty"), "\n")
	write(t, filepath.Join(dir, "bgp/long"), strings.Repeat("x", maxPassword+1))
	write(t, filepath.Join(dir, "bgp/longest"), strings.Repeat("x", maxPassword))
	write(t, filepath.Join(dir, "bgp/folder/x"), "x")
	write(t, filepath.Join(top, "outside"), "not for you")
	if err := unix.Mkfifo(filepath.Join(dir, "bgp/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	// As Kubernetes mounts a Secret: the key is a link to a link to a folder that is exchanged as a
	// whole.
	write(t, filepath.Join(dir, "mounted/..2026_11_21/key"), "mounted")
	for link, to := range map[string]string{"mounted/..data": "..2026_11_21",
		"mounted/key": "..data/key", "bgp/away": filepath.Join(top, "outside"),
		"bgp/up": "../../outside"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}

	for _, tc := range []struct{ name, key, want, problem string }{
		{"bgp", "tor", "pass word", ""},
		{"bgp", "echoed", "from echo", ""},
		{"bgp", "windows", "from afar", ""},
		{"bgp", "two", "two\n", ""},
		{"bgp", "longest", strings.Repeat("x", maxPassword), ""},
		{"mounted", "key", "mounted", ""},
		{"bgp", "gone", "", "bgp/gone: no such file"},
		{"none", "tor", "", "none/tor: no such file"},
		{"bgp", "empty", "", "bgp/empty: it is empty"},
		{"bgp", "long", "", "bgp/long is too long"},
		{"bgp", "folder", "", "bgp/folder is no file"},
		{"bgp", "pipe", "", "bgp/pipe is no file"},
		{"bgp", "away", "", "bgp/away: "},
		{"bgp", "up", "", "bgp/up: "},
		{"..", "outside", "", `".." is no name`},
		{"bgp", "..", "", `".." is no key`},
		{"bgp", "../../outside", "", "is no key"},
		{"bgp/x", "tor", "", "is no name"},
		{"", "tor", "", `"" is no name`},
		{"bgp", "", "", `"" is no key`},
		{"bgp", "a\nb", "", `"a\nb" is no key`},
	} {
		got, err := Dir(dir).Lookup(calico.SecretKeyRef{Name: tc.name, Key: tc.key})
		if tc.problem == "" {
			if err != nil || got != tc.want {
				t.Errorf("%s/%s: got %.20q, %v; want %.20q", tc.name, tc.key, got, err, tc.want)
			}
			continue
		}
		if err == nil || got != "" || !strings.Contains(err.Error(), tc.problem) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s/%s: got %.20q, %v; want an error with %q", tc.name, tc.key, got, err,
				tc.problem)
		}
	}

	write(t, filepath.Join(dir, "bgp/tor"), "changed")
	if got, err := Dir(dir).Lookup(calico.SecretKeyRef{Name: "bgp", Key: "tor"}); got != "changed" {
		t.Errorf("after a change: %q, %v", got, err)
	}
	if _, err := Dir(filepath.Join(top, "missing")).Lookup(calico.SecretKeyRef{Name: "bgp",
		Key: "tor"}); err == nil {
		t.Error("a missing directory has a password")
	}
}
