package gobgp

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"vpp-route-agent/bgp"
	"vpp-route-agent/bgp/reflector"
)

// nodesAround is a node with iBGP peers that are Calico nodes, and a router as the last peer.
func nodesAround(t *testing.T, l *lab, count int) (*node, []*far) {
	t.Helper()
	n := l.node(64512)
	var fars []*far
	local := func(i int) string { return fmt.Sprintf("127.0.3.%d", i+1) }
	for i := range count {
		n.farPeer(local(i), 64512)
		n.plan.Peers[i].CalicoNode = fmt.Sprintf("node-%d", i)
	}
	n.farPeer(local(count), 65001)
	n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
	set(t, n)
	for i, p := range n.plan.Peers {
		fars = append(fars, dialFar(t, n, local(i), p.RemoteAS, 90, true, gracefulCap(false)))
	}
	return n, fars
}

// drawnPath is what a peer announces for a prefix.
type drawnPath struct {
	hop       string
	pref      uint32
	reflected bool
}

func (p drawnPath) attributes(external bool) []packet.PathAttributeInterface {
	all := pathAttributes(p.hop, p.pref)
	if external {
		return []packet.PathAttributeInterface{
			packet.NewPathAttributeOrigin(0), packet.NewPathAttributeAsPath(
				[]packet.AsPathParamInterface{packet.NewAs4PathParam(2, []uint32{65001})}),
			packet.NewPathAttributeNextHop(p.hop),
		}
	}
	if p.reflected {
		all = append(all, packet.NewPathAttributeOriginatorId("192.0.2.99"),
			packet.NewPathAttributeClusterList([]string{"192.0.2.98"}))
	}
	return all
}

// leaving keeps all paths, but for those of some peers, and what others have reflected.
func leaving(ended, unreflected []bgp.PeerID) reflector.Keeps {
	return func(peer bgp.PeerID, originator, _ netip.Addr) bool {
		return !slices.Contains(ended, peer) &&
			!(originator.IsValid() && slices.Contains(unreflected, peer))
	}
}

// The answer to a question equals what happens when what it asks about comes true.
func TestWithoutSaysWhatThenHappens(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3, 4} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			l := newLab(t)
			const nodes, prefixes = 4, 40
			random := rand.New(rand.NewPCG(seed, 0))
			n, fars := nodesAround(t, l, nodes)
			drawn := make([]map[netip.Prefix]drawnPath, len(fars))
			for i, f := range fars {
				drawn[i] = map[netip.Prefix]drawnPath{}
				for k := range prefixes {
					if random.IntN(2) == 0 {
						continue
					}
					p := drawnPath{
						hop:  fmt.Sprintf("192.0.2.%d", 1+random.IntN(3)),
						pref: 100 + 100*uint32(random.IntN(2)), reflected: random.IntN(2) == 0,
					}
					prefix := pfx(fmt.Sprintf("10.1.%d.0/26", k))
					drawn[i][prefix] = p
					f.send(packet.NewBGPUpdateMessage(nil, p.attributes(i == nodes),
						[]*packet.IPAddrPrefix{ipv4(0, prefix.String())}))
				}
			}
			for i, p := range n.plan.Peers {
				eventually(t, "paths of "+p.ID().String(), len(drawn[i]), func() int {
					return n.farState(p.Address.String()).Accepted
				})
			}
			fars[nodes].announce("10.9.9.0/26", "192.0.2.1", 65001) // and the watch has seen all
			n.wantHops("10.9.9.0/26", "192.0.2.1")
			before := n.allHops()

			var ended, unreflected []bgp.PeerID
			for _, p := range n.plan.Peers[:nodes] {
				switch random.IntN(3) {
				case 0:
					ended = append(ended, p.ID())
				case 1:
					unreflected = append(unreflected, p.ID())
				}
			}
			got, ipv6, err := n.Without(t.Context(), leaving(ended, unreflected))
			if err != nil || ipv6.Prefixes+ipv6.Missing > 0 {
				t.Fatalf("IPv6 %+v, %v", ipv6, err)
			}
			if again := n.allHops(); !maps.EqualFunc(before, again, slices.Equal) {
				t.Error("a question has changed what is learned")
			}

			copies := map[netip.Prefix]int{}
			for i, p := range n.plan.Peers {
				for prefix, path := range drawn[i] {
					gone := slices.Contains(ended, p.ID()) ||
						path.reflected && slices.Contains(unreflected, p.ID())
					if !gone {
						copies[prefix]++
					} else if !slices.Contains(ended, p.ID()) {
						fars[i].withdraw(prefix.String())
					}
				}
			}
			n.plan.Peers = slices.DeleteFunc(slices.Clone(n.plan.Peers), func(p bgp.Peer) bool {
				return slices.Contains(ended, p.ID())
			})
			set(t, n)
			want := func() reflector.Change {
				var c reflector.Change
				after := n.allHops()
				for prefix, hops := range before {
					ofNode := slices.ContainsFunc(drawn[:nodes],
						func(d map[netip.Prefix]drawnPath) bool { _, is := d[prefix]; return is })
					switch then := after[prefix]; {
					case !ofNode:
						continue
					case len(then) == 0:
						c.Missing++
						continue
					case !slices.Equal(then, hops):
						c.Changed++
					}
					c.Prefixes++
					if c.Prefixes == 1 || copies[prefix] < c.FewestCopies {
						c.FewestCopies = copies[prefix]
					}
				}
				return c
			}
			if n := len(got.Examples); n > maxExamples || n == 0 && got.Missing+got.Changed > 0 {
				t.Errorf("examples %v", got.Examples)
			}
			got.Examples = nil
			eventually(t, fmt.Sprintf("%v end, %v reflect no more", ended, unreflected), got, want)
		})
	}
}

// allHops are the next hops of all prefixes, each once.
func (n *node) allHops() map[netip.Prefix][]string {
	n.recorder.mu.Lock()
	defer n.recorder.mu.Unlock()
	out := map[netip.Prefix][]string{}
	for prefix, set := range n.sets {
		for _, p := range set {
			out[prefix] = append(out[prefix], p.NextHop.String())
		}
		slices.Sort(out[prefix])
		out[prefix] = slices.Compact(out[prefix])
	}
	return out
}

// What the best path hides counts; what cannot be used, what may be gone in a moment, what is this
// node's own and what no Calico node has announced does not.
func TestWithoutCountsCopiesThatCanBeUsed(t *testing.T) {
	l := newLab(t)
	n, fars := nodesAround(t, l, 3)
	n.announce("10.9.9.0/26", n.addr.String())
	set(t, n)
	for _, f := range fars[:3] {
		f.announce("10.1.0.0/26", "192.0.2.1")
		f.announce("10.9.9.0/26", "192.0.2.1") // ours, too
	}
	fars[3].announce("10.2.0.0/26", "192.0.2.1", 65001)
	eventually(t, "prefixes of others", 2, n.size)
	ask := func(ended ...int) (c reflector.Change) {
		t.Helper()
		var peers []bgp.PeerID
		for _, i := range ended {
			peers = append(peers, n.plan.Peers[i].ID())
		}
		c, _, err := n.Without(t.Context(), leaving(peers, nil))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	wants := func(what string, want reflector.Change, ended ...int) {
		t.Helper()
		eventually(t, what, want, func() reflector.Change { return ask(ended...) })
	}
	wants("nothing is left out", reflector.Change{Prefixes: 1, FewestCopies: 3})
	wants("two are left", reflector.Change{Prefixes: 1, FewestCopies: 2}, 0)
	wants("one is left", reflector.Change{Prefixes: 1, FewestCopies: 1,
		Examples: []string{"10.1.0.0/26, of which there is one copy"}}, 0, 1)
	wants("none is left", reflector.Change{Missing: 1, Examples: []string{"10.1.0.0/26"}}, 0, 1, 2)

	fars[2].announce("10.1.0.0/26", "192.0.2.7")
	changed := reflector.Change{Prefixes: 1, Changed: 1, FewestCopies: 1,
		Examples: []string{"10.1.0.0/26 by 192.0.2.7, now by 192.0.2.1 192.0.2.7"}}
	wants("another next hop", changed, 0, 1)
	if err := n.SetUsable(t.Context(), usableBut(addr("192.0.2.7"))); err != nil {
		t.Fatal(err)
	}
	wants("a next hop that cannot be used",
		reflector.Change{Missing: 1, Examples: []string{"10.1.0.0/26"}}, 0, 1)
	fars[1].close() // graceful restart keeps what it sent
	wants("a stale path is no copy", reflector.Change{Missing: 1,
		Examples: []string{"10.1.0.0/26"}}, 0)
	wants("nor beside others", reflector.Change{Prefixes: 1, FewestCopies: 1,
		Examples: []string{"10.1.0.0/26, of which there is one copy"}})
}

// Paths are looked at outside GoBGP's goroutine, while they change, their peers come and go, and
// graceful restart marks them. What does not change is always found. The race detector looks on.
func TestWithoutWhilePathsChange(t *testing.T) {
	const steady = 50
	l := newLab(t)
	n, fars := nodesAround(t, l, 3)
	for i := range steady {
		fars[0].announce(fmt.Sprintf("10.1.%d.0/26", i), "192.0.2.1")
	}
	eventually(t, "what does not change", steady, n.size)
	stop, changing := make(chan struct{}), sync.WaitGroup{}
	changing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			prefix := fmt.Sprintf("10.2.%d.0/26", i%steady)
			fars[1].announce(prefix, fmt.Sprintf("192.0.2.%d", 1+i%7))
			fars[1].announce(fmt.Sprintf("10.1.%d.0/26", i%steady), "192.0.2.1")
			if i%3 == 0 {
				fars[1].withdraw(prefix)
			}
			time.Sleep(time.Millisecond)
		}
	})
	var asked atomic.Int32
	changing.Go(func() {
		for ; ; asked.Add(1) {
			select {
			case <-stop:
				return
			default:
			}
			c, _, err := n.Without(t.Context(), leaving([]bgp.PeerID{n.plan.Peers[1].ID()}, nil))
			if err != nil || c.Prefixes < steady || c.FewestCopies < 1 {
				t.Errorf("%+v, %v", c, err)
			}
		}
	})
	var nlri []*packet.IPAddrPrefix
	for i := range 700 {
		nlri = append(nlri, ipv4(0, fmt.Sprintf("10.3.%d.%d/32", i>>8, i&255)))
	}
	fars[2].send(packet.NewBGPUpdateMessage(nil, pathAttributes("192.0.2.1", 100), nlri))
	peer := n.plan.Peers[2].Address.String()
	eventually(t, "paths of "+peer, len(nlri), func() int { return n.farState(peer).Accepted })
	fars[2].close() // its paths become stale
	eventually(t, "a session that is down", false, func() bool {
		return n.farState(peer).Established
	})
	before := asked.Load()
	eventually(t, "answers after that", true, func() bool { return asked.Load() > before+20 })
	close(stop)
	changing.Wait()
}

// A question must not be in GoBGP's way. The test prints how long an answer takes, and the longest
// wait of others for GoBGP meanwhile and without a question. PEERS=100 ROUTES=4900 is the client of
// a hundred reflectors among 5000 nodes.
func TestWithoutSpeed(t *testing.T) {
	number := func(variable string, n int) int {
		if text := os.Getenv(variable); text != "" {
			var err error
			if n, err = strconv.Atoi(text); err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	peers, routes := number("PEERS", 4), number("ROUTES", 500)
	n, fars := nodesAround(t, newLabAlone(t), peers)
	for _, f := range fars[:peers] {
		for i := 0; i < routes; i += 700 {
			var nlri []*packet.IPAddrPrefix
			for k := i; k < min(i+700, routes); k++ {
				nlri = append(nlri, ipv4(0, fmt.Sprintf("10.%d.%d.%d/32", k>>16, k>>8&255, k&255)))
			}
			f.send(packet.NewBGPUpdateMessage(nil, pathAttributes("192.0.2.1", 100), nlri))
		}
	}
	for _, p := range n.plan.Peers[:peers] {
		within(t, "paths of "+p.ID().String(), routes, func() int {
			return n.farState(p.Address.String()).Accepted
		})
	}
	for range 3 {
		var took time.Duration
		var change reflector.Change
		asked := longestWait(t, n, func() {
			start := time.Now()
			var err error
			change, _, err = n.Without(t.Context(),
				leaving([]bgp.PeerID{n.plan.Peers[0].ID()}, nil))
			if err != nil {
				t.Error(err)
			}
			took = time.Since(start)
		})
		if change.Prefixes != routes || change.FewestCopies != peers-1 ||
			change.Missing+change.Changed > 0 {
			t.Errorf("answer %+v", change)
		}
		quiet := longestWait(t, n, func() { time.Sleep(took) })
		t.Logf("%d paths: the answer takes %s; others wait for GoBGP for at most %s, without a "+
			"question %s", peers*routes, took, asked, quiet)
	}
}

// longestWait is the longest that a small request to GoBGP takes while do runs.
func longestWait(t *testing.T, n *node, do func()) (longest time.Duration) {
	t.Helper()
	ended := make(chan struct{})
	go func() { defer close(ended); do() }()
	for {
		start := time.Now()
		if _, err := n.applied.server.GetBgp(t.Context(), &api.GetBgpRequest{}); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, time.Since(start))
		select {
		case <-ended:
			return longest
		default:
		}
	}
}
