package bgp

import (
	"net/netip"
	"slices"
	"testing"

	"vpp-route-agent/internal/calico"
)

func TestDifferencesNameWhereStockDoesOtherwise(t *testing.T) {
	snapshot := func(ownAS, theirAS uint32, mesh bool, peers ...calico.BGPPeer) *calico.Snapshot {
		s := &calico.Snapshot{
			Nodes: map[string]calico.Node{
				"a": {Name: "a", IPv4: netip.MustParsePrefix("10.0.0.1/24"), ASNumber: ownAS},
				"b": {Name: "b", IPv4: netip.MustParsePrefix("10.0.0.2/24"), ASNumber: theirAS},
			},
			BGPConfigurations: map[string]bgpConfig{"default": {NodeToNodeMeshEnabled: &mesh}},
			BGPPeers:          map[string]bgpPeer{},
		}
		for _, p := range peers {
			s.BGPPeers[p.Name] = p
		}
		return s
	}
	for _, tc := range []struct {
		name string
		self string
		s    *calico.Snapshot
		want []string
	}{
		{"a mesh of one AS is as stock", "a", snapshot(0, 0, true), nil},
		{"an AS of our own is taken by stock for the plain peer's", "a", snapshot(64801, 0, true),
			[]string{"remoteAS 64512 64801"}},
		{"two AS numbers that are given are as given", "a", snapshot(64801, 64802, true), nil},
		{"a plain node sees the other's AS", "b", snapshot(64801, 0, true), nil},
		{"an AS of our own that is the cluster's", "a", snapshot(64512, 0, true), nil},
		{"a node-specific session waits at the lesser end", "a",
			snapshot(0, 0, false, bgpPeer{Name: "p", Node: "a", PeerSelector: "all()"}),
			[]string{"dial passive active"}},
		{"and is dialled at the greater", "b",
			snapshot(0, 0, false, bgpPeer{Name: "p", Node: "a", PeerSelector: "all()"}), nil},
		{"a global session by labels is dialled by stock as well", "a",
			snapshot(0, 0, false, bgpPeer{Name: "p", PeerSelector: "all()"}),
			[]string{"dial passive active"}},
		{"and is dialled at the greater end", "b",
			snapshot(0, 0, false, bgpPeer{Name: "p", PeerSelector: "all()"}), nil},
		{"a global session by address waits in both", "a",
			snapshot(0, 0, false, bgpPeer{Name: "p", PeerIP: "10.0.0.2", ASNumber: 64512}), nil},
		{"with a BGPPeer stock too has the cluster's AS", "b",
			snapshot(0, 64801, false, bgpPeer{Name: "p", PeerSelector: "all()"}), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			peers, problems := Peers(tc.self, tc.s)
			if len(peers) != 1 || len(problems) != 0 {
				t.Fatalf("%+v %v", peers, problems)
			}
			var got []string
			for _, d := range Differences(tc.self, tc.s, peers[0]) {
				got = append(got, d.Field+" "+d.Ours+" "+d.Stock)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
