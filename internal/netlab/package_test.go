package netlab

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMergeUsrMovesProgramsAndLibraries(t *testing.T) {
	root := t.TempDir()
	for _, file := range []string{"sbin/ethtool", "lib/x86_64-linux-gnu/libmnl.so.0",
		"usr/sbin/bird", "etc/bird.conf"} {
		check(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755))
		check(t, os.WriteFile(filepath.Join(root, file), []byte(file), 0o644))
	}
	check(t, os.Symlink("libmnl.so.0", filepath.Join(root, "lib/x86_64-linux-gnu/libmnl.so")))
	check(t, mergeUsr(root))
	for _, file := range []string{"usr/sbin/ethtool", "usr/lib/x86_64-linux-gnu/libmnl.so.0",
		"usr/lib/x86_64-linux-gnu/libmnl.so", "usr/sbin/bird", "etc/bird.conf"} {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			t.Error(err)
		}
	}
	for _, dir := range []string{"sbin", "lib"} { // would hide the links of a merged system
		if _, err := os.Lstat(filepath.Join(root, dir)); err == nil {
			t.Errorf("%s is still there", dir)
		}
	}
}
