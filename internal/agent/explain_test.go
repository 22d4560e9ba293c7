package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// ofB is a block of b's, which b announces and the data plane forwards by; all is well.
func ofB(asked string) evidence {
	c := cluster()
	c.Blocks[pfx("10.1.3.0/26")] = calico.Block{CIDR: pfx("10.1.3.0/26"),
		Owner: calico.Owner{Host: "b"}}
	options := bgp.Options{}
	e := evidence{node: "a", dataplane: "vpp", asked: pfx(asked),
		datastore: DatastoreStatus{Synced: true, Connected: true}, facts: live, blocksKnown: true}
	e.plan = PlanFor("a", c, options, Facts{Programmed: map[route.Key]bool{
		key("10.1.0.0/26"): true}})
	e.inputs = inputs{c, options}
	e.sessions.configured = time.Unix(1, 0)
	e.announced = e.plan.BGP.Announcements
	for _, p := range e.plan.BGP.Peers {
		e.peers = append(e.peers, peerStatus(p, bgp.PeerState{ID: p.ID(), Established: true,
			State: "Established"}))
	}
	e.paths = []bgp.PrefixPaths{{Prefix: pfx("10.1.3.0/26"),
		Received: []bgp.Received{from("192.168.4.3", "192.168.4.3")}}}
	hop := route.Path{NextHop: addr("192.168.4.3"), Interface: "eth0", Weight: 1}
	e.accounts = []fib.Account{programmed("10.1.3.0/26", route.BGP, hop)}
	e.match = &route.Resolution{Prefix: pfx("10.1.3.0/26"), Ours: true, Owner: "source ours"}
	e.found = &lookedUp{key: key("10.1.3.0/26"), ok: true, route: route.Route{
		Key: key("10.1.3.0/26"), Paths: []route.Path{hop}}}
	return e
}

// from is a path of a peer that is accepted and the best.
func from(peer, hop string) bgp.Received {
	a := bgp.Attributes{NextHop: addr(hop), LocalPref: new(uint32(2147482623))}
	accepted := a
	return bgp.Received{Peer: bgp.PeerID{Address: addr(peer)}, Sent: a, Accepted: &accepted,
		Best: true}
}

func programmed(prefix string, o route.Origin, paths ...route.Path) fib.Account {
	kind := route.Via
	if len(paths) == 0 {
		kind = route.Drop
	}
	return fib.Account{Entry: fib.Entry{Key: key(prefix), State: fib.Programmed, Origin: o,
		Kind: kind, Paths: paths}, Claims: []fib.Claim{{Origin: o, Kind: kind, Chosen: true}}}
}

// ofA is this node's block, with a workload whose route another program has.
func ofA(asked string) evidence {
	e := ofB(asked)
	e.paths, e.accounts = nil, []fib.Account{programmed("10.1.0.0/26", route.Own)}
	e.found = &lookedUp{key: key("10.1.0.0/26"), ok: true, route: route.Route{
		Key: key("10.1.0.0/26"), Kind: route.Drop}}
	e.match = &route.Resolution{Prefix: pfx("10.1.0.77/32"), Usable: true, Owner: "source CNI"}
	return e
}

func TestExplain(t *testing.T) {
	nothing := func(e *evidence) {
		e.paths, e.accounts, e.found = nil, nil, nil
		e.match = &route.Resolution{Prefix: pfx("0.0.0.0/0"), Usable: true, Owner: "source CLI"}
	}
	for _, tc := range []struct {
		name    string
		e       evidence
		change  func(*evidence)
		fails   string // "": nothing
		verdict string // a part of it
	}{
		{"all is well", ofB("10.1.3.7/32"), func(*evidence) {}, "",
			"10.1.3.7 is forwarded to b by 10.1.3.0/26 of bgp via 192.168.4.3 eth0"},
		{"a prefix", ofB("10.1.3.0/28"), func(*evidence) {}, "",
			"10.1.3.0/28 is forwarded to b by 10.1.3.0/26 of bgp"},
		{"no data at all", ofB("10.1.3.7/32"), func(e *evidence) {
			e.inputs.snapshot, e.datastore = nil, DatastoreStatus{Error: "refused"}
		}, "data", "waiting for etcd: refused"},
		{"stale data are data", ofB("10.1.3.7/32"), func(e *evidence) {
			e.datastore.Connected, e.datastore.Error = false, "refused"
		}, "", "is forwarded to b"},
		{"who owns the block is not known", ofB("10.1.3.7/32"), func(e *evidence) {
			delete(e.inputs.snapshot.Blocks, pfx("10.1.3.0/26"))
			e.blocksKnown, e.ownedError = false, "etcd is away"
			nothing(e)
		}, "announcement", "no peer announces a prefix that covers it"},
		{"read for this question", ofB("10.1.4.7/32"), func(e *evidence) {
			e.owned = []calico.Ownership{{Block: calico.Block{CIDR: pfx("10.1.4.0/26"),
				Owner: calico.Owner{Host: "b"}}, Affinity: calico.AffinityPending}}
			nothing(e)
		}, "ipam", "its affinity is pending"},
		{"a default route does not stand for a block", ofB("10.1.3.7/32"), func(e *evidence) {
			nothing(e)
			e.paths = []bgp.PrefixPaths{{Prefix: pfx("0.0.0.0/0"),
				Received: []bgp.Received{from("192.168.4.3", "192.168.4.3")}}}
			e.accounts = []fib.Account{programmed("0.0.0.0/0", route.BGP, route.Path{
				NextHop: addr("192.168.4.3"), Interface: "eth0", Weight: 1})}
		}, "announcement", "no peer announces 10.1.3.0/26, not even b (192.168.4.3)"},
		{"a reflector passes it on while the session with the owner is down",
			ofB("10.1.3.7/32"), func(e *evidence) {
				e.peers[0].Established, e.peers[0].LastError = false, "hold timer"
			}, "", "is forwarded to b"},
		{"the session is down", ofB("10.1.3.7/32"), func(e *evidence) {
			nothing(e)
			e.peers[0].Established, e.peers[0].LastError = false, "hold timer"
		}, "session", "the session with b (192.168.4.3) is not up: hold timer; packets follow " +
			"0.0.0.0/0 of source CLI"},
		{"GoBGP cannot start", ofB("10.1.3.7/32"), func(e *evidence) {
			nothing(e)
			e.peers[0].Established = false
			e.setError, e.sessions.configured = syscall.EADDRINUSE, time.Time{}
		}, "session", "address already in use; another BGP speaker has the port"},
		{"GoBGP refuses something of a peer", ofB("10.1.3.7/32"), func(e *evidence) {
			nothing(e)
			e.peers[0].Established, e.peers[0].LastError = false, "hold timer"
			e.setError = errors.New("peer 192.0.2.9: no MD5")
		}, "session", "the session with b (192.168.4.3) is not up: hold timer"},
		{"GoBGP cannot start, and etcd's routes are there", ofB("10.1.3.7/32"), func(e *evidence) {
			e.peers[0].Established = false
			e.setError, e.sessions.configured = syscall.EADDRINUSE, time.Time{}
		}, "", "10.1.3.7 is forwarded to b"},
		{"GoBGP cannot start, and the prefix is outside all pools", ofB("192.0.2.7/32"),
			func(e *evidence) {
				nothing(e)
				e.match = &route.Resolution{Prefix: pfx("192.0.0.0/16"), Owner: "proto static"}
				e.setError, e.sessions.configured = syscall.EADDRINUSE, time.Time{}
			}, "announcement", "covers it; address already in use; another BGP speaker"},
		{"another's route drops it", ofB("192.0.2.7/32"), func(e *evidence) {
			nothing(e)
			e.match = &route.Resolution{Prefix: pfx("192.0.0.0/16"), Owner: "proto static"}
		}, "announcement", "packets follow 192.0.0.0/16 of proto static, which does not forward"},
		{"another's longer route drops a part", ofB("10.1.3.0/26"), func(e *evidence) {
			e.match = &route.Resolution{Prefix: pfx("10.1.3.0/27"), Owner: "proto static"}
		}, "now", "10.1.3.0/26 is not forwarded as it should be: 10.1.3.0/27 of proto static " +
			"hides a part of it and does not forward"},
		{"another's longer route drops a part, outside IPAM", ofB("192.0.2.0/24"),
			func(e *evidence) {
				e.accounts[0] = programmed("0.0.0.0/0", route.BGP, e.accounts[0].Paths...)
				e.found, e.paths = nil, nil
				e.match = &route.Resolution{Prefix: pfx("192.0.2.0/26"), Owner: "proto static"}
			}, "", "192.0.2.0/24 is forwarded by 0.0.0.0/0 of bgp"},
		{"another's longer route forwards a part", ofB("10.1.3.0/26"), func(e *evidence) {
			e.match = &route.Resolution{Prefix: pfx("10.1.3.0/27"), Usable: true,
				Owner: "proto static"}
		}, "", "10.1.3.0/26 is forwarded to b"},
		{"what is outside all pools has a down session for a suspect", ofB("192.0.2.7/32"),
			func(e *evidence) {
				nothing(e)
				e.match = &route.Resolution{}
				e.peers[0].Established, e.peers[0].LastError = false, "hold timer"
			}, "announcement", "covers it; the session with b (192.168.4.3) is not up: hold timer"},
		{"a longer prefix that is rejected counts for more than a shorter one",
			ofB("10.1.3.7/32"), func(e *evidence) {
				r := from("192.168.4.3", "192.168.4.3")
				r.Accepted, r.Best, r.Looped, r.Sent.ASPath = nil, false, true, []uint32{64512}
				e.paths = append([]bgp.PrefixPaths{{Prefix: pfx("10.1.3.7/32"),
					Received: []bgp.Received{r}}}, e.paths...)
			}, "import", "AS_PATH [64512] has AS 64512"},
		{"a path that was reflected here", ofB("10.1.3.7/32"), func(e *evidence) {
			nothing(e)
			r := from("192.168.4.3", "192.168.4.3")
			r.Accepted, r.Best, r.Sent.ClusterList = nil, false, []netip.Addr{addr("244.0.0.1")}
			e.plan.BGP.Peers[0].Client, e.plan.BGP.Policies.ClusterID = true, addr("244.0.0.1")
			e.paths = []bgp.PrefixPaths{{Prefix: pfx("10.1.3.0/26"), Received: []bgp.Received{r}}}
		}, "import", "its CLUSTER_LIST has 244.0.0.1, this node's cluster"},
		{"a path with a next hop that makes no sense", ofB("10.1.3.7/32"), func(e *evidence) {
			nothing(e)
			r := from("192.168.4.3", "192.168.4.3")
			r.BadHop = "next hop 224.0.0.1 is multicast"
			e.paths = []bgp.PrefixPaths{{Prefix: pfx("10.1.3.0/26"), Received: []bgp.Received{r}}}
		}, "import", "next hop 224.0.0.1 is multicast"},
		{"BGP ignores the next hop", ofB("10.1.3.7/32"), func(e *evidence) {
			nothing(e)
			r := from("192.168.4.3", "192.168.4.3")
			r.Rejected, r.Best = true, false
			e.paths = []bgp.PrefixPaths{{Prefix: pfx("10.1.3.0/26"), Received: []bgp.Received{r}}}
			e.unusable = []NextHopStatus{{Address: addr("192.168.4.3"), Reason: "no way"}}
			down := e.facts.Interfaces[0]
			down.Up = false
			e.facts.Interfaces = []route.Interface{down}
		}, "next hop", "interface eth0, which has 192.168.4.0/24, is down"},
		{"BGP ignores the next hop in this pool", ofB("10.1.3.7/32"), func(e *evidence) {
			nothing(e)
			r := from("192.168.4.3", "192.168.4.3")
			r.Rejected, r.Best = true, false
			e.paths = []bgp.PrefixPaths{{Prefix: pfx("10.1.3.0/26"), Received: []bgp.Received{r}}}
			e.unusable = []NextHopStatus{
				{addr("192.168.4.3"), "another pool's", new(pfx("10.2.0.0/16"))},
				{addr("192.168.4.3"), "it is no Node", new(pfx("10.1.0.0/16"))},
			}
		}, "next hop", "is not forwarded: it is no Node"},
		{"no data plane is wanted", ofB("10.1.3.7/32"), func(e *evidence) {
			e.noFIB, e.accounts, e.match, e.found, e.facts = true, nil, nil, nil, route.Facts{}
		}, "", "known by 10.1.3.0/26, and nothing is programmed"},
		{"the data plane is away", ofB("10.1.3.7/32"), func(e *evidence) {
			e.facts = route.Facts{Problem: "no socket"}
		}, "data plane", "VPP is away: no socket"},
		{"it was refused", ofB("10.1.3.7/32"), func(e *evidence) {
			e.accounts[0].State, e.accounts[0].Error = fib.Failed, "no memory"
		}, "programmed", "10.1.3.0/26 is refused: no memory"},
		{"it drifted", ofB("10.1.3.7/32"), func(e *evidence) {
			e.accounts[0].State, e.accounts[0].Drift = fib.Drifted, fib.Missing
		}, "programmed", "then found missing"},
		{"another's route goes before it", ofB("10.1.3.7/32"), func(e *evidence) {
			e.accounts[0].State, e.accounts[0].By = fib.Shadowed, "API"
		}, "programmed", "10.1.3.0/26 is hidden by a route of API"},
		{"nothing leads there without BGP", ofB("192.0.2.7/32"), func(e *evidence) {
			nothing(e)
			e.noBGP, e.match = true, &route.Resolution{}
		}, "selection", "no source has a route that covers it"},
		{"the tunnel is not there", ofB("10.1.3.7/32"), func(e *evidence) {
			e.plan.Encapsulation = &route.Encapsulation{Pools: []route.Pool{{Name: "pool",
				Prefix: pfx("10.1.0.0/16"), Encap: route.IPIP}}}
			e.tunnels = []TunnelStatus{{Node: "b", Encapsulation: route.IPIP, State: "pending",
				OuterDestination: addr("192.168.4.3"), Reason: "no plugin"}}
		}, "tunnel", "the IPIP tunnel to b (192.168.4.3) is pending: no plugin"},
		{"the owner's Node is gone", ofB("10.1.3.7/32"), func(e *evidence) {
			nothing(e)
			delete(e.inputs.snapshot.Nodes, "b")
		}, "ipam", "there is no Node(b)"},
		{"the owner is a reflector", ofB("10.1.3.7/32"), func(e *evidence) {
			nothing(e)
			n := e.inputs.snapshot.Nodes["b"]
			n.RouteReflectorClusterID = "0.0.0.1"
			e.inputs.snapshot.Nodes["b"], e.peers, e.plan.BGP.Peers = n, nil, nil
		}, "session", "Node(b) is a route reflector, which is not in the mesh"},
		{"etcd has no next hop", ofB("10.1.3.7/32"), func(e *evidence) {
			nothing(e)
			e.unrouted = []UnroutedStatus{{pfx("10.1.3.0/26"), "host b has no next hop"}}
		}, "ipam", "host b has no next hop"},
		{"it is otherwise just now", ofB("10.1.3.7/32"), func(e *evidence) {
			e.found.route.Kind, e.found.route.Paths = route.Drop, nil
		}, "now", "it has 10.1.3.0/26 drop"},
		{"the look-up failed, and says so", ofB("10.1.3.7/32"), func(e *evidence) {
			e.found.ok, e.found.err = false, errors.New("timeout")
		}, "now", "the data plane answers: timeout"},
		{"another's longer route outside IPAM is its business", ofB("192.0.2.7/32"),
			func(e *evidence) {
				e.accounts[0] = programmed("0.0.0.0/0", route.BGP, e.accounts[0].Paths...)
				e.found, e.paths = nil, nil
				e.match = &route.Resolution{Prefix: pfx("192.0.2.0/24"), Usable: true,
					Owner: "source interface"}
			}, "", "192.0.2.7 is forwarded by 192.0.2.0/24 of source interface"},
		{"what the data plane reaches without us", ofB("192.168.4.3/32"), func(e *evidence) {
			nothing(e)
			e.peers[0].Established, e.peers[0].LastError = false, "hold timer"
			e.match = &route.Resolution{Prefix: pfx("192.168.4.0/24"), Usable: true,
				Owner: "source interface"}
		}, "", "is forwarded by 192.168.4.0/24 of source interface: no route of ours leads " +
			"there; the session with b (192.168.4.3) is not up: hold timer"},
		{"a prefix that covers routes", ofB("10.1.0.0/16"), func(e *evidence) {
			nothing(e)
			e.inside = []fib.Entry{{Key: key("10.1.3.0/26"), State: fib.Programmed}}
		}, "announcement", "covers it; 1 longer route of ours lies inside it"},
		{"two nodes share it", ofB("10.1.3.7/32"), func(e *evidence) {
			e.inputs.snapshot.Nodes["c"] = calico.Node{Name: "c", IPv4: pfx("192.168.4.4/24")}
			e.paths[0].Received = append(e.paths[0].Received, from("192.168.4.4", "192.168.4.4"))
		}, "destination", "c announces 10.1.3.0/26, too"},
		{"a router that is no node announces it", ofB("10.1.3.7/32"), func(e *evidence) {
			e.paths[0].Received[0].Sent.Originator = addr("192.0.2.1")
			e.paths[0].Received[0].Accepted.NextHop = addr("192.168.4.9")
		}, "", "is forwarded by 10.1.3.0/26"},
		{"a route that was left", ofB("192.0.2.7/32"), func(e *evidence) {
			nothing(e)
			e.accounts = []fib.Account{{Entry: fib.Entry{Key: key("192.0.2.0/24"),
				State: fib.Held}}}
			e.sweepWaits = "waiting for b"
		}, "left over", "the sweep will delete it: waiting for b"},

		{"this node's workload", ofA("10.1.0.77/32"), func(*evidence) {}, "",
			"10.1.0.77 is of this node (WorkloadEndpoint(default/w)), which announces " +
				"10.1.0.77/32 to 1 peer"},
		{"this node's block", ofA("10.1.0.0/26"), func(*evidence) {}, "",
			"10.1.0.0/26 is of this node, and announced to 1 peer"},
		{"this node", ofA("192.168.4.2/32"), func(*evidence) {}, "",
			"192.168.4.2 is the address of this node"},
		{"an unused address", ofA("10.1.0.5/32"), func(e *evidence) {
			e.match = &route.Resolution{Prefix: pfx("10.1.0.0/26"), Ours: true}
		}, "delivery", "no workload of this node has it"},
		{"an unused address that another program leads elsewhere", ofA("10.1.0.5/32"),
			func(e *evidence) {
				e.match = &route.Resolution{Prefix: pfx("10.1.0.5/32"), Usable: true,
					Owner: "source CLI"}
			}, "delivery", "no workload of this node has it: packets to it follow 10.1.0.5/32 of " +
				"source CLI"},
		{"the interface of the workload is down", ofA("10.1.0.77/32"), func(e *evidence) {
			e.match.Usable = false
		}, "delivery", "the data plane matches 10.1.0.77/32 of source CNI, which forwards nowhere"},
		{"a covering route leads the workload's packets elsewhere", ofA("10.1.0.77/32"),
			func(e *evidence) {
				e.match = &route.Resolution{Prefix: pfx("10.1.0.0/16"), Usable: true,
					Owner: "source CLI"}
			}, "delivery", "packets to it follow 10.1.0.0/16 of source CLI: the CNI plugin has"},
		{"the drop route is hidden", ofA("10.1.0.0/26"), func(e *evidence) {
			e.found.err = route.HiddenError{By: "CLI"}
		}, "now", "10.1.0.0/26 of this node is not as it should be: asked for 10.1.0.0/26, the " +
			"data plane answers: hidden by a route of CLI"},
		{"the drop route is hidden, which a workload does not need", ofA("10.1.0.77/32"),
			func(e *evidence) { e.found.err = route.HiddenError{By: "CLI"} }, "",
			"is of this node"},
		{"the drop route was deleted", ofA("10.1.0.5/32"), func(e *evidence) { e.found.ok = false },
			"now", "it is not there any more"},
		{"a borrowed address of an own block is another's", ofA("10.1.0.5/32"),
			func(e *evidence) {
				b := e.inputs.snapshot.Blocks[pfx("10.1.0.0/26")]
				b.Allocations = []calico.Allocation{{Address: addr("10.1.0.5"), Node: "b"}}
				e.inputs.snapshot.Blocks[b.CIDR] = b
			}, "announcement", "no peer announces 10.1.0.5/32, not even b"},
		{"the block waits for its drop", ofA("10.1.0.0/26"), func(e *evidence) {
			e.plan = PlanFor("a", e.inputs.snapshot, e.inputs.options, Facts{})
			e.accounts[0].State = fib.Pending
		}, "drop route", "10.1.0.0/26 of this node is not announced: 10.1.0.0/26 is pending"},
		{"GoBGP does not have it", ofA("10.1.0.0/26"), func(e *evidence) { e.announced = nil },
			"speaker", "GoBGP has not been handed it yet"},
		{"nobody is there to hear it", ofA("10.1.0.0/26"), func(e *evidence) {
			e.peers[0].Established, e.peers[0].LastError = false, "hold timer"
		}, "session", "no session is up: the session with b (192.168.4.3) is not up: hold timer"},
		{"UPDATEs wait after a restart", ofA("10.1.0.0/26"), func(e *evidence) {
			e.peers[0].Deferring = true
		}, "", "announced to 0 peers; after the restart of this node's agent, UPDATEs to 1 peer "},
		{"nobody is to hear it", ofA("10.1.0.0/26"), func(e *evidence) {
			e.peers, e.plan.BGP.Peers = nil, nil
		}, "session", "this node has no BGP peer of this family"},
		{"another announces it", ofA("10.1.0.0/26"), func(e *evidence) {
			e.paths = []bgp.PrefixPaths{{Prefix: pfx("10.1.0.0/26"), Own: true, OwnIsBest: true,
				Received: []bgp.Received{from("192.168.4.3", "192.168.4.3")}}}
		}, "rival", "b (192.168.4.3) announces 10.1.0.0/26, too"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.change(&tc.e)
			got := explain(tc.e)
			if got.Fails != tc.fails || got.OK != (tc.fails == "") ||
				!strings.Contains(got.Verdict, tc.verdict) {
				t.Errorf("%q fails: %s\n%+v", got.Fails, got.Verdict, got.Steps)
			}
			if again := explain(tc.e); !reflect.DeepEqual(got, again) {
				t.Errorf("the same evidence gives another explanation:\n%+v\n%+v", got, again)
			}
		})
	}
}

// VPP has a route of its own to the first address of a subnet, which does not stand for the rest.
func TestExplainOfASubnet(t *testing.T) {
	for asked, middle := range map[string]string{
		"0.0.0.0/0": "128.0.0.0", "192.168.4.0/24": "192.168.4.128",
		"192.168.4.0/31": "192.168.4.1", "fd00::/64": "fd00::8000:0:0:0",
	} {
		inBubble(t, func(t *testing.T, n *node) {
			n.dataplane.facts <- live
			n.snapshots <- cluster()
			time.Sleep(time.Second)
			got := n.agent.Explain(t.Context(), pfx(asked))
			m := got.Dataplane.Match
			if m == nil || m.Prefix != pfx(asked) || !*m.Forwards || !got.OK {
				t.Errorf("%s: %s, %+v", asked, got.Verdict, m)
			}
		}, func(c *Config) {
			c.Resolve = func(_ context.Context, _ uint32, a netip.Addr) (route.Resolution, error) {
				switch a {
				case pfx(asked).Addr():
					if a.IsUnspecified() { // VPP's drop for want of a route
						return route.Resolution{}, nil
					}
					return route.Resolution{Prefix: route.HostPrefix(a), Owner: "special"}, nil
				case addr(middle):
					return route.Resolution{Prefix: pfx(asked), Usable: true, Owner: "CLI"}, nil
				}
				return route.Resolution{}, fmt.Errorf("%s was asked for", a)
			}
		})
	}
}

// Resolve does not follow our own routes; Lookup says where they lead.
func TestExplainSaysWhereOurMatchLeads(t *testing.T) {
	hop := []route.Path{{NextHop: addr("192.168.4.3"), Interface: "eth0", Weight: 1}}
	shown := []PathStatus{{NextHop: "192.168.4.3", Interface: "eth0", Weight: 1}}
	timeout := errors.New("timeout")
	for name, tc := range map[string]struct {
		asked, match string
		there        map[string]route.Route // in the data plane
		err          error
		want         MatchStatus
	}{
		"to a peer": {"10.1.3.7/32", "10.1.3.0/26", map[string]route.Route{
			"10.1.3.0/26": {Kind: route.Via, Paths: hop}}, nil,
			MatchStatus{Forwards: new(true), Paths: shown}},
		"nowhere: its path is dead": {"10.1.3.7/32", "10.1.3.0/26", map[string]route.Route{
			"10.1.3.0/26": {Kind: route.Via, Paths: hop}}, route.DeadPathError{Interface: "eth0"},
			MatchStatus{Forwards: new(false), Paths: shown}},
		"nowhere: it drops": {"10.1.0.9/32", "10.1.0.0/26", map[string]route.Route{
			"10.1.0.0/26": {Kind: route.Drop}}, nil,
			MatchStatus{Forwards: new(false), Paths: []PathStatus{}}},
		"to a peer, of a part": {"10.1.0.0/16", "10.1.3.0/26", map[string]route.Route{
			"10.1.3.0/26": {Kind: route.Via, Paths: hop}}, nil,
			MatchStatus{Forwards: new(true), Paths: shown}},
		"to a peer, though nobody wants it": {"10.7.0.1/32", "10.7.0.0/26",
			map[string]route.Route{"10.7.0.0/26": {Kind: route.Via, Paths: hop}}, nil,
			MatchStatus{Forwards: new(true), Paths: shown}},
		"it has gone": {"10.1.3.7/32", "10.1.3.0/26", nil, nil,
			MatchStatus{Paths: []PathStatus{}}},
		"not told": {"10.1.3.7/32", "10.1.3.0/26", nil, timeout,
			MatchStatus{Paths: []PathStatus{}}},
	} {
		inBubble(t, func(t *testing.T, n *node) {
			n.dataplane.facts <- live
			n.snapshots <- cluster()
			time.Sleep(time.Second)
			tc.want.Prefix, tc.want.Owner = pfx(tc.match), "ours"
			got := n.agent.Explain(t.Context(), pfx(tc.asked)).Dataplane.Match
			if got == nil || !reflect.DeepEqual(*got, tc.want) {
				t.Errorf("%s: %+v, want %+v", name, got, tc.want)
			}
		}, func(c *Config) {
			c.Resolve = func(context.Context, uint32, netip.Addr) (route.Resolution, error) {
				return route.Resolution{Prefix: pfx(tc.match), Ours: true}, nil
			}
			c.Lookup = func(_ context.Context, k route.Key) (route.Route, bool, error) {
				r, ok := tc.there[k.Prefix.String()]
				r.Key = k
				return r, ok, tc.err
			}
		})
	}
}

// Each path says why it is not the best, by the first difference.
func TestExplainSaysWhyAPathLoses(t *testing.T) {
	for want, change := range map[string]func(*bgp.Attributes){
		"LOCAL_PREF 5 is lower than 2147482623 of b (192.168.4.3)": func(a *bgp.Attributes) {
			a.LocalPref = new(uint32(5))
		},
		"AS_PATH is longer than that of b (192.168.4.3)": func(a *bgp.Attributes) {
			a.ASPath = []uint32{1}
		},
		"ORIGIN is higher than that of b (192.168.4.3)": func(a *bgp.Attributes) { a.Origin = 2 },
		"MED 9 is not 0, that of b (192.168.4.3)": func(a *bgp.Attributes) {
			a.MED = new(uint32(9))
		},
	} {
		e := ofB("10.1.3.7/32")
		worse := from("192.168.4.3", "192.168.4.9")
		worse.Best = false
		change(&worse.Sent)
		*worse.Accepted = worse.Sent
		e.paths[0].Received = append(e.paths[0].Received, worse)
		if got := explain(e).Paths[1].Reason; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// An AS_SET makes a path longer by one AS, however many it has (RFC 4271 §9.1.2.2).
func TestExplainCountsAnASSetOnce(t *testing.T) {
	e := ofB("10.1.3.7/32")
	e.paths[0].Received[0].Accepted.ASPath = []uint32{7}
	other := from("192.168.4.3", "192.168.4.9")
	other.Best = false
	other.Sent.ASPath, other.Sent.ASSet, other.Sent.MED = []uint32{1, 2}, 2, new(uint32(8))
	*other.Accepted = other.Sent
	e.paths[0].Received = append(e.paths[0].Received, other)
	want := "MED 8 is not 0, that of b (192.168.4.3)"
	if got := explain(e).Paths[1].Reason; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A datastore, a speaker or a data plane that does not answer costs a while, and no answer.
func TestExplainWaitsForNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(time.Second)
		synctest.Wait()
		began := time.Now()
		got := n.agent.Explain(t.Context(), pfx("10.1.3.7/32"))
		if took := time.Since(began); took > 4*askPatience {
			t.Errorf("it took %s", took)
		}
		if got.Dataplane.NotCounted != "" || // nothing was acknowledged
			got.Ownership.Problem != context.DeadlineExceeded.Error() ||
			got.Dataplane.Problem != context.DeadlineExceeded.Error() || got.OK {
			t.Errorf("got %+v", got)
		}
	}, func(c *Config) {
		c.Owners = func(ctx context.Context, _ []netip.Prefix) ([]calico.Ownership, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		c.Resolve = func(ctx context.Context, _ uint32, _ netip.Addr) (route.Resolution, error) {
			<-ctx.Done()
			return route.Resolution{}, ctx.Err()
		}
	})
}

// A frozen data plane does not say what it has counted, nor that it does not.
func TestExplainCounts(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		inBubble(t, func(t *testing.T, n *node) {
			n.dataplane.facts <- live
			n.snapshots <- cluster()
			time.Sleep(time.Second)
			got := n.agent.Explain(t.Context(), pfx("10.1.0.0/26")).Dataplane
			switch {
			case frozen:
				if got.Packets != nil || got.NotCounted != context.DeadlineExceeded.Error() ||
					got.NextHopsNotCounted != context.DeadlineExceeded.Error() {
					t.Errorf("frozen: %+v", got)
				}
			case got.Packets == nil || *got.Packets != 7 || *got.Bytes != 700 ||
				got.NotCounted != "" || got.NextHopsNotCounted != "" || len(got.NextHops) != 0:
				t.Errorf("got %+v", got)
			}
		}, func(c *Config) {
			c.Resolve = func(context.Context, uint32, netip.Addr) (route.Resolution, error) {
				return route.Resolution{}, nil
			}
			c.Lookup = func(_ context.Context, k route.Key) (route.Route, bool, error) {
				return route.Route{Key: k, Kind: route.Drop}, true, nil
			}
			c.Counter = &fakeCounter{frozen: frozen, routes: map[route.Key]route.Counts{
				key("10.1.0.0/26"): {Packets: 7, Bytes: 700}}}
		})
	}
}
