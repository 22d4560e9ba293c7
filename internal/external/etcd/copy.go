package etcd

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"vpp-route-agent/internal/durable"
)

// The copy on disk is two lines of JSON: the checksum of the second line, and the configuration.
// Only its own agent reads it, so there are no secrets but those that etcd has too.

const (
	// writeDelay is how long a change waits for others before it is written.
	writeDelay = time.Second
	// retryDelay is the pause after a write that failed.
	retryDelay = 10 * time.Second
)

// kept is what is on disk.
type kept struct {
	Base     string           `json:"base"` // of the keys
	Revision int64            `json:"revision"`
	Written  time.Time        `json:"written"`
	Items    map[string]value `json:"items"`
	// Taken, Open and Ended are those of store: transactions.
	Taken int64          `json:"taken,omitempty"`
	Open  []*transaction `json:"open,omitempty"`
	Ended outcome        `json:"ended,omitzero"`
}

// equal reports whether both keep the same.
func (k kept) equal(o kept) bool {
	return k.Items != nil && o.Items != nil && maps.Equal(k.Items, o.Items) &&
		k.Taken == o.Taken && k.Ended == o.Ended && slices.Equal(k.Open, o.Open)
}

type checksum struct {
	SHA256 string `json:"sha256"`
}

// copyOnDisk keeps the newest configuration in a file.
type copyOnDisk struct {
	path, base string
	log        *slog.Logger
	wake       chan struct{} // of size one

	writing sync.Mutex // held while writing, and locked before mu

	mu      sync.Mutex // guards what follows
	newest  kept
	written kept // what is in the file; without Items: it is not known
	err     error
}

func newCopy(path, base string, log *slog.Logger) *copyOnDisk {
	return &copyOnDisk{path: path, base: base, log: log, wake: make(chan struct{}, 1)}
}

func (c *copyOnDisk) problem() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		return ""
	}
	return c.err.Error()
}

// read returns what is in the file; nil: there is none. A file that cannot be used is kept aside
// for people, since the next write would replace it.
func (c *copyOnDisk) read() (*kept, time.Time, error) {
	raw, err := os.ReadFile(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, time.Time{}, nil
	}
	var k *kept
	if err == nil {
		k, err = decodeCopy(raw, c.base)
	}
	if err != nil {
		aside := c.path + ".damaged"
		err = cmp.Or(os.Rename(c.path, aside), fmt.Errorf("%w; it is kept as %s", err, aside))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.err = fmt.Errorf("%s: %w", c.path, err)
		return nil, time.Time{}, c.err
	}
	c.written = *k
	return k, k.Written, nil
}

func decodeCopy(raw []byte, base string) (*kept, error) {
	line, body, ok := bytes.Cut(raw, []byte("\n"))
	var head checksum
	if !ok || json.Unmarshal(line, &head) != nil {
		return nil, errors.New("it is no copy of external configuration")
	}
	if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != head.SHA256 {
		return nil, errors.New("it is damaged: its checksum does not fit")
	}
	var k kept
	if err := json.Unmarshal(body, &k); err != nil {
		return nil, err
	}
	if k.Base != base {
		return nil, fmt.Errorf("it was written for keys under %s", k.Base)
	}
	return &k, nil
}

func encodeCopy(k kept) ([]byte, error) {
	body, err := json.Marshal(k)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	head, err := json.Marshal(checksum{hex.EncodeToString(sum[:])})
	return append(append(head, '\n'), body...), err
}

// keep has k written, unless it is what is written already.
func (c *copyOnDisk) keep(k kept) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.equal(c.newest) {
		return
	}
	k.Items = maps.Clone(k.Items)
	c.newest = k
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run writes until ctx ends, and then what is left. A client that never rests postpones nothing.
func (c *copyOnDisk) run(ctx context.Context) {
	var due <-chan time.Time // nil: nothing is
	for {
		wake := c.wake
		if due != nil {
			wake = nil
		}
		select {
		case <-ctx.Done():
			durable.AtTheEnd(func() { c.write() })
			return
		case <-wake:
			due = time.After(writeDelay)
		case <-due:
			if due = nil; !c.write() {
				due = time.After(retryDelay)
			}
		}
	}
}

// write writes what is not written yet, and reports whether it could.
func (c *copyOnDisk) write() bool {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	k, same := c.newest, c.newest.equal(c.written)
	c.mu.Unlock()
	if k.Items == nil || same {
		return true
	}
	k.Written = time.Now().UTC()
	content, err := encodeCopy(k)
	if err == nil {
		err = durable.WriteFile(c.path, content)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.err == nil {
		c.log.Warn("the copy of external configuration on disk cannot be written", "err", err)
	}
	if c.err = err; err == nil {
		c.written = k
	}
	return err == nil
}
