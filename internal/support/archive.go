// Package support writes the archive of the command of that name: whatever parts it is given,
// bounded in size and time, without secrets. It does not know what is in them.
package support

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Part is a file of the archive.
type Part struct {
	Name  string // its path in the archive
	About string // what is in it
	// Binary: it is compressed already, and has no texts that could be secrets.
	Binary bool
	// Collect writes it. What it has not written when ctx ends is missing, even if it does not
	// return.
	Collect func(ctx context.Context, w io.Writer) error
}

// Absent is the error of a part that this node cannot have, and why.
type Absent string

func (a Absent) Error() string { return string(a) }

// Archive says how one is made.
type Archive struct {
	Name    string // of the folder that all parts are in
	Intro   string // begins README.txt
	Made    time.Time
	Secrets *Secrets
	// Patience bounds each part; PartSize too, in bytes before compression.
	Patience time.Duration
	PartSize int64
	// Scratch are directories for what is collected, of which the first counts that can be written
	// to: the usual one may be read-only in a container.
	Scratch []string
}

// Result is what became of a part.
type Result struct {
	Name, About string
	Size        int64
	// Err is why it is missing or not whole; Absent if that is no failure.
	Err error
}

// Failed reports whether the part should be there, whole, and is not.
func (r Result) Failed() bool { return r.Err != nil && !errors.As(r.Err, new(Absent)) }

// parallel bounds the parts that are collected at a time.
const parallel = 8

// Write collects all parts and writes the archive. Its error is one of writing; those of parts are
// in the archive, NAME.error.txt, and in the results.
func (a Archive) Write(ctx context.Context, w io.Writer, parts []Part) ([]Result, error) {
	dir, err := a.scratch()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	results := make([]Result, len(parts))
	var group errgroup.Group
	group.SetLimit(parallel)
	for i, p := range parts {
		group.Go(func() error {
			results[i] = a.collect(ctx, p, spool(dir, i))
			return nil
		})
	}
	_ = group.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	zip := gzip.NewWriter(w)
	out := tar.NewWriter(zip)
	err = a.put(out, "README.txt", strings.NewReader(a.readme(results)))
	for i, r := range results {
		err = cmp.Or(err, a.putPart(out, r, spool(dir, i)))
	}
	return results, cmp.Or(err, out.Close(), zip.Close())
}

// scratch makes a directory in the first of Scratch that there is.
func (a Archive) scratch() (string, error) {
	var all []error
	for _, in := range a.Scratch {
		dir, err := os.MkdirTemp(in, "support-")
		if err == nil {
			return dir, nil
		}
		all = append(all, err)
	}
	return "", errors.Join(all...)
}

func spool(dir string, i int) string { return filepath.Join(dir, fmt.Sprint(i)) }

// collect has a part written to a file, without secrets.
func (a Archive) collect(ctx context.Context, p Part, file string) Result {
	r := Result{Name: p.Name, About: p.About}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		r.Err = err
		return r
	}
	defer f.Close()
	out := &bounded{w: f, most: a.PartSize}
	clean := &cleaner{w: out, secrets: a.Secrets}
	to := &stoppable{w: clean}
	if p.Binary {
		to.w = out
	}
	ctx, cancel := context.WithTimeout(ctx, a.Patience)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- p.Collect(ctx, to) }()
	select {
	case r.Err = <-done:
	case <-ctx.Done():
		r.Err = ctx.Err()
	}
	to.stop()
	if errors.Is(r.Err, context.DeadlineExceeded) {
		r.Err = fmt.Errorf("not done after %s: %w", a.Patience, r.Err)
	}
	if !p.Binary {
		r.Err = cmp.Or(r.Err, clean.Close())
	}
	if out.full {
		r.Err = fmt.Errorf("cut off after %d MiB", a.PartSize>>20)
	}
	r.Size = out.size
	return r
}

// bounded writes so many bytes, and refuses more.
type bounded struct {
	w          io.Writer
	size, most int64
	full       bool
}

var errFull = errors.New("too large")

func (b *bounded) Write(p []byte) (int, error) {
	if int64(len(p)) > b.most-b.size {
		b.full = true
		return 0, errFull
	}
	n, err := b.w.Write(p)
	b.size += int64(n)
	return n, err
}

// stoppable writes until stop: a part that did not end in time may go on writing.
type stoppable struct {
	mu      sync.Mutex
	w       io.Writer
	stopped bool
}

func (s *stoppable) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return 0, os.ErrDeadlineExceeded
	}
	return s.w.Write(p)
}

func (s *stoppable) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}

// putPart adds what there is of a part, and why there is not more.
func (a Archive) putPart(out *tar.Writer, r Result, file string) error {
	if r.Size > 0 || r.Err == nil {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := a.put(out, r.Name, f); err != nil {
			return err
		}
	}
	if r.Err == nil {
		return nil
	}
	return a.put(out, r.Name+".error.txt", strings.NewReader(a.why(r)+"\n"))
}

// why is the text of a part's error, of which each line may have a secret.
func (a Archive) why(r Result) string {
	b := &strings.Builder{}
	c := &cleaner{w: b, secrets: a.Secrets}
	_, _ = io.WriteString(c, r.Err.Error()) // to a strings.Builder
	_ = c.Close()
	return b.String()
}

func (a Archive) put(out *tar.Writer, name string, content io.ReadSeeker) error {
	size, err := content.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = content.Seek(0, io.SeekStart)
	}
	if err == nil {
		err = out.WriteHeader(&tar.Header{Name: a.Name + "/" + name, Typeflag: tar.TypeReg,
			Size: size, Mode: 0o600, ModTime: a.Made})
	}
	if err == nil {
		_, err = io.Copy(out, content)
	}
	return err
}

func (a Archive) readme(results []Result) string {
	b := &strings.Builder{}
	b.WriteString(a.Intro)
	if n := a.Secrets.Short; n > 0 {
		fmt.Fprintf(b, "\n%d secrets have less than %d characters: nothing was searched for "+
			"them.\n", n, leastSecret)
	}
	b.WriteString("\n")
	for _, r := range results {
		fmt.Fprintf(b, "%-32s %s\n", r.Name, r.About)
		switch {
		case r.Failed():
			fmt.Fprintf(b, "%-32s FAILED: %s\n", "", a.why(r))
		case r.Err != nil:
			fmt.Fprintf(b, "%-32s absent: %s\n", "", a.why(r))
		}
	}
	return b.String()
}
