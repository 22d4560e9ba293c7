// Package durable writes small files so that each is whole at any time, also after a crash of the
// host, and frames what is appended to large ones, so that a torn end is seen. Whoever keeps state
// on disk may call it; it does not know what the files hold.
package durable

import (
	"os"
	"path/filepath"
	"time"
)

// WriteFile replaces the file at path, which only its owner may read. When it returns, the file
// survives a crash: the host may fail in the same incident that makes the file needed.
func WriteFile(path string, content []byte) (err error) {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a rename in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// endWait bounds how long the end of a program waits for a disk that stalls. A large file takes
// more than a second; systemd kills an agent that takes more than 15 s.
const endWait = 5 * time.Second

// AtTheEnd has a program that ends write what is left. A disk that stalls does not keep it: what is
// not written then is lost, as by a crash.
func AtTheEnd(write func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		write()
	}()
	select {
	case <-done:
	case <-time.After(endWait):
	}
}
