package netlab

import (
	"context"
	"net/netip"
	"testing"
	"time"
)

// TestIPIP has two devices carry a ping, and compares the outer header with RFC 2003 §3.1.
func TestIPIP(t *testing.T) {
	l := newLab(t)
	one, two := must[*Namespace](t)(l.Namespace("one")), must[*Namespace](t)(l.Namespace("two"))
	end := func(ns *Namespace, address string) End {
		return End{Namespace: ns, Device: "eth0", Addresses: []netip.Prefix{pfx(address)}}
	}
	check(t, l.Veth(end(one, "192.0.2.1/24"), end(two, "192.0.2.2/24")))
	join := func(ns *Namespace, own, pod, peer, to string) *IPIP {
		x := must[*IPIP](t)(ns.IPIP("tunl0", addr(own)))
		t.Cleanup(func() { check(t, x.Close()) })
		x.Route(pfx(to), addr(peer))
		check(t, ns.AddAddress("tunl0", pfx(pod)))
		check(t, ns.AddRoute(pfx(to), netip.Addr{}, "tunl0"))
		return x
	}
	join(one, "192.0.2.1", "10.1.1.1/32", "192.0.2.2", "10.1.2.0/26")
	x := join(two, "192.0.2.2", "10.1.2.1/32", "192.0.2.1", "10.1.1.0/26")
	packets := make(chan []byte, 1)
	x.Watch(func(p []byte) {
		select {
		case packets <- append([]byte{}, p...):
		default:
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	_, err := one.Ping(ctx, addr("10.1.2.1"))
	check(t, err)
	p := <-packets
	outer, inner := p[:20], p[20:]
	if outer[0] != 0x45 || outer[9] != 4 ||
		netip.AddrFrom4([4]byte(outer[12:])) != addr("192.0.2.1") ||
		netip.AddrFrom4([4]byte(outer[16:])) != addr("192.0.2.2") {
		t.Errorf("outer header % x", outer)
	}
	if outer[1] != 0 || outer[6]&dontFragment != inner[6]&dontFragment || outer[8] != inner[8] {
		t.Errorf("outer header % x, inner % x", outer, inner[:20])
	}
	if inner[0] != 0x45 || netip.AddrFrom4([4]byte(inner[12:])) != addr("10.1.1.1") {
		t.Errorf("inner header % x", inner[:20])
	}
}
