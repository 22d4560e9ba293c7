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

// Remote is a prefix that lives on another host.
type Remote struct {
	Prefix  netip.Prefix
	Host    string
	NextHop netip.Addr
}

// RemotePlan is the result of Remotes. Slices are sorted, by prefix or by the problems' keys.
type RemotePlan struct {
	Routes []Remote // one for each prefix
	// Skipped lists, with a reason, the blocks and borrowed addresses without a route.
	Skipped  []Skipped
	Problems []calico.Problem
	// Unlocated are those of Skipped whose host has no address, perhaps only for a moment: its
	// lease may have ended while it was cut off from etcd.
	Unlocated []netip.Prefix
}

// Remotes returns the routes of node self to all other hosts' blocks by IPAM's data alone. A block
// is routed to the host of its affinity, a borrowed address to its borrower, located by the
// allocation, since WorkloadEndpoints are not read without BGP. The first source with a host's
// address wins.
func Remotes(self string, sources []AddressSource, s *calico.Snapshot) RemotePlan {
	r := remotes{self: self, sources: sources, snapshot: s, borrowed: map[netip.Prefix]Remote{},
		blocks: make([]Remote, 0, len(s.Blocks))}
	blocks := slices.AppendSeq(make([]netip.Prefix, 0, len(s.Blocks)), maps.Keys(s.Blocks))
	// A block comes before those within it, which win.
	route.SortPrefixes(blocks)
	for _, cidr := range blocks {
		r.addBlock(s.Blocks[cidr])
	}
	p := RemotePlan{Routes: r.routes(), Skipped: r.skipped, Problems: r.sharedAddresses(),
		Unlocated: r.unlocated}
	sortSkipped(p.Skipped)
	return p
}

// remotes is a RemotePlan under construction.
type remotes struct {
	self      string
	sources   []AddressSource
	snapshot  *calico.Snapshot
	blocks    []Remote // sorted
	borrowed  map[netip.Prefix]Remote
	skipped   []Skipped
	unlocated []netip.Prefix
}

// routes: where a block of one address was borrowed, the borrower counts.
func (r *remotes) routes() []Remote {
	if len(r.borrowed) == 0 {
		return r.blocks
	}
	all := slices.DeleteFunc(r.blocks, func(b Remote) bool {
		_, ok := r.borrowed[b.Prefix]
		return ok
	})
	all = slices.AppendSeq(all, maps.Values(r.borrowed))
	slices.SortFunc(all, func(a, b Remote) int { return route.ComparePrefixes(a.Prefix, b.Prefix) })
	return all
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
		if x, ok := r.remote(b.CIDR, owner.Host); ok {
			r.blocks = append(r.blocks, x)
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
		if x, ok := r.remote(p, a.Node); ok {
			r.borrowed[p] = x
		}
	}
}

// remote returns false where the host has no address.
func (r *remotes) remote(p netip.Prefix, host string) (Remote, bool) {
	n := r.snapshot.Nodes[host]
	next := r.address(host, &n, p.Addr().Is6())
	if !next.IsValid() {
		r.skip(p, r.noAddress(host, p.Addr().Is6()))
		r.unlocated = append(r.unlocated, p)
	}
	return Remote{p, host, next}, next.IsValid()
}

func (r *remotes) skip(p netip.Prefix, reason string) {
	r.skipped = append(r.skipped, Skipped{p, reason})
}

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

// sharedAddresses reports hosts that share an address. Their routes stay: one host may be left over
// from a rename, and cutting off the live one would be worse than misdirected traffic.
func (r *remotes) sharedAddresses() (problems []calico.Problem) {
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
