package fib

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/internal/route"
)

func external(prefixes ...string) (out []route.Route) {
	for _, p := range prefixes {
		out = append(out, route.Route{Key: key(p), Paths: via("10.0.0.3")})
	}
	return out
}

// A block comes after the route, and goes before it.
func TestExternalRoutesStayOutOfOwnBlocks(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.SetRoutes(route.External, external("10.1.0.5/32", "10.1.1.0/24"))
		synctest.Wait()
		r.dp.printOps()
		r.SetRoutes(route.Own, []route.Route{{Key: key("10.1.0.0/26"), Kind: route.Drop}})
		synctest.Wait()
		check(t, "a block around one", r.dp.printOps(), "put 10.1.0.0/26 drop", "del 10.1.0.5/32")
		found, _ := r.Find([]route.Key{key("10.1.0.5/32"), key("10.1.1.0/24"), key("10.1.9.0/24")})
		if f := found[0]; f.State != Unusable || f.Reason.Waits() {
			t.Errorf("%+v is not refused for good", f)
		}
		if found[1].State != Programmed || found[2].State != Any {
			t.Errorf("found %+v", found)
		}
		r.SetRoutes(route.Own, nil)
		synctest.Wait()
		check(t, "no block", r.dp.printOps(), "put 10.1.0.5/32 via 10.0.0.3 eth0",
			"del 10.1.0.0/26")
	})
}

func TestBackupRoutesGiveWayToBGPAndComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startWith(newFake(node("a")), Config{
			Journal:   filepath.Join(t.TempDir(), "journal"),
			Distances: map[route.Origin]uint8{route.External: 200},
		})
		defer r.stop()
		r.SetRoutes(route.External, external("10.1.0.5/32", "10.1.1.0/24"))
		r.Learn(pfx("0.0.0.0/0"), via("10.0.0.2"))
		synctest.Wait()
		check(t, "a default route is no cover", r.dp.printOps(),
			"put 10.1.0.5/32 via 10.0.0.3 eth0", "put 10.1.1.0/24 via 10.0.0.3 eth0",
			"put 0.0.0.0/0 via 10.0.0.2 eth0")
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		r.Learn(pfx("10.1.1.0/24"), via("10.0.0.2"))
		time.Sleep(2 * coverHold)
		synctest.Wait()
		check(t, "BGP has them", r.dp.printOps(), "put 10.1.0.0/26 via 10.0.0.2 eth0",
			"put 10.1.1.0/24 via 10.0.0.2 eth0", "del 10.1.0.5/32")
		found, _ := r.Find([]route.Key{key("10.1.0.5/32"), key("10.1.1.0/24")})
		if f := found[0]; f.State != Unusable || !f.Reason.Waits() {
			t.Errorf("%+v does not wait for BGP to go", f)
		}
		if f := found[1]; f.Origin != route.BGP {
			t.Errorf("%+v is not BGP's", f)
		}
		<-r.ExternalChanged() // of before
		r.Learn(pfx("10.1.0.0/26"), nil)
		r.Learn(pfx("10.1.1.0/24"), nil)
		synctest.Wait()
		check(t, "BGP is gone", r.dp.printOps(), "put 10.1.0.5/32 via 10.0.0.3 eth0",
			"put 10.1.1.0/24 via 10.0.0.3 eth0", "del 10.1.0.0/26")
		select {
		case <-r.ExternalChanged():
		default:
			t.Error("no signal that external routes changed")
		}
	})
}

func TestExternalConfigurationHearsOfObjectsAndFacts(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		signalled := func(what string) {
			t.Helper()
			synctest.Wait()
			select {
			case <-r.ExternalChanged():
			default:
				t.Errorf("%s: no signal", what)
			}
		}
		signalled("the start")
		f := node("a")
		f.Interfaces[0].Addresses = nil
		r.dp.tell(f)
		signalled("another address")
		r.setObjects(route.External, on("eth0", "192.168.4.7/24"))
		signalled("an object")
		r.dp.state(func() { r.dp.lookupErr = errGone })
		time.Sleep(2 * objectInterval)
		signalled("a look-up fails")
	})
}
