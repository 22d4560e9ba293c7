package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/ipam"
)

// withRemote is the cluster with a block of b's.
func withRemote() *calico.Snapshot {
	c := cluster()
	c.Blocks[pfx("10.1.0.64/26")] = calico.Block{CIDR: pfx("10.1.0.64/26"),
		Owner: calico.Owner{Host: "b"}}
	return c
}

func TestPlanWithoutBGP(t *testing.T) {
	c := withRemote()
	delete(c.Nodes, "a") // nobody registers it, and nothing waits for that
	p := PlanWithoutBGP("a", c, bgp.Options{}, Facts{})
	if p.BGP.Waiting != "" || len(p.BGP.Peers)+len(p.BGP.Announcements)+len(p.OwnAddresses) != 0 {
		t.Errorf("plan %+v", p)
	}
	if len(p.Own) != 1 || p.Own[0].Key != key("10.1.0.0/26") || p.Own[0].Kind != route.Drop {
		t.Errorf("own routes %v", p.Own)
	}
}

// The block's key alone sends others' packets here: under a prefix of their own blocks have no
// affinities.
func TestWithoutBGPABlockIsOwnByItsKey(t *testing.T) {
	c := withRemote()
	clear(c.Affinities)
	c.Blocks[pfx("10.1.7.0/26")] = calico.Block{CIDR: pfx("10.1.7.0/26"),
		Owner: calico.Owner{Host: "a"}}
	c.Blocks[pfx("10.1.8.1/32")] = calico.Block{CIDR: pfx("10.1.8.1/32"),
		Owner: calico.Owner{Host: "a"}}
	p := PlanWithoutBGP("a", c, bgp.Options{}, Facts{})
	if fmt.Sprint(p.Own) != "[10.1.0.0/26 drop 10.1.7.0/26 drop]" {
		t.Errorf("own routes %v", p.Own)
	}
}

func TestEtcdRoutesAreRoutes(t *testing.T) {
	var last []route.Route
	for _, step := range []struct{ block, via string }{
		{"", "10.1.0.64/26 via 192.168.4.3"},
		{"10.1.0.0/27", "10.1.0.0/27 via 192.168.4.3,10.1.0.64/26 via 192.168.4.3"},
		{"10.1.9.0/26", "10.1.0.64/26 via 192.168.4.3,10.1.9.0/26 via 192.168.4.3"},
		{"10.1.0.0/27", "10.1.0.0/27 via 192.168.4.9,10.1.0.64/26 via 192.168.4.9"},
	} {
		c := withRemote()
		if step.block != "" {
			c.Blocks[pfx(step.block)] = calico.Block{CIDR: pfx(step.block),
				Owner: calico.Owner{Host: "b"}}
		}
		if strings.Contains(step.via, ".4.9") {
			c.Nodes["b"] = calico.Node{Name: "b", IPv4: pfx("192.168.4.9/24")}
		}
		all := ipam.Remotes("a", []ipam.AddressSource{ipam.NodeObject}, nil, c, last).Routes
		var got []string
		for _, r := range all {
			if got = append(got, r.String()); r.Origin != route.Etcd {
				t.Errorf("%s is of %v", r, r.Origin)
			}
		}
		if strings.Join(got, ",") != step.via {
			t.Errorf("got %v, want %s", got, step.via)
		}
		last = all
	}
}

func TestUnroutedLeavesOutOwnBlocks(t *testing.T) {
	c := withRemote()
	c.Nodes = nil
	p := ipam.Remotes("a", []ipam.AddressSource{ipam.Published}, nil, c, nil)
	var got []string
	for _, u := range unrouted("a", c, p.Skipped) {
		got = append(got, u.Prefix.String())
	}
	if !slices.Equal(got, []string{"10.1.0.64/26"}) {
		t.Errorf("got %v", got)
	}
}

func etcdOnly(c *Config) { c.Speaker, c.EtcdRoutes = nil, []ipam.AddressSource{ipam.NodeObject} }

func TestWithoutBGPRoutesFollowTheBlocks(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		c := withRemote()
		delete(c.Nodes, "a")
		n.snapshots <- c
		n.expectAll(t, time.Second, "put 10.1.0.0/26 drop", "put 10.1.0.64/26 via 192.168.4.3 eth0")
		if s := n.agent.Status(); !s.Ready || !slices.Equal(s.Learn, []string{"etcd"}) ||
			len(s.BGP.Peers) != 0 {
			t.Errorf("status %+v", s)
		}
		c = withRemote()
		delete(c.Blocks, pfx("10.1.0.64/26"))
		n.snapshots <- c
		n.expectAll(t, time.Second, "delete 10.1.0.64/26")
	}, etcdOnly)
}

func TestWithoutBGPStatusNamesHostsThatShareAnAddress(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		c := withRemote()
		c.Nodes["c"] = calico.Node{Name: "c", IPv4: c.Nodes["b"].IPv4}
		n.snapshots <- c
		named := func() (names []string) {
			synctest.Wait()
			for _, p := range n.agent.Status().Problems {
				names = append(names, p.Resource)
			}
			return names
		}
		if got := named(); !slices.Equal(got, []string{"Node(b)", "Node(c)"}) {
			t.Errorf("problems of %v", got)
		}
		n.snapshots <- withRemote()
		if got := named(); len(got) != 0 {
			t.Errorf("they share none any more: problems of %v", got)
		}
	}, etcdOnly)
}

func TestWithoutBGPLeftOversAreSweptAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.routes[key("10.1.9.0/26")] = route.Route{Key: key("10.1.9.0/26"),
			Kind: route.Drop}
		n.dataplane.facts <- live
		n.expectAll(t, time.Minute) // not before etcd has been read
		n.snapshots <- withRemote()
		n.expectAll(t, 3*time.Second, "put 10.1.0.0/26 drop", "put 10.1.0.64/26 via 192.168.4.3 "+
			"eth0", "delete 10.1.9.0/26")
	}, etcdOnly)
}

// A key that cannot be read may stand for a route that is there: until the deferral nothing is
// swept for its sake.
func TestWithoutBGPGarbageDefersTheSweep(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.routes[key("10.1.9.0/26")] = route.Route{Key: key("10.1.9.0/26"),
			Kind: route.Drop}
		n.dataplane.facts <- live
		c := withRemote()
		c.Problems = []calico.Problem{{Key: "/vpp-calico/hosts/x/peerip/ipv4/1", Err: "garbage"}}
		n.snapshots <- c
		n.expectAll(t, 20*time.Second, "put 10.1.0.0/26 drop", "put 10.1.0.64/26 via 192.168.4.3 "+
			"eth0")
		n.expectAll(t, 20*time.Second, "delete 10.1.9.0/26")
	}, etcdOnly)
}

// A host whose lease ended while all were cut off from etcd soon publishes its address again: the
// route to it that an earlier run left stays for that long.
func TestWithoutBGPAHostWithoutAddressDefersTheSweep(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		left := route.Path{NextHop: addr("192.168.4.3"), Interface: "eth0", Weight: 1}
		n.dataplane.routes[key("10.1.0.64/26")] = route.Route{Key: key("10.1.0.64/26"),
			Paths: []route.Path{left}}
		n.dataplane.facts <- live
		c := withRemote()
		delete(c.Nodes, "b")
		n.snapshots <- c
		n.expectAll(t, 20*time.Second, "put 10.1.0.0/26 drop")
		n.snapshots <- withRemote()
		n.expectAll(t, 20*time.Second)
		n.snapshots <- c
		n.expectAll(t, time.Second, "delete 10.1.0.64/26") // known to be gone
	}, etcdOnly)
}

func TestWithoutBGPHandsOffMeansHandsOff(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		c := withRemote()
		c.DatastoreNotReady = true
		n.snapshots <- c
		n.expectAll(t, time.Minute)
		n.snapshots <- withRemote()
		n.expectAll(t, time.Second, "put 10.1.0.0/26 drop", "put 10.1.0.64/26 via 192.168.4.3 eth0")
	}, etcdOnly)
}

// expectAll is expect where two origins' routes come in any order.
func (n *node) expectAll(t *testing.T, after time.Duration, want ...string) {
	t.Helper()
	time.Sleep(after)
	synctest.Wait()
	got := n.take()
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Fatalf("happened: %q, want %q", got, want)
	}
}
