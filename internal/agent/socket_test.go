package agent

import (
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestListenTakesTheNameOfNothingButADeadSocket(t *testing.T) {
	dir := t.TempDir()
	file := func(t *testing.T, path string) {
		if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dead := func(t *testing.T, path string) {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
	}
	live := func(t *testing.T, path string) {
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	link := func(t *testing.T, path string) {
		file(t, path+".target")
		if err := os.Symlink(path+".target", path); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, path string
		before     func(*testing.T, string)
		refusal    string
	}{
		{"nothing", "nothing", nil, ""},
		{"a directory is missing", "run/agent.sock", nil, ""},
		{"two are", "var/run/agent.sock", nil, "no such file or directory"},
		{"a dead socket", "dead", dead, ""},
		{"one that answers", "live", live, "another agent answers"},
		{"a file", "file", file, "is no socket"},
		{"a link to a file", "link", link, "is no socket"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(dir, c.path)
			if c.before != nil {
				c.before(t, path)
			}
			before, _ := os.Lstat(path)
			l, err := Listen("admin socket", path, slog.New(slog.DiscardHandler))
			if c.refusal == "" {
				if err != nil {
					t.Fatal(err)
				}
				l.Close()
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.refusal) {
				t.Errorf("got %v", err)
			}
			if after, err := os.Lstat(path); before != nil &&
				(err != nil || !os.SameFile(before, after)) {
				t.Errorf("%s is not what it was: %v", path, err)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "var")); !os.IsNotExist(err) {
		t.Errorf("made parents: %v", err)
	}
	if info, err := os.Stat(filepath.Join(dir, "run")); err != nil ||
		info.Mode().Type() != fs.ModeDir {
		t.Errorf("%v, %v", info, err)
	}
}
