package agent

import (
	"maps"
	"net/netip"
	"time"

	"vpp-route-agent/internal/calico"
)

// lostNodesHold is how long a list that lacks suspiciously many nodes must stay as it is until it
// is believed, as with routes (internal/fib/sources.go).
const lostNodesHold = time.Minute

// lostNodes has the tunnels stay to nodes that a new list of the datastore lacks, if those are so
// many that the list may be broken. By BGP, routes to them may well remain.
type lostNodes struct {
	seen     *calico.Snapshot
	held     map[netip.Addr]string // name by address
	since    time.Time
	releases time.Time // unless the list changes
}

// release believes the list that there is.
func (l *lostNodes) release() { l.releases = time.Time{} }

// guard is what status shows, nil while nothing is held.
func (l *lostNodes) guard() *GuardStatus {
	if len(l.held) == 0 {
		return nil
	}
	return &GuardStatus{Origin: "tunnel", Held: len(l.held), Since: l.since, Releases: l.releases}
}

// step returns the nodes that are held, by their addresses. suspicious is the rule of the guard
// against mass deletion.
func (l *lostNodes) step(now time.Time, self string, s *calico.Snapshot,
	suspicious func(gone, all int) bool) map[netip.Addr]string {
	if s == l.seen {
		if !now.Before(l.releases) {
			l.held = nil
		}
		return l.held
	}
	before, listed := l.seen, l.seen != nil && s.Lists != l.seen.Lists
	l.seen = s
	if !listed && len(l.held) == 0 {
		return nil
	}
	all, gone := 0, maps.Clone(l.held) // events add none
	if listed {
		gone = otherNodes(self, before)
		maps.Copy(gone, l.held)
		all = len(gone)
	}
	there := otherNodes(self, s)
	maps.DeleteFunc(gone, func(a netip.Addr, _ string) bool {
		_, ok := there[a]
		return ok
	})
	same := maps.Equal(gone, l.held)
	switch {
	case len(gone) == 0, listed && !same && !suspicious(len(gone), all),
		!now.Before(l.releases) && same:
		gone = nil
	case len(l.held) == 0:
		l.since, l.releases = now, now.Add(lostNodesHold)
	case !same:
		l.releases = now.Add(lostNodesHold)
	}
	l.held = gone
	return gone
}

// otherNodes are the names of the nodes but self, by address.
func otherNodes(self string, s *calico.Snapshot) map[netip.Addr]string {
	all := make(map[netip.Addr]string, len(s.Nodes))
	for name, n := range s.Nodes {
		for _, a := range nodeAddresses(n) {
			if name != self {
				all[a] = name
			}
		}
	}
	return all
}
