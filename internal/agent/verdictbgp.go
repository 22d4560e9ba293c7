package agent

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// heard returns the paths of the longest prefix that a peer has announced, nil without one.
func (x *explainer) heard() *bgp.PrefixPaths {
	for i := range x.paths {
		if len(x.paths[i].Received) > 0 {
			return &x.paths[i]
		}
	}
	return nil
}

// reach is the length of the longest prefix that a source wants or a peer has announced; -1: none.
func (x *explainer) reach() int {
	bits := -1
	if w := x.wanted(); w != nil {
		bits = w.Key.Prefix.Bits()
	}
	if h := x.heard(); h != nil {
		bits = max(bits, h.Prefix.Bits())
	}
	return bits
}

// lacks reports whether what IPAM lets expect is missing.
func (x *explainer) lacks() bool {
	return x.owner.Expected.IsValid() && x.reach() < x.owner.Expected.Bits()
}

// checkOwnIPAM says what IPAM has of an own prefix; withheld is about what is wrong with it.
func (x *explainer) checkOwnIPAM() (string, bool) { return x.describeOwner(), true }

// checkOwner is about IPAM's data: whose the prefix is, and whether they alone explain why nobody
// announces it.
func (x *explainer) checkOwner() (string, bool) {
	s, o := x.inputs.snapshot, x.owner
	for _, u := range x.unrouted {
		w := x.wanted()
		usable := w != nil && w.Key.Prefix.Bits() >= u.Prefix.Bits() && w.State != fib.Unusable
		if route.Inside(x.asked, u.Prefix) && !usable {
			return u.Reason, false
		}
	}
	text := x.describeOwner()
	if x.blocksKnown && o.Pool != nil && !o.Block.IsValid() && x.asked.IsSingleIP() &&
		x.reach() < o.Pool.CIDR.Bits() {
		return text, false
	}
	if !x.lacks() || s == nil {
		return text, true
	}
	_, exists := s.Nodes[o.Host]
	switch {
	case !exists:
		return fmt.Sprintf("%s: there is no Node(%s)", text, o.Host), false
	case !o.Borrowed && o.Affinity == calico.AffinityPending:
		return fmt.Sprintf("%s; its affinity is pending: %s does not announce the block before it "+
			"is confirmed", text, o.Host), false
	case x.noBGP:
	case o.Pool != nil && o.Pool.DisableBGPExport:
		return fmt.Sprintf("%s; IPPool(%s) has disableBGPExport: no node announces it", text,
			o.Pool.Name), false
	}
	return text, true
}

func (x *explainer) describeOwner() string {
	o := x.owner
	var parts []string
	switch {
	case x.shown.NodeAddress != "":
		parts = append(parts, fmt.Sprintf("it is the address of Node(%s)", x.shown.NodeAddress))
	case o.Borrowed && o.Owner.Host == "":
		parts = append(parts, fmt.Sprintf("%s has it, from block %s", o.Host, o.Block))
	case o.Borrowed:
		parts = append(parts, fmt.Sprintf("%s has borrowed it from block %s of %s", o.Host, o.Block,
			o.Owner.Host))
	case o.Owner.Host != "":
		parts = append(parts, fmt.Sprintf("block %s is %s's", o.Block, o.Owner.Host))
	case o.Owner.Virtual != "":
		parts = append(parts, fmt.Sprintf("block %s belongs to virtual owner %s", o.Block,
			o.Owner.Virtual))
	case o.Block.IsValid():
		parts = append(parts, fmt.Sprintf("nobody owns block %s", o.Block))
	case x.ownedError != "":
		parts = append(parts, "its block could not be read: "+x.ownedError)
	case o.Pool != nil && x.asked.Bits() < o.Pool.BlockSize:
		parts = append(parts, fmt.Sprintf("it lies in IPPool(%s)", o.Pool.Name))
	case o.Pool != nil:
		known := ""
		if !x.blocksKnown {
			known = " that is known"
		}
		parts = append(parts, fmt.Sprintf("it lies in IPPool(%s), and in no block%s", o.Pool.Name,
			known))
	default:
		parts = append(parts, "it lies in no IPPool")
	}
	if o.Pool != nil && o.Pool.Disabled {
		parts = append(parts, fmt.Sprintf("IPPool(%s) is disabled: it gives no new addresses",
			o.Pool.Name))
	}
	return strings.Join(parts, "; ")
}

// sessionsWith returns the sessions of asked's family with a Calico node.
func (x *explainer) sessionsWith(node string) (all []PeerStatus) {
	for _, p := range x.peers {
		if p.Node == node && p.Address.Is4() == x.asked.Addr().Is4() {
			all = append(all, p)
		}
	}
	return all
}

// nameOfPeer names a peer for people.
func nameOfPeer(p PeerStatus) string {
	if p.Node != "" {
		return fmt.Sprintf("%s (%s)", p.Node, p.Peer)
	}
	return fmt.Sprintf("%s of %s", p.Peer, p.Source)
}

// down says why a session is not up.
func down(p PeerStatus) string {
	return fmt.Sprintf("the session with %s is not up: %s", nameOfPeer(p),
		cmp.Or(p.LastError, "it is coming up"))
}

// notStarted says why no session comes up; "": they may. Once GoBGP runs, what it refuses concerns
// single peers.
func (x *explainer) notStarted() string {
	if c := x.speakerCondition(); !c.OK && x.sessions.configured.IsZero() {
		return c.Message
	}
	return ""
}

// checkSession is about the session with the node that is to announce the prefix.
func (x *explainer) checkSession() (string, bool) {
	node := x.owner.Host
	if x.noBGP || node == "" || node == x.node {
		return "", true
	}
	if why := x.notStarted(); why != "" && x.lacks() {
		return why, false
	}
	all := x.sessionsWith(node)
	i := slices.IndexFunc(all, func(p PeerStatus) bool { return p.Established })
	switch {
	case i >= 0:
		return fmt.Sprintf("the session with %s is up", nameOfPeer(all[i])), true
	case len(all) > 0:
		return down(all[0]), !x.lacks()
	}
	why, alone := x.whyNoSession(node)
	text := fmt.Sprintf("no session with %s is planned%s", node, why)
	if x.anyUp() && !alone {
		return text + "; others may pass on what it announces", true
	}
	return text, !x.lacks()
}

// whyNoSession says what of Calico's data keeps a node from being a peer; alone: so that nobody can
// have what it announces.
func (x *explainer) whyNoSession(node string) (why string, alone bool) {
	s := x.inputs.snapshot
	n, address := s.Nodes[node], s.Nodes[node].IPv4
	if !x.asked.Addr().Is4() {
		address = n.IPv6
	}
	mesh := s.BGPConfigurations["default"].NodeToNodeMeshEnabled
	switch {
	case !address.IsValid():
		return fmt.Sprintf(": Node(%s) has no BGP address of this family", node), true
	case mesh != nil && !*mesh:
		return ": nodeToNodeMeshEnabled is false, and no BGPPeer asks for it", false
	case n.RouteReflectorClusterID != "":
		return fmt.Sprintf(": Node(%s) is a route reflector, which is not in the mesh", node), false
	}
	return "", false
}

func (x *explainer) anyUp() bool {
	return slices.ContainsFunc(x.peers, func(p PeerStatus) bool {
		return p.Established && p.Address.Is4() == x.asked.Addr().Is4()
	})
}

// checkAnnouncement fails where a prefix is missing of which nothing is known but that nobody
// announces it.
func (x *explainer) checkAnnouncement() (string, bool) {
	if x.noBGP {
		return "", true
	}
	if x.pathsError != "" {
		return x.pathsError, true
	}
	if h := x.heard(); h != nil && !x.lacks() {
		names, verb := x.peersOf(h.Received), "announce"
		if len(names) == 1 {
			verb = "announces"
		}
		return fmt.Sprintf("%s %s %s", few(names), verb, h.Prefix), true
	}
	switch m := x.match; {
	case x.lacks():
	case x.wanted() != nil:
		return "", true
	case x.owner.Pool == nil && m != nil && m.Usable && m.Prefix.Bits() <= x.asked.Bits():
		return "no peer announces a prefix that covers it, nor need one", true
	}
	what := "a prefix that covers it"
	if x.owner.Expected.IsValid() {
		what = x.owner.Expected.String()
	}
	text := "no peer announces " + what
	if all := x.sessionsWith(x.owner.Host); x.owner.Host != "" && len(all) > 0 {
		return fmt.Sprintf("%s, not even %s, whose it is: ask explain there", text,
			nameOfPeer(all[0])), false
	}
	switch n := len(x.inside) + x.insideMore; n {
	case 0:
	case 1:
		text += "; 1 longer route of ours lies inside it"
	default:
		text += fmt.Sprintf("; %d longer routes of ours lie inside it", n)
	}
	return text + x.downInterface(x.asked.Addr()) + x.downSessions(), false
}

// downSessions names sessions that are down, which may be why a prefix is missing.
func (x *explainer) downSessions() string {
	if why := x.notStarted(); why != "" {
		return "; " + why
	}
	var all []string
	for _, p := range x.peers {
		if !p.Established && p.Address.Is4() == x.asked.Addr().Is4() {
			all = append(all, down(p))
		}
	}
	const few = 3
	if len(all) > few {
		all = append(all[:few], fmt.Sprintf("%d others are down, too", len(all)-few))
	}
	if len(all) == 0 {
		return ""
	}
	return "; " + strings.Join(all, "; ")
}

// peersOf names who sent paths.
func (x *explainer) peersOf(all []bgp.Received) (names []string) {
	seen := map[bgp.PeerID]bool{} // with ADD-PATH one peer sends several
	for _, r := range all {
		if !seen[r.Peer] {
			seen[r.Peer], names = true, append(names, x.nameOf(r.Peer))
		}
	}
	return names
}

// few joins names, and counts those that are too many.
func few(names []string) string {
	const most = 4
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d others", strings.Join(names[:most], ", "), len(names)-most)
}

func (x *explainer) nameOf(id bgp.PeerID) string {
	if i, ok := x.places[id]; ok {
		return nameOfPeer(x.peers[i])
	}
	return id.String()
}

// peer returns the planned peer of that name, nil if it is not planned any more.
func (x *explainer) peer(id bgp.PeerID) *bgp.Peer {
	if i, ok := x.places[id]; ok {
		return &x.plan.BGP.Peers[i]
	}
	return nil
}

// unheard are paths of a longer prefix than any that a source wants: what keeps these out of the
// FIB is the answer.
func (x *explainer) unheard() *bgp.PrefixPaths {
	h, w := x.heard(), x.wanted()
	if h == nil || w != nil && w.Key.Prefix.Bits() >= h.Prefix.Bits() {
		return nil
	}
	return h
}

func (x *explainer) checkImport() (string, bool) {
	h := x.unheard()
	if h == nil {
		if h = x.heard(); h == nil {
			return "", true
		}
		n := 0
		for _, r := range h.Received {
			if r.Accepted != nil {
				n++
			}
		}
		return fmt.Sprintf("%d of %d paths of %s accepted", n, len(h.Received), h.Prefix), true
	}
	var why []string
	for _, r := range h.Received {
		reason, ok := x.imported(h.Prefix, r)
		if ok && r.BadHop == "" {
			return fmt.Sprintf("%s from %s is accepted: %s", h.Prefix, x.nameOf(r.Peer),
				reason), true
		}
		why = append(why, fmt.Sprintf("%s from %s: %s", h.Prefix, x.nameOf(r.Peer),
			cmp.Or(r.BadHop, reason)))
	}
	return few(why), false
}

// imported says what import made of a path, and whether it was accepted.
func (x *explainer) imported(prefix netip.Prefix, r bgp.Received) (reason string, ok bool) {
	from := x.peer(r.Peer)
	switch {
	case from == nil:
		return "the peer is not planned any more", r.Accepted != nil
	case r.Looped && r.Sent.Originator == x.plan.BGP.Speaker.RouterID:
		return fmt.Sprintf("its ORIGINATOR_ID %s is this node's router ID: it went round a route "+
			"reflector (RFC 4456 §8)", r.Sent.Originator), false
	case r.Looped:
		return fmt.Sprintf("its AS_PATH %v has AS %d, this node's own: a loop (RFC 4271 §9.1.2)",
			r.Sent.ASPath, from.LocalAS), false
	}
	_, v := x.plan.BGP.Policies.Import(r.Route(prefix, from))
	if v.Accept && r.Accepted == nil {
		return fmt.Sprintf("its next hop %s is this node's own", r.Sent.NextHop), false
	}
	return v.Reason, v.Accept
}

// nodesOf are the nodes that packets are sent to by the best paths; "" for one that is not known.
func (x *explainer) nodesOf(p *bgp.PrefixPaths) (all []string) {
	seen := map[string]bool{}
	for _, r := range p.Received {
		if !r.Best {
			continue
		}
		node := x.nodes[r.Accepted.NextHop]
		if from := x.peer(r.Peer); node == "" && from != nil && !from.Reflector &&
			!r.Sent.Originator.IsValid() {
			node = from.CalicoNode
		}
		if !seen[node] {
			seen[node], all = true, append(all, node)
		}
	}
	return all
}

// checkDestination compares whom packets are sent to with whom IPAM gives the address.
func (x *explainer) checkDestination() (string, bool) {
	h, w := x.heard(), x.wanted()
	if h == nil || w == nil || w.Origin != route.BGP || h.Prefix != w.Key.Prefix {
		return "", true
	}
	all, host := x.nodesOf(h), x.owner.Host
	others := slices.DeleteFunc(slices.Clone(all), func(n string) bool {
		return n == "" || n == host
	})
	switch {
	case host == "" || len(others) == 0:
		return "", true
	case slices.Contains(all, host):
		return fmt.Sprintf("%s announces %s, too, and gets a share of the packets, though IPAM "+
			"gives it to %s", few(others), h.Prefix, host), false
	}
	return fmt.Sprintf("packets go to %s, which announces %s, though IPAM gives %s to %s",
		few(others), h.Prefix, x.subject(), host), false
}

// checkPassedOn is for reflectors: what they forward, others are to know.
func (x *explainer) checkPassedOn() (string, bool) {
	if !x.plan.BGP.Policies.Reflects {
		return "", true
	}
	if len(x.sent) == 0 {
		return "", true
	}
	to, why := 0, ""
	for _, e := range x.sent {
		if e.Accept {
			to++
		} else if why == "" && e.Rule != notToSender {
			why = e.Rule
		}
	}
	if to == 0 && why != "" {
		return "it is forwarded here, and passed on to no peer: " + why, false
	}
	return fmt.Sprintf("%d of %d peers get it from this reflector", to, len(x.sent)), true
}
