package calico

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func etcdMode(t *testing.T) *Store {
	t.Helper()
	return NewStoreFor("edge-1", Needs{NoBGP: true, Hosts: DefaultHosts})
}

func TestPeerIPsAreRead(t *testing.T) {
	for key, tc := range map[string]struct{ value, want, problem string }{
		"edge-7/peerip/ipv4/1": {value: "172.30.8.7", want: "172.30.8.7"},
		"edge-8/peerip/ipv4/1": {value: " 172.30.8.8\n", want: "172.30.8.8"},
		"edge-9/peerip/ipv4/1": {value: "::ffff:172.30.8.9", want: "172.30.8.9"},
		"edge-7/peerip/ipv6/1": {value: "fd00::7", want: "fd00::7"},
		"a.b/peerip/ipv4/1":    {value: "172.30.8.10", want: "172.30.8.10"},
		"g1/peerip/ipv4/1":     {value: "garbage \x00\xff", problem: "is not an address"},
		"g2/peerip/ipv4/1":     {value: "", problem: `"" is not an address`},
		"g3/peerip/ipv4/1": {value: "172.30.8.7/24",
			problem: `"172.30.8.7/24" is not an address`},
		"g4/peerip/ipv4/1": {value: "fd00::7",
			problem: "fd00::7 is of the other address family"},
		"g5/peerip/ipv6/1": {value: "172.30.8.7",
			problem: "172.30.8.7 is of the other address family"},
		"g6/peerip/ipv4/1": {value: "127.0.0.1",
			problem: "127.0.0.1 cannot be the next hop of another host"},
		"g7/peerip/ipv4/1": {value: "0.0.0.0",
			problem: "0.0.0.0 cannot be the next hop of another host"},
		"g8/peerip/ipv6/1": {value: "fe80::1",
			problem: "fe80::1 cannot be the next hop of another host"},
		"g9/peerip/ipv4/1": {value: strings.Repeat("x", 1<<20),
			problem: "…\" is not an address"},
		"h1/peerip/ipv4/2": {value: "172.30.8.7",
			problem: "key: peerip/ipv4/2 is neither peerip/ipv4/1 nor peerip/ipv6/1"},
		"h2/peerip/": {value: "172.30.8.7", problem: "key: peerip/ is neither"},
		"h3\x1b[2J/peerip/ipv4/1": {value: "172.30.8.7",
			problem: "key: has characters that no name has"},
		"/peerip/ipv4/1":         {value: "172.30.8.7", problem: "key: names no host"},
		"edge-7/routes/10.0.0.0": {value: "somebody else's"},
		"edge-7":                 {value: "somebody else's"},
	} {
		t.Run(key, func(t *testing.T) {
			s := etcdMode(t)
			s.Put(DefaultHosts+key, []byte(tc.value))
			got := s.Snapshot(1)
			addresses := slices.Collect(maps.Values(got.PeerIPs))
			switch {
			case tc.want == "" && len(addresses) > 0, tc.want != "" &&
				!slices.Equal(addresses, []netip.Addr{netip.MustParseAddr(tc.want)}):
				t.Errorf("addresses %v, want %q", addresses, tc.want)
			case tc.problem == "" && len(got.Problems) > 0:
				t.Errorf("problems %v", got.Problems)
			case tc.problem != "" &&
				(len(got.Problems) != 1 || !strings.Contains(got.Problems[0].Err, tc.problem) ||
					got.Problems[0].Key != DefaultHosts+key || len(got.Problems[0].Err) > 200):
				t.Errorf("problems %v, want %q", got.Problems, tc.problem)
			}
			s.Delete(DefaultHosts + key)
			if got := s.Snapshot(2); len(got.PeerIPs)+len(got.Problems) != 0 {
				t.Errorf("after the deletion: %v, %v", got.PeerIPs, got.Problems)
			}
		})
	}
}

func TestPeerIPKeyIsWhatTheStoreReads(t *testing.T) {
	s := NewStoreFor("edge-1", Needs{Hosts: "/lab/hosts/"})
	for _, p := range []PeerIP{{Host: "edge-7"}, {Host: "edge-7", IPv6: true}} {
		address := "172.30.8.7"
		if p.IPv6 {
			address = "fd00::7"
		}
		s.Put(p.Key("/lab/hosts/"), []byte(address))
		if got := s.Snapshot(1).PeerIPs[p]; got.String() != address {
			t.Errorf("%v: %v", p, got)
		}
		text, _ := p.MarshalText()
		var again PeerIP
		if err := again.UnmarshalText(text); err != nil || again != p {
			t.Errorf("%s: %v, %v", text, again, err)
		}
	}
}

// A bad write to the address of a host must not take its routes away.
func TestBadPeerIPLeavesTheOldOneInUse(t *testing.T) {
	s := etcdMode(t)
	key := PeerIP{Host: "edge-7"}.Key(DefaultHosts)
	s.Put(key, []byte("172.30.8.7"))
	s.Put(key, []byte("172.30.8"))
	got := s.Snapshot(1)
	if got.PeerIPs[PeerIP{Host: "edge-7"}].String() != "172.30.8.7" || len(got.Problems) != 1 ||
		!strings.Contains(got.Problems[0].Err, "stays in use") {
		t.Errorf("got %v, %v", got.PeerIPs, got.Problems)
	}
	s.BeginList()
	s.EndList(DefaultHosts)
	if got := s.Snapshot(2); len(got.PeerIPs)+len(got.Problems) != 0 {
		t.Errorf("after a list without it: %v, %v", got.PeerIPs, got.Problems)
	}
}

func TestPeerIPsAreNotReadWithoutNeed(t *testing.T) {
	s := NewStore("edge-1")
	s.Put(DefaultHosts+"edge-7/peerip/ipv4/1", []byte("172.30.8.7"))
	if got := s.Snapshot(1); len(got.PeerIPs) != 0 {
		t.Errorf("got %v", got.PeerIPs)
	}
	for _, r := range s.Ranges() {
		if strings.HasPrefix(r.Prefix, "/vpp-calico") {
			t.Errorf("a node with BGP alone reads %s", r.Prefix)
		}
	}
}

func TestBlocksUnderAnotherPrefix(t *testing.T) {
	s := NewStoreFor("edge-1", Needs{Blocks: "/old/blocks/"})
	key := "/old/blocks/ipv4/block/10.1.0.64-26"
	s.Put(key, []byte(`{"cidr":"10.1.0.64/26","affinity":"host:edge-7"}`))
	if got := s.Snapshot(1); got.Blocks[pfx("10.1.0.64/26")].Owner.Host != "edge-7" ||
		len(got.Problems) > 0 {
		t.Errorf("got %+v", got)
	}
	s.Delete(key)
	if got := s.Snapshot(2); len(got.Blocks) != 0 {
		t.Errorf("still %v", got.Blocks)
	}
}

func TestNeedsSayWhatIsWrong(t *testing.T) {
	for name, tc := range map[string]struct {
		needs Needs
		want  string
	}{
		"defaults":               {Needs{Hosts: DefaultHosts, Blocks: DefaultBlocks}, ""},
		"BGP alone":              {Needs{}, ""},
		"no slash at the end":    {Needs{Hosts: "/hosts"}, `--hosts-prefix: "/hosts" is no prefix`},
		"no slash at the start":  {Needs{Hosts: "hosts/"}, "is no prefix of keys"},
		"everything":             {Needs{Blocks: "/"}, `--blocks-prefix: "/" is no prefix`},
		"under Calico's":         {Needs{Hosts: "/calico/hosts/"}, `--hosts-prefix: "/calico`},
		"blocks among the hosts": {Needs{Hosts: "/lab/", Blocks: "/lab/blocks/"}, "overlap"},
		"blocks over all":        {Needs{Blocks: "/calico/"}, "overlap"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.needs.Check("edge-1")
			if (err == nil) != (tc.want == "") || err != nil &&
				!strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
