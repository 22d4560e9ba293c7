package fib

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/internal/route"
)

func host(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
}

// learnHosts hands over n host routes, and waits until they are taken in.
func (r *running) learnHosts(n int, hop string) {
	for i := range n {
		r.Learn(host(i), via(hop))
	}
	r.idle()
}

func (d *fake) hangs(yes bool) {
	if yes {
		d.state(func() { d.hang = true })
	} else {
		d.heal()
	}
}

func TestTheNextFullBatchIsReadyBehindTheOneInFlight(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.hangs(true)
		r.learnHosts(1, "10.0.0.2")
		r.learnHosts(2*batchSize, "10.0.0.2")
		if n := r.Stats().Batches; n != 2 {
			t.Errorf("%d batches are cut", n)
		}
		r.dp.hangs(false)
		synctest.Wait()
		if n := len(r.dp.takeOps()); n != 2*batchSize {
			t.Errorf("%d ops for %d routes", n, 2*batchSize)
		}
		if s := r.Stats(); s.Queued != 0 || s.Put != 2*batchSize {
			t.Errorf("%+v", s)
		}
	})
}

func TestALongQueueGoesInLongBatches(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.hangs(true)
		r.learnHosts(1, "10.0.0.2")
		r.learnHosts(32*batchSize, "10.0.0.2")
		r.dp.hangs(false)
		synctest.Wait()
		if s := r.Stats(); s.Put != 32*batchSize || s.Queued != 0 || s.Batches > 20 {
			t.Errorf("%+v", s)
		}
	})
}

// VPP crashes on two recursive routes of two sources for one prefix (decision 12).
func TestAnElevatedRouteWaitsForItsCounterpartInFlight(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.foreign[key("0.0.0.0/0")] = true
		r.SetNormal(100, 100)
		r.learnHosts(1, "10.9.0.5") // the next hop is looked up
		r.dp.hangs(true)
		r.LearnPreferred(pfx("10.1.0.9/32"), via("10.9.0.5"), 100)
		synctest.Wait()
		r.LearnPreferred(pfx("10.1.0.9/32"), via("10.9.0.5"), 200)
		r.learnHosts(2*batchSize, "10.0.0.2")
		r.dp.hangs(false)
		synctest.Wait()
		got := r.dp.ours[route.Key{Prefix: pfx("10.1.0.9/32"), Elevated: true}]
		if len(got.Paths) != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// To write it anew takes the results of all batches before.
func TestNoBatchThatHasTheJournalWrittenAnewIsCutBehindAnother(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.hangs(true)
		r.learnHosts(1, "10.0.0.2")
		f := node("a")
		f.Interfaces[0].Index = 77
		r.dp.tell(f)
		r.learnHosts(2*batchSize, "10.0.0.2")
		if n := r.Stats().Batches; n != 1 {
			t.Errorf("%d batches are cut", n)
		}
		r.dp.hangs(false)
		synctest.Wait()
		if s := r.Stats(); s.Queued != 0 || s.Batches < 3 {
			t.Errorf("%+v", s)
		}
	})
}

func TestASmallBatchWaitsAndGrows(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.hangs(true)
		r.learnHosts(1, "10.0.0.2")
		for i := range 10 {
			r.Learn(host(i), via("10.0.0.2"))
			synctest.Wait()
		}
		r.dp.hangs(false)
		synctest.Wait()
		if s := r.Stats(); s.Batches != 2 || s.Put != 10 {
			t.Errorf("%d routes in %d batches", s.Put, s.Batches)
		}
	})
}

// What a batch deletes may have been waiting for what the one before it puts.
func TestABatchBehindABrokenOneIsNotCarriedOut(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.learnHosts(batchSize, "10.0.0.2")
		r.dp.takeOps()
		r.dp.hangs(true)
		r.learnHosts(1, "10.0.0.3") // occupies the applier
		for i := range 2 * batchSize {
			if r.Learn(host(batchSize+i), via("10.0.0.2")); i < batchSize {
				r.Learn(host(i), nil)
			}
		}
		r.idle()
		if n := r.Stats().Batches; n < 3 {
			t.Fatalf("%d batches: none waits behind another", n)
		}
		r.dp.state(func() {
			r.dp.sever = 0
			r.dp.hang = false
			close(r.dp.release)
			r.dp.release = make(chan struct{})
		})
		synctest.Wait()
		if ops := r.dp.takeOps(); len(ops) != 0 {
			t.Errorf("carried out behind a broken batch: %v", ops[:min(3, len(ops))])
		}
		unsure := 0
		r.walk(func(e *entry) {
			if e.is(isUnsure) {
				unsure++
			}
		})
		if unsure != 1 {
			t.Errorf("%d entries are in doubt; only the one that was sent is", unsure)
		}
		r.dp.heal()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(r.dp.ours); n != 2*batchSize {
			t.Errorf("%d routes", n)
		}
	})
}

// TestTheJournalIsRightWhileItIsWrittenAnewUnderLoad restarts the engine after each of many changes
// to all of more routes than two batches hold, so that the journal is written anew between batches
// that follow closely.
func TestTheJournalIsRightWhileItIsWrittenAnewUnderLoad(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		const n = 3*batchSize + 100
		for i := range 12 {
			hop := fmt.Sprintf("10.0.0.%d", 2+i)
			for j := range n {
				if r.Learn(host(j), via(hop)); j == n/2 {
					synctest.Wait()
					if i%3 == 1 { // a moved interface has the journal written anew as well
						f := node("a")
						f.Interfaces[1].Index = uint32(20 + i)
						r.dp.tell(f)
					}
				}
			}
			synctest.Wait()
			time.Sleep(time.Second)
			r.dp.takeOps()
			r.again()
			if s := r.Stats(); s.Adopted != "journal" || s.AdoptedRoutes != n {
				t.Fatalf("round %d: %+v", i, s)
			}
			r.learnHosts(n, hop)
			time.Sleep(time.Second)
			if ops := r.dp.takeOps(); len(ops) != 0 {
				t.Fatalf("round %d: the next process wrote %d ops, such as %v", i, len(ops), ops[0])
			}
		}
	})
}

func TestAStreamOfChangesIsTakenInByTheMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(newFake(node("a")), "")
		defer r.stop()
		synctest.Wait()
		for i := range 1000 {
			r.Learn(host(i), via("10.0.0.2"))
			synctest.Wait()
			time.Sleep(throttleInterval / 50)
		}
		time.Sleep(throttleInterval)
		synctest.Wait()
		// 20 ms, and before it was a load.
		if s := r.Stats(); s.Put != 1000 || s.Batches > 20+throttleAfter+2 {
			t.Errorf("%d routes in %d batches", s.Put, s.Batches)
		}
	})
}

func TestALoadThatEndedDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(newFake(node("a")), "")
		defer r.stop()
		synctest.Wait()
		for i := range 1000 {
			r.Learn(host(i), via("10.0.0.2"))
			synctest.Wait()
		}
		time.Sleep(2 * throttleQuiet)
		for i := range throttleAfter {
			put := r.Stats().Put
			r.Learn(host(i), via("10.0.0.3"))
			synctest.Wait()
			if r.Stats().Put != put+1 {
				t.Fatalf("change %d after a pause waits", i)
			}
		}
	})
}

func TestChangesFurtherApartThanThePaceWaitForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(newFake(node("a")), "")
		defer r.stop()
		synctest.Wait()
		for i := range 100 {
			r.Learn(host(i), via("10.0.0.2"))
			synctest.Wait()
			if put := r.Stats().Put; put != uint64(i+1) {
				t.Fatalf("change %d waits", i)
			}
			time.Sleep(throttleInterval)
		}
	})
}
