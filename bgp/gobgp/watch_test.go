package gobgp

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	"github.com/osrg/gobgp/v3/pkg/apiutil"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"github.com/osrg/gobgp/v3/pkg/server"
	"pgregory.net/rapid"

	"vpp-route-agent/bgp"
)

// watchAPI is the watch that GoBGP has by itself, with the events turned into ours. It does without
// the initial dump also because its conversion races with GoBGP (upstream issue 2705). GoBGP may
// call for a while after ctx has ended.
func watchAPI(
	ctx context.Context, srv *server.BgpServer, take func([]server.Watched, time.Time),
) error {
	filters := []*api.WatchEventRequest_Table_Filter{
		{Type: api.WatchEventRequest_Table_Filter_EOR},
		{Type: api.WatchEventRequest_Table_Filter_BEST},
	}
	req := &api.WatchEventRequest{
		Peer: &api.WatchEventRequest_Peer{}, Table: &api.WatchEventRequest_Table{Filters: filters},
	}
	err := srv.WatchEvent(ctx, req, func(r *api.WatchEventResponse) {
		if ctx.Err() == nil {
			take(eventOf(r), time.Now())
		}
	})
	if err != nil {
		return fmt.Errorf("gobgp: watch: %w", err)
	}
	return nil
}

// eventOf is an event of the API. All of its paths are one set: there is no event with several but
// for the initial dump.
func eventOf(r *api.WatchEventResponse) []server.Watched {
	if t := r.GetTable(); t != nil {
		batch := make([]server.Watched, 0, len(t.Paths))
		for i, p := range t.Paths {
			w := pathOfAPI(p)
			if p.Nlri == nil {
				w.EndOfRIB = apiutil.ToRouteFamily(p.Family)
			}
			w.More = i < len(t.Paths)-1
			batch = append(batch, w)
		}
		return batch
	}
	// Type UNKNOWN is the late echo of a session that was taken out of the configuration.
	if p := r.GetPeer(); p != nil && p.Type == api.WatchEventResponse_PeerEvent_STATE {
		addr, err := netip.ParseAddr(p.Peer.GetState().GetNeighborAddress())
		if err == nil {
			return []server.Watched{
				{
					Peer: netip.AddrPortFrom(addr, 0),
					Up:   p.Peer.State.SessionState == api.PeerState_ESTABLISHED,
				},
			}
		}
	}
	return nil
}

// byAPI watches n over GoBGP's API, beside n itself.
func byAPI(t *testing.T, n *node) (*learned, *recorder) {
	t.Helper()
	r, ss := newRecorder(), newSessions()
	for _, p := range n.plan.Peers {
		ss.add(p.ID(), p.External())
	}
	l := newLearned(slog.New(slog.DiscardHandler), r, ss, false)
	if err := watchAPI(t.Context(), n.applied.server, l.take); err != nil {
		t.Fatal(err)
	}
	return l, r
}

// odd are attributes that a path may have besides those that it must have.
var odd = []packet.PathAttributeInterface{
	packet.NewPathAttributeCommunities([]uint32{64512<<16 | 1, uint32(packet.COMMUNITY_NO_EXPORT)}),
	packet.NewPathAttributeLargeCommunities([]*packet.LargeCommunity{
		packet.NewLargeCommunity(1, 2, 3),
	}),
	packet.NewPathAttributeExtendedCommunities([]packet.ExtendedCommunityInterface{
		packet.NewTwoOctetAsSpecificExtended(packet.EC_SUBTYPE_ROUTE_TARGET, 1, 2, true),
	}),
	packet.NewPathAttributeOriginatorId("9.9.9.1"),
	packet.NewPathAttributeClusterList([]string{"9.9.9.2", "9.9.9.3"}),
	packet.NewPathAttributeMultiExitDisc(7),
	packet.NewPathAttributeAtomicAggregate(),
	packet.NewPathAttributeAggregator(uint32(65001), "9.9.9.4"),
	packet.NewPathAttributeUnknown(packet.BGP_ATTR_FLAG_OPTIONAL|packet.BGP_ATTR_FLAG_TRANSITIVE,
		99, []byte{1, 2, 3}),
	packet.NewPathAttributeUnknown(packet.BGP_ATTR_FLAG_OPTIONAL|packet.BGP_ATTR_FLAG_TRANSITIVE,
		98, nil),
}

// end is a prefix with where it leads.
type end struct{ prefix, hop, linkLocal string }

var (
	ends4 = []end{
		{"10.1.0.0/26", "192.0.2.1", ""}, {"10.1.0.0/26", "192.0.2.2", ""},
		{"10.1.0.64/26", "192.0.2.1", ""}, {"10.1.0.64/26", "0.0.0.0", ""},
		{"10.1.0.1/32", "224.0.0.5", ""}, {"0.0.0.0/0", "192.0.2.3", ""},
		{"10.1.0.0/26", "2001:db8::1", ""}, {"10.1.0.64/26", "2001:db8::1", "fe80::1"},
		{"10.1.0.64/26", "::", "fe80::1"},
	}
	ends6 = []end{
		{"fd00::/122", "2001:db8::1", ""}, {"fd00::/122", "2001:db8::1", "fe80::1"},
		{"fd00::/122", "fe80::1", ""}, {"fd00::/122", "::", "fe80::1"},
		{"fd00::40/122", "::ffff:192.0.2.6", ""}, {"::ffff:10.0.0.0/120", "2001:db8::1", ""},
		{"::/0", "2001:db8::1", ""},
	}
)

// drawUpdate is one of the ends announced, with any of the odd attributes, or withdrawn.
func drawUpdate(t *rapid.T, ends []end, external bool) *packet.BGPMessage {
	e := rapid.SampledFrom(ends).Draw(t, "end")
	p, plain := pfx(e.prefix), addr(e.hop).Is4()
	v4 := packet.NewIPAddrPrefix(uint8(p.Bits()), p.Addr().String())
	v6 := packet.NewIPv6AddrPrefix(uint8(p.Bits()), p.Addr().String())
	var nlri packet.AddrPrefixInterface = v6
	if p.Addr().Is4() {
		nlri = v4
	}
	switch {
	case rapid.IntRange(0, 3).Draw(t, "withdraw") > 0:
	case p.Addr().Is4():
		return packet.NewBGPUpdateMessage([]*packet.IPAddrPrefix{v4}, nil, nil)
	default:
		return packet.NewBGPUpdateMessage(nil,
			[]packet.PathAttributeInterface{packet.NewPathAttributeMpUnreachNLRI(
				[]packet.AddrPrefixInterface{nlri})}, nil)
	}
	attrs := []packet.PathAttributeInterface{
		packet.NewPathAttributeOrigin(0), packet.NewPathAttributeAsPath(nil),
	}
	if external {
		attrs[1] = packet.NewPathAttributeAsPath([]packet.AsPathParamInterface{
			packet.NewAs4PathParam(packet.BGP_ASPATH_ATTR_TYPE_SEQ, []uint32{65001}),
		})
	} else if rapid.Bool().Draw(t, "preferred") {
		attrs = append(attrs,
			packet.NewPathAttributeLocalPref(
				rapid.SampledFrom([]uint32{100, 2147482623}).Draw(t, "pref")))
	}
	attrs = append(attrs,
		rapid.SliceOfNDistinct(rapid.SampledFrom(odd), 0, 4,
			rapid.ID[packet.PathAttributeInterface]).Draw(t, "odd")...)
	if plain {
		return packet.NewBGPUpdateMessage(nil, append(attrs, packet.NewPathAttributeNextHop(e.hop)),
			[]*packet.IPAddrPrefix{v4})
	}
	reach := packet.NewPathAttributeMpReachNLRI(e.hop, []packet.AddrPrefixInterface{nlri})
	if e.linkLocal != "" {
		reach.LinkLocalNexthop = addr(e.linkLocal).AsSlice()
	}
	return packet.NewBGPUpdateMessage(nil, append(attrs, reach), nil)
}

// The watch that make puts into GoBGP reports what GoBGP's API reports, call for call: of odd
// attributes and next hops, of sets that grow and shrink, of our own routes, of what becomes stale
// and fresh again.
func TestBothWatchesReportTheSame(t *testing.T) {
	l := newLab(t)
	n := l.unset(64512)
	n.plan.Speaker.ListenAddresses = append(n.plan.Speaker.ListenAddresses, addr("::1"))
	at := []string{"127.0.0.100", "127.0.0.101", "127.0.0.102", "::1"}
	as := []uint32{64512, 64512, 65001, 64512}
	for i := range at {
		n.farPeer(at[i], as[i])
	}
	n.plan.Peers[3].LocalAddress = addr("::1")
	api, other := byAPI(t, n)
	set(t, n)
	dial := func(i int) *far {
		from := *n
		if addr(at[i]).Is6() {
			from.addr = addr("::1")
		}
		// to tell of a path over the API, GoBGP reads in a goroutine of its own whether it is stale
		// (upstream issue 2705)
		if raceEnabled {
			return dialFar(t, &from, at[i], as[i], 90, true)
		}
		return dialFar(t, &from, at[i], as[i], 90, true, gracefulCap(false))
	}
	var fars []*far
	for i := range at {
		fars = append(fars, dial(i))
	}
	serial, lasts := 0, []string{"10.2.0.0/26", "10.2.1.0/26", "10.2.2.0/26", "fd00:2::/122"}
	last := func(r *recorder) func() []string { // the next hop of what each far end sent last
		return func() (out []string) {
			r.locked(func() {
				for _, p := range lasts {
					for _, path := range r.sets[pfx(p)] {
						out = append(out, path.NextHop.String())
					}
				}
			})
			return out
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			switch i := rapid.IntRange(0, len(fars)).Draw(rt, "who"); {
			case i < 3:
				fars[i].send(drawUpdate(rt, ends4, as[i] != 64512))
			case i == 3:
				fars[i].send(drawUpdate(rt, ends6, false))
			case len(n.plan.Announcements) > 0:
				n.withdraw("10.1.0.0/26")
				set(t, n)
			default:
				n.announce("10.1.0.0/26", n.addr.String())
				set(t, n)
			}
		}
		serial++
		hop := fmt.Sprintf("2001:db8:9::%x", serial)
		for i, f := range fars {
			p := pfx(lasts[i])
			attr := packet.NewPathAttributeMpReachNLRI(hop, []packet.AddrPrefixInterface{
				packet.NewIPv6AddrPrefix(uint8(p.Bits()), p.Addr().String()),
			})
			if p.Addr().Is4() {
				attr = packet.NewPathAttributeMpReachNLRI(hop, []packet.AddrPrefixInterface{
					ipv4(0, lasts[i]),
				})
			}
			f.send(packet.NewBGPUpdateMessage(nil, []packet.PathAttributeInterface{
				packet.NewPathAttributeOrigin(0), packet.NewPathAttributeAsPath(nil),
				packet.NewPathAttributeLocalPref(100), attr,
			}, nil))
		}
		want := []string{hop, hop, hop, hop}
		eventually(t, "by our watch", want, last(n.recorder))
		eventually(t, "over the API", want, last(other))
	})
	same(t, n.recorder, other)
	theirs := int(api.dropped.Load())
	if ours := n.Counters().Dropped; ours != theirs || ours == 0 {
		t.Errorf("%d paths dropped, over the API %d", ours, theirs)
	}

	if raceEnabled {
		return
	}
	// Both far ends that are in our AS are equal for these; then one goes, its paths stay for now,
	// and it comes back.
	for _, f := range fars[:2] {
		f.announce("10.3.0.0/26", "192.0.2."+fmt.Sprint(slices.Index(fars, f)+1))
		f.announcePref("10.3.0.64/26", "192.0.2.1", 300)
	}
	wantBoth := func(prefix string, hops ...string) {
		t.Helper()
		n.wantHops(prefix, hops...)
		eventually(t, "over the API "+prefix, hops, func() []string { return other.hops(prefix) })
	}
	wantBoth("10.3.0.0/26", "192.0.2.1", "192.0.2.2")
	fars[1].close()
	wantBoth("10.3.0.0/26", "192.0.2.1")
	back := dial(1)
	back.announce("10.3.0.0/26", "192.0.2.2")
	back.endOfRIB()
	eventually(t, "End-of-RIB", true, func() bool { return n.farState("127.0.0.101").EndOfRIB })
	n.wantHops("10.3.0.0/26", "192.0.2.1", "192.0.2.2")
	// The API does not tell it.
	api.take([]server.Watched{{Peer: named("127.0.0.101"), NothingStale: true}}, time.Now())
	wantBoth("10.3.0.0/26", "192.0.2.1", "192.0.2.2")
}

// same compares all that two sinks were handed.
func same(t *testing.T, a, b *recorder) {
	t.Helper()
	all := func(r *recorder) (out [][]bgp.Path) {
		r.locked(func() { out = slices.Clone(r.all) })
		return out
	}
	eventually(t, "number of calls over the API", len(all(a)), func() int { return len(all(b)) })
	x, y := all(a), all(b)
	for i := range x {
		if !reflect.DeepEqual(x[i], y[i]) {
			t.Fatalf("call %d of %d: %+v, over the API %+v", i, len(x), x[i], y[i])
		}
	}
	t.Logf("%d equal sets", len(x))
}

// Whoever does not read holds up nobody and costs little. Then it gets the last set of each prefix,
// and none that it must not miss: what a peer announced before its End-of-RIB comes before it.
func TestSlowReaderOfTheWatch(t *testing.T) {
	l := newLab(t)
	n := l.unset(64512)
	n.farPeer("127.0.0.104", 64512)
	set(t, n)
	// a second one: a peer is held back for the first
	next := n.applied.server.WatchPaths(true, nil)
	f := dialFar(t, n, "127.0.0.104", 64512, 90, true, gracefulCap(false))
	const updates, hops = 20_000, 250
	f.announce("10.5.0.0/26", "198.51.100.1")
	f.endOfRIB()
	for i := range updates {
		f.announce(fmt.Sprintf("10.5.%d.0/26", i%3), fmt.Sprintf("192.0.2.%d", i%hops))
	}
	f.endOfRIB()
	f.announce("10.5.0.0/26", "198.51.100.2")
	n.wantHops("10.5.0.0/26", "198.51.100.2") // by the agent's own watch: GoBGP is through

	routes, all := map[netip.Prefix]string{}, []map[netip.Prefix]string{}
	waited := 0
	for routes[pfx("10.5.0.0/26")] != "198.51.100.2" {
		batch := next(t.Context())
		waited += len(batch)
		for _, w := range batch {
			switch {
			case w.NLRI != nil:
				prefix, _ := prefixOf(w.NLRI)
				hop, _ := nextHopOf(prefix, attributesOf(w.Attributes).nextHops)
				routes[prefix] = hop.String()
			case w.EndOfRIB != 0:
				all = append(all, routes)
				routes = map[netip.Prefix]string{}
			}
		}
		if batch == nil {
			t.Fatal("the last update did not come")
		}
	}
	all = append(all, routes)
	if waited > 4096+10 {
		t.Errorf("%d things waited, of %d updates to 3 prefixes", waited, updates)
	}
	last := func(i int) string { // the last update to the prefix
		k := updates - 1
		for k%3 != i {
			k--
		}
		return fmt.Sprintf("192.0.2.%d", k%hops)
	}
	want := []map[netip.Prefix]string{
		{pfx("10.5.0.0/26"): "198.51.100.1"},
		{pfx("10.5.0.0/26"): last(0), pfx("10.5.1.0/26"): last(1), pfx("10.5.2.0/26"): last(2)},
		{pfx("10.5.0.0/26"): "198.51.100.2"},
	}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("before, between and after the Ends-of-RIB: %v\nwant %v", all, want)
	}

	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if batch := next(ctx); batch != nil {
		t.Errorf("nothing happened, and the watch has %v", batch)
	}
}

// A session that ends with its peer's configuration ends in the watch, too, and before anything of
// the peer when it is configured again: a reader that is late would take the old session for the
// new one, and nothing would ever end it.
func TestWatchOfAPeerTakenOutAndIn(t *testing.T) {
	const peer = "127.0.0.170"
	l := newLab(t)
	n := l.node(64512)
	n.farPeer(peer, 64512)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	next := n.applied.server.WatchPaths(false, nil)
	set(t, n)
	var events []string
	read := func() {
		for _, w := range next(ctx) {
			events = append(events, fmt.Sprintf("%s up %t", peerOf(w), w.Up))
		}
	}
	for range 2 {
		f := dialFar(t, n, peer, 64512, 90, true)
		eventually(t, "up", true, func() bool { return n.farState(peer).Established })
		err := n.ask(t.Context(), func(ctx context.Context) error {
			n.restartPeer(ctx, first(peer), "a test")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		f.close()
	}
	for len(events) < 4 && ctx.Err() == nil {
		read()
	}
	up, down := peer+" up true", peer+" up false"
	if want := []string{up, down, up, down}; !slices.Equal(events, want) {
		t.Errorf("%v, not %v", events, want)
	}
}

// After a restart the watch reports when nothing of the earlier session is kept any more, and not
// before the withdrawals of what went with that.
func TestWatchReportsTheEndOfStalePaths(t *testing.T) {
	const peer, prefix = "127.0.0.171", "10.1.0.0/26"
	up, down, path := "up", "down", prefix
	complete, gone, ended := "End-of-RIB", prefix+" withdrawn", "nothing stale"
	for what, tc := range map[string]struct {
		seconds uint16 // the restart time
		back    func(*testing.T, *node)
		want    []string
	}{
		"End-of-RIB": {
			120,
			func(t *testing.T, n *node) {
				dialFar(t, n, peer, 64512, 90, true, restartCap(true, 120, true)).endOfRIB()
			},
			[]string{up, path, complete, down, up, complete, gone, ended},
		},
		"restart time": {
			2,
			func(*testing.T, *node) {},
			[]string{up, path, complete, down, gone, ended},
		},
		"no forwarding": {
			120,
			func(t *testing.T, n *node) {
				dialFar(t, n, peer, 64512, 90, true, restartCap(true, 120, false))
			},
			[]string{up, path, complete, down, gone, ended, up},
		},
	} {
		t.Run(what, func(t *testing.T) {
			n := newLab(t).node(64512)
			n.farPeer(peer, 64512)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			next := n.applied.server.WatchPaths(true, nil)
			set(t, n)
			n.breakSession(peer, restartCap(false, tc.seconds, true))
			tc.back(t, n)
			var events []string
			for len(events) < len(tc.want) && ctx.Err() == nil {
				for _, w := range next(ctx) {
					switch {
					case w.NLRI != nil && w.Withdrawn:
						events = append(events, w.NLRI.String()+" withdrawn")
					case w.NLRI != nil:
						events = append(events, w.NLRI.String())
					case w.EndOfRIB != 0:
						events = append(events, complete)
					case w.NothingStale:
						events = append(events, ended)
					case w.Up:
						events = append(events, up)
					default:
						events = append(events, down)
					}
				}
			}
			if !slices.Equal(events, tc.want) {
				t.Errorf("%q, not %q", events, tc.want)
			}
		})
	}
}
