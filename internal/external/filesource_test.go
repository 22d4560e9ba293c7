package external

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// fileSource is the third source of docs/external-sources.md: a file with a line for each item, its
// key and its JSON. How the items stand is in a file beside it. It is whole, but for flags.
type fileSource struct {
	path      string
	snapshots chan Snapshot
	items     map[string]Item
	seen      []byte
	revision  int64
}

func newFileSource(path string) *fileSource {
	return &fileSource{path: path, snapshots: make(chan Snapshot, 1)}
}

func (f *fileSource) Name() string               { return "file" }
func (f *fileSource) Snapshots() <-chan Snapshot { return f.snapshots }

// Run looks at the file each second until ctx ends.
func (f *fileSource) Run(ctx context.Context) {
	for tick := time.Tick(time.Second); ; {
		f.read()
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
	}
}

// read takes the file in. A file that is missing has said nothing: what it wanted stays.
func (f *fileSource) read() {
	content, err := os.ReadFile(f.path)
	if err != nil || f.revision > 0 && bytes.Equal(content, f.seen) {
		return
	}
	f.seen, f.revision = content, f.revision+1
	items := map[string]Item{}
	for line := range strings.Lines(string(content)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if key == "" {
			continue
		}
		item := DecodeJSON(key, []byte(value), f.items[key]) // whose last good value stays in use
		item.Revision = f.revision
		items[key] = item
	}
	f.items = items
	select {
	case <-f.snapshots: // nobody has read it
	default:
	}
	f.snapshots <- Snapshot{Sources: []Source{{Name: f.Name(), Items: items}}, Complete: true,
		Revision: f.revision}
}

// Answer writes how the items stand.
func (f *fileSource) Answer(a Answer) {
	text := fmt.Appendf(nil, "revision %d\n", a.Revision)
	for _, v := range a.Verdicts {
		text = fmt.Appendf(text, "%s %v %s\n", v.Key, v.State, strings.Join(v.Details, "; "))
	}
	_ = os.WriteFile(f.path+".status", text, 0o600) // the next change writes it again
}

func TestFileSource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "items")
	write := func(lines ...string) {
		err := os.WriteFile(path+".new", []byte(strings.Join(lines, "\n")), 0o600)
		if err := cmp.Or(err, os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
	}
	key := "config/vpp/v2/route/vrf/0/dst/10.9.1.0/24/gw/10.0.0.2 "
	good := key + `{"dst_network":"10.9.1.0/24","next_hop_addr":"10.0.0.2"}`
	synctest.Test(t, func(t *testing.T) {
		f, data := newFileSource(path), &fakeFIB{changed: make(chan struct{}, 1)}
		c := NewController([]Adapter{f}, Plane{data, allowed})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go f.Run(ctx)
		go func() { _ = c.Run(ctx) }()
		for _, step := range []struct{ line, status string }{
			{good, "revision 1\n" + key + "CONFIGURED \n"},
			{key + "{", "revision 2\n" + key + "INVALID "},
			{"", "revision 3\n" + key + "REMOVED \n"},
		} {
			write(step.line)
			got, _ := os.ReadFile(path + ".status")
			if !strings.HasPrefix(string(got), step.status) {
				t.Errorf("%q:\n got %q\nwant %q", step.line, got, step.status)
			}
		}
	})
}
