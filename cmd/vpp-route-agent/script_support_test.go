package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"vpp-route-agent/internal/calico/calicotest"
)

var base64Run = regexp.MustCompile(`[A-Za-z0-9+/_-]{8,}`)

// nowhere DIR LEAST FILE: no file below DIR, which has at least so many, has one of the secrets
// that FILE lists, a line each: in plain, in base64, or quoted as in URLs.
func nowhereCommand(sc *script, args []string) (string, error) {
	if len(args) != 3 {
		return "", usage("nowhere DIR LEAST FILE")
	}
	list, err := os.ReadFile(sc.path(args[2]))
	if err != nil {
		return "", usage("%v", err)
	}
	secrets := strings.Fields(string(list))
	least, err := strconv.Atoi(args[1])
	if err != nil || len(secrets) == 0 {
		return "", usage("%d secrets, %v", len(secrets), err)
	}
	files, found := 0, ""
	err = filepath.WalkDir(sc.path(args[0]), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for form, text := range readings(raw) {
			for _, s := range secrets {
				if bytes.Contains(text, []byte(s)) {
					found += fmt.Sprintf("%s has %s, %s\n", path, s, form)
				}
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return "", err
	case files < least:
		return "", usage("%s has %d files", args[0], files)
	case found != "":
		return "", fmt.Errorf("%s", found)
	}
	return "", nil
}

// readings are what can be read in a file.
func readings(raw []byte) map[string][]byte {
	if zip, err := gzip.NewReader(bytes.NewReader(raw)); err == nil {
		if plain, err := io.ReadAll(zip); err == nil {
			raw = plain
		}
	}
	all := map[string][]byte{"in plain": raw}
	if text, err := url.QueryUnescape(escapable(raw)); err == nil {
		all["quoted as in URLs"] = []byte(text)
	}
	var decoded []byte
	for _, run := range base64Run.FindAll(raw, -1) {
		text := strings.NewReplacer("-", "+", "_", "/").Replace(string(run))
		for skipped := range 4 {
			part := text[skipped:]
			part = part[:len(part)/4*4]
			if out, err := base64.StdEncoding.DecodeString(part); err == nil {
				decoded = append(append(decoded, out...), 0)
			}
		}
	}
	all["in base64"] = decoded
	return all
}

var escape = regexp.MustCompile(`%([0-9A-Fa-f]{2})?`)

// escapable has no percent sign that quotes nothing.
func escapable(raw []byte) string {
	return escape.ReplaceAllStringFunc(string(raw), func(s string) string {
		if s == "%" {
			return "%25"
		}
		return s
	})
}

// certificates DIR [NAME…]: those of calicotest, in a new directory, the server's for these names.
func certificatesCommand(sc *script, args []string) (string, error) {
	if len(args) == 0 {
		return "", usage("certificates DIR [NAME…]")
	}
	if err := os.Mkdir(sc.path(args[0]), 0o755); err != nil {
		return "", err
	}
	_, err := calicotest.WriteCerts(sc.path(args[0]), args[1:]...)
	return "", err
}
