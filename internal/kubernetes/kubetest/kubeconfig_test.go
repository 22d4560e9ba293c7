package kubetest

import (
	"os"
	"strings"
	"testing"
)

// A process that starts reads the kubeconfig while it is written for the next one.
func TestKubeconfigIsWholeWhileItIsWritten(t *testing.T) {
	dir := t.TempDir()
	write := func() (string, error) {
		return writeKubeconfig(dir, "https://127.0.0.1:1", serverName, "token: x", []byte("ca"))
	}
	file, err := write()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		var err error
		for range 20 {
			if err == nil {
				_, err = write()
			}
		}
		done <- err
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "users:") {
			t.Fatalf("%q, %v", text, err)
		}
	}
}
