package reflector

import (
	"fmt"
	"net/netip"
	"testing"

	"vpp-route-agent/bgp"
)

// When a reflector leaves beside BIRD, its sessions with clients are reset, if BIRD is at one end;
// those with other reflectors stay, and those of others do.
func TestWhatEndsWhenAReflectorLeaves(t *testing.T) {
	const label = "vpp-route-agent/route-reflector"
	var nodes []testNode
	for i, name := range []string{"a", "b", "c", "d"} {
		n := numbered(i)
		if n.name = name; i < 2 {
			n.clusterID, n.labels = "224.0.0.1", map[string]string{label: "true"}
			n.annotations = map[string]string{roleNote: fmt.Sprint(i + 1)}
		}
		nodes = append(nodes, n)
	}
	value, err := newPeer(peerName, "all()", labelled(label), nil, start)
	if err != nil {
		t.Fatal(err)
	}
	s := Read(append(objectsOf(nodes), Object{peerKey, value, 8})).snapshot
	ended := func(self string, resets bool) (nodes []string) {
		left := Question{Leave: "b", Label: label, Resets: resets}.Left(self, s)
		peers, _ := bgp.Peers(self, s)
		for _, p := range peers {
			if !left.Keeps(p.ID(), netip.Addr{}, p.Address) {
				nodes = append(nodes, p.CalicoNode)
			}
		}
		return nodes
	}
	for _, tc := range []struct {
		self   string
		resets bool
		want   string
	}{
		{"b", true, "[c d]"}, {"c", true, "[b]"}, {"a", true, "[]"},
		{"b", false, "[]"}, {"c", false, "[]"},
	} {
		if got := fmt.Sprint(ended(tc.self, tc.resets)); got != tc.want {
			t.Errorf("%s, resets %t: %s, want %s", tc.self, tc.resets, got, tc.want)
		}
	}
}

// BenchmarkLeft is what an agent computes before it looks at its paths, as the client of a hundred
// reflectors in a cluster of 5000 nodes.
func BenchmarkLeft(b *testing.B) {
	const label = "vpp-route-agent/route-reflector"
	var nodes []testNode
	for i := range 5000 {
		n := numbered(i)
		if i < 100 {
			n.clusterID, n.labels = "224.0.0.1", map[string]string{label: "true"}
		}
		nodes = append(nodes, n)
	}
	peer, err := newPeer(peerName, "all()", labelled(label), nil, start)
	if err != nil {
		b.Fatal(err)
	}
	off, err := meshOff(nil, start)
	if err != nil {
		b.Fatal(err)
	}
	s := Read(append(objectsOf(nodes), Object{peerKey, peer, 8}, Object{confKey, off, 9})).snapshot
	b.ReportAllocs()
	for b.Loop() {
		Question{Leave: nodes[0].name, Label: label}.Left(nodes[4999].name, s)
	}
}
