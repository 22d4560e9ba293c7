// Package testlog has the loggers of tests, and logs that a test reads.
package testlog

import (
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// New returns a logger whose lines the test shows, those of level Info and above.
func New(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(Writer(t), nil))
}

// Writer writes to t.Output as long as the test runs. What a goroutine that outlives the test
// writes is dropped: to t.Output it would be a data race with the end of the test.
func Writer(t testing.TB) io.Writer {
	w := &writer{out: t.Output()}
	t.Cleanup(w.end)
	return w
}

type writer struct {
	mu  sync.Mutex
	out io.Writer
}

func (w *writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(b)
}

func (w *writer) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out = io.Discard
}

// Buffer can be read while it is written. The zero value is ready to use.
type Buffer struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
