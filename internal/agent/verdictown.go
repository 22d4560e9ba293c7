package agent

import (
	"fmt"
	"net/netip"
	"slices"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// announcement returns this node's announcement that covers what is asked, nil without one.
func (x *explainer) announcement() (found *bgp.Announcement) {
	for i, a := range x.plan.BGP.Announcements {
		if route.Inside(x.asked, a.Prefix) && (found == nil || a.Prefix.Bits() >
			found.Prefix.Bits()) {
			found = &x.plan.BGP.Announcements[i]
		}
	}
	return found
}

// isNode: the address of a node is nobody's to announce.
func (x *explainer) isNode() bool { return x.shown.NodeAddress == x.node }

// checkWithheld is about what the plan leaves out.
func (x *explainer) checkWithheld() (string, bool) {
	switch a := x.announcement(); {
	case x.noBGP || x.isNode():
		return "", true
	case a != nil:
		return "planned: " + a.Prefix.String(), true
	case slices.Contains(x.plan.Deferred, x.own):
		return "", true // checkDropRoute
	}
	reason := ""
	for _, w := range x.plan.BGP.Withheld {
		if route.Inside(x.asked, w.Prefix) {
			reason = w.Reason
		}
	}
	if x.shown.Service != nil {
		_, reason = bgp.ServiceAddress(x.node, x.inputs.snapshot, x.inputs.options, x.asked)
	}
	if reason == "" && x.owner.Block == x.own && x.owner.Affinity == "" {
		reason = "IPAM's block names this node, which has no affinity to it"
	}
	if reason == "" {
		reason = "it is neither a block nor an address of this node"
	}
	return reason, false
}

// account returns the account of exactly this prefix, nil without one.
func (x *explainer) account(p netip.Prefix) *fib.Account {
	i := slices.IndexFunc(x.accounts, func(a fib.Account) bool { return a.Key.Prefix == p })
	if i < 0 {
		return nil
	}
	return &x.accounts[i]
}

// checkDropRoute is about the route that must come before the announcement.
func (x *explainer) checkDropRoute() (string, bool) {
	a := x.account(x.own)
	if a == nil || a.Origin != route.Own || x.noFIB {
		return "", true
	}
	text, ok := x.programmed(a)
	return text, ok || a.State.IsAcknowledged() // what came later is checkOwnNow's
}

// checkOwnNow is about the same route at this moment. A connected workload does not need it.
func (x *explainer) checkOwnNow() (string, bool) {
	a := x.account(x.own)
	if a == nil || a.Origin != route.Own || x.noFIB {
		return "", true
	}
	text := ""
	if x.found != nil && x.found.key == a.Key {
		text = x.contradiction(a)
	}
	if was, ok := x.programmed(a); text == "" && !ok {
		text = was
	}
	return text, text == "" || x.host != nil && x.isConnected()
}

// isConnected reports whether the data plane has another program's route to the address.
func (x *explainer) isConnected() bool {
	m := x.match
	return m != nil && m.Usable && !m.Ours && m.Prefix.IsSingleIP()
}

// checkSpeaker is about what GoBGP has taken of the plan.
func (x *explainer) checkSpeaker() (string, bool) {
	a := x.announcement()
	if x.noBGP || a == nil {
		return "", true
	}
	if c := x.speakerCondition(); !c.OK {
		return c.Message, false
	}
	if !slices.ContainsFunc(x.announced, func(o bgp.Announcement) bool {
		return o.Prefix == a.Prefix
	}) {
		return "GoBGP has not been handed it yet", false
	}
	return "GoBGP has it", true
}

// checkExport is about the rules by which peers get it.
func (x *explainer) checkExport() (string, bool) {
	if len(x.sent) == 0 {
		return "", true
	}
	to, why := 0, map[string]bool{}
	for _, e := range x.sent {
		if e.Accept {
			to++
		} else {
			why[e.Rule] = true
		}
	}
	if to == 0 {
		return "no peer gets it: " + few(sortedKeys(why)), false
	}
	text := fmt.Sprintf("%d of %d peers get it", to, len(x.sent))
	if len(why) > 0 {
		text += "; others do not: " + few(sortedKeys(why))
	}
	return text, true
}

func sortedKeys(set map[string]bool) (all []string) {
	for k := range set {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

// checkSessions fails if no peer that is to get it is there. One that gets no UPDATEs yet still has
// what it got before the restart.
func (x *explainer) checkSessions() (string, bool) {
	if x.noBGP || x.announcement() == nil {
		return "", true
	}
	up, deferring, down := 0, 0, []string{}
	for _, e := range x.exportsOfOwn() {
		switch {
		case e.Deferring:
			deferring++
		case e.Established:
			up++
		default:
			down = append(down, x.downSession(e.Peer))
		}
	}
	if up+deferring == 0 && len(down) == 0 {
		return "this node has no BGP peer of this family", false
	}
	if up+deferring == 0 {
		return "no session is up: " + down[0], false
	}
	text := "1 session is up"
	if up+deferring > 1 {
		text = fmt.Sprintf("%d sessions are up", up+deferring)
	}
	if len(down) > 0 {
		text += fmt.Sprintf(", %d are not; %s", len(down), down[0])
	}
	if deferring > 0 {
		text += "; " + deferred(deferring)
	}
	return text, true
}

// deferred says what n peers wait for after a restart of ours.
func deferred(n int) string {
	return fmt.Sprintf("after the restart of this node's agent, UPDATEs to %s wait until all "+
		"peers have sent theirs, 30 s at most (RFC 4724 §4.1)", peers(n))
}

func (x *explainer) downSession(id bgp.PeerID) string {
	i := slices.IndexFunc(x.peers, func(p PeerStatus) bool { return p.Peer == id })
	if i < 0 {
		return id.String() + " is not planned any more"
	}
	return down(x.peers[i])
}

// checkRival is about other nodes that announce the same.
func (x *explainer) checkRival() (string, bool) {
	for i := range x.paths {
		p := &x.paths[i]
		if p.Prefix != x.own {
			continue
		}
		for _, r := range p.Received {
			from := x.peer(r.Peer)
			if r.Accepted == nil || from == nil || from.CalicoNode == "" || x.isService() {
				continue
			}
			return fmt.Sprintf("%s announces %s, too: other nodes send packets to both",
				x.nameOf(r.Peer), p.Prefix), false
		}
	}
	return "", true
}

func (x *explainer) isService() bool { return x.shown.Service != nil && x.host == nil }

// checkDelivery is about the last step, which is another program's: the route to the workload.
func (x *explainer) checkDelivery() (string, bool) {
	m := x.match
	switch {
	case x.noFIB || !x.asked.IsSingleIP() || x.isNode() || m == nil:
		return "", true
	case x.isService():
		a := x.announcement()
		in, ok := interfaceWith(a.NextHop, x.facts.Interfaces)
		if ok && m.Usable && !m.Ours && m.Interface == in.Name {
			return returningProblem(x.asked.Addr()).Err, false
		}
		if !m.Usable && !m.Ours {
			return "the data plane has no route to it: --services-via leads packets to where " +
				"kube-proxy is", false
		}
	case x.absent != "":
		return x.withoutWorkload() + ": " + x.absent, false
	case x.host == nil:
		return "no workload of this node has it: " + x.withoutWorkload(), false
	case !m.Prefix.IsValid() || m.Ours:
		return fmt.Sprintf("the data plane has no route to %s: the CNI plugin has not connected it",
			x.host.Source), false
	case !m.Usable:
		return fmt.Sprintf("the data plane matches %s, which forwards nowhere: it drops, or its "+
			"interface is down", whose(*m)), false
	case m.Prefix.Bits() <= x.own.Bits() && !m.Prefix.IsSingleIP():
		return x.withoutWorkload() + ": the CNI plugin has not connected it", false
	}
	return "the data plane matches " + whose(*m), true
}

// withoutWorkload says what becomes of packets to an address that nobody here has.
func (x *explainer) withoutWorkload() string {
	if m := x.match; m.Usable && !m.Ours {
		return "packets to it follow " + whose(*m)
	}
	return "packets to it are dropped"
}

func (x *explainer) ownConclusion() string {
	a := x.announcement()
	switch {
	case x.isNode():
		return fmt.Sprintf("%s is %s", x.subject(), x.ownText)
	case x.noBGP:
		return fmt.Sprintf("%s is of this node: %s; others find it by Calico's data", x.subject(),
			x.ownText)
	case a == nil:
		return fmt.Sprintf("%s is of this node: %s", x.subject(), x.ownText)
	}
	to, later := 0, 0
	for _, e := range x.sent {
		switch {
		case !e.Accept:
		case e.Deferring:
			later++
		case e.Established:
			to++
		}
	}
	announced := peers(to)
	if later > 0 {
		announced += "; " + deferred(later)
	}
	if x.own == x.asked && !x.asked.IsSingleIP() {
		return fmt.Sprintf("%s is of this node, and announced to %s", x.subject(), announced)
	}
	return fmt.Sprintf("%s is of this node (%s), which announces %s to %s", x.subject(), x.ownText,
		a.Prefix, announced)
}

// peers is a number of peers.
func peers(n int) string {
	if n == 1 {
		return "1 peer"
	}
	return fmt.Sprintf("%d peers", n)
}
