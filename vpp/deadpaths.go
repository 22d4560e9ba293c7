package vpp

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
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

// checkPaths returns a route.DeadPathError if an interface of r, which VPP has shown as found, was
// deleted and made again under its index. VPP drops the packets of such a path for good
// (src/vnet/fib/fib_path.c, fib_path_back_walk_notify). Its command line alone shows that, and is
// asked once for each set of paths.
func (l *session) checkPaths(ctx context.Context, found ip.IPRouteV2, r route.Route) error {
	p := &l.livePaths
	p.mu.Lock()
	defer p.mu.Unlock()
	if deleted := l.gone.total(); deleted != p.deleted {
		p.all, p.deleted = nil, deleted
	}
	set := fmt.Sprint(r.Paths)
	if p.all[set] || r.Kind != route.Via {
		return nil
	}
	command := "show ip fib"
	if r.Prefix.Addr().Is6() {
		command = "show ip6 fib"
	}
	shown, err := l.conn.command(ctx, fmt.Sprintf("%s table %d %s", command, r.Table, r.Prefix))
	if err != nil {
		return err
	}
	dead := deadInterfaces(shown)
	for _, path := range found.Paths {
		name, exists := l.links.Load().byIndex[path.SwIfIndex]
		if exists && dead[path.SwIfIndex] {
			return route.DeadPathError{Interface: name}
		}
	}
	if len(dead) == 0 {
		if p.all == nil || len(p.all) >= maxLivePaths {
			p.all = make(map[string]bool)
		}
		p.all[set] = true
	}
	return nil
}

var (
	shownSource   = regexp.MustCompile(` src-flags:(\S*)`)
	droppingPath  = regexp.MustCompile(` oper-flags:\S*\bdrop,`)
	deadInterface = regexp.MustCompile(`^\s+\S+ if_index:(\d+)$`)
)

// deadInterfaces returns the indexes of the interfaces that paths of the source which forwards have
// outlived. VPP shows a path in two lines: its flags, then its next hop.
func deadInterfaces(shown string) map[uint32]bool {
	dead := map[uint32]bool{}
	active, dropping := false, false
	for line := range strings.Lines(shown) {
		line = strings.TrimRight(line, "\r\n")
		if m := shownSource.FindStringSubmatch(line); m != nil {
			active = strings.Contains(m[1], "active")
		}
		if m := deadInterface.FindStringSubmatch(line); m != nil && active && dropping {
			i, _ := strconv.ParseUint(m[1], 10, 32)
			dead[uint32(i)] = true
		}
		dropping = droppingPath.MatchString(line)
	}
	return dead
}
