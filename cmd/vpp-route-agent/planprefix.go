package main

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/route"
)

// What plan says about one prefix, in JSON.
type (
	prefixPlan struct {
		Prefix    netip.Prefix   `json:"prefix"`
		Announced bool           `json:"announced"`
		Reason    string         `json:"reason,omitempty"` // why it is not announced
		Peers     []prefixAtPeer `json:"peers"`
		// Encapsulation is of a pool with ipipMode or vxlanMode; absent elsewhere.
		Encapsulation *prefixEncapsulation `json:"encapsulation,omitempty"`
	}
	prefixEncapsulation struct {
		Pool  string       `json:"pool"`
		Felix bool         `json:"felix,omitempty"` // has its routes; Nodes is empty then
		Note  string       `json:"note,omitempty"`  // why packets leave as they are
		Nodes []prefixAway `json:"nodes"`
	}
	// prefixAway is how packets leave towards another node.
	prefixAway struct {
		Node          string      `json:"node"`
		NextHop       netip.Addr  `json:"nextHop"`
		Encapsulation route.Encap `json:"encapsulation"`
		// addresses of the outer header; absent without one
		OuterSource      *netip.Addr `json:"outerSource,omitempty"`
		OuterDestination *netip.Addr `json:"outerDestination,omitempty"`
		Refused          bool        `json:"refused,omitempty"` // they cannot leave at all
		Reason           string      `json:"reason"`
	}
	prefixAtPeer struct {
		Peer   bgp.PeerID       `json:"peer"`
		Import verdict          `json:"import"`
		Own    *verdict         `json:"exportOwn,omitempty"`
		Passed []learnedVerdict `json:"exportLearned"`
		// Elevated is the same while a live migration elevates the learned route, where that makes
		// a difference.
		Elevated []learnedVerdict `json:"exportElevated,omitempty"`
	}
	learnedVerdict struct {
		From []bgp.PeerID `json:"from"`
		verdict
	}
	verdict struct {
		Accept     bool     `json:"accept"`
		Rule       string   `json:"rule"`
		Operations []string `json:"operations"`
	}
)

// planPrefix evaluates prefix for the peers of its family: learned from each, announced by this
// node, and passed on. A learned route is assumed to have no communities, an AS_PATH of nothing but
// an external peer's own AS, and the normal LOCAL_PREF from an iBGP peer.
func planPrefix(prefix netip.Prefix, p bgp.Plan) prefixPlan {
	out := prefixPlan{Prefix: prefix, Peers: []prefixAtPeer{}}
	own := announcementOf(prefix, p)
	if out.Announced = own != nil; !out.Announced {
		out.Reason = whyNotAnnounced(prefix, p)
	}
	var peers []*bgp.Peer
	for i := range p.Peers {
		if p.Peers[i].Address.Is4() == prefix.Addr().Is4() {
			peers = append(peers, &p.Peers[i])
		}
	}
	// What import accepts, by peer; and elevated routes that stay elevated.
	learned, high := map[bgp.PeerID]bgp.Route{}, map[bgp.PeerID]bgp.Route{}
	for _, peer := range peers {
		normal := p.Policies.Normal(prefix)
		path, v := p.Policies.Import(plainRoute(prefix, peer, normal+elevation))
		if v.Accept && p.Policies.Elevates(path) {
			high[peer.ID()] = path
		}
		path, v = p.Policies.Import(plainRoute(prefix, peer, normal))
		if v.Accept {
			learned[peer.ID()] = path
		}
		at := prefixAtPeer{Peer: peer.ID(), Import: verdictOf(v)}
		if own != nil {
			v := verdictOf(p.Policies.Export(own.Route(), *peer))
			at.Own = &v
		}
		out.Peers = append(out.Peers, at)
	}
	same := maps.Clone(learned)
	maps.DeleteFunc(same, func(from bgp.PeerID, _ bgp.Route) bool {
		_, ok := high[from]
		return !ok
	})
	for i, to := range peers {
		out.Peers[i].Passed = passOn(peers, learned, *to, p.Policies)
		then := passOn(peers, high, *to, p.Policies)
		if !slices.EqualFunc(then, passOn(peers, same, *to, p.Policies), sameVerdict) {
			out.Peers[i].Elevated = then
		}
	}
	return out
}

// planEncapsulation says how packets to a prefix leave towards each other node; nil where no pool
// has a mode.
func planEncapsulation(prefix netip.Prefix, e *route.Encapsulation) *prefixEncapsulation {
	pool := e.PoolOf(prefix)
	if pool == nil || pool.Encap == route.Plain && pool.Note == "" {
		return nil
	}
	out := &prefixEncapsulation{Pool: pool.Name, Felix: pool.Felix, Note: pool.Note,
		Nodes: []prefixAway{}}
	for _, n := range e.Nodes {
		a := n.Address
		if pool.Encap == route.Plain || pool.Felix || a.Is4() != prefix.Addr().Is4() {
			continue
		}
		l := e.Leaves(pool, a)
		away := prefixAway{Node: n.Name, NextHop: a, Encapsulation: l.Encap, Refused: l.Refused,
			Reason: l.Reason()}
		if l.Encap != route.Plain {
			away.OuterSource, away.OuterDestination = &l.From, &l.To
		}
		out.Nodes = append(out.Nodes, away)
	}
	return out
}

func announcementOf(prefix netip.Prefix, p bgp.Plan) *bgp.Announcement {
	i := slices.IndexFunc(p.Announcements, func(a bgp.Announcement) bool {
		return a.Prefix == prefix
	})
	if i < 0 {
		return nil
	}
	return &p.Announcements[i]
}

func whyNotAnnounced(prefix netip.Prefix, p bgp.Plan) string {
	for _, w := range p.Withheld {
		if w.Prefix == prefix {
			return w.Reason
		}
	}
	for _, block := range p.Policies.OwnBlocks {
		if block.Contains(prefix.Addr()) && block.Bits() < prefix.Bits() {
			return fmt.Sprintf("inside own block %s, which is announced as a whole", block)
		}
	}
	return "neither a block nor an address of this node"
}

// elevation is the default by which LOCAL_PREF of a migrating address is above the normal one:
// Felix' priorities are 1024 and 512.
const elevation = 512

func plainRoute(prefix netip.Prefix, from *bgp.Peer, localPref uint32) bgp.Route {
	r := bgp.Route{Prefix: prefix, From: from, LocalPref: localPref}
	if from.External() {
		r.ASPath = []uint32{from.RemoteAS}
	}
	return r
}

// passOn returns which routes of other peers go to a peer, grouped by verdict.
func passOn(peers []*bgp.Peer, learned map[bgp.PeerID]bgp.Route, to bgp.Peer,
	policies bgp.Policies) []learnedVerdict {
	all := []learnedVerdict{}
	for _, from := range peers {
		path, ok := learned[from.ID()]
		if !ok || from.ID() == to.ID() {
			continue
		}
		v := verdictOf(policies.Export(path, to))
		i := slices.IndexFunc(all, func(l learnedVerdict) bool { return l.equal(v) })
		if i < 0 {
			i = len(all)
			all = append(all, learnedVerdict{verdict: v})
		}
		all[i].From = append(all[i].From, from.ID())
	}
	return all
}

func sameVerdict(a, b learnedVerdict) bool {
	return slices.Equal(a.From, b.From) && a.equal(b.verdict)
}

func (v verdict) equal(o verdict) bool {
	return v.Accept == o.Accept && v.Rule == o.Rule && slices.Equal(v.Operations, o.Operations)
}

func verdictOf(v bgp.Verdict) verdict {
	out := verdict{Accept: v.Accept, Rule: cmp.Or(v.Rule, v.Reason), Operations: []string{}}
	for _, op := range v.Operations {
		out.Operations = append(out.Operations, op.String())
	}
	return out
}
