package fib

import (
	"net/netip"
	"slices"
	"time"

	"vpp-route-agent/internal/route"
)

// An etcd route gives way to any BGP route that covers it, also to a shorter one: otherwise the /32 of a leaked allocation would beat the
// block that BGP announces. But BGP comes and goes piece by piece. While it does, the cover may be there without the longer BGP route that
// leads where etcd's does, and taking etcd's away for that moment would only have it put back. So a route that is there and is what etcd
// wants stays for coverHold, and as long as BGP has not told all that it knows. None is put that is covered.

// coverHold is longer than the agent takes to notice that a session is gone or new.
const coverHold = 3 * time.Second

// touchEtcdInside: whether BGP, or a better origin, forwards for k decides about the etcd routes that k covers.
func (t *table) touchEtcdInside(k route.Key) {
	i, _ := slices.BinarySearchFunc(t.etcd, k, route.CompareKeys)
	for _, inside := range t.etcd[i:] {
		if inside.Table != k.Table || !k.Prefix.Contains(inside.Prefix.Addr()) {
			return
		}
		t.touch(t.entries[inside])
	}
}

// covering is what an entry is to the etcd routes that it covers.
type covering uint8

const (
	coversNothing covering = iota
	coversByBGP
	// coversBetter: not BGP would have the last word about what lies inside, but this node's own block or external configuration. The /32 that
	// another node has borrowed from a block of ours must not give way to the aggregate around the block: it would end in the block's drop.
	coversBetter
)

func (e *entry) covers() covering {
	switch {
	case e == nil || e.want == nil || e.origin == route.Etcd:
		return coversNothing
	case e.origin == route.BGP:
		return coversByBGP
	}
	return coversBetter
}

// bgpCover is Facts.BGPCover.
func (t *table) bgpCover(k route.Key) (netip.Prefix, bool) {
	if t.numElevated > 0 && !k.Elevated {
		if e := t.entries[k.Twin()]; e != nil && e.want != nil {
			return k.Prefix, true
		}
	}
	for bits := k.Prefix.Bits() - 1; bits > 0; bits-- {
		p, _ := k.Prefix.Addr().Prefix(bits)
		switch t.entries[route.Key{Table: k.Table, Prefix: p}].covers() {
		case coversByBGP:
			return p, true
		case coversBetter:
			return netip.Prefix{}, false
		}
	}
	return netip.Prefix{}, false
}

// holdCovered changes c, which was selected for e, where only a cover speaks against what is there.
func (t *table) holdCovered(e *entry, c choice) choice {
	if c.forward != nil || c.covered == nil || e.want == nil || e.want.digest != c.covered.digest {
		delete(t.covered, e)
		return c
	}
	until, held := t.covered[e]
	if !held {
		until = t.now.Add(coverHold)
		t.covered[e] = until
	}
	if !t.unsaid && !t.now.Before(until) {
		delete(t.covered, e)
		return c
	}
	c.forward, c.origin, c.waiting = c.covered, route.Etcd, false
	return c
}

// releaseCovered has those selected again whose time is over.
func (t *table) releaseCovered() {
	if t.unsaid {
		return
	}
	for e, until := range t.covered {
		if !t.now.Before(until) {
			t.touch(e)
		}
	}
}

// nextCovered is when the next one's time is over; zero: none's is.
func (t *table) nextCovered() (next time.Time) {
	if t.unsaid {
		return time.Time{}
	}
	for _, until := range t.covered {
		next = sooner(next, until)
	}
	return next
}
