package vpp

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.fd.io/govpp/binapi/fib"
	"go.fd.io/govpp/binapi/vpe"

	"vpp-route-agent/internal/route"
)

// readVersion returns for instance "VPP 25.10-release".
func readVersion(ctx context.Context, c *conn) (string, error) {
	if _, ok := c.id((*vpe.ShowVersion)(nil)); !ok {
		return "this VPP", nil // it will be refused with all that it lacks
	}
	r, err := ask[vpe.ShowVersionReply](ctx, c, &vpe.ShowVersion{})
	if err == nil {
		err = vppError(r.Retval)
	}
	if err != nil {
		return "", fmt.Errorf("read version: %w", err)
	}
	return "VPP " + r.Version, nil
}

// source is a FIB source of VPP.
type source struct {
	id       uint8
	priority uint8
	name     string
}

// before reports whether of two sources that have one prefix s forwards: the lower priority, or of equal ones what was registered first.
func (s source) before(o source) bool {
	return cmp.Or(cmp.Compare(s.priority, o.priority), cmp.Compare(s.id, o.id)) < 0
}

// role says what entries of a source mean when a next hop is resolved.
type role uint8

const (
	wanted  role = iota // somebody wants the entry: most sources
	noRoute             // there is no route: VPP fills the gap with a drop
	derived             // made by VPP for its own use, forwards as its cover does
	special             // VPP's own, in every table
)

// roles holds the sources that are not wanted, by VPP's name for them (src/vnet/fib/fib_source.h).
var roles = map[string]role{
	"special":              special,
	"default-route":        noRoute,
	"recursive-resolution": derived,
	"urpf-exempt":          derived,
}

func readSources(ctx context.Context, c *conn) ([]source, error) {
	var all []source
	err := dump(ctx, c, []request{&fib.FibSourceDump{}}, func(_ int, d *fib.FibSourceDetails) {
		all = append(all, source{id: d.Src.ID, priority: d.Src.Priority, name: d.Src.Name})
	})
	if err != nil {
		return nil, fmt.Errorf("read FIB sources: %w", err)
	}
	return all, nil
}

// sources are those that VPP had when they were read, by id.
type sources map[uint8]source

func (l *life) remember(all []source) {
	byID := make(sources, len(all))
	for _, s := range all {
		byID[s.id] = s
	}
	l.sources.Store(&byID)
}

func (l *life) roleOf(id uint8) role { return roles[(*l.sources.Load())[id].name] }

// sourceOf returns the source of that id, which may be younger than our connection.
func (l *life) sourceOf(ctx context.Context, id uint8) (source, error) {
	if s, ok := (*l.sources.Load())[id]; ok {
		return s, nil
	}
	all, err := readSources(ctx, l.conn)
	if err != nil {
		return source{}, err
	}
	l.remember(all)
	s, ok := (*l.sources.Load())[id]
	if !ok {
		return source{}, fmt.Errorf("VPP shows FIB source %d, but does not list it", id)
	}
	return s, nil
}

// sourceFor is the source of ours that an entry of k has.
func (l *life) sourceFor(k route.Key) source {
	if k.Elevated {
		return l.elevated
	}
	return l.own
}

// isOurs reports whether id is one of our two sources.
func (l *life) isOurs(id uint8) bool { return id == l.own.id || id == l.elevated.id }

// useOwnSource has l write under FIB sources of our own: one for most, and one for elevated routes.
func (l *life) useOwnSource(ctx context.Context, name string, priority uint8, pid uint32) error {
	all, err := readSources(ctx, l.conn)
	if err != nil {
		return err
	}
	if l.own, err = adoptOrAddSource(ctx, l.conn, all, name, priority); err != nil {
		return err
	}
	if l.elevated, err = adoptOrAddElevated(ctx, l.conn, all, name, min(elevatedPriority, priority)); err != nil {
		return err
	}
	l.remember(append(all, l.own, l.elevated))
	l.facts.Identity = fmt.Sprintf("%s pid %d source %d", l.own.name, pid, l.own.id)
	if l.own.priority != priority {
		l.facts.Problem = fmt.Sprintf("FIB source %s keeps priority %#x, %#x takes effect when VPP restarts", l.own.name, l.own.priority, priority)
	}
	return nil
}

// MaxSourceName is the longest name of a source, in bytes: the room in fib_source_add without a NUL, less "@" and eight digits.
const MaxSourceName = 63 - 9

// adoptOrAddSource finds our FIB source by name before adding it: VPP hands out a new id on every fib_source_add, also for a known
// name, out of one byte's worth (src/vnet/fib/fib_source.c); routes under the old id would be orphans.
//
// The name in VPP is ours with a random number behind it, made when the source is added. A source lives exactly as long as VPP
// does, so the number tells one life of VPP from another without trusting clocks, also where the process id is always 1
// and VPP's statistics segment is out of reach.
func adoptOrAddSource(ctx context.Context, c *conn, known []source, name string, priority uint8) (source, error) {
	var own *source
	for i, s := range known {
		if isOurs(s.name, name) && (own == nil || s.id < own.id) {
			own = &known[i]
		}
	}
	if own != nil {
		return *own, nil
	}
	if len(name) > MaxSourceName {
		return source{}, fmt.Errorf("FIB source name %q is longer than %d bytes", name, MaxSourceName)
	}
	return addSource(ctx, c, source{priority: priority, name: name + "@" + randomHex()})
}

// elevatedPriority is just before the API's, under which CNI plugins put the routes of their workloads.
const elevatedPriority = 0x7f

// adoptOrAddElevated is the same for our second source. Its name is as long as the first one's, and no name of a first one.
func adoptOrAddElevated(ctx context.Context, c *conn, known []source, name string, priority uint8) (source, error) {
	name += "@elevated"
	for _, s := range known { // by id, so the first is the one of lowest id
		if s.name == name {
			return s, nil
		}
	}
	return addSource(ctx, c, source{priority: priority, name: name})
}

func addSource(ctx context.Context, c *conn, s source) (source, error) {
	r, err := ask[fib.FibSourceAddReply](ctx, c, &fib.FibSourceAdd{Src: fib.FibSource{Priority: s.priority, Name: s.name}})
	if err == nil {
		err = vppError(r.Retval)
	}
	switch {
	case err != nil:
		return source{}, fmt.Errorf("add FIB source: %w", err)
	case r.ID == 0: // FIB_SOURCE_INVALID; on the way in 0 would mean the API source
		return source{}, errors.New("VPP has no FIB source left: only its restart frees them")
	}
	s.id = r.ID
	return s, nil
}

// sourceNumber is what randomHex makes.
var sourceNumber = regexp.MustCompile(`^[0-9a-f]{8}$`)

// isOurs reports whether a source was made by adoptOrAddSource with that name. The name alone is not: VPP's own sources are called API, CLI,
// interface and so on, and what they have is others'.
func isOurs(source, name string) bool {
	number, ok := strings.CutPrefix(source, name+"@")
	return ok && sourceNumber.MatchString(number)
}

func randomHex() string {
	var b [4]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
