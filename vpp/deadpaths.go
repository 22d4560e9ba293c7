package vpp

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.fd.io/govpp/binapi/ip"

	"vpp-route-agent/internal/route"
)

// livePaths are the sets of paths that VPP has shown to forward since an interface was deleted.
type livePaths struct {
	mu      sync.Mutex
	all     map[string]bool
	deleted uint32 // how many interfaces had been
}

// maxLivePaths bounds what is remembered, since nodes come and go: with more it begins anew.
const maxLivePaths = 10_000

// has reports whether VPP has shown that set forwards. It forgets all sets when another interface
// has been deleted.
func (p *livePaths) has(set string, deleted uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if deleted != p.deleted {
		p.all, p.deleted = nil, deleted
	}
	return p.all[set]
}

// add takes what VPP has shown, unless an interface has been deleted since it was asked.
func (p *livePaths) add(set string, deleted uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if deleted != p.deleted {
		return
	}
	if p.all == nil || len(p.all) >= maxLivePaths {
		p.all = make(map[string]bool)
	}
	p.all[set] = true
}

// setOf names the paths of an entry as VPP has them: entries of the same paths share their state.
// Those of route.Route differ, since VPP has a next hop for each host route to an interface.
func setOf(found ip.IPRouteV2) string {
	b := &strings.Builder{}
	for _, p := range found.Paths {
		fmt.Fprintf(b, "%d %x %d %d %d %d,", p.Proto, p.Nh.Address.XXX_UnionData, p.SwIfIndex,
			p.TableID, p.Preference, p.Weight)
	}
	return b.String()
}

// checkPaths returns a route.DeadPathError if an interface of r, which VPP has shown as found, was
// deleted and made again under its index. VPP drops the packets of such a path for good
// (src/vnet/fib/fib_path.c, fib_path_back_walk_notify). Its command line alone shows that, and is
// asked once for each set of paths.
func (l *session) checkPaths(ctx context.Context, found ip.IPRouteV2, r route.Route) error {
	set, deleted := setOf(found), l.gone.total()
	if r.Kind != route.Via || l.livePaths.has(set, deleted) {
		return nil
	}
	shown := l.showEntry(ctx, r.Table, r.Prefix, "")
	dead := deadPaths(shown, r.Prefix)
	if shown == "" || len(dead) != len(found.Paths) {
		return nil // nothing is known, or it has changed meanwhile
	}
	for i, path := range found.Paths {
		name, exists := l.links.Load().byIndex[path.SwIfIndex]
		if exists && dead[i] {
			return route.DeadPathError{Interface: name}
		}
	}
	if !slices.Contains(dead, true) {
		l.livePaths.add(set, deleted)
	}
	return nil
}

// showEntry returns what VPP's command line shows of the longest match for p, "" if that is not
// known. How is "detail" or "".
func (l *session) showEntry(ctx context.Context, table uint32, p netip.Prefix, how string) string {
	if table > math.MaxInt32 {
		return "" // it reads a signed number, and would show all tables
	}
	command := "show ip fib"
	if p.Addr().Is6() {
		command = "show ip6 fib"
	}
	shown, _ := l.conn.command(ctx, fmt.Sprintf("%s table %d %s %s", command, table, p, how))
	return shown
}

var (
	shownEntry   = regexp.MustCompile(`^(\S+/\d+) fib:`)
	shownSource  = regexp.MustCompile(` src-flags:(\S*)`)
	shownPath    = regexp.MustCompile(`^\s+path:\[`)
	droppingPath = regexp.MustCompile(` oper-flags:\S*\bdrop,`)
)

// deadPaths reports which paths of the source that forwards have outlived their interfaces, if the
// entry of a prefix is shown: VPP shows the longest match. They are in the API's order
// (fib_path_list_walk_w_ext, format_fib_path_list). The index in the line after a dead path without
// a next hop is wrong.
func deadPaths(shown string, of netip.Prefix) (dead []bool) {
	isIt, active := false, false
	for line := range strings.Lines(shown) {
		if m := shownEntry.FindStringSubmatch(line); m != nil {
			p, err := netip.ParsePrefix(m[1])
			isIt = err == nil && p.Masked() == of
		}
		if m := shownSource.FindStringSubmatch(line); m != nil {
			active = strings.Contains(m[1], "active")
		}
		if isIt && active && shownPath.MatchString(line) {
			dead = append(dead, droppingPath.MatchString(line))
		}
	}
	return dead
}
