package etcd

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/internal/external"
)

// A client that changes something all the time does not keep the copy from being written.
func TestTheCopyIsWrittenWhileChangesGoOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "external-etcd.json")
	synctest.Test(t, func(t *testing.T) {
		c := newCopy(path, "/vnf-agent/n/", slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		wait.Go(func() { c.run(ctx) })
		for i := range 10 {
			c.keep(kept{Base: c.base, Items: map[string]value{"a": {Text: fmt.Sprint(i)}}})
			time.Sleep(writeDelay / 2)
		}
		if k, _, err := c.read(); err != nil || k == nil {
			t.Errorf("%v, %v", k, err)
		}
		cancel()
		wait.Wait()
		k, _, err := c.read()
		if err != nil || k == nil || k.Items["a"].Text != "9" {
			t.Errorf("at the end: %v, %v", k, err)
		}
	})
}

// Cut anywhere, a copy is not used but set aside for people, and nothing is said in its place: what
// the data plane has stays until etcd answers.
func TestACutCopyIsSetAside(t *testing.T) {
	whole, err := encodeCopy(kept{Base: base, Items: map[string]value{
		aKey: {Text: aText, Revision: 7}, bKey: {Text: bText, Good: aText}}})
	must(t, err)
	for n := range 64 {
		cut := whole[:len(whole)*n/64]
		path := filepath.Join(t.TempDir(), "external-etcd.json")
		must(t, os.WriteFile(path, cut, 0o600))
		c := newCopy(path, base, slog.New(slog.DiscardHandler))
		if k, _, err := c.read(); err == nil || k != nil {
			t.Errorf("%d of %d bytes: %v, %v", len(cut), len(whole), k, err)
		}
		aside, err := os.ReadFile(path + ".damaged")
		if err != nil || !bytes.Equal(aside, cut) {
			t.Errorf("%d bytes: %d set aside (%v)", len(cut), len(aside), err)
		}
		if !strings.Contains(c.problem(), "external-etcd.json.damaged") {
			t.Errorf("%d bytes: %s", len(cut), c.problem())
		}
		if k, _, err := c.read(); k != nil || err != nil {
			t.Errorf("%d bytes, the next run: %v, %v", len(cut), k, err)
		}
	}
}

// A disk that stalls does not hold up the end.
func TestAStalledCopyDoesNotHoldUpTheEnd(t *testing.T) {
	e, _ := startEtcd(t)
	put(t, e.Client(), aKey, aText)
	dir := t.TempDir()
	stalled := filepath.Join(dir, "external-etcd.json.new") // nobody reads it
	must(t, syscall.Mkfifo(stalled, 0o600))
	s, stop := start(t, e.Endpoint(), dir)
	await(t, s, "a", func(st external.Snapshot) bool { return keys(st) == aKey })
	ended := make(chan struct{})
	go func() { stop(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("it has not ended after 20 s")
	}
	f, err := os.OpenFile(stalled, os.O_RDWR, 0) // the disk is back
	must(t, err)
	f.Close()
}
