package vpp_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.fd.io/govpp/adapter/socketclient"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/core"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/vpp"
)

var (
	walkFor  = flag.Duration("walk", 5*time.Second, "how long TestWalk goes on")
	walkSeed = flag.Uint64("walk-seed", 0, "of TestWalk; 0: any")
)

// TestWalk has an engine come to what is wanted on a real VPP, from whatever another program, lost
// connections, killed agents and restarts of VPP have left. Then VPP must have what vpptest has,
// where nothing but that was ever wanted.
func TestWalk(t *testing.T) {
	w := &walk{T: t, vpp: startVPP(t), learned: map[netip.Prefix]fib.BestPaths{},
		journal: filepath.Join(t.TempDir(), "journal")}
	seed := *walkSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-walk-seed %d", seed)
	w.rng = rand.New(rand.NewPCG(seed, 0))
	w.start()
	defer func() { w.stop() }()
	steps := []func(){w.wantTunnels, w.wantTunnels, w.wantTenants, w.wantTenants, w.learn, w.learn,
		w.meddle, w.meddle, w.meddle, w.meddle, w.cut, w.kill}
	settled := 0
	for end := time.Now().Add(*walkFor); time.Now().Before(end) && !t.Failed(); settled++ {
		for range 1 + w.rng.IntN(10) {
			pick(w.rng, steps)()
			time.Sleep(time.Duration(w.rng.IntN(50)) * time.Millisecond)
		}
		if settled%10 == 9 {
			w.restart()
		}
		w.settle()
	}
	t.Logf("VPP was as wanted %d times", settled)
}

type walk struct {
	*testing.T
	rng     *rand.Rand
	vpp     *realVPP
	journal string
	engine  *fib.Engine
	stop    func()

	want    fib.Wanted
	learned map[netip.Prefix]fib.BestPaths
	log     []string // what was done since it settled last
}

func (w *walk) say(format string, args ...any) {
	w.log = append(w.log, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

func (w *walk) chance(n int) bool { return w.rng.IntN(n) == 0 }

// start starts an agent on VPP, as after a restart if one was there.
func (w *walk) start() { w.engine, w.stop = w.runEngine(w.vpp.relay.path, w.journal) }

func (w *walk) runEngine(socket, journal string) (e *fib.Engine, stop func()) {
	log := slog.New(slog.DiscardHandler)
	v := vpp.New(vpp.Config{Socket: socket, Log: log})
	e = fib.New(fib.Config{Dataplane: v, Journal: journal, Log: log,
		Tuning: fib.Tuning{SpotChecks: 200, RepairDrift: true}})
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { v.Run(ctx) })
	done.Go(func() {
		if err := e.Run(ctx); err != nil {
			w.Error(err)
		}
	})
	w.hand(e)
	for _, b := range w.learned {
		e.Learn(b)
	}
	return e, func() { cancel(); done.Wait() }
}

func (w *walk) hand(e *fib.Engine) (revision uint64) {
	all := w.want
	all.Complete, all.Normal4, all.Normal6 = true, 1000, 1000
	for i := range all.Sources {
		all.Sources[i].Complete = true
	}
	return e.Set(all)
}

// wantTunnels changes how packets leave to pools, and the nodes.
func (w *walk) wantTunnels() {
	e := &route.Encapsulation{Own4: testLinks[0].V4, Own6: testLinks[0].V6, Pools: []route.Pool{
		{Name: "four", Prefix: netip.MustParsePrefix("198.18.0.0/16"),
			Encap: pick(w.rng, []route.Encap{route.Plain, route.IPIP, route.VXLAN})},
		{Name: "six", Prefix: netip.MustParsePrefix("2001:db8::/32"),
			Encap: pick(w.rng, []route.Encap{route.Plain, route.VXLAN})}}}
	for host := range byte(5) {
		for _, own := range []netip.Prefix{e.Own4, e.Own6} {
			if a := hostOf(own, 2+host); !w.chance(4) {
				vtep := &route.VTEP{MAC: fmt.Sprintf("66:00:00:00:00:%02x", w.rng.IntN(3))}
				e.Nodes = e.Nodes.With(route.Nodes{{Address: a, Name: "node", VXLAN: vtep}}, nil)
			}
		}
	}
	var all []route.Object
	for _, p := range e.Pools {
		own, tunnel := e.Own4.Addr(), netip.MustParseAddr("198.19.0.1")
		if p.Prefix.Addr().Is6() {
			own, tunnel = e.Own6.Addr(), netip.MustParseAddr("2001:db9::1")
		}
		link := route.Link{Name: p.Encap.Interface(own), Source: own,
			MTU: pick(w.rng, []uint16{1430, 1430, 1400})}
		switch p.Encap {
		case route.Plain:
			continue
		case route.IPIP:
			link.Kind, tunnel = route.IPIPTunnel, tunnel.Next() // VPP refuses one that both have
			all = append(all, route.Address{Interface: link.Name,
				Address: netip.PrefixFrom(tunnel, tunnel.BitLen())})
		case route.VXLAN:
			link.Kind, link.MAC = route.VXLANTunnel, "66:00:00:00:00:0a"
			link.VXLAN = route.VXLANLink{Address: tunnel, Port: 4789,
				VNI: pick(w.rng, []uint32{4096, 4096, 7})}
		}
		all = append(all, link, route.Up{Interface: link.Name})
		for _, n := range e.Nodes {
			end := route.Endpoint{Interface: link.Name, Outer: n.Address}
			if p.Encap == route.VXLAN {
				end.VXLAN = route.VXLANSettings{Source: own, VNI: link.VXLAN.VNI,
					Port: link.VXLAN.Port, MAC: n.VXLAN.MAC}
			}
			if n.Address.Is6() == own.Is6() {
				all = append(all, end)
			}
		}
	}
	w.want.Encapsulation, w.want.Sources[route.Own].Objects = e, all
	w.say("tunnels %v", all)
	w.hand(w.engine)
}

func hostOf(p netip.Prefix, host byte) netip.Addr {
	b := p.Addr().AsSlice()
	b[len(b)-1] = host
	a, _ := netip.AddrFromSlice(b)
	return a
}

// wantTenants changes what an external client wants.
func (w *walk) wantTenants() {
	var all []route.Object
	var routes []route.Route
	tables := [2]route.Table{{TableID: route.TableID{ID: 8}, Name: "red"},
		{TableID: route.TableID{ID: 8, IPv6: true}, Name: "red"}}
	hasTable := w.chance(2)
	if hasTable {
		all = append(all, tables[0], tables[1])
	}
	for n, link := range []route.Link{
		{Name: "loop77", Kind: route.Loopback, MAC: "02:fe:00:00:00:01"},
		{Name: "loop78", Kind: route.Loopback, MAC: "02:fe:00:00:00:02"},
		{Name: "vlan", Kind: route.SubInterface, Parent: "loop1", VLAN: 7},
		{Name: "shm", Kind: route.Memif, MAC: "02:fe:00:00:00:03", Memif: route.MemifSettings{
			Socket: filepath.Join(w.vpp.dir, "tenant.sock"), Master: true}},
	} {
		if w.chance(3) {
			continue
		}
		link.MTU = pick(w.rng, []uint16{1500, 1500, 1400})
		all = append(all, link, route.Up{Interface: link.Name})
		var table uint32
		if hasTable && w.chance(2) {
			table = tables[0].ID
			for _, in := range tables {
				all = append(all, route.InTable{Interface: link.Name, Table: in})
			}
		}
		for _, a := range []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("198.19.%d.1/24", n+1)),
			netip.MustParsePrefix(fmt.Sprintf("2001:db8:%d::1/64", n+1))} {
			hop := hostOf(a, 2)
			if w.chance(4) {
				continue
			}
			all = append(all, route.Address{Interface: link.Name, Address: a, Table: table})
			if w.chance(2) {
				all = append(all, route.Neighbour{Interface: link.Name, Address: hop,
					MAC: fmt.Sprintf("02:fe:00:00:01:%02x", w.rng.IntN(2))})
			}
			if link.Kind != route.Memif { // which has no link
				b := a.Addr().AsSlice()
				b[1] ^= 64
				far, _ := netip.AddrFromSlice(b)
				to := route.Key{Table: table, Prefix: netip.PrefixFrom(far, a.Bits()).Masked()}
				routes = append(routes, route.Route{Key: to,
					Paths: []route.Path{{Interface: link.Name, NextHop: hop, Weight: 1}}})
			}
		}
	}
	w.want.Sources[route.External] = fib.Source{Objects: all, Routes: routes}
	w.say("tenants %v %v", all, routes)
	w.hand(w.engine)
}

// learn changes routes from BGP.
func (w *walk) learn() {
	for range 1 + w.rng.IntN(5) {
		own, p := testLinks[0].V4, netip.MustParsePrefix(fmt.Sprintf("198.18.%d.0/26",
			w.rng.IntN(9)))
		if w.chance(3) {
			own, p = testLinks[0].V6, netip.MustParsePrefix(fmt.Sprintf("2001:db8:ff%02x::/64",
				w.rng.IntN(9)))
		}
		b := fib.BestPaths{Prefix: p, Preference: 100}
		for range w.rng.IntN(3) {
			b.Paths = append(b.Paths, route.PathTo(hostOf(own, byte(2+w.rng.IntN(5)))))
		}
		b.Paths = route.CanonicalPaths(b.Paths)
		w.learned[p] = b
		w.say("learn %v", b)
		w.engine.Learn(b)
	}
}

// cut ends the connection, wherever the agent is.
func (w *walk) cut() {
	w.say("the connection ends")
	w.vpp.relay.cut()
}

// kill ends the agent, which then starts with the journal that it had when the connection ended.
func (w *walk) kill() {
	w.cut()
	kept, err := os.ReadFile(w.journal)
	w.stop()
	if err == nil {
		check(w, os.WriteFile(w.journal, kept, 0o600))
	}
	w.say("the agent starts")
	w.start()
}

func (w *walk) restart() {
	w.say("VPP is restarted")
	w.vpp.relay.close() // an interface of the agent's would come before those of the test
	w.vpp.stop()
	w.vpp.start(w)
	w.vpp.relay.serve(w, w.vpp.path("api.sock"))
}

// meddle is another program's hand on what the agent has made.
func (w *walk) meddle() {
	links, err := seeLinks(w.Context(), w.vpp.conn)
	ours := slices.DeleteFunc(slices.Sorted(maps.Keys(links)), func(index uint32) bool {
		return !links[index].isOurs
	})
	if err != nil || len(ours) == 0 {
		return
	}
	l := links[pick(w.rng, ours)]
	what := pick(w.rng, []string{"set interface state %s down", "delete address", "delete",
		"delete", "delete neighbours"})
	if l.isTunnels() {
		what = pick(w.rng, []string{what, "set interface mtu packet 1234 %s"})
	}
	if what == "delete" && len(l.neighbours) > 0 && l.hasTable {
		return // VPP moves them to table 0, and may crash (see checkMove)
	}
	w.say("%s: %s (%s)", what, l.name, l.inVPP)
	switch what {
	case "delete":
		w.deleteLink(l)
	case "delete address":
		for _, a := range l.addresses {
			w.cli("set interface ip address del %s %s", l.inVPP, a)
		}
	case "delete neighbours":
		for _, n := range l.neighbours {
			ip_neighbor.NewServiceClient(w.vpp.conn).IPNeighborAddDel(w.Context(),
				&ip_neighbor.IPNeighborAddDel{Neighbor: n})
		}
	default:
		w.cli(what, l.inVPP)
	}
	if what == "delete" && w.chance(2) { // the next interface gets the index
		w.cli("create loopback interface")
	}
}

// cli is told what VPP refuses, as an interface may have gone.
func (w *walk) cli(format string, args ...any) {
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	line := fmt.Sprintf(format, args...)
	reply, err := vlib.NewServiceClient(w.vpp.conn).CliInband(ctx, &vlib.CliInband{Cmd: line})
	if err != nil {
		reply = &vlib.CliInbandReply{Reply: err.Error()}
	}
	w.say("%s: %s", line, reply.Reply)
}

func (w *walk) deleteLink(l *seenLink) {
	switch {
	case l.tunnel != nil:
		w.cli("create vxlan tunnel src %s dst %s vni %d del", l.tunnel.SrcAddress,
			l.tunnel.DstAddress, l.tunnel.Vni)
	case l.isSub:
		w.cli("delete sub-interface %s", l.inVPP)
	case l.device == "Loopback":
		w.cli("delete loopback interface intfc %s", l.inVPP)
	case l.device == "memif":
		w.cli("delete interface memif %s", l.inVPP)
	default:
		w.cli("delete ipip tunnel sw_if_index %d", l.index)
	}
}

// settle fails the test unless VPP comes to have what is wanted.
func (w *walk) settle() {
	fresh := newServer(w)
	defer fresh.Close()
	conn, err := core.Connect(socketclient.NewVppClient(fresh.Socket()))
	check(w, err)
	defer conn.Disconnect()
	e, stop := w.runEngine(fresh.Socket(), "")
	defer stop()
	revision := w.hand(e)
	w.hand(w.engine)
	var differ []string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		settled, busy := e.Progress(revision)
		if !settled || busy || e.Facts().Identity == "" {
			differ = []string{fmt.Sprint("vpptest is not ready: ", e.Settled(9).Open)}
			continue
		}
		want, err := state(w.Context(), conn, func(k route.Key) map[string]int {
			return fresh.Egress(k)
		})
		check(w, err)
		got, err := state(w.Context(), w.vpp.conn, func(k route.Key) map[string]int {
			shares, _ := w.vpp.shares(w, k)
			return shares
		})
		if differ = differences(want, got); err == nil && len(differ) == 0 {
			w.log = nil
			return
		}
		if err != nil { // something goes just now
			differ = []string{err.Error()}
		}
		if slices.ContainsFunc(w.engine.Objects(), func(e fib.Entry) bool {
			return strings.Contains(e.Error, "and would crash")
		}) {
			w.restart() // nothing else helps
		}
	}
	w.Errorf("%s\n%s\nfacts: %q %s\nopen: %v", strings.Join(w.log, "\n"),
		strings.Join(differ, "\n"), w.engine.Facts().Identity, w.engine.Facts().Problem,
		w.engine.Settled(9).Open)
}

func differences(want, got map[string]bool) (all []string) {
	for what := range want {
		if !got[what] {
			all = append(all, "VPP lacks "+what)
		}
	}
	for what := range got {
		if !want[what] {
			all = append(all, "VPP has   "+what)
		}
	}
	slices.Sort(all)
	return all
}
