package vpp_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.fd.io/govpp/api"

	"vpp-route-agent/internal/route"
	"vpp-route-agent/vpp"
)

var testTunnel = route.Link{Name: "tunl0", Kind: route.IPIPTunnel, Source: testLinks[0].V4.Addr()}

func endpointTo(a string) route.Endpoint {
	return route.Endpoint{Interface: testTunnel.Name, Outer: netip.MustParseAddr(a)}
}

// Another program's interface is neither adopted nor deleted; the error names it.
func TestTunnelOfAnotherProgram(t *testing.T) {
	s := newServer(t)
	s.AddIPIP(7, testTunnel.Source, netip.IPv4Unspecified())
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "VPP", present)
	want := "another program has a multipoint IPIP interface with the source address 10.0.1.1"
	if err := a.PutObject(t.Context(), testTunnel); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	check(t, a.DeleteObject(t.Context(), testTunnel.Key()))
	if all := s.Interfaces(); !slices.Contains(all, "ipip7") {
		t.Errorf("left are %v", all)
	}
}

// Another program's tunnel to a node keeps what arrives by it. The error names it, other nodes get
// their tunnels, and this one when it is gone.
func TestTunnelOfAnotherProgramToANode(t *testing.T) {
	s := newServer(t)
	one, two := endpointTo("192.0.2.1"), endpointTo("192.0.2.2")
	s.AddIPIP(7, testTunnel.Source, one.Outer)
	s.AddIPIP(8, netip.MustParseAddr("10.0.9.9"), two.Outer) // from another address of this VPP
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "VPP", present)
	check(t, a.PutObject(t.Context(), testTunnel))
	ops := []route.ObjectOp{{Key: one.Key(), Put: one}, {Key: two.Key(), Put: two}}
	const want = "another program has an IPIP tunnel to that address"
	a.ApplyObjects(t.Context(), ops, func(i int, err error) {
		if isFirst := i == 0; isFirst != (err != nil && strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", ops[i].Key, err)
		}
	})
	if got := s.Endpoints(testTunnel.Name); !slices.Equal(got, []netip.Addr{two.Outer}) {
		t.Errorf("VPP has %v", got)
	}
	check(t, a.DeleteObject(t.Context(), one.Key()))
	if all := s.Interfaces(); !slices.Contains(all, "ipip7") || !slices.Contains(all, "ipip8") {
		t.Errorf("left are %v", all)
	}
	s.RemoveInterface("ipip7")
	check(t, a.PutObject(t.Context(), one))
}

// Where no other program has an IPIP interface, and where nodes only leave, nobody's tunnels are
// read.
func TestTunnelsOfOthersAreReadWhereThereAreSome(t *testing.T) {
	for _, others := range []bool{false, true} {
		s := newServer(t)
		if others {
			s.AddIPIP(7, testTunnel.Source, netip.MustParseAddr("192.0.2.9"))
		}
		var read atomic.Int32
		s.Refuse(func(m api.Message) int32 {
			if m.GetMessageName() == "ipip_tunnel_dump" {
				read.Add(1)
			}
			return 0
		})
		a := runAgent(t, vpp.Config{Socket: s.Socket()})
		a.await(t, "VPP", present)
		check(t, a.PutObject(t.Context(), testTunnel))
		check(t, a.PutObject(t.Context(), route.Up{Interface: testTunnel.Name}))
		a.await(t, "our tunnel", func(f route.Facts) bool {
			_, is := f.Interface(testTunnel.Name)
			return is
		})
		e := endpointTo("192.0.2.1")
		check(t, a.PutObject(t.Context(), e))
		check(t, a.DeleteObject(t.Context(), e.Key()))
		want := int32(0)
		if others {
			want = 1
		}
		if n := read.Load(); n != want {
			t.Errorf("others %v: tunnels were read %d times, want %d", others, n, want)
		}
	}
}

// The tunnel of an agent that was killed before it could mark it is ours by its number.
func TestTunnelThatIsNotMarkedYet(t *testing.T) {
	const ours = 17900000
	for _, wanted := range []bool{true, false} {
		s := newServer(t)
		// The Node had another address then.
		s.AddIPIP(ours, netip.MustParseAddr("10.0.2.1"), netip.IPv4Unspecified())
		a := runAgent(t, vpp.Config{Socket: s.Socket()})
		a.await(t, "VPP", present)
		left := 1
		if wanted {
			check(t, a.PutObject(t.Context(), testTunnel))
		} else {
			check(t, a.DeleteObject(t.Context(), testTunnel.Key()))
			left = 0
		}
		all := s.Interfaces()
		tunnels := slices.DeleteFunc(all, func(name string) bool {
			return !strings.Contains(name, "tunl0") && !strings.Contains(name, "ipip")
		})
		if len(tunnels) != left || slices.Contains(tunnels, "ipip17900000") {
			t.Errorf("wanted %v: there are %v", wanted, tunnels)
		}
	}
}

// The connection ends while nodes are being added: what is not answered is said to be open, and
// repeating it makes what is wanted.
func TestConnectionEndsWhileNodesAreAdded(t *testing.T) {
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "VPP", present)
	check(t, a.PutObject(t.Context(), testTunnel))
	var ops []route.ObjectOp
	for _, to := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} {
		e := endpointTo(to)
		ops = append(ops, route.ObjectOp{Key: e.Key(), Put: e})
	}
	asked := 0
	s.CutAt(func(m api.Message) bool {
		if m.GetMessageName() == "teib_entry_add_del" {
			asked++
		}
		return asked == 2
	})
	a.ApplyObjects(t.Context(), ops, func(i int, err error) {
		if !errors.Is(err, route.ErrUnanswered) {
			t.Errorf("%s: %v", ops[i].Key, err)
		}
	})
	s.CutAt(nil)
	a.awaitConnection(t, 2)
	a.ApplyObjects(t.Context(), ops, func(i int, err error) { check(t, err) })
	if got := s.Endpoints(testTunnel.Name); len(got) != len(ops) {
		t.Errorf("VPP has %v", got)
	}
}

// One node that VPP refuses is told alone.
func TestOneNodeIsRefused(t *testing.T) {
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "VPP", present)
	check(t, a.PutObject(t.Context(), testTunnel))
	var ops []route.ObjectOp
	for _, to := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} {
		e := endpointTo(to)
		ops = append(ops, route.ObjectOp{Key: e.Key(), Put: e})
	}
	asked := 0
	s.Refuse(func(m api.Message) int32 {
		if m.GetMessageName() != "teib_entry_add_del" {
			return 0
		}
		if asked++; asked == 2 {
			return -3
		}
		return 0
	})
	a.ApplyObjects(t.Context(), ops, func(i int, err error) {
		if (err != nil) != (i == 1) || errors.Is(err, route.ErrUnanswered) {
			t.Errorf("%s: %v", ops[i].Key, err)
		}
	})
}

// An interface that another program has just deleted is looked for once, however many endpoints
// were on it.
func TestEndpointsOfAnInterfaceThatIsAway(t *testing.T) {
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "VPP", present)
	check(t, a.PutObject(t.Context(), testTunnel))
	s.RemoveInterface("ipip17900000")
	var ops []route.ObjectOp
	for i := range 50 {
		e := route.Endpoint{Interface: testTunnel.Name,
			Outer: netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + i/2)})}
		op := route.ObjectOp{Key: e.Key()}
		if i%2 == 0 {
			op.Put = e
		}
		ops = append(ops, op)
	}
	asked := 0
	s.CutAt(func(m api.Message) bool {
		if m.GetMessageName() == "sw_interface_dump" {
			asked++
		}
		return false
	})
	told := 0
	a.ApplyObjects(t.Context(), ops, func(i int, err error) {
		told++
		if put := ops[i].Put != nil; put != errors.Is(err, route.ErrNoLink) || !put && err != nil {
			t.Errorf("%s, put %v: %v", ops[i].Key, put, err)
		}
	})
	s.CutAt(nil) // what is asked from now on is not counted
	// Events have the interfaces read besides, the more often the longer this takes.
	if told != len(ops) || asked > len(ops)/5 {
		t.Errorf("%d of %d outcomes, %d look-ups", told, len(ops), asked)
	}
}

// The interface is looked up once for all nodes that join, and again when it was made anew or was
// deleted by another program.
func TestNodesThatJoinCostNoLookUp(t *testing.T) {
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "VPP", present)
	check(t, a.PutObject(t.Context(), testTunnel))
	put := func(to string) (err error) {
		e := endpointTo(to)
		a.ApplyObjects(t.Context(), []route.ObjectOp{{Key: e.Key(), Put: e}},
			func(_ int, e error) { err = e })
		return err
	}
	check(t, put("192.0.2.1"))
	const nodes = 50
	before := s.Requests("sw_interface_dump")
	for i := range nodes {
		check(t, put(netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i)}).String()))
	}
	// The facts are read besides, the more often the longer this takes.
	if asked := s.Requests("sw_interface_dump") - before; asked > nodes/5 {
		t.Errorf("%d look-ups for %d nodes", asked, nodes)
	}

	other := testTunnel
	other.MTU = 1400
	s.AddInterface("takes the index") // so that the next has another one
	check(t, a.PutObject(t.Context(), other))
	check(t, put("192.0.2.2"))
	want := []netip.Addr{netip.MustParseAddr("192.0.2.2")}
	if all := s.Endpoints(testTunnel.Name); !slices.Equal(all, want) {
		t.Errorf("made anew, it leads to %v", all)
	}

	up := route.Up{Interface: testTunnel.Name}
	address := route.Address{Interface: testTunnel.Name,
		Address: netip.MustParsePrefix("192.0.2.1/32")}
	s.RemoveInterface("ipip17900000")
	for _, err := range []error{a.PutObject(t.Context(), address), put("192.0.2.3"),
		a.PutObject(t.Context(), up)} {
		if !errors.Is(err, route.ErrNoLink) {
			t.Errorf("deleted: %v", err)
		}
	}
	check(t, a.PutObject(t.Context(), other))
	s.RemoveInterface("ipip17900000")
	s.AddInterface("takes the index, too")
	a.await(t, "the other interface", func(f route.Facts) bool {
		_, there := f.Interface("takes the index, too")
		return there
	})
	if err := a.PutObject(t.Context(), up); !errors.Is(err, route.ErrNoLink) {
		t.Errorf("another interface has the index: %v", err)
	}
	check(t, a.PutObject(t.Context(), other))
	for _, o := range []route.Object{up, address} {
		check(t, a.PutObject(t.Context(), o))
		if found, err := a.Object(t.Context(), o.Key()); err != nil || found != o {
			t.Errorf("made again, it has %v (%v), want %v", found, err, o)
		}
	}
	check(t, put("192.0.2.3"))
	want[0] = netip.MustParseAddr("192.0.2.3")
	if all := s.Endpoints(testTunnel.Name); !slices.Equal(all, want) {
		t.Errorf("made again, it leads to %v", all)
	}
}

// VPP keeps the endpoints for the next interface with that index.
func TestEndpointsOfADeletedInterfaceGo(t *testing.T) {
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "VPP", present)
	check(t, a.PutObject(t.Context(), testTunnel))
	check(t, a.PutObject(t.Context(), route.Endpoint{Interface: testTunnel.Name,
		Outer: netip.MustParseAddr("192.0.2.2")}))
	s.RemoveInterface("ipip17900000")
	check(t, a.PutObject(t.Context(), route.Link{Name: "next", Kind: route.Loopback}))
	if all := s.Endpoints("next"); len(all) > 0 {
		t.Errorf("the interface that has the index leads to %v", all)
	}
}

// A VPP without IPIP's messages says so, and takes everything else.
func TestVPPWithoutTunnels(t *testing.T) {
	s := newServer(t)
	s.Lack("teib_entry_add_del")
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "VPP", present)
	if err := a.PutObject(t.Context(), testTunnel); err == nil ||
		!strings.Contains(err.Error(), "this VPP cannot make the IPIP tunnel: it lacks") {
		t.Errorf("%v", err)
	}
	if all, err := a.Objects(t.Context(), route.TunnelEndpoint); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
	a.mustApply(t, hostRoutes(1)...)
}
