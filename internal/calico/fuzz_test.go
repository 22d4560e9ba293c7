package calico

import (
	"encoding/json"
	"testing"
)

// FuzzStore puts any value under any key. Nothing may panic, what was taken must be printable as
// JSON (the agent keeps its last snapshot on disk), addresses must be normalised, and a deletion
// must leave nothing.
func FuzzStore(f *testing.F) {
	for _, seed := range [][2]string{
		{"/calico/ipam/v2/assignment/ipv4/block/10.40.4.4-30", sampleBlock},
		{"/calico/ipam/v2/assignment/ipv6/block/fd00::40-122",
			`{"cidr":"fd00::41/122","affinity":"virtual:lb","allocations":[0],
				"attributes":[{"secondary":{"node":"a"}}]}`},
		{"/calico/ipam/v2/host/edge-1/ipv4/block/10.0.0.0-26", `{"state":"pending"}`},
		{resources + "nodes/edge-1",
			`{"metadata":{"labels":{"a":"b"}},"spec":{"bgp":{"ipv4Address":"172.20.8.7/24",
				"ipv6Address":"fd77::7","asNumber":"1.10"}}}`},
		{resources + "ippools/p", `{"spec":{"cidr":"10.40.7.9/16","ipipMode":"CrossSubnet"}}`},
		{resources + "bgpconfigurations/default",
			`{"spec":{"nodeMeshMaxRestartTime":"1m30s","communities":[{"name":"a",
				"value":"1:2"}]}}`},
		{resources + "bgppeers/tor",
			`{"spec":{"peerIP":"192.0.2.1:179","password":{"secretKeyRef":{"key":"k"}},
				"maxRestartTime":"2m0s"}}`},
		{resources + "bgpfilters/f",
			`{"spec":{"exportV4":[{"action":"Accept","operations":[{"setPriority":{"value":1}}],
				"x":1}]}}`},
		{resources + "workloadendpoints/ns/w",
			`{"spec":{"node":"edge-1","ipNetworks":["::ffff:10.0.0.1"]}}`},
		{resources + "clusterinformations/default", `{"spec":{"datastoreReady":false}}`},
		{DefaultHosts + "edge-7/peerip/ipv4/1", "172.30.8.7"},
		{DefaultHosts + "edge-7/peerip/ipv6/1", "fd00::7\n"},
	} {
		f.Add(seed[0], []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		s := NewStoreFor("edge-1", Needs{Hosts: DefaultHosts})
		s.Put(key, value)
		snap := s.Snapshot(1)
		if _, err := json.Marshal(snap); err != nil {
			t.Errorf("snapshot as JSON: %v", err)
		}
		for cidr, b := range snap.Blocks {
			if cidr != cidr.Masked() || cidr.Addr().Is4In6() || b.CIDR != cidr {
				t.Errorf("block %v under %v", b.CIDR, cidr)
			}
			for i, a := range b.Allocations {
				if !cidr.Contains(a.Address) || i > 0 &&
					!b.Allocations[i-1].Address.Less(a.Address) {
					t.Errorf("block %v has %+v", cidr, b.Allocations)
				}
			}
		}
		for _, p := range snap.IPPools {
			if p.CIDR != p.CIDR.Masked() || p.CIDR.Addr().Is4In6() || !p.CIDR.IsValid() {
				t.Errorf("pool %+v", p)
			}
		}
		for _, n := range snap.Nodes {
			if n.IPv4.IsValid() && !n.IPv4.Addr().Is4() || n.IPv6.IsValid() &&
				!n.IPv6.Addr().Is6() || n.IPv6.Addr().Is4In6() {
				t.Errorf("node %+v", n)
			}
		}
		for p, a := range snap.PeerIPs {
			if p.Host == "" || !a.IsValid() || a.Is6() != p.IPv6 || a.Is4In6() ||
				p.Key(DefaultHosts) != key {
				t.Errorf("%v is %v, from %q", p, a, key)
			}
		}
		s.Delete(key)
		left := s.Snapshot(2)
		if n := len(left.Nodes) + len(left.IPPools) + len(left.Blocks) + len(left.Affinities) +
			len(left.BGPConfigurations) + len(left.BGPPeers) +
			len(left.BGPFilters) + len(left.WorkloadEndpoints) + len(left.LiveMigrations) +
			len(left.Felix) + len(left.PeerIPs) + len(left.Problems); n != 0 ||
			left.DatastoreNotReady {
			t.Errorf("left after the deletion: %+v", left)
		}
	})
}

func FuzzParseKey(f *testing.F) {
	for _, key := range []string{
		"/calico/ipam/v2/host/edge-1/ipv4/block/10.0.0.0-26",
		"/calico/ipam/v2/assignment/ipv6/block/fd00:0::40-122",
		"/calico/ipam/v2/virtual/load-balancer/ipv4/block/10.0.0.0-26",
		"/calico/ipam/v2/handle/a/b", resources + "workloadendpoints/a/b",
	} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		k, err := ParseKey(key)
		if err != nil {
			return
		}
		if again, err := ParseKey(k.String()); err != nil || again != k {
			t.Errorf("%q is %+v, and as %q %+v %v", key, k, k.String(), again, err)
		}
	})
}
