package secrets

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/calico"
)

// maxPassword is more than TCP MD5 accepts (80 bytes). A longer file is not a password.
const maxPassword = 4096

// Dir finds the password secret/key in the file <dir>/<secret>/<key>, as Kubernetes mounts Secrets.
// It strips the final line end. Each lookup reads the file.
type Dir string

// Lookup returns the password, or a one-line reason why there is none.
func (d Dir) Lookup(ref calico.SecretKeyRef) (string, error) {
	if err := checkRef(ref); err != nil {
		return "", err
	}
	name := filepath.Join(ref.Name, ref.Key)
	// A symbolic link must not lead out of the directory: the author of the reference may not be
	// the one who fills the directory.
	root, err := os.OpenRoot(string(d))
	if err != nil {
		return "", d.sayWhy(name, err)
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe is not waited for
	if err != nil {
		return "", d.sayWhy(name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no file", filepath.Join(string(d), name))
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxPassword+1))
	if err != nil {
		return "", d.sayWhy(name, err)
	}
	password := withoutLineEnd(raw)
	switch {
	case password == "":
		return "", fmt.Errorf("%s: %w", filepath.Join(string(d), name), errEmpty)
	case len(raw) > maxPassword:
		return "", fmt.Errorf("%s is too long for a password", filepath.Join(string(d), name))
	}
	return password, nil
}

// sayWhy keeps the cause and names the whole path.
func (d Dir) sayWhy(name string, err error) error {
	if pathError, ok := err.(*fs.PathError); ok {
		err = pathError.Err
	}
	return fmt.Errorf("%s: %w", filepath.Join(string(d), name), err)
}
