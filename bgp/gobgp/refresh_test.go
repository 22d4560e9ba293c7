package gobgp

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

func (f *far) refresh() {
	f.send(packet.NewBGPRouteRefreshMessage(packet.AFI_IP, 0, packet.SAFI_UNICAST))
}

// A peer that asks for everything over and over is answered, and nobody else waits for that.
func TestManyRouteRefreshes(t *testing.T) {
	const routes = 20_000
	n := newLabAlone(t).node(64512)
	for i := range 3 {
		n.farPeer(fmt.Sprintf("127.0.0.%d", 90+i), 64512)
		n.plan.Peers[i].Client = true
	}
	n.plan.Policies.Reflects = true
	n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
	set(t, n)
	source := dialFar(t, n, "127.0.0.90", 64512, 90, true, gracefulCap(false))
	asks := dialFar(t, n, "127.0.0.91", 64512, 90, true,
		gracefulCap(false), packet.NewCapRouteRefresh())
	honest := dialFar(t, n, "127.0.0.92", 64512, 90, true, gracefulCap(false))
	for i := 0; i < routes; i += 500 {
		var nlri []*packet.IPAddrPrefix
		for k := i; k < i+500; k++ {
			nlri = append(nlri, ipv4(0, fmt.Sprintf("10.%d.%d.0/26", 100+k>>8, k&255)))
		}
		source.send(packet.NewBGPUpdateMessage(nil, pathAttributes("192.0.2.90", 100), nlri))
	}
	within(t, "routes passed on", routes, func() int { return len(asks.received()) })
	time.Sleep(time.Second) // the last of them may have come in several messages
	before, start := asks.count(), time.Now()
	asks.refresh()
	eventually(t, "an answer to one", true, func() bool { return asks.count() > before })
	one := time.Since(start)
	announce := func(net, total int) time.Duration {
		start := time.Now()
		for i := range 301 {
			honest.announce(fmt.Sprintf("10.%d.%d.%d/32", net, i>>8, i&255), "192.0.2.92")
		}
		eventually(t, "the other peer's routes", total, n.size)
		return time.Since(start)
	}
	alone := announce(20, routes+301)

	for range 3000 {
		asks.refresh()
	}
	took := announce(21, routes+602)
	t.Logf("301 UPDATEs took %s, beside 3000 ROUTE-REFRESHes %s; an answer to one %s", alone, took,
		one)
	if took > 50*(alone+one) { // 3000 answers would take 3000 times one
		t.Error("the answers held another peer up")
	}
	mark := asks.count()
	eventually(t, "an answer to the last", true, func() bool {
		return asks.count() > mark+routes/1000
	})
}

// While our restart is not over, an answer would end in End-of-RIB, on which the peer drops what it
// keeps for us and we have not learned yet.
func TestRouteRefreshDuringOurRestart(t *testing.T) {
	l := newLab(t)
	n := l.restarted(func(n *node) {
		n.farPeer("127.0.0.96", 65001)
		n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
	}, "127.0.0.97")
	router := dialFar(t, n, "127.0.0.96", 65001, 90, true,
		gracefulCap(false), packet.NewCapRouteRefresh())
	router.endOfRIB()
	inner := dialFar(t, n, "127.0.0.97", 64512, 90, true, gracefulCap(false))
	router.refresh()
	time.Sleep(time.Second)
	if got := router.received(); router.hasAll() || len(got) > 0 {
		t.Errorf("has %v, End-of-RIB %t, before the restart was over", got, router.hasAll())
	}
	inner.endOfRIB()
	eventually(t, "End-of-RIB", true, router.hasAll)
	eventually(t, "routes", []netip.Prefix{pfx("10.1.0.0/26")}, router.received)
}
