package interop

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// externalLab is the agent between the inside and the outside: an iBGP mesh peer, a mesh peer with
// an AS of its own, and a top-of-rack router, each with no other session than that with us.
type externalLab struct {
	*lab
	us                *agentNode
	inner, other, tor *birdNode
	ourPod, innerPod  *netlab.Namespace
}

const (
	otherAS = 64599
	torAS   = 65001
)

// torPeer is the BGPPeer for all nodes.
var torPeer = testcluster.Peer("tor", "10.0.0.1", torAS, "")

// otherNode is a Node with an AS of its own.
func otherNode(as int) string {
	bgp := fmt.Sprintf("bgp: {ipv4Address: 10.0.0.7/24, asNumber: %d}", as)
	return testcluster.Resource("Node", "other", bgp)
}

// torProtocols is the router's side. It announces a default route, a network of its own, and
// whatever else a test gives it.
const torProtocols = `
protocol static outside {
  route 0.0.0.0/0 blackhole;
  route 10.99.0.0/24 blackhole;
  %s
}
filter to_us {
  if source != RTS_STATIC then reject;
  %s
  accept;
}
protocol bgp Us {
  local as 65001;
  neighbor 10.0.0.2 as 64512;
  source address 10.0.0.1;
  connect delay time 1;
  graceful restart;
  import all;
  export filter to_us;
}`

func TestExternal(t *testing.T) {
	t.Parallel()
	x := newExternalLab(t)
	t.Run("sessions come up", x.sessions)
	if t.Failed() {
		return
	}
	t.Run("what the others announce is programmed", x.programmed)
	t.Run("the router gets our routes and those of the pools", x.routerGets)
	t.Run("nodes inside get what is in the pools", x.insideGets)
	t.Run("packets arrive by the default route", x.packets)
	t.Run("legal but odd updates", x.oddUpdates)
	t.Run("the AS number of a mesh peer changes", x.changeAS)
	t.Run("the BGPPeer goes", x.peerGoes)
}

func newExternalLab(t *testing.T) *externalLab {
	x := &externalLab{lab: newLab(t, "external")}
	x.us = x.agentNode(t, "us", "10.0.0.2/24")
	x.inner = x.birdNode(t, "inner", "10.0.0.6/24", "10.0.0.2")
	x.other = x.birdNode(t, "other", "10.0.0.7/24", "10.0.0.2")
	x.tor = x.birdRouter(t, "tor", "10.0.0.1/24")
	x.apply(t, otherNode(otherAS))
	x.apply(t, torPeer)
	check(t, x.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	x.inner.setBlocks(t, "10.1.0.64/26")
	x.inner.config.Blocks = append(x.inner.config.Blocks, pfx("172.30.5.0/26")) // in no pool
	x.other.setBlocks(t, "10.1.0.128/26")
	x.other.config.AS = otherAS
	x.tor.config.AS = torAS
	x.tor.config.Extra = fmt.Sprintf(torProtocols, "", "")

	x.ourPod = x.us.pod(t, "pod", "10.1.0.1")
	x.innerPod = x.inner.workload(t, "innerpod", "10.1.0.65")
	check(t, x.tor.NS.AddAddress("lo", pfx("192.0.2.1/32"))) // somewhere behind the router
	for _, b := range []*birdNode{x.inner, x.other, x.tor} {
		b.start(t)
	}
	x.us.start(t)
	return x
}

func (x *externalLab) sessions(t *testing.T) {
	x.us.awaitPeers(t, "10.0.0.1", "10.0.0.6", "10.0.0.7")
	for _, b := range []*birdNode{x.inner, x.other, x.tor} {
		b.awaitEstablished(t)
	}
}

func externalFIB(more ...string) []string {
	return append(more, "0.0.0.0/0 via 10.0.0.1", "10.1.0.0/26 blackhole",
		"10.1.0.64/26 via 10.0.0.6", "10.99.0.0/24 via 10.0.0.1", "172.30.5.0/26 via 10.0.0.6")
}

const viaOther = "10.1.0.128/26 via 10.0.0.7"

func (x *externalLab) programmed(t *testing.T) { x.us.awaitFIB(t, "-4", externalFIB(viaOther)...) }

// eBGP is how a route of ours looks at an eBGP peer: our address, no LOCAL_PREF (BIRD then assumes
// 100), our AS first.
func eBGP(prefix, path string) string { return prefix + " via 10.0.0.2 100 IGP " + path }

func (x *externalLab) routerGets(t *testing.T) {
	x.tor.awaitRIB(t, "Us",
		eBGP("10.1.0.0/26", "64512"),
		eBGP("10.1.0.64/26", "64512"), // learned by iBGP
		eBGP("10.1.0.128/26", "64512 64599"))
	x.other.awaitRIB(t, mesh("10.0.0.2"), eBGP("10.1.0.0/26", "64512"),
		eBGP("10.1.0.64/26", "64512"))
}

// insideGets: what came by eBGP keeps its next hop, and LOCAL_PREF is the default of those who
// receive it (RFC 4271 §5.1.5).
func (x *externalLab) insideGets(t *testing.T) {
	x.inner.awaitRIB(t, mesh("10.0.0.2"), iBGP("10.1.0.0/26", "10.0.0.2"),
		"10.1.0.128/26 via 10.0.0.7 100 IGP 64599")
}

func (x *externalLab) packets(t *testing.T) {
	ping(t, x.ourPod, "192.0.2.1")
	ping(t, x.tor.NS, "10.1.0.65") // by us, who are the next hop
	ping(t, x.innerPod, "10.1.0.1")
}

// oddUpdate is a route of the router with attributes that the agent must take, keep and pass on.
type oddUpdate struct {
	prefix string
	filter string            // what BIRD does to it
	attrs  map[string]string // by type code: a member of GoBGP's JSON and its value
	inside string            // how inner gets it; "": not at all
}

var oddUpdates = []oddUpdate{
	{prefix: "10.99.1.0/24",
		filter: "bgp_community.add((65001,7)); bgp_community.add((0,0)); " +
			"bgp_community.add((65535,65535));",
		attrs: map[string]string{"8": `"communities":[0,4259905543,4294967295`}},
	{prefix: "10.99.2.0/24",
		filter: "bgp_large_community.add((65001,2,3)); " +
			"bgp_large_community.add((4294967294,4294967295,4294967295));",
		attrs: map[string]string{
			"32": `"ASN":4294967294,"LocalData1":4294967295,"LocalData2":4294967295`,
		}},
	{prefix: "10.99.3.0/24",
		filter: "bgp_ext_community.add((rt,65001,7)); " +
			"bgp_ext_community.add((generic,0x43000000,1));",
		attrs: map[string]string{"16": `65001:7`}},
	// an attribute of more than 255 bytes
	{prefix: "10.99.4.0/24", filter: repeat(200, "bgp_community.add((65001,%d));"),
		attrs: map[string]string{"8": `4259905736`}},
	{prefix: "10.99.5.0/24", filter: repeat(60, "bgp_path.prepend(4200000%03d);"),
		attrs: map[string]string{"2": `4200000060`}},
	{
		prefix: "10.99.6.0/24", filter: "bgp_med = 4294967295;",
		attrs: map[string]string{"4": `"metric":4294967295`},
	},
	{
		prefix: "10.99.7.0/24", filter: "bgp_origin = ORIGIN_INCOMPLETE;",
		attrs: map[string]string{"1": `"value":2`},
	},
	{
		prefix: "10.99.8.0/24", filter: "bgp_origin = ORIGIN_EGP;",
		attrs: map[string]string{"1": `"value":1`},
	},
	{prefix: "10.99.9.0/25", filter: ""},
	{prefix: "10.99.9.1/32", filter: ""},
	{prefix: "128.0.0.0/1", filter: ""},
	// In a pool, so they are passed on to nodes inside.
	{prefix: "10.1.200.0/26", filter: "", inside: "IGP 65001"},
	{
		prefix: "10.1.201.0/26",
		filter: "bgp_path.prepend(65001); bgp_path.prepend(65001); bgp_med = 5; " +
			"bgp_large_community.add((1,2,3));", inside: "IGP 65001 65001 65001",
	},
	// NO_EXPORT: stays in the AS (RFC 1997)
	{prefix: "10.1.202.0/26", filter: "bgp_community.add((65535,65281));", inside: "IGP 65001"},
	{prefix: "10.1.203.0/26", filter: "bgp_community.add((65535,65282));"}, // NO_ADVERTISE
	// inside our own block, which is announced as a whole
	{prefix: "10.1.0.32/27", filter: ""},
}

// holds compares what GoBGP has.
func (o oddUpdate) holds(paths []ribPath) error {
	if len(paths) != 1 {
		return fmt.Errorf("%s has %d paths", o.prefix, len(paths))
	}
	for code, want := range o.attrs {
		if err := paths[0].has(code, want); err != nil {
			return fmt.Errorf("%s: %w", o.prefix, err)
		}
	}
	return nil
}

// repeat makes n statements, with 1…n put in.
func repeat(n int, format string) (all string) {
	for i := range n {
		all += fmt.Sprintf(format, i+1) + "\n"
	}
	return all
}

func (x *externalLab) oddUpdates(t *testing.T) {
	before, err := x.us.session(t.Context(), addr("10.0.0.1"))
	check(t, err)
	var statics, filter string
	fib := externalFIB(viaOther)
	inside := []string{iBGP("10.1.0.0/26", "10.0.0.2"), "10.1.0.128/26 via 10.0.0.7 100 IGP 64599"}
	for _, o := range oddUpdates {
		statics += "route " + o.prefix + " blackhole;\n"
		filter += "if net = " + o.prefix + " then {\n" + o.filter + "\n}\n"
		fib = append(fib, o.prefix+" via 10.0.0.1")
		if o.inside != "" {
			inside = append(inside, o.prefix+" via 10.0.0.1 100 "+o.inside)
		}
	}
	x.tor.config.Extra = fmt.Sprintf(torProtocols, statics, filter)
	x.tor.reconfigure(t)
	t.Run("all are programmed", func(t *testing.T) { x.us.awaitFIB(t, "-4", fib...) })
	t.Run("attributes are kept", func(t *testing.T) {
		// BIRD announces a new route with the old filter first.
		await(t, "attributes are kept", func(ctx context.Context) error {
			rib, err := x.us.rib(ctx, "ipv4")
			for _, o := range oddUpdates {
				err = errors.Join(err, o.holds(rib[o.prefix]))
			}
			return err
		})
	})
	t.Run("those of the pools are passed on", func(t *testing.T) {
		x.inner.awaitRIB(t, mesh("10.0.0.2"), inside...)
	})
	x.tor.config.Extra = fmt.Sprintf(torProtocols, "", "")
	x.tor.reconfigure(t)
	t.Run("all are withdrawn", func(t *testing.T) {
		x.us.awaitFIB(t, "-4", externalFIB(viaOther)...)
	})
	after, err := x.us.session(t.Context(), addr("10.0.0.1"))
	check(t, err)
	if !after.Since.Equal(*before.Since) {
		t.Errorf("the session is up since %s, it was up since %s", after.Since, before.Since)
	}
}

// changeAS changes the Node first: until BIRD follows, each side refuses the other's OPEN.
func (x *externalLab) changeAS(t *testing.T) {
	const newAS = 64600
	x.apply(t, otherNode(newAS))
	x.us.awaitFIB(t, "-4", externalFIB()...)
	x.tor.awaitRIB(t, "Us", eBGP("10.1.0.0/26", "64512"), eBGP("10.1.0.64/26", "64512"))
	x.inner.awaitRIB(t, mesh("10.0.0.2"), iBGP("10.1.0.0/26", "10.0.0.2"))
	x.other.config.AS = newAS
	x.other.reconfigure(t)
	x.us.awaitPeers(t, "10.0.0.1", "10.0.0.6", "10.0.0.7")
	x.us.awaitFIB(t, "-4", externalFIB(viaOther)...)
	x.tor.awaitRIB(t, "Us", eBGP("10.1.0.0/26", "64512"), eBGP("10.1.0.64/26", "64512"),
		eBGP("10.1.0.128/26", "64512 64600"))
}

func (x *externalLab) peerGoes(t *testing.T) {
	inner, err := x.us.session(t.Context(), addr("10.0.0.6"))
	check(t, err)
	check(t, x.Data.Delete(t.Context(), "BGPPeer", "tor"))
	x.us.awaitFIB(t, "-4", "10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.6",
		"172.30.5.0/26 via 10.0.0.6", viaOther)
	await(t, "the router has no route of ours", func(ctx context.Context) error {
		routes, err := x.tor.Routes(ctx, "protocol Us")
		if err == nil && len(routes) > 0 {
			err = fmt.Errorf("it has %v", routes)
		}
		return err
	})
	now, err := x.us.session(t.Context(), addr("10.0.0.6"))
	check(t, err)
	if !now.Since.Equal(*inner.Since) {
		t.Error("the session with inner was reset")
	}
}
