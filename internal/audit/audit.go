// Package audit finds what does not fit together in the data of a whole cluster: Calico's, what
// agents have published, and where they were asked, what they answered. It is pure.
package audit

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"vpp-route-agent/bgp"
	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico"
)

// Kind says what a finding is about. docs/operating.md explains each.
type Kind string

const (
	DuplicateAddress     Kind = "duplicate-address"
	OverlappingBlocks    Kind = "overlapping-blocks"
	WrongNode            Kind = "address-on-other-node"
	OrphanAffinity       Kind = "orphan-affinity"
	OrphanBlock          Kind = "orphan-block"
	AffinityWithoutBlock Kind = "affinity-without-block"
	BlockWithoutAffinity Kind = "block-without-affinity"
	AnnouncedByOther     Kind = "block-announced-by-non-owner"
	MissingHostRoute     Kind = "missing-host-route"
	OneEndedSession      Kind = "one-ended-session"
	SessionsDown         Kind = "sessions-down"
	Drift                Kind = "drift"
	NotApplied           Kind = "not-applied"
	NothingPublished     Kind = "nothing-published"
	OtherVersion         Kind = "other-version"
	AgentNotAsked        Kind = "agent-not-asked"
	BadInput             Kind = "bad-input"
)

// Kinds are all, in the order in which they are shown.
var Kinds = []Kind{DuplicateAddress, OverlappingBlocks, WrongNode, AnnouncedByOther,
	MissingHostRoute, OrphanAffinity, OrphanBlock, AffinityWithoutBlock, BlockWithoutAffinity,
	OneEndedSession, SessionsDown, Drift, NotApplied, NothingPublished, OtherVersion,
	AgentNotAsked, BadInput}

// Finding is one thing that does not fit.
type Finding struct {
	Kind Kind `json:"kind"`
	// Item is what it is about: an address, a block, a node or a key.
	Item  string   `json:"item"`
	Nodes []string `json:"nodes"` // sorted
	Text  string   `json:"text"`
}

// Answer is what an agent answered.
type Answer struct {
	Announced []netip.Prefix
	// Withheld are not announced for reasons that the agent tells.
	Withheld []netip.Prefix
	// Draining: it leaves service, or has left it, and takes back what it announces.
	Draining bool
	// Drifted and Refused count routes that the data plane does not have as it acknowledged them,
	// and that it refuses.
	Drifted, Refused int
}

// View is what is looked at.
type View struct {
	Cluster *calico.Cluster
	// Statuses are what agents have published, by node.
	Statuses map[string]reflector.Status
	// Problems are of what could not be read.
	Problems []calico.Problem
	// Answers are of agents that were asked, NotAsked why the others could not be; nil: none was.
	Answers  map[string]Answer
	NotAsked map[string]string
}

// auditor collects findings.
type auditor struct {
	View
	s     *calico.Snapshot
	found []Finding
}

// Find returns all that does not fit, sorted by kind, in the order of Kinds, and item.
func Find(v View) []Finding {
	a := &auditor{View: v, s: v.Cluster.Snapshot, found: []Finding{}}
	a.addresses()
	a.blocks()
	a.borrowed()
	a.sessions()
	a.published()
	a.answers()
	for _, p := range slices.Concat(a.s.Problems, a.Problems) {
		if !p.Harmless {
			a.add(BadInput, cmp.Or(p.Key, p.Resource), nil, "%s", p.Err)
		}
	}
	slices.SortStableFunc(a.found, func(x, y Finding) int {
		return cmp.Or(slices.Index(Kinds, x.Kind)-slices.Index(Kinds, y.Kind),
			cmp.Compare(x.Item, y.Item), cmp.Compare(x.Text, y.Text))
	})
	return a.found
}

func (a *auditor) add(k Kind, item string, nodes []string, format string, args ...any) {
	nodes = append([]string{}, nodes...)
	slices.Sort(nodes)
	a.found = append(a.found, Finding{k, item, slices.Compact(nodes),
		fmt.Sprintf(format, args...)})
}

// holder is who has an address.
type holder struct{ node, what string }

// addresses finds those that two have, and blocks that overlap.
func (a *auditor) addresses() {
	holders := map[netip.Addr][]holder{}
	for name, n := range a.s.Nodes {
		for _, p := range []netip.Prefix{n.IPv4, n.IPv6} {
			if p.IsValid() {
				holders[p.Addr()] = append(holders[p.Addr()], holder{name, "Node(" + name + ")"})
			}
		}
		for _, t := range n.Tunnels() {
			holders[t.Address] = append(holders[t.Address],
				holder{name, fmt.Sprintf("the %s of Node(%s)", t.Type, name)})
		}
	}
	for _, w := range a.Cluster.Endpoints {
		if a.isMigrating(w) {
			continue // both ends have it
		}
		for _, p := range w.IPNetworks {
			if p.IsSingleIP() {
				holders[p.Addr()] = append(holders[p.Addr()], holder{w.Node,
					fmt.Sprintf("WorkloadEndpoint(%s/%s)", w.Namespace, w.Name)})
			}
		}
	}
	for address, all := range holders {
		all = distinct(all)
		if len(all) < 2 {
			continue
		}
		var nodes, what []string
		for _, h := range all {
			nodes, what = append(nodes, h.node), append(what, h.what+" on "+h.node)
		}
		a.add(DuplicateAddress, address.String(), nodes, "%s have it: packets reach one of them",
			strings.Join(what, " and "))
	}
	a.overlaps()
}

// distinct sorts holders, and takes a node's addresses for one purpose and another for one: Felix
// may use one for several tunnels.
func distinct(all []holder) []holder {
	slices.SortFunc(all, func(x, y holder) int {
		return cmp.Or(cmp.Compare(x.node, y.node), cmp.Compare(x.what, y.what))
	})
	return slices.CompactFunc(all, func(x, y holder) bool {
		return x == y || x.node == y.node && strings.HasPrefix(x.what, "the ") &&
			strings.HasPrefix(y.what, "the ")
	})
}

func (a *auditor) isMigrating(w calico.WorkloadEndpoint) bool {
	return slices.ContainsFunc(a.Cluster.Migrations, func(m calico.LiveMigration) bool {
		return m.Source.Is(w) || m.Target.Is(w)
	})
}

// overlaps looks at neighbours in order: a block that covers others comes right before them.
func (a *auditor) overlaps() {
	all := a.sortedBlocks()
	for i := 1; i < len(all); i++ {
		if outer, inner := all[i-1], all[i]; outer.CIDR.Overlaps(inner.CIDR) {
			a.add(OverlappingBlocks, inner.CIDR.String(), hosts(outer.Owner, inner.Owner),
				"it lies in block %s: both can give one address to a pod", outer.CIDR)
			all[i] = outer // those after it may lie in it, too
		}
	}
}

func (a *auditor) sortedBlocks() []calico.Block {
	var all []calico.Block
	for _, b := range a.s.Blocks {
		all = append(all, b)
	}
	slices.SortFunc(all, func(x, y calico.Block) int {
		return cmp.Or(x.CIDR.Addr().Compare(y.CIDR.Addr()), x.CIDR.Bits()-y.CIDR.Bits())
	})
	return all
}

func hosts(all ...calico.Owner) (names []string) {
	for _, o := range all {
		if o.Host != "" {
			names = append(names, o.Host)
		}
	}
	return names
}

func (a *auditor) hasNode(name string) bool {
	_, there := a.s.Nodes[name]
	return there
}

// blocks compares blocks with affinities and Nodes.
func (a *auditor) blocks() {
	type key struct {
		host string
		cidr netip.Prefix
	}
	affine := map[key]calico.AffinityState{}
	for _, f := range a.Cluster.Affinities {
		if f.Owner.Host == "" {
			continue // of load balancers, for instance
		}
		affine[key{f.Owner.Host, f.CIDR}] = f.State
		b, there := a.s.Blocks[f.CIDR]
		switch item := f.CIDR.String(); {
		case !a.hasNode(f.Owner.Host):
			a.add(OrphanAffinity, item, []string{f.Owner.Host},
				"%s has an affinity to it, and there is no Node(%s)", f.Owner.Host, f.Owner.Host)
		case f.State != calico.AffinityConfirmed:
			// it is being claimed or given up
		case !there:
			a.add(AffinityWithoutBlock, item, []string{f.Owner.Host},
				"%s has a confirmed affinity to it, and there is no such block: calico-node with "+
					"BIRD announces it", f.Owner.Host)
		case b.Owner.Host != f.Owner.Host:
			a.add(AnnouncedByOther, item, append(hosts(b.Owner), f.Owner.Host),
				"it is %s, and %s has a confirmed affinity to it: calico-node with BIRD announces "+
					"it there", ownerText(b.Owner), f.Owner.Host)
		}
	}
	for _, b := range a.s.Blocks {
		host := b.Owner.Host
		switch _, has := affine[key{host, b.CIDR}]; {
		case host == "":
		case !a.hasNode(host):
			a.add(OrphanBlock, b.CIDR.String(), []string{host},
				"it is %s's, and there is no Node(%s): nobody announces it; %d addresses are in "+
					"use", host, host, len(b.Allocations))
		case !has:
			a.add(BlockWithoutAffinity, b.CIDR.String(), []string{host},
				"it is %s's, which has no affinity to it and does not announce it", host)
		}
	}
}

func ownerText(o calico.Owner) string {
	switch {
	case o.Host != "":
		return o.Host + "'s"
	case o.Virtual != "":
		return "that of virtual owner " + o.Virtual
	}
	return "nobody's"
}

// borrowed looks for the /32 of each address that a node has from a block of another.
func (a *auditor) borrowed() {
	here := map[netip.Addr][]string{} // nodes with it
	for _, w := range a.Cluster.Endpoints {
		for _, p := range w.IPNetworks {
			if p.IsSingleIP() {
				here[p.Addr()] = append(here[p.Addr()], w.Node)
			}
		}
	}
	for name, n := range a.s.Nodes {
		for _, t := range n.Tunnels() {
			here[t.Address] = append(here[t.Address], name)
		}
	}
	for _, b := range a.s.Blocks {
		for _, x := range b.Allocations {
			item := x.Address.String()
			switch nodes := here[x.Address]; {
			case x.Node == "" || slices.Contains(nodes, x.Node):
				if x.Node != "" && x.Node != b.Owner.Host {
					a.announcedBy(x, b)
				}
			case len(nodes) > 0:
				a.add(WrongNode, item, append(slices.Clone(nodes), x.Node),
					"IPAM has given it to %s, and a workload or tunnel of %s has it", x.Node,
					strings.Join(nodes, " and "))
			case x.Node != b.Owner.Host && b.Owner.Virtual == "":
				a.add(MissingHostRoute, item, append(hosts(b.Owner), x.Node),
					"%s has borrowed it from block %s (%s), and has no workload with it: nobody "+
						"announces its host route, and packets go to the block", x.Node, b.CIDR,
					ownerText(b.Owner))
			}
		}
	}
}

// announcedBy asks the answer of the node that has a borrowed address. What its agent has a reason
// to keep to itself is not missing, nor is a tunnel's address, which is the node's own.
func (a *auditor) announcedBy(x calico.Allocation, b calico.Block) {
	answer, asked := a.Answers[x.Node]
	route := netip.PrefixFrom(x.Address, x.Address.BitLen())
	isTunnel := slices.ContainsFunc(a.s.Nodes[x.Node].Tunnels(), func(t calico.Tunnel) bool {
		return t.Address == x.Address
	})
	if asked && !isTunnel && !answer.Draining &&
		!slices.Contains(slices.Concat(answer.Announced, answer.Withheld), route) {
		a.add(MissingHostRoute, x.Address.String(), append(hosts(b.Owner), x.Node),
			"%s has borrowed it from block %s (%s), and its agent does not announce it", x.Node,
			b.CIDR, ownerText(b.Owner))
	}
}

// sessions finds those that one end wants and the other does not. A mesh of 1000 nodes wants a
// million, of which no more is kept than who wants them.
func (a *auditor) sessions() {
	type end struct {
		from, to int32
		ipv6     bool
	}
	names := slices.Sorted(maps.Keys(a.s.Nodes))
	number := map[string]int32{}
	for i, name := range names {
		number[name] = int32(i)
	}
	planner, wanted := bgp.NewPlanner(a.s), map[end]bool{}
	var peers []bgp.Peer
	for i, name := range names {
		peers, _ = planner.AppendPeers(peers[:0], name)
		for _, p := range peers {
			if to, is := number[p.CalicoNode]; is {
				wanted[end{int32(i), to, p.Address.Is6()}] = true
			}
		}
	}
	oneEnded := map[int32]map[end]bool{}
	for e := range wanted {
		if !wanted[end{e.to, e.from, e.ipv6}] {
			if oneEnded[e.from] == nil {
				oneEnded[e.from] = map[end]bool{}
			}
			oneEnded[e.from][e] = true
		}
	}
	for from, ends := range oneEnded {
		name := names[from]
		peers, _ = planner.AppendPeers(peers[:0], name)
		for _, p := range peers {
			to, is := number[p.CalicoNode]
			if is && ends[end{from, to, p.Address.Is6()}] {
				outcome := "it stays down"
				if planner.Misses(p) {
					outcome = fmt.Sprintf("it comes up only if another speaker than %s's listens "+
						"on port %d", p.CalicoNode, p.Port)
				}
				a.add(OneEndedSession, name+" "+p.CalicoNode, []string{name, p.CalicoNode},
					"%s wants a session with %s (%s), by %s, and %s wants none: %s",
					name, p.CalicoNode, p.Address, p.Source, p.CalicoNode, outcome)
			}
		}
	}
}

// published looks at what agents say without being asked.
func (a *auditor) published() {
	if len(a.Statuses) == 0 && len(a.s.Nodes) > 0 {
		a.add(NothingPublished, "all nodes", nil, "no agent publishes anything: they have no "+
			"--publish-status, or the nodes run BIRD")
		return
	}
	digests := reflector.Digests(a.s)
	for name := range a.s.Nodes {
		s, said := a.Statuses[name]
		if !said {
			a.add(NothingPublished, name, []string{name}, "its agent publishes nothing: it is "+
				"away, has no --publish-status, cannot start BGP, or the node runs BIRD")
			continue
		}
		if s.Digest == "" { // of it there is no more
			a.add(OtherVersion, name, []string{name}, "its agent is of version %s, which this "+
				"program does not understand", s.Version)
			continue
		}
		if s.Digest != digests[name] {
			a.add(NotApplied, name, []string{name}, "its agent works by other data than the "+
				"datastore has: it is behind, or its speaker refused them")
		}
		if down := s.Wanted - s.Up; down > 0 {
			var with []string
			for _, d := range s.Down {
				with = append(with, d.Node)
			}
			text := strings.Join(with, ", ")
			if more := down - len(with); more > 0 && len(with) > 0 {
				text += fmt.Sprintf(" and %d more", more)
			}
			a.add(SessionsDown, name, []string{name}, "%d of %d sessions are down: %s", down,
				s.Wanted, text)
		}
		a.drift(name, s.Drifted, s.Refused)
	}
}

func (a *auditor) drift(node string, drifted, refused int) {
	if drifted > 0 {
		a.add(Drift, node, []string{node}, "its data plane does not have %d routes as it "+
			"acknowledged them: another program changed them", drifted)
	}
	if refused > 0 {
		a.add(Drift, node, []string{node}, "its data plane refuses %d routes", refused)
	}
}

// answers looks at what agents answered.
func (a *auditor) answers() {
	for name, why := range a.NotAsked {
		a.add(AgentNotAsked, name, []string{name}, "%s", why)
	}
	for name, x := range a.Answers {
		if _, said := a.Statuses[name]; !said {
			a.drift(name, x.Drifted, x.Refused)
		}
		for _, p := range x.Announced {
			b, is := a.s.Blocks[p]
			if is && b.Owner.Host != name && b.Owner.Virtual == "" && !p.IsSingleIP() {
				a.add(AnnouncedByOther, p.String(), append(hosts(b.Owner), name),
					"it is %s, and the agent of %s announces it", ownerText(b.Owner), name)
			}
		}
	}
}
