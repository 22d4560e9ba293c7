package ipam

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

// AddressSource says where the next hop towards another host is read.
type AddressSource string

const (
	Published  AddressSource = "peerip" // what the host publishes itself (calico.PeerIP)
	NodeObject AddressSource = "node"   // spec.bgp of the Calico Node, else its spec.addresses
)

// RemotePlan is the result of Remotes. Slices are sorted by prefix.
type RemotePlan struct {
	Routes []route.Route // one for each prefix that lives on another host
	// Skipped lists, with a reason, the blocks and borrowed addresses without a route.
	Skipped []Skipped
	// Unlocated are those of Skipped whose host has no address, perhaps only for a moment: its
	// lease may have ended while it was cut off from etcd.
	Unlocated []netip.Prefix
}

// Remotes returns the routes of node self to all other hosts' blocks by IPAM's data alone, without
// those of Overlay. A block is routed to the host of its affinity, a borrowed address to its
// borrower, by the allocation, since WorkloadEndpoints are not read without BGP. The first source
// with a host's address wins. Paths are shared with last, the routes of the plan before.
func Remotes(self string, sources []AddressSource, e *route.Encapsulation, s *calico.Snapshot,
	last []route.Route) RemotePlan {
	r := remotes{origin: route.Etcd, self: self, sources: sources, snapshot: s}
	if e != nil && slices.ContainsFunc(e.Pools, isOverlay) {
		r.elsewhere = func(p netip.Prefix) bool { return inVXLAN(e, p) }
	}
	return r.plan(last)
}

// remotes is a RemotePlan under construction.
type remotes struct {
	origin    route.Origin
	self      string
	sources   []AddressSource
	elsewhere func(netip.Prefix) bool // has what is planned elsewhere; nil: nothing is
	snapshot  *calico.Snapshot
	paths     pathsBefore
	blocks    []route.Route               // sorted
	borrowed  map[netip.Prefix]netip.Addr // and the next hop
	skipped   []Skipped
	unlocated []netip.Prefix
}

func (r *remotes) plan(last []route.Route) RemotePlan {
	r.paths, r.borrowed = last, map[netip.Prefix]netip.Addr{}
	all := make([]route.Route, 0, len(r.snapshot.Blocks))
	for cidr := range r.snapshot.Blocks {
		all = append(all, route.Route{Key: route.Key{Prefix: cidr}})
	}
	// A block comes before those within it, which win.
	route.SortRoutes(all)
	r.blocks = all[:0] // they are filtered in place
	for _, b := range all {
		r.addBlock(r.snapshot.Blocks[b.Prefix])
	}
	p := RemotePlan{Routes: r.routes(last), Skipped: r.skipped, Unlocated: r.unlocated}
	sortSkipped(p.Skipped)
	slices.SortFunc(p.Unlocated, route.ComparePrefixes)
	return p
}

// routes: where a block of one address was borrowed, the borrower counts.
func (r *remotes) routes(last []route.Route) []route.Route {
	if len(r.borrowed) == 0 {
		return r.blocks
	}
	all := slices.DeleteFunc(r.blocks, func(b route.Route) bool {
		_, ok := r.borrowed[b.Prefix]
		return ok
	})
	r.paths = last // from the beginning
	borrowed := slices.Collect(maps.Keys(r.borrowed))
	route.SortPrefixes(borrowed)
	for _, p := range borrowed {
		all = append(all, r.via(p, r.borrowed[p]))
	}
	route.SortRoutes(all)
	return all
}

func (r *remotes) via(p netip.Prefix, next netip.Addr) route.Route {
	k := route.Key{Prefix: p}
	return route.Route{Key: k, Kind: route.Via, Origin: r.origin, Paths: r.paths.to(next, k)}
}

// pathsBefore are what is left of a plan's routes when another one takes its place.
type pathsBefore []route.Route

// to returns the paths of k to a next hop, which it had before or not. It is asked in order.
func (b *pathsBefore) to(next netip.Addr, k route.Key) []route.Path {
	for len(*b) > 0 && route.CompareKeys((*b)[0].Key, k) < 0 {
		*b = (*b)[1:]
	}
	path := route.PathTo(next)
	if len(*b) > 0 && (*b)[0].Key == k && (*b)[0].Paths[0] == path {
		return (*b)[0].Paths
	}
	return []route.Path{path}
}

func (r *remotes) addBlock(b calico.Block) {
	switch owner := b.Owner; {
	case owner.Virtual != "":
		// Load balancers' addresses live on no host (Calico announces them as service addresses).
		r.skip(b.CIDR, fmt.Sprintf("the block belongs to virtual owner %s", owner.Virtual))
		return
	case owner.Host == "":
		r.skip(b.CIDR, "nobody owns the block")
	case owner.Host == r.self:
		r.skip(b.CIDR, "the block is this node's own")
	default:
		if next := r.nextHop(b.CIDR, owner.Host); next.IsValid() {
			r.blocks = append(r.blocks, r.via(b.CIDR, next))
		}
	}
	for _, a := range b.Allocations {
		if a.Node == "" || a.Node == b.Owner.Host {
			continue
		}
		p := route.HostPrefix(a.Address)
		delete(r.borrowed, p) // what a shorter block said
		if a.Node == r.self {
			continue
		}
		if next := r.nextHop(p, a.Node); next.IsValid() {
			r.borrowed[p] = next
		}
	}
}

// nextHop is invalid where the host has no address, or p is planned elsewhere.
func (r *remotes) nextHop(p netip.Prefix, host string) (next netip.Addr) {
	if r.isElsewhere(p) {
		return next
	}
	n := r.snapshot.Nodes[host]
	next = r.address(host, &n, p.Addr().Is6())
	if !next.IsValid() {
		r.skip(p, r.noAddress(host, p.Addr().Is6()))
		r.unlocated = append(r.unlocated, p)
	}
	return next
}

func (r *remotes) skip(p netip.Prefix, reason string) {
	if !r.isElsewhere(p) {
		r.skipped = append(r.skipped, Skipped{p, reason})
	}
}

func (r *remotes) isElsewhere(p netip.Prefix) bool { return r.elsewhere != nil && r.elsewhere(p) }

// address returns the next hop towards a host with this Node, invalid if there is none.
func (r *remotes) address(host string, n *calico.Node, v6 bool) (a netip.Addr) {
	for _, source := range r.sources {
		if a = r.addressFrom(source, host, n, v6); a.IsValid() {
			break
		}
	}
	return a
}

func (r *remotes) addressFrom(source AddressSource, host string, n *calico.Node,
	v6 bool) netip.Addr {
	switch {
	case source == Published:
		return r.snapshot.PeerIPs[calico.PeerIP{Host: host, IPv6: v6}]
	case v6 && n.IPv6.IsValid():
		return n.IPv6.Addr()
	case v6:
		return n.HostIPv6
	case n.IPv4.IsValid():
		return n.IPv4.Addr()
	}
	return n.HostIPv4
}

func (r *remotes) noAddress(host string, v6 bool) string {
	family := "IPv4"
	if v6 {
		family = "IPv6"
	}
	var missing []string
	for _, source := range r.sources {
		switch _, exists := r.snapshot.Nodes[host]; {
		case source == Published:
			missing = append(missing, fmt.Sprintf("publishes no %s address", family))
		case !exists:
			missing = append(missing, fmt.Sprintf("there is no Node(%s)", host))
		default:
			missing = append(missing, fmt.Sprintf("Node(%s) has no %s address", host, family))
		}
	}
	return fmt.Sprintf("host %s has no next hop: %s", host, strings.Join(missing, ", "))
}

// SharedAddresses reports hosts that share an address by the same sources. Their routes stay: one
// host may be left over from a rename, and cutting off the live one would be worse than misdirected
// traffic.
func SharedAddresses(sources []AddressSource, s *calico.Snapshot) (problems []calico.Problem) {
	if len(sources) == 0 {
		return nil
	}
	r := remotes{sources: sources, snapshot: s}
	all := make([]netip.Addr, 0, len(r.snapshot.Nodes))
	r.eachAddress(func(a netip.Addr, _ string) { all = append(all, a) })
	route.SortAddrs(all)
	shared := map[netip.Addr][]string{}
	for i, a := range all {
		if i > 0 && a == all[i-1] {
			shared[a] = nil
		}
	}
	if len(shared) == 0 { // mostly
		return nil
	}
	r.eachAddress(func(a netip.Addr, host string) {
		if hosts, is := shared[a]; is {
			shared[a] = append(hosts, host)
		}
	})
	for a, hosts := range shared {
		problems = append(problems, r.shared(a, hosts)...)
	}
	slices.SortFunc(problems, func(a, b calico.Problem) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Err, b.Err))
	})
	return problems
}

// eachAddress yields the next hops towards all hosts.
func (r *remotes) eachAddress(yield func(a netip.Addr, host string)) {
	add := func(host string, n *calico.Node, v6 bool) {
		if a := r.address(host, n, v6); a.IsValid() {
			yield(a, host)
		}
	}
	for host, n := range r.snapshot.Nodes {
		add(host, &n, false)
		add(host, &n, true)
	}
	for p := range r.snapshot.PeerIPs {
		if _, ok := r.snapshot.Nodes[p.Host]; !ok {
			add(p.Host, &calico.Node{}, p.IPv6)
		}
	}
}

// shared are the problems of hosts with one address.
func (r *remotes) shared(a netip.Addr, hosts []string) (problems []calico.Problem) {
	slices.Sort(hosts)
	for _, host := range hosts {
		others := slices.DeleteFunc(slices.Clone(hosts), func(h string) bool { return h == host })
		problems = append(problems, calico.Problem{
			Resource: r.addressResource(host, a),
			Err: fmt.Sprintf("%s is the address of %s too: what is meant for one of them goes to "+
				"another", a, strings.Join(others, ", ")),
		})
	}
	return problems
}

func (r *remotes) addressResource(host string, a netip.Addr) string {
	n := r.snapshot.Nodes[host]
	for _, source := range r.sources {
		if r.addressFrom(source, host, &n, a.Is6()) == a {
			if source == Published {
				return fmt.Sprintf("peerip(%s)", host)
			}
			break
		}
	}
	return fmt.Sprintf("Node(%s)", host)
}
