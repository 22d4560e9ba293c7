package agent

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/ipam"
)

// change makes one random change in a copy of c, and says which.
func change(c *calico.Snapshot, rng *rand.Rand) (*calico.Snapshot, string) {
	out := *c
	out.Revision++
	n := rng.IntN(4)
	block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(n), 0}), 26)
	name := fmt.Sprintf("node-%d", n)
	switch rng.IntN(6) {
	case 0:
		out.Nodes = maps.Clone(c.Nodes)
		if _, there := c.Nodes[name]; there {
			delete(out.Nodes, name)
			return &out, name + " leaves"
		}
		out.Nodes[name] = calico.Node{Name: name, ASNumber: uint32(n) * 64600,
			IPv4: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, 4, byte(10 + n)}), 24)}
		return &out, name + " joins"
	case 1:
		out.Blocks, out.Affinities = maps.Clone(c.Blocks), maps.Clone(c.Affinities)
		if _, there := c.Affinities[block]; there {
			delete(out.Affinities, block)
			delete(out.Blocks, block)
			return &out, fmt.Sprintf("own block %v is gone", block)
		}
		out.Affinities[block] = calico.AffinityConfirmed
		out.Blocks[block] = calico.Block{CIDR: block, Owner: calico.Owner{Host: "a"}}
		return &out, fmt.Sprintf("own block %v", block)
	case 2:
		out.Blocks = maps.Clone(c.Blocks)
		out.Blocks[block] = calico.Block{CIDR: block,
			Owner: calico.Owner{Host: []string{"a", "b"}[rng.IntN(2)]}}
		return &out, fmt.Sprintf("block %v is %v's", block, out.Blocks[block].Owner.Host)
	case 3:
		out.BGPPeers = maps.Clone(c.BGPPeers)
		if out.BGPPeers == nil {
			out.BGPPeers = map[string]calico.BGPPeer{}
		}
		if _, there := c.BGPPeers[name]; there {
			delete(out.BGPPeers, name)
			return &out, "BGPPeer " + name + " is gone"
		}
		out.BGPPeers[name] = calico.BGPPeer{Name: name, PeerIP: fmt.Sprintf("192.168.4.%d", 50+n),
			ASNumber: 65001, KeepOriginalNextHop: n == 1}
		return &out, "BGPPeer " + name
	case 4:
		mesh := n%2 == 0
		out.BGPConfigurations = map[string]calico.BGPConfiguration{"default": {
			NodeToNodeMeshEnabled: &mesh}}
		return &out, fmt.Sprintf("mesh: %t", mesh)
	default:
		out.IPPools = maps.Clone(c.IPPools)
		pool := c.IPPools["pool"]
		pool.DisableBGPExport = !pool.DisableBGPExport
		out.IPPools["pool"] = pool
		return &out, fmt.Sprintf("export disabled: %t", pool.DisableBGPExport)
	}
}

// changeTunnels makes one random change of what packets leave by.
func changeTunnels(c *calico.Snapshot, rng *rand.Rand) (*calico.Snapshot, string) {
	out := *c
	out.Revision++
	if rng.IntN(2) == 0 {
		out.IPPools = maps.Clone(c.IPPools)
		name := []string{"pods", "more"}[rng.IntN(2)]
		pool := c.IPPools[name]
		pool.IPIPMode = []calico.EncapMode{calico.EncapNever, calico.EncapAlways,
			calico.EncapCrossSubnet}[rng.IntN(3)]
		out.IPPools[name] = pool
		return &out, fmt.Sprintf("pool %s: %s", name, pool.IPIPMode)
	}
	out.Nodes = maps.Clone(c.Nodes)
	n := rng.IntN(4)
	name := fmt.Sprintf("node-%d", n)
	if _, there := c.Nodes[name]; there {
		delete(out.Nodes, name)
		return &out, name + " leaves"
	}
	out.Nodes[name] = calico.Node{Name: name, IPv4IPIPTunnelAddr: addr("10.9.0.2"),
		IPv4: netip.PrefixFrom(tunnelNode(n), 24)}
	return &out, name + " joins"
}

// tunnelNode is the address of node-n: the first two are in this node's network.
func tunnelNode(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{192, 168, byte(4 + n/2), byte(10 + n)})
}

// How packets to pools with a mode leave is foretold, too: which tunnels there are, and which
// routes are over them.
func TestPlanForetellsTunnels(t *testing.T) {
	options := bgp.Options{Tunnels: []route.Encap{route.IPIP}}
	inBubble(t, func(t *testing.T, n *node) {
		eth0 := live.Interfaces[0]
		eth0.MTU = 1500
		settles := func() { // with what the data plane then says of the tunnels' interface
			for range 2 {
				f := route.Facts{Identity: "one", Interfaces: []route.Interface{eth0,
					{Name: "eth1", Index: 2, Up: true, MTU: 1500,
						Addresses: []netip.Prefix{pfx("192.168.5.2/24")}}}}
				n.dataplane.mu.Lock()
				if _, is := n.dataplane.objects[route.LinkKey("tunl0")]; is {
					f.Interfaces = append(f.Interfaces, route.Interface{Name: "tunl0", Index: 3,
						Up: true})
				}
				n.dataplane.mu.Unlock()
				n.dataplane.facts <- f
				time.Sleep(2 * time.Minute) // tunnels that no pool needs stay for a while
				synctest.Wait()
			}
		}
		c := encapsulated(calico.EncapAlways)
		c.IPPools["more"] = calico.IPPool{Name: "more", CIDR: pfx("10.2.0.0/16")}
		n.snapshots <- c
		blocks := map[netip.Prefix]int{} // of which node
		for i := range 4 {
			for _, pool := range []byte{1, 2} {
				block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, pool, byte(100 + i), 0}), 26)
				blocks[block] = i
				n.engine.Learn(fib.BestPaths{Prefix: block,
					Paths: []route.Path{{NextHop: tunnelNode(i), Weight: 1}}})
			}
		}
		settles()
		rng := rand.New(rand.NewPCG(3, 4))
		made, left, before := 0, 0, ""
		for i := range 30 {
			next, what := changeTunnels(c, rng)
			foretold, _ := ipam.Encapsulation("a", options.Tunnels, false, next)
			wanted := map[string]bool{} // tunnels
			leaves := map[netip.Prefix]string{}
			for block, of := range blocks {
				leaves[block] = []string{"eth0", "eth1"}[of/2]
				pool := foretold.PoolOf(block)
				if pool == nil {
					continue
				}
				if l := foretold.Leaves(pool, tunnelNode(of)); l.Refused {
					leaves[block] = ""
				} else if l.Encap == route.IPIP {
					leaves[block] = "tunl0"
				}
			}
			if foretold != nil && slices.ContainsFunc(foretold.Pools, func(p route.Pool) bool {
				return p.Encap == route.IPIP
			}) {
				for _, n := range foretold.Nodes {
					wanted[n.Address.String()] = true
				}
			}
			n.snapshots <- next
			settles()
			there := map[string]bool{}
			n.dataplane.mu.Lock()
			for _, o := range n.dataplane.objects {
				if e, is := o.(route.Endpoint); is {
					there[e.Outer.String()] = true
				}
			}
			for block, want := range leaves {
				got := ""
				if r, is := n.dataplane.routes[route.Key{Prefix: block}]; is {
					got = r.Paths[0].Interface
				}
				if got != want {
					t.Errorf("change %d, %s: %v leaves by %q, foretold %q", i, what, block, got,
						want)
				}
			}
			n.dataplane.mu.Unlock()
			if !maps.Equal(there, wanted) {
				t.Errorf("change %d, %s: tunnels to %v, foretold %v", i, what, there, wanted)
			}
			if now := fmt.Sprint(wanted, leaves); now != before {
				made, before = made+1, now
			}
			if slices.Contains(slices.Collect(maps.Values(leaves)), "tunl0") {
				left++
			}
			c = next
		}
		if made < 10 || left < 5 || left > 28 {
			t.Errorf("%d changes changed anything; %d times something left by a tunnel", made,
				left)
		}
	}, func(c *Config) { c.BGP = options })
}

// What `plan` says of a change before it is made is what the agent does when it is made.
func TestPlanForetellsWhatHappens(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		c := cluster()
		n.snapshots <- c
		time.Sleep(10 * time.Second)
		rng := rand.New(rand.NewPCG(1, 2))
		differ := 0
		for i := range 30 {
			next, what := change(c, rng)
			foretold := NodePlanOf("a", next, bgp.PlanFor("a", next, bgp.Options{}))
			before := NodePlanOf("a", next, n.speaker.current())
			if !reflect.DeepEqual(before.Announcements, foretold.Announcements) ||
				!reflect.DeepEqual(before.Peers, foretold.Peers) ||
				!reflect.DeepEqual(before.Policies, foretold.Policies) {
				differ++
			}
			n.snapshots <- next
			time.Sleep(2 * time.Minute) // former peers and blocks go one after the other
			synctest.Wait()
			happened := NodePlanOf("a", next, n.speaker.current())
			if !reflect.DeepEqual(happened, foretold) {
				t.Errorf("change %d, %s: foretold\n%+v, happened\n%+v", i, what, foretold, happened)
			}
			routes := map[netip.Prefix]bool{}
			all, _ := n.dataplane.Routes(t.Context())
			for _, r := range all {
				routes[r.Prefix] = r.Kind == route.Drop
			}
			for _, a := range foretold.Announcements {
				if !a.Prefix.IsSingleIP() && !routes[a.Prefix] {
					t.Errorf("change %d, %s: %v is announced without a drop route", i, what,
						a.Prefix)
				}
			}
			c = next
		}
		if differ < 10 {
			t.Errorf("only %d of the changes changed anything", differ)
		}
	})
}
