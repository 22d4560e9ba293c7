package agent

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
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
