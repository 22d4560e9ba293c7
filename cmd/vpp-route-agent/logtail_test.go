package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// The tail has the last lines as they were, whole, and memory is bounded.
func TestLogTail(t *testing.T) {
	var tail logTail
	log := newLogger(&tail, config{nodeName: "a", logLevel: "info", logFormat: "text"})
	log.Info("first")
	own := log.tail.text()
	if !bytes.Contains(own, []byte("msg=first")) ||
		!bytes.Equal(own, tail.text()) {
		t.Errorf("%q", own)
	}
	var all strings.Builder
	all.Write(own)
	for i := range 100_000 {
		line := fmt.Sprintf("line %d %s\n", i, strings.Repeat("x", i%97))
		all.WriteString(line)
		if _, err := tail.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
		if i%1000 != 999 {
			continue
		}
		got := string(tail.text())
		if !strings.HasSuffix("\n"+all.String(), "\n"+got) || len(got) > logTailSize ||
			all.Len() > logTailSize+100 && len(got) < logTailSize-120 {
			t.Fatalf("after %d lines: %d bytes, %.100q", i, len(got), got)
		}
	}
	if cap(tail.kept) > 4*logTailSize {
		t.Errorf("%d bytes are taken", cap(tail.kept))
	}
	huge := strings.Repeat("y", 5*logTailSize) + "\n"
	_, _ = tail.Write([]byte(huge))
	_, _ = tail.Write([]byte("last\n"))
	if got := tail.text(); string(got) != "last\n" {
		t.Errorf("%d bytes after a line that is too long", len(got))
	}
}
