package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const key = `-----BEGIN EC PRIVATE KEY-----
MHcCAQEEIBkg4LVWM9nuwNSk3yByxZpYRTBnVJk5oJ8oCsmaOd3aoAoGCCqGSM49
AwEHoUQDQgAEZGVhZGJlZWYAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA
-----END EC PRIVATE KEY-----
`

// clean returns what is left of a text that is written in pieces of some bytes.
func clean(t *testing.T, s *Secrets, text string, size int) string {
	t.Helper()
	out := &strings.Builder{}
	c := &cleaner{w: out, secrets: s}
	for len(text) > 0 {
		n := min(size, len(text))
		if _, err := io.WriteString(c, text[:n]); err != nil {
			t.Fatal(err)
		}
		text = text[n:]
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// logged is a line of a log in JSON.
func logged(text string) string {
	out := &strings.Builder{}
	slog.New(slog.NewJSONHandler(out, nil)).Info("", "error", text)
	return strings.TrimSpace(out.String())
}

// A secret is found in all its forms, whatever stands beside it and however it is written.
func TestRedact(t *testing.T) {
	for _, secret := range []string{"planted", "pl@nt/ed ?&\"é\\", "sp+lit%41",
		`p"a&b\c`} {
		s := NewSecrets([]string{"other", secret})
		inJSON, _ := json.Marshal(map[string]string{"a": "x" + secret})
		forms := map[string]string{
			"plain": secret, "query": url.QueryEscape(secret), "path": url.PathEscape(secret),
			"url":  "etcd://" + url.UserPassword("root", secret).String() + "@host",
			"json": string(inJSON), "log": logged(secret), "error": strconv.Quote(secret),
			"log of an error": logged("x" + strconv.Quote(secret)),
			"log of JSON":     logged(string(inJSON)), "log of a log": logged(logged(secret)),
			"error of an error": strconv.Quote(strconv.Quote(secret)),
		}
		for _, beside := range []string{"", "a", "ab", "abc"} {
			forms["base64 "+beside] = base64.StdEncoding.EncodeToString(
				[]byte(beside + secret + beside))
			forms["base64url "+beside] = base64.URLEncoding.EncodeToString(
				[]byte(beside + secret + beside))
		}
		for name, form := range forms {
			for _, size := range []int{1, 3, 1000} {
				got := clean(t, s, "before "+form+" after\nnext", size)
				if !strings.Contains(got, Redacted) || !strings.HasPrefix(got, "before ") ||
					!strings.HasSuffix(got, " after\nnext") {
					t.Errorf("%s of %q in pieces of %d: %s", name, secret, size, got)
				}
				if strings.Contains(got, form) || strings.Contains(got, secret) {
					t.Errorf("%s of %q in pieces of %d is still there: %s", name, secret, size,
						got)
				}
			}
		}
	}
}

// Some are found though nobody knows of them.
func TestRedactUnknown(t *testing.T) {
	inJSON, _ := json.Marshal(key)
	for _, text := range []string{"http://root:planted@10.0.0.1:2379",
		"http://root:planted/x@10.0.0.1:2379", "http://root:x/planted@10.0.0.1:2379,next",
		"http://root:x@planted@10.0.0.1:2379", "http://a:1,http://root:planted,x@10.0.0.1:2379",
		"Authorization: Bearer planted.jwt-0", `{"authorization": ["Basic planted=="]}`,
		"key:\n" + strings.ReplaceAll(key, "AwEH", "planted"), "a " + string(inJSON)} {
		got := clean(t, NewSecrets(nil), text+"\nnext", 7)
		if strings.Contains(got, "planted") || strings.Contains(got, "MHcC") ||
			!strings.HasSuffix(got, "next") {
			t.Errorf("%s: %s", text, got)
		}
	}
	for _, text := range []string{"password bgp/tor is not known", "http://10.0.0.1/a@b",
		"basic configuration", "the token of the lease"} {
		if got := clean(t, NewSecrets(nil), text, 100); got != text {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// A key is found line by line, and as a whole in base64.
func TestRedactKeys(t *testing.T) {
	s := NewSecrets([]string{key, "abc", " "})
	if s.Short != 1 {
		t.Errorf("%d are short", s.Short)
	}
	lines := strings.Split(key, "\n")
	for _, text := range []string{lines[1], "x" + lines[2] + "y",
		base64.StdEncoding.EncodeToString([]byte(key))} {
		got := clean(t, s, text, 50)
		if strings.Contains(got, lines[1]) || strings.Contains(got, text) {
			t.Errorf("%s: %s", text, got)
		}
	}
	if got := clean(t, s, "abc", 50); got != "abc" {
		t.Error(got)
	}
}

// Memory is bounded: a line without end is left out, and what follows is there.
func TestRedactLongLine(t *testing.T) {
	got := clean(t, NewSecrets([]string{"planted"}),
		"a\n"+strings.Repeat("x", longestLine)+"planted\nb", 64<<10)
	if len(got) > 100 || !strings.HasPrefix(got, "a\n(a line of more") ||
		!strings.HasSuffix(got, ")\nb") {
		t.Errorf("%.200s", got)
	}
}

// unpack returns the files of an archive.
func unpack(t *testing.T, raw []byte) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for in := tar.NewReader(zip); ; {
		h, err := in.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Mode != 0o600 {
			t.Errorf("%s has mode %o", h.Name, h.Mode)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(text)
	}
}

func says(text string, err error) func(context.Context, io.Writer) error {
	return func(_ context.Context, w io.Writer) error {
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
		return err
	}
}

// What goes wrong with one part is in the archive, and spoils no other.
func TestArchive(t *testing.T) { synctest.Test(t, testArchive) }

func testArchive(t *testing.T) {
	scratch := t.TempDir()
	hung := make(chan struct{})
	defer close(hung)
	parts := []Part{
		{Name: "a/good.txt", About: "what is well", Collect: says("planted text\n", nil)},
		{Name: "bad.txt", Collect: says("", errors.New("no planted socket"))},
		{Name: "half.txt", Collect: says("half\n", errors.New("it broke"))},
		{Name: "hung.txt", Collect: func(_ context.Context, w io.Writer) error {
			_, _ = io.WriteString(w, "begun\n")
			<-hung
			_, _ = io.WriteString(w, "too late")
			return nil
		}},
		{Name: "large.txt", Collect: says(strings.Repeat("0123456\n", 1<<18), nil)},
		{Name: "none.txt", Collect: says("", Absent("there is no VPP here"))},
		{Name: "empty.txt", Collect: says("", nil)},
		{Name: "raw.bin", Binary: true, Collect: says("\x00\n\x01", nil)},
	}
	a := Archive{Name: "node", Intro: "From node.\n", Made: time.Unix(0, 0),
		Secrets: NewSecrets([]string{"planted"}), Patience: time.Second, PartSize: 1 << 20,
		Scratch: []string{"/nowhere/at/all", scratch}}
	var out bytes.Buffer
	results, err := a.Write(t.Context(), &out, parts)
	if err != nil {
		t.Fatal(err)
	}
	var failed []string
	for _, r := range results {
		if r.Failed() {
			failed = append(failed, r.Name)
		}
	}
	if got := strings.Join(failed, " "); got != "bad.txt half.txt hung.txt large.txt" {
		t.Errorf("failed: %s", got)
	}
	files := unpack(t, out.Bytes())
	for name, want := range map[string]string{
		"node/a/good.txt":        Redacted + " text\n",
		"node/bad.txt.error.txt": "no " + Redacted + " socket\n",
		"node/half.txt":          "half\n", "node/half.txt.error.txt": "it broke\n",
		"node/hung.txt":            "begun\n",
		"node/hung.txt.error.txt":  "not done after 1s: context deadline exceeded\n",
		"node/large.txt":           strings.Repeat("0123456\n", 1<<17),
		"node/large.txt.error.txt": "cut off after 1 MiB\n",
		"node/none.txt.error.txt":  "there is no VPP here\n",
		"node/empty.txt":           "", "node/raw.bin": "\x00\n\x01",
	} {
		if got, there := files[name]; got != want || !there {
			t.Errorf("%s: %t, %.100q, want %.100q", name, there, got, want)
		}
		delete(files, name)
	}
	for _, want := range []string{"From node.\n", "a/good.txt", "what is well",
		"FAILED: no " + Redacted + " socket", "absent: there is no VPP here"} {
		if !strings.Contains(files["node/README.txt"], want) {
			t.Errorf("README.txt lacks %q:\n%s", want, files["node/README.txt"])
		}
	}
	if len(files) != 1 {
		t.Errorf("also there: %v", files)
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// An archive that cannot be written, or is given up, is an error.
func TestArchiveFails(t *testing.T) {
	a := Archive{Secrets: NewSecrets(nil), Patience: time.Second, PartSize: 1 << 20,
		Scratch: []string{t.TempDir()}}
	parts := []Part{{Name: "a", Collect: says("a", nil)}}
	if _, err := a.Write(t.Context(), full{}, parts); !errors.Is(err, errFull) {
		t.Errorf("a full disk: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Write(ctx, io.Discard, parts); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	a.Scratch = []string{"/nowhere/at/all"}
	if _, err := a.Write(t.Context(), io.Discard, parts); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nowhere to write: %v", err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }
