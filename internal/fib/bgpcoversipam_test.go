package fib

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"vpp-route-agent/internal/route"
)

func etcdRoutes(m map[string]string) (out []route.Route) {
	for p, next := range m {
		out = append(out, route.Route{Key: key(p), Paths: via(next)})
	}
	return out
}

// A borrowed address: BGP has the block of its owner before the borrower's /32, which leads where
// etcd's does.
func TestCoveredRouteStaysWhileBGPComes(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.SetRoutes(route.Etcd,
			etcdRoutes(map[string]string{"10.1.0.0/26": "10.0.0.2", "10.1.0.5/32": "10.0.0.3"}))
		synctest.Wait()
		r.dp.printOps()
		r.SetBGPConverging(true)
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		time.Sleep(time.Hour)
		check(t, "another session is still to come", r.dp.printOps())
		r.Learn(pfx("10.1.0.5/32"), via("10.0.0.3"))
		r.SetBGPConverging(false)
		time.Sleep(time.Hour)
		check(t, "BGP has converged", r.dp.printOps())
		for _, e := range r.Entries(netip.Prefix{}) {
			if e.Origin != route.BGP || e.State != Programmed {
				t.Errorf("%+v", e)
			}
		}
	})
}

// A path of a migrated workload that cannot be used does not lend its precedence to etcd's route.
func TestCoveredRouteIsNotElevated(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.SetNormal(99, 99)
		r.SetRoutes(route.Etcd, etcdRoutes(map[string]string{"10.1.0.5/32": "10.0.0.3"}))
		r.LearnPreferred(pfx("10.1.0.5/32"), via("192.0.2.1"), 100)
		time.Sleep(time.Minute)
		check(t, "the path is unusable", r.dp.printOps(), "put 10.1.0.5/32 via 10.0.0.3 eth0")
		r.SetBGPConverging(true)
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		time.Sleep(time.Minute)
		check(t, "BGP covers it", r.dp.printOps(), "put 10.1.0.0/26 via 10.0.0.2 eth0")
	})
}

// The engine takes in a piece at a time; BGP has converged with the last one.
func TestBGPHasToldAllOnlyWithTheLastPiece(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.SetRoutes(route.Etcd, etcdRoutes(map[string]string{"10.1.0.5/32": "10.0.0.3"}))
		synctest.Wait()
		r.SetBGPConverging(true)
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		time.Sleep(time.Hour)
		r.dp.printOps()
		r.inbox.change(func(o *pendingInputs) {
			for range chunk {
				o.add(BestPaths{Prefix: pfx("10.9.0.0/26")}) // nothing, and nothing was there
			}
			o.add(BestPaths{Prefix: pfx("10.1.0.5/32"), Paths: via("10.0.0.3")})
			r.wanted.Converging = false
			o.wanted = &r.wanted
		})
		time.Sleep(time.Hour)
		check(t, "in the second piece BGP leads where etcd did", r.dp.printOps())
	})
}

func TestCoveredRouteStaysWhileBGPGoes(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.SetRoutes(route.Etcd,
			etcdRoutes(map[string]string{"10.1.0.0/26": "10.0.0.2", "10.1.0.5/32": "10.0.0.3"}))
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		r.Learn(pfx("10.1.0.5/32"), via("10.0.0.3"))
		synctest.Wait()
		r.dp.printOps()
		r.Learn(pfx("10.1.0.5/32"), nil)
		synctest.Wait()
		check(t, "the /32 is withdrawn first", r.dp.printOps())
		time.Sleep(coverHold / 2)
		r.Learn(pfx("10.1.0.0/26"), nil)
		time.Sleep(time.Hour)
		check(t, "and then the block", r.dp.printOps())
	})
}

func TestCoveredRouteGoesInTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.SetRoutes(route.Etcd, etcdRoutes(map[string]string{"10.1.0.5/32": "10.0.0.3"}))
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		synctest.Wait()
		r.dp.printOps()
		time.Sleep(coverHold - time.Millisecond)
		check(t, "before its time", r.dp.printOps())
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		check(t, "a leaked address", r.dp.printOps(), "del 10.1.0.5/32")
		r.SetBGPConverging(true)
		synctest.Wait()
		check(t, "a session comes up: nothing that is covered is put", r.dp.printOps())
	})
}

// With the route withdrawn and the data plane restarted nothing is left of an entry, and it is
// forgotten once it has been selected again.
func TestAHeldRouteIsForgottenWithItsEntry(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.SetRoutes(route.Etcd, etcdRoutes(map[string]string{"10.1.0.5/32": "10.0.0.3"}))
		synctest.Wait()
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		held := len(r.selection.covered)
		r.sources.begin(route.Etcd, nil, false)
		r.sources.take(1, 0)
		r.setFacts(node("b"))
		r.selection.selectDirty(chunk)
		left := len(r.selection.covered)
		if held != 1 || left != 0 || !r.selection.nextCovered().IsZero() {
			t.Errorf("%d held before, %d after; its time is over at %v, for ever",
				held, left, r.selection.nextCovered())
		}
	})
}

// A router announces the whole pool; inside it lies this node's own block, with an address that
// another node has borrowed. Where BGP does not have the /32, the pool's route is no answer: the
// block's drop would have the last word.
func TestOwnBlockEndsTheCover(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.Learn(pfx("10.1.0.0/16"), via("10.0.0.2"))
		synctest.Wait()
		r.SetRoutes(route.Etcd,
			etcdRoutes(map[string]string{"10.1.0.5/32": "10.0.0.3", "10.1.9.5/32": "10.0.0.3"}))
		synctest.Wait()
		check(t, "no block yet", r.dp.printOps(), "put 10.1.0.0/16 via 10.0.0.2 eth0")
		r.SetRoutes(route.Own, []route.Route{{Key: key("10.1.0.0/26"), Kind: route.Drop}})
		synctest.Wait()
		check(t, "the block is ours", r.dp.printOps(), "put 10.1.0.0/26 drop",
			"put 10.1.0.5/32 via 10.0.0.3 eth0")
		r.Learn(pfx("10.1.0.0/28"), via("10.0.0.2"))
		time.Sleep(time.Hour)
		check(t, "BGP has the last word again", r.dp.printOps(),
			"put 10.1.0.0/28 via 10.0.0.2 eth0", "del 10.1.0.5/32")
		r.Learn(pfx("10.1.0.0/28"), nil)
		synctest.Wait()
		r.dp.printOps()
		r.SetRoutes(route.Own, nil)
		time.Sleep(time.Hour)
		check(t, "the block is given back", r.dp.printOps(), "del 10.1.0.0/26", "del 10.1.0.5/32")
	})
}

func TestAnotherNextHopThanBGPsIsNotKept(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.SetBGPConverging(true)
		r.SetRoutes(route.Etcd, etcdRoutes(map[string]string{"10.1.0.5/32": "10.0.0.3"}))
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		r.Learn(pfx("10.1.0.5/32"), via("10.0.0.2"))
		synctest.Wait()
		r.dp.printOps()
		r.Learn(pfx("10.1.0.5/32"), nil)
		synctest.Wait()
		check(t, "what is there is not what etcd wants", r.dp.printOps(), "del 10.1.0.5/32")
	})
}

// Whatever comes and goes on either side, no address that is reached before and after is without a
// route in between, and where both sides always agree about the next hop nothing that stays wanted
// is ever touched.
func TestWalkOfHandOverLeavesNoGap(t *testing.T) {
	dir, n := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		journal := filepath.Join(dir, fmt.Sprint(n))
		var failed any
		synctest.Test(t, func(*testing.T) {
			defer func() { failed = recover() }()
			handOver(rt, journal)
		})
		if failed != nil {
			panic(failed)
		}
	})
}

var handOverPrefixes = []string{
	"10.1.0.0/16", "10.1.0.0/24", "10.1.0.0/26", "10.1.0.64/26", "10.1.0.5/32", "10.1.0.70/32",
}

func handOver(t *rapid.T, journal string) {
	r := start(newFake(node("a")), journal)
	defer r.stop()
	synctest.Wait()
	agree := rapid.Bool().Draw(t, "agree")
	next := func(i int) string {
		if agree {
			return []string{"10.0.0.2", "10.0.0.3"}[i%2]
		}
		return rapid.SampledFrom([]string{"10.0.0.2", "10.0.0.3", "10.0.1.2"}).Draw(t, "next hop")
	}
	fib := map[netip.Prefix]bool{}
	for range rapid.IntRange(1, 20).Draw(t, "steps") {
		i := rapid.IntRange(0, len(handOverPrefixes)-1).Draw(t, "prefix")
		p := handOverPrefixes[i]
		switch rapid.SampledFrom([]string{"learn", "learn", "withdraw", "etcd", "converging",
			"time"}).Draw(t, "step") {
		case "learn":
			r.Learn(pfx(p), via(next(i)))
		case "withdraw":
			r.Learn(pfx(p), nil)
		case "etcd":
			want := map[string]string{}
			for j, p := range handOverPrefixes[2:] {
				if rapid.Bool().Draw(t, "wanted") {
					want[p] = next(j + 2)
				}
			}
			r.SetRoutes(route.Etcd, etcdRoutes(want))
		case "converging":
			r.SetBGPConverging(rapid.Bool().Draw(t, "converging"))
		case "time":
			time.Sleep(rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(t,
				"pause"))
		}
		synctest.Wait()
		checkNoGap(t, fib, r.dp.takeOps())
	}
}

// checkNoGap plays ops on fib: what an address is reached by may change, but not go away to come
// back.
func checkNoGap(t *rapid.T, fib map[netip.Prefix]bool, ops []route.Op) {
	reached := func(a netip.Addr) bool {
		for p := range fib {
			if p.Contains(a) {
				return true
			}
		}
		return false
	}
	probes := []netip.Addr{
		addr("10.1.0.5"), addr("10.1.0.6"), addr("10.1.0.70"), addr("10.1.0.71"),
		addr("10.1.0.200"), addr("10.1.1.1"),
	}
	gone := map[netip.Addr]bool{}
	for _, op := range ops {
		for _, a := range probes {
			if before := reached(a); before {
				delete(gone, a)
			}
		}
		if op.Delete {
			delete(fib, op.Route.Prefix)
		} else {
			fib[op.Route.Prefix] = true
		}
		for _, a := range probes {
			switch now := reached(a); {
			case !now && op.Delete && op.Route.Prefix.Contains(a):
				gone[a] = true
			case now && gone[a]:
				t.Fatalf("%s was not reached for a while: %v", a, ops)
			}
		}
	}
}

// A route by a next hop inside itself covers nothing, unless a longer static route carries that
// next hop. Both may come and go in any order.
func TestARouteThatIsCarriedInsideItselfCovers(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.state(func() { r.dp.foreign[key("0.0.0.0/0")] = true })
		carrier := []route.Route{{Key: key("10.9.0.5/32"), Paths: via("10.0.0.2"),
			Origin: route.External}}
		r.SetRoutes(route.Etcd, etcdRoutes(map[string]string{"10.9.0.0/24": "10.9.0.5"}))
		r.Learn(pfx("10.1.0.64/26"), via("10.9.0.6"))
		time.Sleep(time.Minute)
		if s := r.state("10.1.0.64/26"); s.State != Programmed {
			t.Errorf("behind itself: %s, %s", s.State, s.Reason)
		}
		for range 2 {
			r.SetRoutes(route.External, carrier)
			time.Sleep(time.Minute)
			if s := r.state("10.1.0.64/26"); s.State != Unusable {
				t.Errorf("carried: %s, %s", s.State, s.Reason)
			}
			r.mu.Lock()
			cover := r.hops.covered[NextHop{Address: addr("10.9.0.6")}].Prefix
			r.mu.Unlock()
			if cover != pfx("10.9.0.0/24") {
				t.Errorf("carried: covered by %v", cover)
			}
			r.SetRoutes(route.External, nil)
			time.Sleep(time.Minute)
			if s := r.state("10.1.0.64/26"); s.State != Programmed {
				t.Errorf("behind itself again: %s, %s", s.State, s.Reason)
			}
		}
	})
}

// What a connected subnet carries may come and go, too, as may this node's own addresses.
func TestAnAddressChangesWhatCarriesNextHops(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.state(func() { r.dp.foreign[key("0.0.0.0/0")] = true })
		r.SetRoutes(route.Etcd, []route.Route{{Key: key("10.9.0.0/24"), Origin: route.Etcd,
			Paths: via("10.9.0.5", "10.9.0.7")}})
		r.Learn(pfx("10.1.0.64/26"), via("10.9.0.6"))
		r.Learn(pfx("10.1.0.128/26"), via("10.0.0.2"))
		for _, step := range []struct {
			address string
			down    bool
			covered bool // 10.9.0.6 is, by a route that does not lie behind itself
			near    bool // 10.0.0.2 is a neighbour
		}{
			{"10.77.0.1/32", false, false, true},
			{"10.9.0.4/31", false, true, true},
			{"10.9.0.4/31", true, false, true},
			{"10.9.0.4/31", false, true, true},
			{"10.0.0.2/24", false, false, false},
			{"10.77.0.1/32", false, false, true},
		} {
			f := node("a")
			f.Interfaces[1].Addresses = append(slices.Clone(f.Interfaces[1].Addresses),
				pfx(step.address))
			f.Interfaces[1].Up = !step.down
			time.Sleep(time.Minute)
			r.mu.Lock()
			r.setFacts(f)
			_, covered := r.hops.covered[NextHop{Address: addr("10.9.0.6")}]
			near := r.hops.byKey[NextHop{Address: addr("10.0.0.2")}].reached[0]
			r.mu.Unlock()
			if covered != step.covered || (near.reason == Reason{}) != step.near {
				t.Errorf("with %s, down %t: covered %t; %s", step.address, step.down, covered,
					near.reason)
			}
		}
	})
}

// A default route does not have all next hops looked at again whenever a static route changes that
// carries one of them.
func TestACarrierIsNoMatterOfAllNextHops(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.Learn(pfx("0.0.0.0/0"), via("10.0.0.2"))
		const n = 100
		for i := range n {
			r.Learn(netip.PrefixFrom(netip.AddrFrom4([4]byte{20, 0, byte(i), 0}), 24),
				via(fmt.Sprintf("10.9.0.%d", i)))
		}
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.selection.staleHops = nil
		r.selection.carriesOther(key("10.9.0.5/32"))
		if stale := len(r.selection.staleHops); stale != 1 {
			t.Errorf("%d of %d next hops are stale", stale, n+1)
		}
		r.selection.refresh()
	})
}
