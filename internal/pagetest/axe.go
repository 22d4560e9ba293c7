package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// axe-core, and the digest of its package as npm's registry lists it (`npm view axe-core@VERSION
// dist.integrity`).
const (
	axeVersion = "4.14.1"
	axeDigest  = "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFoo" +
		"JpZe37OgudVGtQ=="
)

// axeSource is axe-core's program, from a package below dir that npm downloads if it is missing.
func axeSource(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "axe-core-"+axeVersion+".tgz")
	if _, err := os.Stat(path); err != nil {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", err
		}
		cmd := exec.CommandContext(ctx, "npm", "pack", "--loglevel=error",
			"--pack-destination", dir, "axe-core@"+axeVersion)
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Run(); err != nil {
			return "", fmt.Errorf("axe-core %s is not to be had with npm: %w, %s", axeVersion, err,
				firstLine(said.String()))
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	sum := sha512.Sum512(text)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != axeDigest {
		return "", errors.Join(fmt.Errorf("%s has the digest %s instead of %s", path, got,
			axeDigest), os.Remove(path))
	}
	return unpackFile(text, "package/axe.min.js")
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// unpackFile is one file of a compressed archive.
func unpackFile(archive []byte, name string) (string, error) {
	plain, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return "", err
	}
	for files := tar.NewReader(plain); ; {
		h, err := files.Next()
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		if h.Name == name {
			text, err := io.ReadAll(files)
			return string(text), err
		}
	}
}
