package agent

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/ipam"
)

// explainer goes through the links of the chain from Calico's data to the data plane, in the order
// of cause and effect. The first that fails is the verdict.
type explainer struct {
	evidence
	owner ipam.Ownership
	shown OwnershipStatus
	// own is this node's own prefix that asked lies in, with what it is; invalid: it is elsewhere.
	own     netip.Prefix
	ownText string
	host    *ipam.Host // of this node, with the address asked about
	absent  string     // why an address of Calico's data is not here

	// sent is what becomes of the announcement that covers asked at each peer: of this node's own,
	// else of the best path.
	sent   []ExportStatus
	places map[bgp.PeerID]int    // in peers, and in the plan's, which have the same order
	nodes  map[netip.Addr]string // names by address
}

// link is one of the chain. Without a text it says nothing.
type link struct {
	name  string
	check func(*explainer) (text string, ok bool)
}

// The order is that of cause and effect.
var (
	toOthers = []link{
		{"data", (*explainer).checkData}, {"node", (*explainer).checkNode},
		{"ipam", (*explainer).checkOwner}, {"left over", (*explainer).checkLeftOver},
		{"session", (*explainer).checkSession},
		{"announcement", (*explainer).checkAnnouncement}, {"import", (*explainer).checkImport},
		{"next hop", (*explainer).checkRejected}, {"data plane", (*explainer).checkDataplane},
		{"guard", (*explainer).checkGuard}, {"tunnel", (*explainer).checkTunnel},
		{"selection", (*explainer).checkSelection},
		{"programmed", (*explainer).checkProgrammed}, {"now", (*explainer).checkNow},
		{"destination", (*explainer).checkDestination}, {"passed on", (*explainer).checkPassedOn},
	}
	ofThisNode = []link{
		{"data", (*explainer).checkData}, {"node", (*explainer).checkNode},
		{"ipam", (*explainer).checkOwnIPAM}, {"withheld", (*explainer).checkWithheld},
		{"data plane", (*explainer).checkDataplane},
		{"drop route", (*explainer).checkDropRoute}, {"speaker", (*explainer).checkSpeaker},
		{"export", (*explainer).checkExport}, {"session", (*explainer).checkSessions},
		{"rival", (*explainer).checkRival}, {"now", (*explainer).checkOwnNow},
		{"delivery", (*explainer).checkDelivery},
	}
)

// explain is pure: the same evidence gives the same explanation.
func explain(e evidence) Explanation {
	x := &explainer{evidence: e, places: make(map[bgp.PeerID]int, len(e.peers))}
	for i, p := range e.peers {
		x.places[p.Peer] = i
	}
	x.owner, x.shown = e.ownership()
	x.findOwn()
	chain := toOthers
	if x.own.IsValid() {
		chain, x.sent = ofThisNode, x.exportsOfOwn()
	} else {
		x.sent = x.passedOn()
	}
	out := x.details()
	out.OK = true
	for _, l := range chain {
		text, ok := l.check(x)
		if text == "" {
			continue
		}
		out.Steps = append(out.Steps, ExplainStep{l.name, ok, text})
		if !ok {
			out.OK, out.Fails = false, l.name
			out.Verdict = x.complaint(l.name, text)
			return out
		}
	}
	out.Verdict = x.conclusion()
	return out
}

// subject is what was asked about, as people write it.
func (e *evidence) subject() string {
	if e.asked.IsSingleIP() {
		return e.asked.Addr().String()
	}
	return e.asked.String()
}

// findOwn finds out whether the prefix is this node's.
func (x *explainer) findOwn() {
	s := x.inputs.snapshot
	if s == nil {
		return
	}
	x.nodes = ipam.NodesByAddress(s)
	if x.asked.IsSingleIP() {
		x.shown.NodeAddress = x.nodes[x.asked.Addr()]
	}
	blocks, skipped := ipam.OwnBlocks(x.node, s)
	hosts, notHere := ipam.Hosts(x.node, blocks, s)
	if i := slices.IndexFunc(hosts, func(h ipam.Host) bool { return h.Prefix == x.asked }); i >= 0 {
		x.host = &hosts[i]
		x.shown.Workload = x.host.Source
	}
	in, elsewhere := bgp.ServiceAddress(x.node, s, x.inputs.options, x.asked)
	if in.IsValid() {
		x.shown.Service = &in
	}
	for _, w := range notHere {
		if w.Prefix == x.asked {
			x.absent = w.Reason
		}
	}
	borrowed := x.owner.Host != "" && x.owner.Host != x.node
	switch {
	case x.shown.NodeAddress == x.node && x.node != "":
		x.own, x.ownText = x.asked, "the address of this node"
	case x.host != nil:
		x.own, x.ownText = x.host.Prefix, x.host.Source
		if !x.host.Borrowed() {
			x.own = x.host.Block
		}
	case borrowed:
	case in.IsValid() && (elsewhere == "" || x.reach() < in.Bits()):
		x.own, x.ownText = in, "a service address"
	case in.IsValid(): // another node announces it
	default:
		for _, b := range blocks {
			if route.Inside(x.asked, b) && (!x.own.IsValid() || b.Bits() > x.own.Bits()) {
				x.own, x.ownText = b, "in block "+b.String()
			}
		}
	}
	if !x.own.IsValid() && x.owner.Host == x.node && x.owner.Expected.IsValid() {
		x.own, x.ownText = x.owner.Expected, "in block "+x.owner.Expected.String()
	}
	for _, w := range slices.Concat(skipped, notHere) {
		if !x.own.IsValid() && !borrowed && route.Inside(x.asked, w.Prefix) {
			x.own, x.ownText = w.Prefix, "in "+w.Prefix.String()
		}
	}
}

func (x *explainer) checkData() (string, bool) {
	c := x.datastoreCondition(x.datastore)
	switch {
	case x.inputs.snapshot != nil && x.locked != "":
		missed := x.owner.Host == x.node && x.owner.Expected.IsValid() && x.announcement() == nil
		return x.locked + "; nothing is changed", !missed
	case x.inputs.snapshot != nil && c.Message != "":
		return c.Message, true
	case x.inputs.snapshot != nil:
		return fmt.Sprintf("read, revision %d", x.inputs.snapshot.Revision), true
	case x.locked != "":
		return x.locked + ", and nothing is known from before", false
	case x.waitingForNode != "":
		return "", true // checkNode
	}
	return cmp.Or(c.Message, "Calico's data are being read"), false
}

func (x *explainer) checkNode() (string, bool) {
	c := x.nodeCondition()
	return c.Message, c.OK || c.Reason == "last_known" || c.Reason == "locked"
}

// complaint is the verdict where a link fails.
func (x *explainer) complaint(name, text string) string {
	if x.own.IsValid() {
		what, subject := "is not announced", x.subject()+", "+x.ownText+","
		if x.own == x.asked && !x.asked.IsSingleIP() {
			subject = x.subject() + " of this node"
		}
		switch name {
		case "rival":
			what = "is claimed twice"
		case "delivery":
			what = "is not delivered"
		case "now":
			what = "is not as it should be"
		case "node", "data", "data plane":
			what = "is not reachable"
		}
		return fmt.Sprintf("%s %s: %s", subject, what, text)
	}
	switch name {
	case "destination", "passed on":
		return fmt.Sprintf("%s: %s", x.subject(), text)
	case "left over", "guard":
		return fmt.Sprintf("%s is forwarded for a while: %s", x.subject(), text)
	case "now", "node":
		return fmt.Sprintf("%s is not forwarded as it should be: %s", x.subject(), text)
	}
	return fmt.Sprintf("%s is not forwarded: %s%s", x.subject(), text, x.instead(name))
}

// instead says which route packets follow in place of the missing one.
func (x *explainer) instead(name string) string {
	if name == "data plane" || x.match == nil || !x.match.Prefix.IsValid() ||
		x.match.Prefix.Bits() > x.asked.Bits() {
		return ""
	}
	for _, a := range x.accounts {
		if a.Key.Prefix == x.match.Prefix && (a.State == fib.Unusable || a.State == fib.Held) {
			return ""
		}
	}
	if !x.match.Usable && !x.match.Ours {
		return fmt.Sprintf("; packets follow %s, which %s", whose(*x.match), forwards(*x.match))
	}
	return "; packets follow " + whose(*x.match)
}

// conclusion is the verdict where all links hold.
func (x *explainer) conclusion() string {
	if x.own.IsValid() {
		return x.ownConclusion()
	}
	w := x.wanted()
	switch {
	case w == nil && x.noFIB && x.heard() != nil:
		return fmt.Sprintf("%s is known by %s, and nothing is programmed (--dataplane none)",
			x.subject(), x.heard().Prefix)
	case w == nil && x.match != nil:
		return fmt.Sprintf("%s is forwarded by %s: no route of ours leads there%s", x.subject(),
			whose(*x.match), x.downSessions())
	case w == nil:
		return x.subject() + " has no route, and needs none here"
	}
	out := fmt.Sprintf("%s is forwarded", x.subject())
	if h := x.heard(); h != nil && h.Prefix == w.Key.Prefix && w.Origin == route.BGP {
		if nodes := slices.DeleteFunc(x.nodesOf(h), func(n string) bool { return n == "" }); len(
			nodes) > 0 {
			out += " to " + few(nodes)
		}
	} else if x.owner.Host != "" {
		out += " to " + x.owner.Host
	}
	status := routeStatus(w.Entry)
	out += fmt.Sprintf(" by %s of %s", w.Key, w.Origin)
	if status.Kind != "via" {
		out += ", a " + status.Kind
	} else {
		out += " via " + hopsOf(status.Paths)
	}
	if m := x.match; m != nil && m.Prefix.IsValid() && m.Prefix.Bits() > w.Key.Prefix.Bits() &&
		m.Prefix.Bits() <= x.asked.Bits() {
		return fmt.Sprintf("%s is forwarded by %s", x.subject(), whose(*m))
	}
	return out + x.remarks(w)
}

// hopsOf are the paths of a route for people.
func hopsOf(paths []PathStatus) string {
	var all []string
	for _, p := range paths {
		text := strings.TrimSpace(p.NextHop + " " + p.Interface)
		if p.Encapsulation != nil {
			text += " in " + p.Encapsulation.String()
		}
		all = append(all, text)
	}
	return few(all)
}

// remarks are what is no failure now and may be one soon.
func (x *explainer) remarks(w *fib.Account) (out string) {
	if w.Reason != (fib.Reason{}) {
		out += "; " + w.Reason.String()
	}
	h := x.heard()
	if h == nil || h.Prefix != w.Key.Prefix {
		return out
	}
	for _, r := range h.Received {
		switch {
		case r.Best && r.Stale:
			out += fmt.Sprintf("; graceful restart keeps the path while %s is away",
				x.nameOf(r.Peer))
		case slices.Contains(r.Sent.Communities, bgp.GracefulShutdown):
			out += fmt.Sprintf("; %s is being drained (GRACEFUL_SHUTDOWN)", x.nameOf(r.Peer))
		}
	}
	return out
}
