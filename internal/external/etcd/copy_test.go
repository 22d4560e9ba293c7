package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
