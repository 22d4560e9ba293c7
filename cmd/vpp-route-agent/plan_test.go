package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico/manifest"
)

// planResources is a mesh of five, one of another AS, with two routers behind filters, in documents
// of their own.
func planResources() []string {
	const head = "apiVersion: projectcalico.org/v3\nkind: "
	docs := []string{
		head + "BGPConfiguration\nmetadata: {name: default}\nspec: {prefixAdvertisements: " +
			"[{cidr: 10.1.0.0/16, communities: ['64512:1', '64512:2']}]}\n",
		head + "IPPool\nmetadata: {name: pods}\nspec: {cidr: 10.1.0.0/16}\n",
		head + "IPPool\nmetadata: {name: hidden}\nspec: {cidr: 10.2.0.0/16, disableBGPExport: " +
			"true}\n",
		head + "BGPPeer\nmetadata: {name: tor-1}\nspec: {peerIP: 192.0.2.201, asNumber: 65001, " +
			"filters: [f]}\n",
		head + "BGPPeer\nmetadata: {name: tor-2}\nspec: {peerIP: 192.0.2.202, asNumber: 65002, " +
			"filters: [gone]}\n",
		head + "BGPPeer\nmetadata: {name: bad-1}\nspec: {peerIP: 192.0.2.203}\n",
		head + "BGPPeer\nmetadata: {name: bad-2}\nspec: {peerIP: router, asNumber: 1}\n",
		head + "BGPFilter\nmetadata: {name: f}\nspec: {importV4: [{cidr: 10.2.0.0/16, " +
			"matchOperator: In, action: Reject}], exportV4: [{cidr: 10.1.0.0/26, matchOperator: " +
			"Equal, action: Reject}]}\n",
	}
	for i := 1; i <= 5; i++ {
		as := ""
		if i == 4 {
			as = ", asNumber: 64804"
		}
		docs = append(docs,
			head+fmt.Sprintf("Node\nmetadata: {name: edge-%d}\nspec: {bgp: {ipv4Address: "+
				"192.0.2.%d/24%s}}\n", i, i, as),
			head+fmt.Sprintf("BlockAffinity\nmetadata: {name: b%d}\nspec: {node: edge-%d, cidr: "+
				"10.%d.0.0/26, state: confirmed}\n", i, i, i))
	}
	return docs
}

func planJSON(t interface{ Fatal(...any) }, docs []string) string {
	root := newCommand()
	var out bytes.Buffer
	root.SetIn(strings.NewReader(strings.Join(docs, "---\n")))
	root.SetOut(&out)
	root.SetArgs([]string{"plan", "--node", "edge-1", "-f", "-", "--prefix", "10.1.0.0/26",
		"--prefix", "10.2.0.0/26", "--prefix", "0.0.0.0/0", "-o", "json"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestPlanIsTheSameInAnyOrderOfDocuments(t *testing.T) {
	want := planJSON(t, planResources())
	if !strings.Contains(want, "BGPPeer(bad-2)") ||
		!strings.Contains(want, "add community 64512:2") {
		t.Errorf("the sample shows too little: %s", want)
	}
	rapid.Check(t, func(t *rapid.T) {
		if got := planJSON(t, rapid.Permutation(planResources()).Draw(
			t, "documents")); got != want {
			t.Fatalf("got %s\nwant %s", got, want)
		}
	})
}

// Filters may ask for the priority of what an iBGP peer sent.
func TestPrefixPlanKnowsPriorities(t *testing.T) {
	from, to := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	prefix := netip.MustParsePrefix("10.1.9.1/32")
	reject := func(priority uint32) []bgp.Rule {
		return []bgp.Rule{{Name: "r", Match: bgp.Match{LocalPref: 2147483647 - priority}}}
	}
	p := bgp.Plan{
		Peers: []bgp.Peer{
			{Address: from, RemoteAS: 64512, LocalAS: 64512, Filters: []string{"f"}},
			{Address: to, RemoteAS: 64900, LocalAS: 64512, Filters: []string{"f"}},
		},
		Policies: bgp.Policies{
			ExportPools: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
			Normal4:     2147483647 - 1024,
		},
	}
	for name, tc := range map[string]struct {
		filter                   bgp.Filter
		in, passed, elevatedOnly bool
	}{
		"no filter":                {bgp.Filter{}, true, true, false},
		"normal does not come in":  {bgp.Filter{Import4: reject(1024)}, false, false, true},
		"normal does not go out":   {bgp.Filter{Export4: reject(1024)}, true, false, true},
		"elevated does not go out": {bgp.Filter{Export4: reject(512)}, true, true, false},
	} {
		p.Policies.Filters = map[string]bgp.Filter{"f": tc.filter}
		plan := planPrefix(prefix, p)
		if in := plan.Peers[0].Import.Accept; in != tc.in {
			t.Errorf("%s: import %t", name, in)
		}
		accepts := func(all []learnedVerdict) bool { return len(all) == 1 && all[0].Accept }
		at := plan.Peers[1]
		if accepts(at.Passed) != tc.passed || accepts(at.Elevated) != tc.elevatedOnly {
			t.Errorf("%s: passed on %+v, elevated %+v", name, at.Passed, at.Elevated)
		}
	}
}

// Each pair of peers has one answer, which is the policies', and none is learned from a peer whose
// import refuses it.
func TestPrefixPlanAnswersForEachPairOfPeers(t *testing.T) {
	resources, err := manifest.Read([]byte(strings.Join(planResources(), "---\n")))
	if err != nil {
		t.Fatal(err)
	}
	s, err := manifest.Manifest{Resources: resources}.Snapshot("edge-1", false)
	if err != nil {
		t.Fatal(err)
	}
	p := bgp.PlanFor("edge-1", s, bgp.Options{})
	peers := map[bgp.PeerID]*bgp.Peer{}
	for i := range p.Peers {
		peers[p.Peers[i].ID()] = &p.Peers[i]
	}
	passed, refused := 0, 0
	for _, text := range []string{"10.1.0.0/26", "10.1.9.0/26", "10.2.0.0/26", "0.0.0.0/0"} {
		prefix := netip.MustParsePrefix(text)
		plan := planPrefix(prefix, p)
		if len(plan.Peers) != len(p.Peers) {
			t.Fatalf("%s: %d peers of %d", prefix, len(plan.Peers), len(p.Peers))
		}
		for _, at := range plan.Peers {
			answers := map[bgp.PeerID]verdict{}
			for _, l := range at.Passed {
				for _, from := range l.From {
					if _, twice := answers[from]; twice {
						t.Errorf("%s from %s to %s: two answers", prefix, from, at.Peer)
					}
					answers[from] = l.verdict
				}
			}
			for _, from := range p.Peers {
				route, in := p.Policies.Import(plainRoute(prefix, &from, p.Policies.Normal(prefix)))
				got, announced := answers[from.ID()]
				if want := in.Accept && from.ID() != at.Peer; announced != want {
					t.Errorf("%s from %s to %s: announced %t, want %t", prefix, from.ID(), at.Peer,
						announced, want)
				}
				if !in.Accept {
					refused++
				}
				if announced && !got.equal(verdictOf(p.Policies.Export(route, *peers[at.Peer]))) {
					t.Errorf("%s from %s to %s: %+v", prefix, from.ID(), at.Peer, got)
				}
				if announced && got.Accept {
					passed++
				}
			}
		}
		announced := slices.ContainsFunc(p.Announcements,
			func(a bgp.Announcement) bool { return a.Prefix == prefix })
		if announced != plan.Announced || announced != (plan.Reason == "") {
			t.Errorf("%s: announced %t, reason %q", prefix, plan.Announced, plan.Reason)
		}
	}
	if passed == 0 || refused == 0 {
		t.Errorf("%d passed on, %d refused: the sample shows too little", passed, refused)
	}
}
