package bgp

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/ipam"
)

// Options is what a plan depends on besides Calico's resources: what the operator says on this
// node, and what has happened. The zero Options are Calico's behaviour.
type Options struct {
	// RouterID is CALICO_ROUTER_ID: empty (the node's IPv4 address), "hash" or a dotted quad.
	RouterID string
	// NextHop4 and NextHop6 replace the node's BGP address as NEXT_HOP of what we announce;
	// invalid: they do not.
	NextHop4, NextHop6 netip.Addr
	// PrefixLimits bounds what peers may send, by the construct that they come from; a Scope that
	// is not there has no limit, as in Calico.
	PrefixLimits map[Scope]uint32
	// ClusterIPs is CALICO_ADVERTISE_CLUSTER_IPS: it replaces serviceClusterIPs. Invalid: it does
	// not.
	ClusterIPs netip.Prefix
	// Arrived are the host routes of what came here by live migration a moment ago: they are
	// elevated.
	Arrived []netip.Prefix
	// Outgoing is where next hops lead out, from the data plane; nil: not known yet.
	Outgoing []route.Outgoing
	// Tunnels are the kinds of tunnels that the data plane has; pools of other kinds do not
	// encapsulate. FelixTunnels: they are Felix', who has routes of its own, as on Linux.
	// LinuxTunnels: they are devices of Linux that the agent makes.
	Tunnels                    []route.Encap
	FelixTunnels, LinuxTunnels bool
	// NoWireguard: the data plane is VPP. The private key is Felix', and another one would have to
	// be written to the Node.
	NoWireguard bool
}

// nextHop is what the operator said for a family; invalid: nothing.
func (o Options) nextHop(f family) netip.Addr {
	if f == ipv4 {
		return o.NextHop4
	}
	return o.NextHop6
}

// otherNode shows the form that names of Nodes have here: often one is the short name of a host
// and the other its full one.
func otherNode(self string, s *calico.Snapshot) string {
	if len(s.Nodes) == 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(s.Nodes))
	shown := max(0, slices.IndexFunc(names, func(name string) bool {
		return strings.EqualFold(shortName(name), shortName(self))
	}))
	return fmt.Sprintf("; there is Node(%s): is --node-name right?", names[shown])
}

func shortName(host string) string {
	short, _, _ := strings.Cut(host, ".")
	return short
}

// PlanFor returns what the speaker of node self shall be. It is pure: equal inputs give equal
// plans, and s is not changed. Announcements assume that the data plane has what it needs: the
// caller removes those whose drop route must come first (ipam.NeedsDrop).
func PlanFor(self string, s *calico.Snapshot, o Options) Plan {
	_, problems := ipam.Encapsulation(self, o.Tunnels, o.FelixTunnels, s)
	return PlanWith(problems, self, s, o)
}

// PlanWith is PlanFor where the problems of ipam.Encapsulation are known.
func PlanWith(encapsulation []calico.Problem, self string, s *calico.Snapshot, o Options) Plan {
	node, ok := s.Nodes[self]
	if !ok {
		return Plan{Waiting: fmt.Sprintf("waiting for Node(%s) to exist%s",
			self, otherNode(self, s))}
	}
	node.Name = self
	next := nextHops(node, o)
	if len(next) == 0 {
		return Plan{Waiting: fmt.Sprintf("waiting for Node(%s) to have a BGP address", self)}
	}
	v4, _ := addressOf(node, ipv4)
	routerID, err := ChooseRouterID(o.RouterID, self, v4)
	if err != nil {
		return Plan{Waiting: fmt.Sprintf("waiting for a router ID of Node(%s): %s", self, err)}
	}

	blocks, notOwn := ipam.OwnBlocks(self, s)
	hosts, notHere := ipam.Hosts(self, blocks, s)
	prefs, problems := localPrefs(s.BGPConfigurations["default"])
	services := servicesOf(node, s, o)
	peers, more := Peers(self, s)
	problems = append(problems, more...)
	for i := range peers {
		peers[i].PrefixLimit = o.PrefixLimits[peers[i].Scope]
		peers[i].SessionNextHop = !peers[i].LocalAddress.IsValid() &&
			!o.nextHop(familyOf(peers[i].Address)).IsValid()
	}
	aggregated := ipam.Aggregated(blocks, s)
	policies, more := policiesFor(node, aggregated, peers, prefs, services.announced, s)
	policies.ClusterID = cmp.Or(policies.ClusterID, routerID)
	problems = append(problems, more...)
	policies.Behind = policies.behind(o.Outgoing)
	peers, more = policies.fit(peers)
	problems = append(problems, more...)
	high, more := elevatedPrefs(self, prefs, s)
	problems = append(problems, more...)
	a := announcer{
		policies: policies, peers: peers, filtering: filtering(peers),
		nextHop: next, localPref: prefs, elevated: high, arrived: o.Arrived,
	}
	for _, skipped := range append(notOwn, notHere...) {
		a.withhold(skipped.Prefix, skipped.Reason)
	}
	a.ours(blocks, hosts)
	a.services(services.announced)
	a.sort()

	problems = append(problems, services.problems...)
	problems = append(problems, encapsulation...)
	problems = append(problems, besideFelix(self, o, s)...)
	problems = append(problems, Unencrypted(self, s, o)...)
	problems = append(problems, s.UnusedFelix(self)...)
	problems = append(problems, s.AnnotatedFelix(self)...)
	_, more = logLevel(self, s)
	problems = append(problems, more...)
	problems = append(problems, badBindMode(s)...)
	return Plan{
		Speaker:       speakerFor(node, routerID, s),
		Peers:         peers,
		Announcements: a.announcements,
		Policies:      policies,
		NotProgrammed: services.notProgrammed,
		Withheld:      a.withheld,
		Problems:      sortProblems(problems),
	}
}

// badConfiguration is a problem with the cluster-wide BGPConfiguration.
func badConfiguration(format string, args ...any) calico.Problem {
	return calico.Problem{Resource: "BGPConfiguration(default)", Err: fmt.Sprintf(format, args...)}
}

func compareProblems(a, b calico.Problem) int {
	return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Err, b.Err))
}
