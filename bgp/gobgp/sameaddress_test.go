package gobgp

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
)

// sameAddress runs a node, and two at one address that listen on different ports.
func sameAddress(t *testing.T, as [3]uint32, change ...func(*Config)) (a, one, two *node) {
	t.Helper()
	l := newLab(t)
	a, one = l.node(as[0], change...), l.node(as[1], change...)
	l.port, l.next = freePort(t), l.next-1
	two = l.unset(as[2], change...)
	two.plan.Speaker.RouterID = addr("192.0.2.2")
	set(t, two)
	one.peer(a)
	two.peer(a)
	a.peer(one)
	a.peer(two, func(p *bgp.Peer) { p.Further = true })
	return a, one, two
}

// relay is a port of b's address that leads from a to b. The function that it returns breaks the
// connections that go through it.
func relay(t *testing.T, a, b *node) (port uint16, breakIt func()) {
	t.Helper()
	listener, err := net.Listen("tcp4", netip.AddrPortFrom(b.addr, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var open []net.Conn
	breakIt = func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			c.Close()
		}
		open = nil
	}
	t.Cleanup(func() { listener.Close(); breakIt() })
	out := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(a.addr, 0))}
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := out.Dial("tcp4", netip.AddrPortFrom(b.addr, b.port).String())
			if err != nil {
				from.Close()
				continue
			}
			mu.Lock()
			open = append(open, from, to)
			mu.Unlock()
			go io.Copy(from, to)
			go io.Copy(to, from)
		}
	}()
	return uint16(listener.Addr().(*net.TCPAddr).Port), breakIt
}

// session is how a's session to a node at that address and port stands.
func (n *node) session(p bgp.Peer) (st bgp.PeerState) {
	for _, s := range n.Peers() {
		if s.ID == p.ID() {
			st = s
		}
	}
	return st
}

// bothUp waits until both sessions of a are up, each with its peer.
func bothUp(t *testing.T, a, one, two *node) {
	t.Helper()
	want := fmt.Sprint(one.plan.Speaker.RouterID, " ", two.plan.Speaker.RouterID)
	eventually(t, "the sessions of both ports", want, func() string {
		s, u := a.session(a.plan.Peers[0]), a.session(a.plan.Peers[1])
		if !s.Established || !u.Established ||
			!one.state(a).Established || !two.state(a).Established {
			return fmt.Sprint(s.State, " ", s.LastError, ", ", u.State, " ", u.LastError)
		}
		return fmt.Sprint(s.RouterID, " ", u.RouterID)
	})
}

// TestTwoPortsOfOneAddress: BIRD has a session to each, whoever dials.
func TestTwoPortsOfOneAddress(t *testing.T) {
	for _, dialling := range []bool{false, true} {
		t.Run(fmt.Sprintf("dialling %t", dialling), func(t *testing.T) {
			a, one, two := sameAddress(t, [3]uint32{64512, 64512, 64512})
			one.plan.Peers[0].Passive, two.plan.Peers[0].Passive = !dialling, !dialling
			one.announce("10.1.0.0/26", "192.0.2.1")
			two.announce("10.2.0.0/26", "192.0.2.2")
			one.announce("10.3.0.0/26", "192.0.2.1")
			two.announce("10.3.0.0/26", "192.0.2.2")
			a.announce("10.9.0.0/26", "192.0.2.9")
			set(t, one, two, a)
			bothUp(t, a, one, two)
			a.wantHops("10.1.0.0/26", "192.0.2.1")
			a.wantHops("10.2.0.0/26", "192.0.2.2")
			a.wantHops("10.3.0.0/26", "192.0.2.1", "192.0.2.2")
			one.wantHops("10.9.0.0/26", "192.0.2.9")
			two.wantHops("10.9.0.0/26", "192.0.2.9")
			both := fmt.Sprintf("[127.0.0.12 127.0.0.12 port %d]", two.port)
			eventually(t, "peers that the paths are of", both, func() string {
				var from []string
				a.locked(func() {
					for _, p := range a.sets[pfx("10.3.0.0/26")] {
						from = append(from, p.Peer.String())
					}
				})
				return fmt.Sprint(from)
			})

			one.withdraw("10.3.0.0/26")
			set(t, one)
			a.wantHops("10.3.0.0/26", "192.0.2.2")
			since := a.session(a.plan.Peers[1]).Since
			a.plan.Peers = a.plan.Peers[1:]
			set(t, a)
			a.wantHops("10.1.0.0/26")
			a.wantHops("10.2.0.0/26", "192.0.2.2")
			if s := a.session(a.plan.Peers[0]); !s.Established || s.Since != since {
				t.Errorf("the other session was touched: %+v", s)
			}
		})
	}
}

// TestOneOfTwoPortsGoes: what is stale is the paths of the one that went, and it comes back to its
// own session.
func TestOneOfTwoPortsGoes(t *testing.T) {
	a, one, two := sameAddress(t, [3]uint32{64512, 64512, 64512})
	for _, n := range []*node{one, two} {
		n.announce("10.3.0.0/26", n.plan.Speaker.RouterID.String())
	}
	port, breakIt := relay(t, a, two)
	a.plan.Peers[1].Port = port
	set(t, one, two, a)
	bothUp(t, a, one, two)
	a.wantHops("10.3.0.0/26", "127.0.0.12", "192.0.2.2")
	since := a.session(a.plan.Peers[0]).Since
	breakIt()
	a.wantHops("10.3.0.0/26", "127.0.0.12")
	bothUp(t, a, one, two)
	a.wantHops("10.3.0.0/26", "127.0.0.12", "192.0.2.2")
	if s := a.session(a.plan.Peers[0]); s.Since != since {
		t.Errorf("the other session was touched: %+v", s)
	}
}

// TestBetweenTwoPortsOfOneAddress: what one of them says goes to the other, and not back.
func TestBetweenTwoPortsOfOneAddress(t *testing.T) {
	a, one, two := sameAddress(t, [3]uint32{64512, 65001, 65002})
	a.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
	one.announce("10.1.0.0/26", "127.0.0.12")
	set(t, one, two, a)
	bothUp(t, a, one, two)
	two.wantHops("10.1.0.0/26", a.addr.String())
	if hops := one.hops("10.1.0.0/26"); len(hops) > 0 {
		t.Errorf("it came back, by %v", hops)
	}
}

// TestKeysOfTwoPorts: the listener has one TCP MD5 key for an address; who is dialled needs none
// there.
func TestKeysOfTwoPorts(t *testing.T) {
	secrets := func(c *Config) {
		c.Passwords = passwords(map[string]string{"bgp/one": "first", "bgp/two": "second"})
	}
	key := func(name string) *calico.SecretKeyRef {
		if name == "" {
			return nil
		}
		return &calico.SecretKeyRef{Name: "bgp", Key: name}
	}
	for _, tc := range [][2]string{{"one", "two"}, {"", "two"}, {"one", ""}, {"one", "one"}} {
		t.Run(strings.Join(tc[:], ","), func(t *testing.T) {
			a, one, two := sameAddress(t, [3]uint32{64512, 64512, 64512}, secrets)
			for i, n := range []*node{one, two} {
				n.plan.Peers[0].Password, a.plan.Peers[i].Password = key(tc[i]), key(tc[i])
			}
			set(t, one, two, a)
			bothUp(t, a, one, two)

			// Without the first, the listener has the key of the other.
			a.plan.Peers = slices.Clone(a.plan.Peers[1:])
			two.plan.Peers[0].Passive, a.plan.Peers[0].Passive = false, true
			set(t, a, two)
			eventually(t, "dialled by the other", true, func() bool {
				return a.session(a.plan.Peers[0]).Established && two.state(a).Established
			})
		})
	}
}
