package netlab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Package is a Debian package with its missing libraries, unpacked and not installed: an
// installation would start daemons, and bird and bird2 exclude each other.
type Package struct {
	Name    string
	Version string
	Root    string // of the unpacked files
}

// completeFile is written last into an unpacked directory and holds the version. Another layout
// needs another name.
const completeFile = ".complete-usr"

// Unpack finds a package below dir, or downloads it by apt from this machine's sources. Its version
// must begin with wantVersion. Root is needed only if apt has no package lists yet.
func Unpack(ctx context.Context, dir, name, wantVersion string) (Package, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Package{}, fmt.Errorf("netlab: %w", err)
	}
	p := Package{Name: name, Root: filepath.Join(dir, name)}
	if version, err := os.ReadFile(filepath.Join(p.Root, completeFile)); err == nil {
		p.Version = string(version)
		return p, p.check(wantVersion)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Package{}, fmt.Errorf("netlab: %w", err)
	}
	err = p.fetch(ctx)
	// no lists yet, or so old that the files are gone
	if err != nil && os.Geteuid() == 0 && ctx.Err() == nil {
		if _, updated := output(ctx, dir, "apt-get", "-q", "update"); updated == nil {
			err = p.fetch(ctx)
		}
	}
	if err != nil {
		return Package{}, fmt.Errorf("netlab: package %s is not to be had: %w", name, err)
	}
	return p, p.check(wantVersion)
}

func (p *Package) check(wantVersion string) error {
	if !strings.HasPrefix(p.Version, wantVersion) {
		return fmt.Errorf("netlab: package %s has version %s, want %s", p.Name, p.Version,
			wantVersion)
	}
	return nil
}

// fetch downloads and unpacks into a directory beside Root, and then renames it: other processes
// may do the same.
func (p *Package) fetch(ctx context.Context) error {
	work, err := os.MkdirTemp(filepath.Dir(p.Root), "."+p.Name+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	names, err := missing(ctx, work, p.Name)
	if err != nil {
		return err
	}
	if _, err := output(ctx, work, "apt-get",
		append([]string{"-q", "download"}, names...)...); err != nil {
		return err
	}
	files, _ := filepath.Glob(filepath.Join(work, "*.deb")) // the pattern is well formed
	root := filepath.Join(work, "root")
	for _, file := range files {
		if _, err := output(ctx, work, "dpkg-deb", "-x", file, root); err != nil {
			return err
		}
		if strings.HasPrefix(filepath.Base(file), p.Name+"_") {
			version, err := output(ctx, work, "dpkg-deb", "-f", file, "Version")
			if err != nil {
				return err
			}
			p.Version = strings.TrimSpace(string(version))
		}
	}
	if p.Version == "" {
		return errors.New("apt-get downloaded something else")
	}
	if err := mergeUsr(root); err != nil {
		return err
	}
	if err := os.Chmod(root, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, completeFile), []byte(p.Version),
		0o644); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(p.Root, completeFile)); err != nil {
		os.RemoveAll(p.Root) // of a layout that was
	}
	if err := os.Rename(root, p.Root); err != nil {
		if _, there := os.Stat(filepath.Join(p.Root, completeFile)); there != nil {
			return err
		}
	}
	return nil
}

// mergeUsr puts what a package has in /bin, /sbin and /lib below /usr, where an installed system
// has links to (wiki.debian.org/UsrMerge).
func mergeUsr(root string) error {
	for _, dir := range []string{"bin", "sbin", "lib"} {
		from := filepath.Join(root, dir)
		err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			to := filepath.Join(root, "usr", strings.TrimPrefix(path, root))
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return err
			}
			return os.Rename(path, to)
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.RemoveAll(from); err != nil {
			return err
		}
	}
	return nil
}

// missing returns name and the packages that it needs and this machine lacks, as apt would install
// them ("Inst NAME (…)").
func missing(ctx context.Context, dir, name string) ([]string, error) {
	plan, err := output(ctx, dir, "apt-get", "-q", "-s", "--no-install-recommends", "install", name)
	if err != nil {
		return nil, err
	}
	names := []string{name}
	for line := range strings.Lines(string(plan)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "Inst" &&
			!slices.Contains(names, words[1]) {
			names = append(names, words[1])
		}
	}
	return names, nil
}

func output(ctx context.Context, dir, path string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%s %s: %w: %s", path, strings.Join(args, " "), err,
			lastLine(stderr.String()))
	}
	return out, nil
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// Env is what a program of the package needs in its environment: the path of the libraries.
func (p Package) Env() []string {
	var libs []string
	for _, pattern := range []string{"usr/lib/*-linux-gnu*", "usr/lib/*-linux-gnu*/*"} {
		found, _ := filepath.Glob(filepath.Join(p.Root, pattern)) // the pattern is well formed
		libs = append(libs, found...)
	}
	if len(libs) == 0 {
		return nil
	}
	return []string{"LD_LIBRARY_PATH=" + strings.Join(libs, ":")}
}

// Program returns the path of a program of the package, after seeing that it finds its libraries.
func (p Package) Program(ctx context.Context, name string) (string, error) {
	for _, dir := range []string{"usr/sbin", "usr/bin", "usr/lib/" + p.Name} {
		path := filepath.Join(p.Root, dir, name)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		return path, p.checkLibraries(ctx, path)
	}
	return "", fmt.Errorf("netlab: package %s %s has no program %s", p.Name, p.Version, name)
}

// programs sets each path to that of a program of the package.
func (p Package) programs(ctx context.Context, paths map[string]*string) (err error) {
	for name, path := range paths {
		if *path, err = p.Program(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (p Package) checkLibraries(ctx context.Context, path string) error {
	cmd := exec.CommandContext(ctx, "ldd", path)
	cmd.Env = append(os.Environ(), p.Env()...)
	out, _ := cmd.Output() // no ldd, or a script: then starting it fails with a reason
	for line := range strings.Lines(string(out)) {
		if lib, _, absent := strings.Cut(strings.TrimSpace(line), " => not found"); absent {
			return fmt.Errorf("netlab: %s of package %s needs the library %s, which this "+
				"machine lacks", filepath.Base(path), p.Name, lib)
		}
	}
	return nil
}
