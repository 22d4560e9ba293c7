package main

import (
	"bytes"
	"sync"
)

// logTailSize is how much of its log the agent has for support, in bytes: thousands of lines. In a
// pod nothing else on the host can be asked for it.
const logTailSize = 1 << 20

// logTail is the end of a log.
type logTail struct {
	mu   sync.Mutex
	kept []byte // up to twice logTailSize, so that a line is moved once at most
}

func (t *logTail) Write(line []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.kept)+len(line) > 2*logTailSize {
		t.kept = append(t.kept[:0], t.last(logTailSize)...)
	}
	t.kept = append(t.kept, line...)
	return len(line), nil
}

// last are the whole lines among so many bytes at the end.
func (t *logTail) last(most int) []byte {
	if len(t.kept) <= most {
		return t.kept
	}
	before := len(t.kept) - most - 1 // a line may begin just where the last bytes do
	return t.kept[before+1+bytes.IndexByte(t.kept[before:], '\n'):]
}

// text is a copy of the last lines.
func (t *logTail) text() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.last(logTailSize))
}
