package vpp_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/vxlan"

	"vpp-route-agent/internal/route"
	"vpp-route-agent/vpp"
	"vpp-route-agent/vpp/vpptest"
)

var testVXLAN = route.Link{Name: "vxlan.calico", Kind: route.VXLANTunnel,
	Source: testLinks[0].V4.Addr(), MAC: "66:00:00:00:00:01", MTU: 1450,
	VXLAN: route.VXLANLink{Address: netip.MustParseAddr("10.9.0.1"), VNI: 4096, Port: 4789}}

func vtepAt(a, mac string) route.Endpoint {
	return route.Endpoint{Interface: testVXLAN.Name, Outer: netip.MustParseAddr(a),
		VXLAN: route.VXLANSettings{Source: testVXLAN.Source, VNI: 4096, Port: 4789, MAC: mac}}
}

// threeVTEPs are wanted, and asVPPHas is what VPP then has.
func threeVTEPs() (ops []route.ObjectOp, asVPPHas []string) {
	for i := range 3 {
		a, mac := fmt.Sprintf("192.0.2.%d", i+1), fmt.Sprintf("66:00:00:00:01:%02x", i+1)
		e := vtepAt(a, mac)
		ops = append(ops, route.ObjectOp{Key: e.Key(), Put: e})
		asVPPHas = append(asVPPHas, fmt.Sprintf(
			"10.0.1.1>%s 4096:4789 66:00:00:00:00:01 1450 %s [10.9.0.1/32]", a, mac))
	}
	return ops, asVPPHas
}

func startVXLAN(t *testing.T) (*vpptest.Server, *agent) {
	t.Helper()
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "VPP", present)
	check(t, a.PutObject(t.Context(), testVXLAN))
	return s, a
}

// The connection ends at each message in turn. What is not answered is said to be open; repeating
// it makes what is wanted, and nothing else. Or it is not wanted any more, and nothing is left. The
// tunnels are the first, or another program has just deleted them, but not their neighbours.
func TestConnectionEndsWhileVXLANTunnelsAreMade(t *testing.T) {
	ops, want := threeVTEPs()
	for _, c := range []struct{ wanted, deleted bool }{{wanted: true}, {}, {true, true}} {
		for nth := 1; ; nth++ {
			s, a := startVXLAN(t)
			if c.deleted {
				a.ApplyObjects(t.Context(), ops, func(_ int, err error) { check(t, err) })
				for name := range s.VXLANFarEnds() {
					s.RemoveInterface(name)
				}
			}
			asked, name := 0, ""
			s.CutAt(func(m api.Message) bool {
				if m.GetMessageName() == "control_ping" {
					return false
				}
				asked++
				name = m.GetMessageName()
				return asked == nth
			})
			open := 0
			a.ApplyObjects(t.Context(), ops, func(_ int, err error) {
				if errors.Is(err, route.ErrUnanswered) {
					open++
				}
			})
			s.CutAt(nil)
			if asked < nth {
				if asked < 15 {
					t.Errorf("three tunnels take %d messages", asked)
				}
				break
			}
			a.awaitConnection(t, 2)
			if c.wanted {
				a.ApplyObjects(t.Context(), ops, func(i int, err error) { check(t, err) })
				if got := s.VXLANTunnels(); !slices.Equal(got, want) {
					t.Errorf("cut at %s: VPP has\n%s", name, strings.Join(got, "\n"))
				}
				continue
			}
			// They are found, whatever they lack, as those that an earlier process left.
			left, err := a.Objects(t.Context(), route.TunnelEndpoint)
			check(t, err)
			var gone []route.ObjectOp
			for _, o := range left {
				gone = append(gone, route.ObjectOp{Key: o.Key()})
			}
			a.ApplyObjects(t.Context(), gone, func(_ int, err error) { check(t, err) })
			for _, name := range s.Interfaces() {
				if strings.Contains(name, "vxlan_tunnel") || strings.Contains(name, "vxlan 192") {
					t.Errorf("cut at %s (%d): %s is left", name, nth, name)
				}
			}
		}
	}
}

// One node that VPP refuses at some message is told alone, and the next attempt mends it.
func TestOneVXLANTunnelIsRefused(t *testing.T) {
	ops, want := threeVTEPs()
	for _, message := range []string{"vxlan_add_del_tunnel_v3", "sw_interface_set_unnumbered",
		"sw_interface_set_mac_address", "sw_interface_set_mtu", "sw_interface_set_flags",
		"sw_interface_tag_add_del"} {
		s, a := startVXLAN(t)
		asked := 0
		s.Refuse(func(m api.Message) int32 {
			if m.GetMessageName() != message {
				return 0
			}
			if asked++; asked == 2 {
				return -3
			}
			return 0
		})
		a.ApplyObjects(t.Context(), ops, func(i int, err error) {
			if (err != nil) != (i == 1) || errors.Is(err, route.ErrUnanswered) {
				t.Errorf("%s: %s: %v", message, ops[i].Key, err)
			}
		})
		s.Refuse(nil)
		if n := len(s.VXLANFarEnds()); n != 2 {
			t.Errorf("%s: %d tunnels are there", message, n)
		}
		a.ApplyObjects(t.Context(), ops, func(_ int, err error) { check(t, err) })
		if got := s.VXLANTunnels(); !slices.Equal(got, want) {
			t.Errorf("%s: VPP has\n%s", message, strings.Join(got, "\n"))
		}
	}
}

// Another program's tunnel is neither adopted nor deleted; the error says what is in the way.
func TestVXLANTunnelOfAnotherProgram(t *testing.T) {
	far := netip.MustParseAddr("192.0.2.1")
	e := vtepAt(far.String(), "66:00:00:00:01:01")
	s, a := startVXLAN(t)
	check(t, a.PutObject(t.Context(), e))
	all, err := a.Objects(t.Context(), route.TunnelEndpoint)
	check(t, err)
	if len(all) != 1 {
		t.Fatalf("%v", all)
	}
	var instance uint32
	for name := range s.VXLANFarEnds() {
		_, err := fmt.Sscanf(name, "vxlan_tunnel%d", &instance)
		check(t, err)
	}
	check(t, a.DeleteObject(t.Context(), e.Key()))
	if got := s.VXLANFarEnds(); len(got) != 0 {
		t.Fatalf("left are %v", got)
	}
	for _, tc := range []struct {
		instance uint32
		far      string
		want     string
	}{
		{7, "192.0.2.1", "another program has a VXLAN tunnel to that address"},
		{instance, "192.0.2.9", "the interface of that address, is another one's"},
	} {
		s, a := startVXLAN(t)
		s.AddVXLAN(tc.instance, testVXLAN.Source, netip.MustParseAddr(tc.far), 4096)
		if err := a.PutObject(t.Context(), e); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, want %s", err, tc.want)
		}
		check(t, a.DeleteObject(t.Context(), e.Key()))
		all, err := a.Objects(t.Context(), route.TunnelEndpoint)
		check(t, err)
		check(t, a.DeleteObject(t.Context(), testVXLAN.Key()))
		if len(all) != 0 || len(s.VXLANFarEnds()) != 1 {
			t.Errorf("%v is taken for ours, left are %v", all, s.VXLANFarEnds())
		}
	}
}

// A VPP without the plugin says so once, at the interface, and does all else.
func TestVPPWithoutVXLAN(t *testing.T) {
	s := newServer(t)
	s.Lack("vxlan_add_del_tunnel_v3", "vxlan_tunnel_v2_dump")
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "VPP", present)
	const want = "this VPP cannot make the VXLAN tunnel: it lacks [vxlan_add_del_tunnel_v3_"
	if err := a.PutObject(t.Context(), testVXLAN); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
	all, err := a.Objects(t.Context(), route.TunnelEndpoint)
	if err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	check(t, a.PutObject(t.Context(), testTunnel))
}

// A thousand tunnels are no interfaces in the facts, and none is asked for its addresses.
func TestVXLANTunnelsAreNoInterfaces(t *testing.T) {
	s, a := startVXLAN(t)
	a.await(t, "the interface", func(f route.Facts) bool {
		_, ok := f.Interface(testVXLAN.Name)
		return ok
	})
	reads, addresses := s.Requests("sw_interface_dump"), s.Requests("ip_address_dump")
	var ops []route.ObjectOp
	for i := range 1000 {
		e := vtepAt(fmt.Sprintf("192.%d.%d.1", i/250, i%250), "66:00:00:00:01:01")
		ops = append(ops, route.ObjectOp{Key: e.Key(), Put: e})
	}
	a.ApplyObjects(t.Context(), ops, func(_ int, err error) { check(t, err) })
	all, err := a.Objects(t.Context(), route.TunnelEndpoint)
	check(t, err)
	reads, addresses = s.Requests("sw_interface_dump")-reads,
		s.Requests("ip_address_dump")-addresses
	// Each reading asks the four other interfaces, for both families.
	if len(all) != len(ops) || reads > 100 || addresses > 8*reads {
		t.Errorf("%d tunnels, %d readings of interfaces, %d of addresses", len(all), reads,
			addresses)
	}
}

// Between every 32 tunnels there is a rest for the workers, twice as long as these took.
func TestVXLANTunnelsArePaced(t *testing.T) {
	for _, workers := range []int{0, 1} {
		s, a := startVXLAN(t)
		s.SetWorkers(workers)
		type write struct {
			tunnels     int
			first, last time.Time
		}
		var bursts []write
		isOver := true
		s.Refuse(func(m api.Message) int32 {
			switch m.(type) {
			case *vxlan.VxlanAddDelTunnelV3:
				if isOver {
					isOver, bursts = false, append(bursts, write{first: time.Now()})
				}
				bursts[len(bursts)-1].tunnels++
			case *interfaces.SwInterfaceTagAddDel:
				isOver, bursts[len(bursts)-1].last = true, time.Now()
			}
			return 0
		})
		var ops []route.ObjectOp
		for i := range 100 {
			e := vtepAt(fmt.Sprintf("192.0.2.%d", i+1), "66:00:00:00:01:01")
			ops = append(ops, route.ObjectOp{Key: e.Key(), Put: e})
		}
		a.ApplyObjects(t.Context(), ops, func(_ int, err error) { check(t, err) })
		s.Refuse(nil)
		sizes := []int{}
		for i, b := range bursts {
			sizes = append(sizes, b.tunnels)
			if i == 0 {
				continue
			}
			before := bursts[i-1]
			took, rest := before.last.Sub(before.first), b.first.Sub(before.last)
			if rest < min(2*took, 50*time.Millisecond) {
				t.Errorf("after %v a rest of %v", took, rest)
			}
		}
		if want := [][]int{{100}, {32, 32, 32, 4}}[workers]; !slices.Equal(sizes, want) {
			t.Errorf("%d workers: tunnels are made %v at a time, want %v", workers, sizes, want)
		}
	}
}

// VPP keeps the neighbour of a tunnel that another program deletes, for the next with its index.
func TestVXLANTunnelThatAnotherProgramDeletes(t *testing.T) {
	ops, want := threeVTEPs()
	s, a := startVXLAN(t)
	for range 2 {
		for name := range s.VXLANFarEnds() {
			s.RemoveInterface(name)
		}
		a.ApplyObjects(t.Context(), ops, func(_ int, err error) { check(t, err) })
		if got := s.VXLANTunnels(); !slices.Equal(got, want) {
			t.Errorf("VPP has\n%s", strings.Join(got, "\n"))
		}
	}
}

// Tunnels outlive the interface that another program deletes, and go with the agent's own deletion.
func TestVXLANInterfaceThatAnotherProgramDeletes(t *testing.T) {
	ops, _ := threeVTEPs()
	s, a := startVXLAN(t)
	before := len(s.Interfaces()) - 1
	a.ApplyObjects(t.Context(), ops, func(_ int, err error) { check(t, err) })
	for _, name := range s.Interfaces() {
		if strings.HasSuffix(name, ":"+testVXLAN.Name) {
			s.RemoveInterface(name)
		}
	}
	check(t, a.DeleteObject(t.Context(), testVXLAN.Key()))
	if got := s.Interfaces(); len(got) != before {
		t.Errorf("left are %q", got)
	}
}

// What another program changes of a tunnel is found, and mended with what is wanted.
func TestVXLANTunnelThatAnotherProgramChanges(t *testing.T) {
	const otherMAC = "66:00:00:00:09:09"
	ops, want := threeVTEPs()
	s, a := startVXLAN(t)
	a.ApplyObjects(t.Context(), ops, func(_ int, err error) { check(t, err) })
	for what, change := range map[string]func(name string){
		"the neighbour goes":     func(name string) { s.ChangeVXLAN(name, "", "") },
		"another neighbour":      func(name string) { s.ChangeVXLAN(name, otherMAC, "") },
		"another MAC address":    func(name string) { s.ChangeVXLAN(name, "", otherMAC) },
		"the interface set down": func(name string) { s.SetLink(name, false) },
	} {
		for name := range s.VXLANFarEnds() {
			change(name)
			break
		}
		all, err := a.Objects(t.Context(), route.TunnelEndpoint)
		check(t, err)
		sound := 0
		for _, o := range all {
			for _, op := range ops {
				if o.Key() == op.Key && o.Digest() == op.Put.Digest() {
					sound++
				}
			}
		}
		if len(all) != 3 || sound != 2 {
			t.Errorf("%s: %d of %d are as they should be", what, sound, len(all))
		}
		a.ApplyObjects(t.Context(), ops, func(_ int, err error) { check(t, err) })
		if got := s.VXLANTunnels(); !slices.Equal(got, want) {
			t.Errorf("%s: VPP has\n%s", what, strings.Join(got, "\n"))
		}
		for name := range s.VXLANFarEnds() {
			if up, _ := s.Interface(name); !up {
				t.Errorf("%s: %s is down", what, name)
			}
		}
	}
}

// What another program changes of the interface of tunnels is found: it is made anew, and they are.
func TestInterfaceOfTunnelsThatAnotherProgramChanges(t *testing.T) {
	ops, want := threeVTEPs()
	s, a := startVXLAN(t)
	ipip := testTunnel
	ipip.MTU = 1480
	for _, c := range []struct {
		link   route.Link
		change func(tag string)
	}{
		{testVXLAN, func(tag string) { s.SetMTU(tag, 1234) }},
		{testVXLAN, func(tag string) { s.ChangeVXLAN(tag, "", "66:00:00:00:09:09") }},
		{ipip, func(tag string) { s.SetMTU(tag, 1234) }},
	} {
		check(t, a.PutObject(t.Context(), c.link))
		a.ApplyObjects(t.Context(), ops, func(_ int, err error) { check(t, err) })
		for _, tag := range s.Interfaces() {
			if strings.HasSuffix(tag, ":"+c.link.Name) {
				c.change(tag)
			}
		}
		for _, isMade := range []bool{false, true} {
			found, err := a.Object(t.Context(), c.link.Key())
			check(t, err)
			if is := found.Digest() == c.link.Digest(); is != isMade || !found.Marked() {
				t.Errorf("%s: found %v, want it as it was made: %t", c.link.Name, found, isMade)
			}
			check(t, a.PutObject(t.Context(), c.link))
		}
		if _, mtu := s.Made(c.link.Name); mtu != uint32(c.link.MTU) {
			t.Errorf("%s has MTU %d", c.link.Name, mtu)
		}
		a.ApplyObjects(t.Context(), ops, func(_ int, err error) { check(t, err) })
		if got := s.VXLANTunnels(); !slices.Equal(got, want) {
			t.Errorf("VPP has\n%s", strings.Join(got, "\n"))
		}
	}
}

// An interface that is refused half-way is not left: it may not be wanted any more.
func TestInterfaceThatIsRefusedHalfway(t *testing.T) {
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "VPP", present)
	before := len(s.Interfaces())
	for _, message := range []string{"sw_interface_set_mac_address", "sw_interface_add_del_address",
		"sw_interface_set_mtu"} {
		s.Refuse(func(m api.Message) int32 {
			if m.GetMessageName() == message {
				return int32(api.UNSPECIFIED)
			}
			return 0
		})
		err := a.PutObject(t.Context(), testVXLAN)
		if err == nil || errors.Is(err, route.ErrUnanswered) || len(s.Interfaces()) != before {
			t.Errorf("%s: %v, left are %q", message, err, s.Interfaces())
		}
	}
}
