package gobgp

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v3/api"
)

// Two reflectors serve the same clients and hear each other. Of a route with one origin, and of one
// with two, both have what the clients said and no more; when it is withdrawn it is gone
// everywhere; and while nothing changes nothing is sent. Whose BGP identifier is lower makes no
// difference (RFC 4456 §9).
func TestReflectorsThatPeerWithEachOther(t *testing.T) {
	for _, ids := range [][2]string{
		{"1.1.1.1", "1.1.1.2"}, {"9.9.9.161", "9.9.9.164"}, {"200.0.0.1", "200.0.0.2"},
		{"1.1.1.1", "200.0.0.1"},
	} {
		for _, clusters := range [][2]string{{"", ""}, {"7.7.7.7", "7.7.7.7"}} {
			t.Run(fmt.Sprint("router IDs ", ids, " cluster IDs ", clusters), func(t *testing.T) {
				l := newLab(t)
				a, b := l.unset(64512), l.unset(64512)
				connect(a, b)
				for i, n := range []*node{a, b} {
					n.plan.Speaker.RouterID = addr(ids[i])
					n.plan.Peers[0].Reflector, n.plan.Peers[0].Client = true, true
					n.plan.Policies.Reflects = true
					n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
					if clusters[i] != "" {
						n.plan.Policies.ClusterID = addr(clusters[i])
					}
					for c := range 3 {
						n.farPeer(fmt.Sprintf("127.0.0.%d", 160+3*c), 64512)
						n.plan.Peers[1+c].Client = true
					}
				}
				set(t, a, b)
				eventually(t, "the session of the two", true, func() bool {
					return a.state(b).Established && b.state(a).Established
				})
				var clients [3][2]*far // at each reflector
				for c := range clients {
					for i, n := range []*node{a, b} {
						clients[c][i] = dialFar(t, n, fmt.Sprintf("127.0.0.%d", 160+3*c), 64512, 90,
							true, gracefulCap(false))
					}
				}
				both := func(c int, do func(f *far)) { do(clients[c][0]); do(clients[c][1]) }
				both(0, func(f *far) {
					f.announce("10.1.0.0/26", "192.0.2.1")
					f.announce("10.2.0.0/26", "192.0.2.1")
				})
				both(1, func(f *far) { f.announce("10.2.0.0/26", "192.0.2.2") })
				for _, n := range []*node{a, b} {
					eventually(t, "whom the best path is from", "127.0.0.160", func() string {
						return bestFrom(n, "10.1.0.0/26")
					})
					eventually(t, "where the route of two origins leads",
						"[192.0.2.1 192.0.2.2]", func() string {
							return fmt.Sprint(slices.Compact(n.hops("10.2.0.0/26")))
						})
				}
				all := fmt.Sprint([]netip.Prefix{pfx("10.1.0.0/26"), pfx("10.2.0.0/26")})
				both(2, func(f *far) {
					eventually(t, "the third client has", all, func() string {
						return fmt.Sprint(f.received())
					})
				})
				sent := func() (n int) {
					for _, c := range clients {
						n += c[0].count() + c[1].count()
					}
					return n
				}
				eventually(t, "nothing is sent while nothing changes", true, func() bool {
					before := sent()
					time.Sleep(300 * time.Millisecond)
					return sent() == before
				})
				both(0, func(f *far) { f.withdraw("10.1.0.0/26"); f.withdraw("10.2.0.0/26") })
				both(1, func(f *far) { f.withdraw("10.2.0.0/26") })
				for _, n := range []*node{a, b} {
					n.wantHops("10.1.0.0/26")
					n.wantHops("10.2.0.0/26")
				}
				both(2, func(f *far) {
					eventually(t, "the third client has", "[]", func() string {
						return fmt.Sprint(f.received())
					})
				})
			})
		}
	}
}

// bestFrom returns the peer that sent the best path of a prefix.
func bestFrom(n *node, prefix string) (peer string) {
	req := &api.ListPathRequest{
		TableType: api.TableType_GLOBAL, Family: ipv4Unicast,
		Prefixes: []*api.TableLookupPrefix{{Prefix: prefix}},
	}
	err := n.applied.server.ListPath(n.t.Context(), req, func(d *api.Destination) {
		if i := slices.IndexFunc(d.Paths, func(p *api.Path) bool { return p.Best }); i >= 0 {
			peer = d.Paths[i].NeighborIp
		}
	})
	if err != nil {
		n.t.Error(err)
	}
	return peer
}
