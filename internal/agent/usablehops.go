package agent

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"vpp-route-agent/internal/route"
)

// maxUnusable bounds what is remembered and shown: a peer may send any number of next hops.
const maxUnusable = 1000

// usableHops says which next hops BGP may choose for a prefix: none that the data plane cannot use,
// and in a pool with IPIP only nodes with a tunnel. Routes in pools with VXLAN, which are not
// programmed, are passed on whatever their next hops.
type usableHops struct {
	rules atomic.Pointer[hopRules]

	mu   sync.Mutex
	left map[hopInPool]string // asked for and refused since BGP took the rules, and why
	many bool                 // there were more
}

type hopInPool struct {
	pool netip.Prefix
	hop  netip.Addr
}

// hopRules are what usableHops decides by.
type hopRules struct {
	dead     map[netip.Addr]bool
	noTunnel map[netip.Addr]string // to nodes: the data plane refuses it, and why
	tunnels  *route.Encapsulation  // nil: no pool has IPIP
}

// usable is asked by BGP, from any goroutine.
func (u *usableHops) usable(p netip.Prefix, hop netip.Addr) bool {
	rules := u.rules.Load()
	if rules.dead[hop] {
		return false
	}
	pool, why := rules.refuse(p, hop)
	if why == nil {
		return true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	at := hopInPool{pool.Prefix, hop}
	if _, known := u.left[at]; known {
		return false
	}
	if u.many = u.many || len(u.left) == maxUnusable; !u.many {
		if u.left == nil {
			u.left = map[hopInPool]string{}
		}
		u.left[at] = why()
	}
	return false
}

// refuse returns nil if packets to p can leave towards a next hop.
func (r *hopRules) refuse(p netip.Prefix, hop netip.Addr) (pool *route.Pool, why func() string) {
	if r.tunnels == nil {
		return nil, nil
	}
	pool = r.tunnels.PoolOf(p)
	if pool == nil || !isTunnelled(*pool) {
		return pool, nil
	}
	l := r.tunnels.Leaves(pool, hop)
	if l.Refused {
		return pool, l.Reason
	}
	if text, refused := r.noTunnel[hop]; refused && l.Encap == route.IPIP {
		return pool, func() string { return "its tunnel is refused: " + text }
	}
	return pool, nil
}

// take takes other rules, and reports whether BGP must ask again about what it has.
func (u *usableHops) take(now *hopRules) (again bool) {
	before := u.rules.Load()
	if before == nil {
		before = &hopRules{}
	}
	again = !maps.Equal(before.dead, now.dead) || losesTunnels(before.tunnels, now.tunnels) ||
		!maps.EqualFunc(before.noTunnel, now.noTunnel, func(_, _ string) bool { return true })
	u.rules.Store(now)
	u.mu.Lock()
	defer u.mu.Unlock()
	again = again || u.many && losesTunnels(now.tunnels, before.tunnels) // a node has come
	for at := range u.left {
		_, why := now.refuse(at.pool, at.hop)
		again = again || why == nil
	}
	return again
}

// losesTunnels reports whether a next hop that could be used may be none now.
func losesTunnels(before, now *route.Encapsulation) bool {
	switch {
	case before == now:
		return false
	case before == nil, now == nil, before.Own4 != now.Own4,
		!slices.Equal(before.Pools, now.Pools), !maps.Equal(before.Published, now.Published):
		return true
	}
	_, gone := before.Nodes.Changes(now.Nodes)
	return len(gone) > 0
}

// forget: BGP asks again about all it has.
func (u *usableHops) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.left, u.many = nil, false
}

// list is what status shows, by address.
func (u *usableHops) list() (all []NextHopStatus) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for at, why := range u.left {
		all = append(all, NextHopStatus{at.hop, why, &at.pool})
	}
	slices.SortFunc(all, func(a, b NextHopStatus) int {
		return cmp.Or(a.Address.Compare(b.Address), a.Pool.Addr().Compare(b.Pool.Addr()))
	})
	return all
}

// rejectNextHops informs the speaker which next hops the data plane cannot use. GoBGP tracks none:
// a best path with a dead next hop would hide a usable path.
func (a *Agent) rejectNextHops(ctx context.Context) {
	if a.cfg.FIB == nil || a.sessions.configured.IsZero() {
		return
	}
	rules := &hopRules{dead: map[netip.Addr]bool{}}
	for _, hop := range a.cfg.FIB.UnusableNextHops() {
		rules.dead[hop.Address] = true
	}
	if e := a.plan.Encapsulation; e != nil && slices.ContainsFunc(e.Pools, isTunnelled) {
		rules.tunnels, rules.noTunnel = a.plan.Encapsulation, a.cfg.FIB.RefusedEndpoints()
	}
	if a.usableStale = a.usable.take(rules) || a.usableStale; !a.usableStale {
		return
	}
	a.usable.forget()
	if err := a.cfg.Speaker.SetUsable(ctx, a.usable.usable); err != nil {
		a.cfg.Log.Error("the speaker does not reject unusable next hops; "+
			"it is tried again each second", "err", err)
		return
	}
	dead := slices.SortedFunc(maps.Keys(rules.dead), netip.Addr.Compare)
	for _, hop := range a.usable.list() {
		dead = append(dead, hop.Address)
	}
	a.cfg.Log.Info("next hops that cannot be used", "next_hops", dead)
	a.usableStale = false
}

// isTunnelled reports whether a pool's packets leave by IPIP tunnels of ours.
func isTunnelled(p route.Pool) bool { return p.Encap == route.IPIP && !p.Felix && p.Waits == "" }
