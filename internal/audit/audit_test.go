package audit

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico"
)

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func host(name string) calico.Owner { return calico.Owner{Host: name} }

// lab is a cluster in which all fits together: three nodes in a mesh, of which b has borrowed an
// address from a's block.
type lab struct {
	nodes     map[string]calico.Node
	blocks    map[netip.Prefix]calico.Block
	affine    []calico.Affinity
	endpoints []calico.WorkloadEndpoint
	moves     []calico.LiveMigration
	peers     map[string]calico.BGPPeer
	mesh      bool
	bad       map[string]string // keys and values of etcd

	change func(*View)
}

func newLab() *lab {
	workload := func(node, address string) calico.WorkloadEndpoint {
		return calico.WorkloadEndpoint{Namespace: "shop", Name: node + "-" + address, Node: node,
			IPNetworks: []netip.Prefix{pfx(address + "/32")}}
	}
	l := &lab{nodes: map[string]calico.Node{}, blocks: map[netip.Prefix]calico.Block{},
		peers: map[string]calico.BGPPeer{}, mesh: true, bad: map[string]string{},
		change: func(*View) {}}
	for i, name := range []string{"a", "b", "c"} {
		l.nodes[name] = calico.Node{Name: name, IPv4: netip.PrefixFrom(
			netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), 24)}
		block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i), 0}), 26)
		l.blocks[block] = calico.Block{CIDR: block, Owner: host(name)}
		l.affine = append(l.affine, calico.Affinity{Owner: host(name), CIDR: block,
			State: calico.AffinityConfirmed})
	}
	of := l.blocks[pfx("10.1.0.0/26")]
	of.Allocations = []calico.Allocation{{Address: netip.MustParseAddr("10.1.0.1"), Node: "a"},
		{Address: netip.MustParseAddr("10.1.0.2"), Node: "b"}}
	l.blocks[of.CIDR] = of
	l.endpoints = []calico.WorkloadEndpoint{workload("a", "10.1.0.1"), workload("b", "10.1.0.2")}
	return l
}

func (l *lab) view(t *testing.T) View {
	t.Helper()
	r := calico.NewClusterReader()
	put := func(k calico.Key, v any) { r.Put(k.String(), calico.Item{Key: k, Value: v}) }
	put(calico.Key{Kind: calico.KindIPPool, Name: "pods"},
		calico.IPPool{Name: "pods", CIDR: pfx("10.1.0.0/16"), BlockSize: 26})
	mesh := l.mesh
	put(calico.Key{Kind: calico.KindBGPConfiguration, Name: "default"},
		calico.BGPConfiguration{Name: "default", NodeToNodeMeshEnabled: &mesh})
	for name, n := range l.nodes {
		put(calico.Key{Kind: calico.KindNode, Name: name}, n)
	}
	for name, p := range l.peers {
		p.Name = name
		put(calico.Key{Kind: calico.KindBGPPeer, Name: name}, p)
	}
	for cidr, b := range l.blocks {
		put(calico.Key{Kind: calico.KindBlock, CIDR: cidr}, b)
	}
	for _, f := range l.affine {
		put(calico.Key{Kind: calico.KindBlockAffinity, Owner: f.Owner, CIDR: f.CIDR}, f.State)
	}
	for _, w := range l.endpoints {
		put(calico.Key{Kind: calico.KindWorkloadEndpoint, Namespace: w.Namespace, Name: w.Name}, w)
	}
	for _, m := range l.moves {
		put(calico.Key{Kind: calico.KindLiveMigration, Namespace: m.Namespace, Name: m.Name}, m)
	}
	for key, value := range l.bad {
		r.PutKey(key, []byte(value))
	}
	v := View{Cluster: r.Cluster(1), Statuses: map[string]reflector.Status{},
		Answers: map[string]Answer{}}
	digests := reflector.Digests(v.Cluster.Snapshot)
	for name := range v.Cluster.Snapshot.Nodes {
		v.Statuses[name] = reflector.Status{Digest: digests[name], Wanted: 2, Up: 2}
	}
	for cidr, b := range v.Cluster.Snapshot.Blocks {
		x := v.Answers[b.Owner.Host]
		x.Announced = append(x.Announced, cidr)
		v.Answers[b.Owner.Host] = x
	}
	x := v.Answers["b"]
	x.Announced = append(x.Announced, pfx("10.1.0.2/32"))
	v.Answers["b"] = x
	l.change(&v)
	return v
}

func (l *lab) give(address, node string) {
	b := l.blocks[pfx("10.1.0.0/26")]
	b.Allocations = append(slices.Clone(b.Allocations),
		calico.Allocation{Address: netip.MustParseAddr(address), Node: node})
	l.blocks[b.CIDR] = b
}

// Each finding is made, and nothing else is found beside it.
func TestFind(t *testing.T) {
	made := map[Kind]bool{}
	tunnel := netip.MustParseAddr("10.1.0.7")
	for name, x := range map[string]struct {
		make func(*lab)
		want []string // kind, item, a part of the text
	}{
		"nothing": {func(*lab) {}, nil},
		"two workloads of one address": {func(l *lab) {
			l.endpoints = append(l.endpoints, calico.WorkloadEndpoint{Namespace: "shop",
				Name: "twin", Node: "c", IPNetworks: []netip.Prefix{pfx("10.1.0.1/32")}})
		}, []string{"duplicate-address 10.1.0.1 WorkloadEndpoint(shop/a-10.1.0.1) on a and " +
			"WorkloadEndpoint(shop/twin) on c have it"}},
		"a live migration": {func(l *lab) {
			for i := range l.endpoints {
				l.endpoints[i].Orchestrator, l.endpoints[i].Workload = "openstack", "vm"
			}
			l.endpoints = append(l.endpoints, l.endpoints[0])
			l.endpoints[2].Name, l.endpoints[2].Node = "target", "c"
			l.moves = []calico.LiveMigration{{Namespace: "vms", Name: "m",
				Source: calico.MigrationEnd{Host: "a", Orchestrator: "openstack", Workload: "vm"},
				Target: calico.MigrationEnd{Host: "c", Orchestrator: "openstack", Workload: "vm"}}}
		}, nil},
		"two nodes of one address": {func(l *lab) {
			n := l.nodes["c"]
			n.IPv4 = l.nodes["a"].IPv4
			l.nodes["c"] = n
			l.mesh = false // what it would do to sessions is another matter
		}, []string{"duplicate-address 192.0.2.1 Node(a) on a and Node(c) on c have it"}},
		"a tunnel address of two kinds": {func(l *lab) {
			n := l.nodes["a"]
			n.IPv4IPIPTunnelAddr, n.IPv4VXLANTunnelAddr = tunnel, tunnel
			l.nodes["a"] = n
		}, nil},
		"overlapping blocks": {func(l *lab) {
			cidr := pfx("10.1.0.32/28")
			l.blocks[cidr] = calico.Block{CIDR: cidr, Owner: host("c")}
			l.affine = append(l.affine, calico.Affinity{Owner: host("c"), CIDR: cidr,
				State: calico.AffinityConfirmed})
		}, []string{"overlapping-blocks 10.1.0.32/28 it lies in block 10.1.0.0/26"}},
		"a Node that is gone": {func(l *lab) { delete(l.nodes, "c") },
			[]string{"orphan-affinity 10.1.2.0/26 c has an affinity to it, and there is no Node(c)",
				"orphan-block 10.1.2.0/26 it is c's, and there is no Node(c)"}},
		"an affinity without a block": {func(l *lab) { delete(l.blocks, pfx("10.1.2.0/26")) },
			[]string{"affinity-without-block 10.1.2.0/26 c has a confirmed affinity to it"}},
		"a pending affinity without a block": {func(l *lab) {
			delete(l.blocks, pfx("10.1.2.0/26"))
			l.affine[2].State = calico.AffinityPending
		}, nil},
		"a block without an affinity": {func(l *lab) { l.affine = l.affine[:2] },
			[]string{"block-without-affinity 10.1.2.0/26 it is c's, which has no affinity"}},
		"a block of nobody": {func(l *lab) {
			cidr := pfx("10.1.9.0/26")
			l.blocks[cidr] = calico.Block{CIDR: cidr}
		}, nil},
		"a block of load balancers": {func(l *lab) {
			cidr, owner := pfx("10.1.9.0/26"), calico.Owner{Virtual: "load-balancer"}
			l.blocks[cidr] = calico.Block{CIDR: cidr, Owner: owner}
			l.affine = append(l.affine, calico.Affinity{Owner: owner, CIDR: cidr,
				State: calico.AffinityConfirmed})
		}, nil},
		"two affinities to one block": {func(l *lab) {
			l.affine = append(l.affine, calico.Affinity{Owner: host("b"), CIDR: pfx("10.1.0.0/26"),
				State: calico.AffinityConfirmed})
		}, []string{"block-announced-by-non-owner 10.1.0.0/26 it is a's, and b has a confirmed"}},
		"a pending affinity to another's block": {func(l *lab) {
			l.affine = append(l.affine, calico.Affinity{Owner: host("b"), CIDR: pfx("10.1.0.0/26"),
				State: calico.AffinityPending})
		}, nil},
		"an agent announces another's block": {func(l *lab) {
			l.change = func(v *View) {
				v.Answers["c"] = Answer{Announced: []netip.Prefix{pfx("10.1.0.0/26")}}
			}
		}, []string{"block-announced-by-non-owner 10.1.0.0/26 it is a's, and the agent of c"}},
		"a borrowed address without a workload": {func(l *lab) { l.give("10.1.0.3", "c") },
			[]string{"missing-host-route 10.1.0.3 c has borrowed it from block 10.1.0.0/26 (a's)"}},
		"an own address without a workload": {func(l *lab) { l.give("10.1.0.3", "a") }, nil},
		"a borrowed tunnel address": {func(l *lab) {
			l.give(tunnel.String(), "c")
			n := l.nodes["c"]
			n.IPv4VXLANTunnelAddr = tunnel
			l.nodes["c"] = n
		}, nil},
		"a borrowed address that the agent does not announce": {func(l *lab) {
			l.change = func(v *View) { v.Answers["b"] = Answer{} }
		}, []string{"missing-host-route 10.1.0.2 b has borrowed it from block 10.1.0.0/26 (a's), " +
			"and its agent does not announce it"}},
		"a borrowed address that the agent withholds": {func(l *lab) {
			l.change = func(v *View) {
				v.Answers["b"] = Answer{Withheld: []netip.Prefix{pfx("10.1.0.2/32")}}
			}
		}, nil},
		"a borrowed address of a node that is drained": {func(l *lab) {
			l.change = func(v *View) { v.Answers["b"] = Answer{Draining: true} }
		}, nil},
		"an agent announces a block of load balancers": {func(l *lab) {
			cidr := pfx("10.1.9.0/26")
			l.blocks[cidr] = calico.Block{CIDR: cidr,
				Owner: calico.Owner{Virtual: "load-balancer"}}
			l.change = func(v *View) { v.Answers["c"] = Answer{Announced: []netip.Prefix{cidr}} }
		}, nil},
		"a workload elsewhere": {func(l *lab) { l.endpoints[0].Node = "c" },
			[]string{"address-on-other-node 10.1.0.1 IPAM has given it to a"}},
		"a session that one end wants": {func(l *lab) {
			l.mesh = false
			l.peers["one"] = calico.BGPPeer{Node: "a", PeerIP: "192.0.2.2", ASNumber: 64512,
				ReversePeering: "Manual"}
		}, []string{"one-ended-session a b a wants a session with b (192.0.2.2), by BGPPeer(one)"}},
		"a session with another speaker on a node": {func(l *lab) {
			l.mesh = false
			l.peers["one"] = calico.BGPPeer{Node: "a", PeerIP: "192.0.2.2:1790", ASNumber: 65001}
		}, []string{"one-ended-session a b a wants a session with b (192.0.2.2), by " +
			"BGPPeer(one), and b wants none: it comes up only if another speaker than b's " +
			"listens on port 1790"}},
		"a session that both want": {func(l *lab) {
			l.mesh = false
			l.peers["one"] = calico.BGPPeer{Node: "a", PeerIP: "192.0.2.2", ASNumber: 64512}
		}, nil},
		"an agent that publishes nothing": {func(l *lab) {
			l.change = func(v *View) { delete(v.Statuses, "b") }
		}, []string{"nothing-published b its agent publishes nothing"}},
		"none publishes anything": {func(l *lab) {
			l.change = func(v *View) { v.Statuses = nil }
		}, []string{"nothing-published all nodes no agent publishes anything"}},
		"an agent of another version": {func(l *lab) {
			l.change = func(v *View) {
				v.Statuses["b"] = reflector.Status{Format: 1, Version: "v9"}
			}
		}, []string{"other-version b its agent is of version v9"}},
		"an agent that is behind": {func(l *lab) {
			l.change = func(v *View) { v.Statuses["b"] = reflector.Status{Digest: "0"} }
		}, []string{"not-applied b its agent works by other data"}},
		"sessions are down": {func(l *lab) {
			l.change = func(v *View) {
				s := v.Statuses["b"]
				s.Wanted, s.Up, s.Down = 5, 2, []reflector.Down{{Node: "c"}, {Node: "a"}}
				v.Statuses["b"] = s
			}
		}, []string{"sessions-down b 3 of 5 sessions are down: c, a and 1 more"}},
		"drift": {func(l *lab) {
			l.change = func(v *View) {
				s := v.Statuses["b"]
				s.Drifted, s.Refused = 3, 4
				v.Statuses["b"] = s
				v.Answers["b"] = Answer{Announced: v.Answers["b"].Announced, Drifted: 3}
			}
		}, []string{"drift b its data plane does not have 3 routes",
			"drift b its data plane refuses 4 routes"}},
		"drift that is answered": {func(l *lab) {
			l.change = func(v *View) {
				delete(v.Statuses, "b")
				v.Answers["b"] = Answer{Announced: v.Answers["b"].Announced, Drifted: 3}
			}
		}, []string{"drift b its data plane does not have 3 routes", "nothing-published b "}},
		"an agent that does not answer": {func(l *lab) {
			l.change = func(v *View) { v.NotAsked = map[string]string{"b": "it hangs"} }
		}, []string{"agent-not-asked b it hangs"}},
		"bad input": {func(l *lab) {
			l.bad["/calico/ipam/v2/host/a/ipv4/block/10.1.0.64-26"] = "{"
			l.bad["/calico/ipam/v2/assignment/ipv4/block/10.1.3.0-26"] = "nonsense"
			l.bad["/calico/resources/v3/projectcalico.org/workloadendpoints/shop/w"] = "[]"
			l.change = func(v *View) {
				v.Problems = []calico.Problem{{Key: "/vpp-route-agent/nodes/a/status",
					Err: "empty"}}
			}
		}, []string{"bad-input /calico/ipam/v2/assignment/ipv4/block/10.1.3.0-26 ",
			"bad-input /calico/ipam/v2/host/a/ipv4/block/10.1.0.64-26 ",
			"bad-input /calico/resources/v3/projectcalico.org/workloadendpoints/shop/w ",
			"bad-input /vpp-route-agent/nodes/a/status empty"}},
	} {
		l := newLab()
		x.make(l)
		var got []string
		for _, f := range Find(l.view(t)) {
			made[f.Kind] = true
			got = append(got, string(f.Kind)+" "+f.Item+" "+f.Text)
		}
		fits := slices.EqualFunc(got, x.want, strings.HasPrefix)
		if !fits {
			t.Errorf("%s:\n\t%s\nwant\n\t%s", name, strings.Join(got, "\n\t"),
				strings.Join(x.want, "\n\t"))
		}
	}
	for _, k := range Kinds {
		if !made[k] {
			t.Errorf("nothing makes %s", k)
		}
	}
}
