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

// before reports whether s forwards if both sources have a prefix: the lower priority wins, then
// the earlier registration.
func (s source) before(o source) bool {
	return cmp.Or(cmp.Compare(s.priority, o.priority), cmp.Compare(s.id, o.id)) < 0
}

// role says how an entry of a source affects the resolution of a next hop.
type role uint8

const (
	wanted  role = iota // the entry is wanted: most sources
	noRoute             // there is no route: VPP fills the gap with a drop
	derived             // made by VPP for its own use, forwards as its cover does
	special             // VPP's own, in every table
)

// roles names the sources other than wanted ones (src/vnet/fib/fib_source.h).
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

// sources is a reading of VPP's FIB sources, by id.
type sources map[uint8]source

func (l *session) remember(all []source) {
	byID := make(sources, len(all))
	for _, s := range all {
		byID[s.id] = s
	}
	l.sources.Store(&byID)
}

func (l *session) roleOf(id uint8) role { return roles[(*l.sources.Load())[id].name] }

// sourceOf returns the source with that id, which may be newer than our connection.
func (l *session) sourceOf(ctx context.Context, id uint8) (source, error) {
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

// sourceFor returns our source of the entry of k.
func (l *session) sourceFor(k route.Key) source {
	if k.Elevated {
		return l.elevated
	}
	return l.own
}

// isOurs reports whether id is one of our two sources.
func (l *session) isOurs(id uint8) bool { return id == l.own.id || id == l.elevated.id }

// useOwnSource makes l write under FIB sources of its own: one for elevated routes, one for others.
func (l *session) useOwnSource(ctx context.Context, name string, priority uint8, pid uint32) error {
	all, err := readSources(ctx, l.conn)
	if err != nil {
		return err
	}
	if l.own, err = adoptOrAddSource(ctx, l.conn, all, name, priority); err != nil {
		return err
	}
	if l.elevated, err = adoptOrAddElevated(ctx, l.conn, all, name,
		min(elevatedPriority, priority)); err != nil {
		return err
	}
	l.remember(append(all, l.own, l.elevated))
	l.facts.Identity = fmt.Sprintf("%s pid %d source %d", l.own.name, pid, l.own.id)
	if l.own.priority != priority {
		l.facts.Problem = fmt.Sprintf("FIB source %s keeps priority %#x, %#x takes effect when "+
			"VPP restarts", l.own.name, l.own.priority, priority)
	}
	return nil
}

// MaxSourceName is the longest name of a source in bytes: that of fib_source_add without NUL, "@"
// and eight digits.
const MaxSourceName = 63 - 9

// adoptOrAddSource finds our FIB source by name before adding it: fib_source_add returns a new id
// even for a known name (src/vnet/fib/fib_source.c), and routes under the old one would be orphans.
// The name's random suffix identifies the generation of VPP, even if its pid is always 1.
func adoptOrAddSource(ctx context.Context, c *conn, known []source, name string,
	priority uint8) (source, error) {
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
		return source{}, fmt.Errorf("FIB source name %q is longer than %d bytes", name,
			MaxSourceName)
	}
	return addSource(ctx, c, source{priority: priority, name: name + "@" + randomHex()})
}

// elevatedPriority precedes the API's, which CNI plugins use for workload routes.
const elevatedPriority = 0x7f

// adoptOrAddElevated does the same for the elevated source, whose name is as long and different.
func adoptOrAddElevated(ctx context.Context, c *conn, known []source, name string,
	priority uint8) (source, error) {
	name += "@elevated"
	for _, s := range known { // by id, so the first is the one of lowest id
		if s.name == name {
			return s, nil
		}
	}
	return addSource(ctx, c, source{priority: priority, name: name})
}

func addSource(ctx context.Context, c *conn, s source) (source, error) {
	r, err := ask[fib.FibSourceAddReply](ctx, c,
		&fib.FibSourceAdd{Src: fib.FibSource{Priority: s.priority, Name: s.name}})
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

// sourceNumber matches the result of randomHex.
var sourceNumber = regexp.MustCompile(`^[0-9a-f]{8}$`)

// isOurs reports whether adoptOrAddSource made the source with that name. The suffix matters: VPP's
// own sources are called API, CLI or interface, and their routes are not ours.
func isOurs(source, name string) bool {
	number, ok := strings.CutPrefix(source, name+"@")
	return ok && sourceNumber.MatchString(number)
}

func randomHex() string {
	var b [4]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
