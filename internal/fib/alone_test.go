package fib

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/internal/route"
)

// alone runs f with an engine on a data plane that is a Starter.
func alone(t *testing.T, f func(*testing.T, *running)) {
	journal := filepath.Join(t.TempDir(), "journal")
	synctest.Test(t, func(t *testing.T) {
		dp := newFake(node("a"))
		r := startOn(starter{dp}, dp, Config{Journal: journal})
		synctest.Wait()
		r.Learn(pfx("10.9.0.0/26"), via("10.0.0.2")) // the next hop is looked up
		synctest.Wait()
		dp.takeOps()
		dp.state(func() { dp.starts = 0 })
		f(t, r)
		r.stop()
	})
}

func (d *fake) wantStarts(t *testing.T, want int) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.starts != want {
		t.Errorf("%d batches were started instead of %d", d.starts, want)
	}
}

func TestAChangeThatComesAloneIsStartedByLearn(t *testing.T) {
	alone(t, func(t *testing.T, r *running) {
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		r.dp.wantStarts(t, 1) // before Learn returned
		check(t, "put", r.dp.printOps(), "put 10.1.0.0/26 via 10.0.0.2 eth0")
		if e := r.state("10.1.0.0/26"); e.State != Programmed {
			t.Errorf("%+v", e)
		}
		r.Learn(pfx("10.1.0.0/26"), nil)
		r.dp.wantStarts(t, 2)
		check(t, "withdrawn", r.dp.printOps(), "del 10.1.0.0/26")
		if n := r.Stats().Queued; n != 0 {
			t.Errorf("%d ops are queued", n)
		}
	})
}

// What comes while a batch is under way waits for its end, and so does a full batch: the journal
// has the outcome of one intent before the next.
func TestNothingIsCutBehindAStartedBatch(t *testing.T) {
	alone(t, func(t *testing.T, r *running) {
		r.dp.hangs(true)
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.3"))
		r.learnHosts(2*batchSize, "10.0.0.2")
		if n := r.Stats().Batches; n != 2 { // one of them before
			t.Errorf("%d batches are cut", n)
		}
		r.dp.wantStarts(t, 1)
		r.dp.hangs(false)
		synctest.Wait()
		if s := r.Stats(); s.Queued != 0 {
			t.Errorf("%+v", s)
		}
		if got := r.dp.ours[key("10.1.0.0/26")].Paths; got[0].NextHop != addr("10.0.0.3") {
			t.Errorf("the first of two changes is there: %v", got)
		}
	})
}

func TestLearnStartsNothingWhileTheDataPlaneRefusesTo(t *testing.T) {
	alone(t, func(t *testing.T, r *running) {
		r.dp.state(func() { r.dp.notStarting = true })
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		r.dp.wantStarts(t, 1)
		check(t, "put", r.dp.printOps(), "put 10.1.0.0/26 via 10.0.0.2 eth0")
	})
}

// What a started batch has not done is repeated, as after Apply.
func TestAStartedBatchBreaksOff(t *testing.T) {
	alone(t, func(t *testing.T, r *running) {
		r.dp.state(func() { r.dp.sever = 0 })
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		check(t, "broken off", r.dp.printOps())
		r.dp.heal()
		time.Sleep(time.Second)
		check(t, "again", r.dp.printOps(), "put 10.1.0.0/26 via 10.0.0.2 eth0")
		r.dp.wantStarts(t, 1)
	})
}

// The journal says what may be there before it is sent: also of a batch whose end this process does
// not live to see, and which the next one must not take for done.
func TestTheJournalOfAStartedBatch(t *testing.T) {
	alone(t, func(t *testing.T, r *running) {
		r.dp.hangs(true)
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		r.stop()
		before, err := os.ReadFile(r.Engine.keeps.path)
		if err != nil {
			t.Fatal(err)
		}
		r.dp.hangs(false)
		synctest.Wait()
		// Run has ended
		r.Engine.Learn(BestPaths{Prefix: pfx("10.2.0.0/26"), Paths: via("10.0.0.2")})
		r.dp.wantStarts(t, 1)
		after, err := os.ReadFile(r.Engine.keeps.path)
		if err != nil || string(before) != string(after) {
			t.Error("the journal was written after Run: ", err)
		}
		r.again()
		if e := r.state("10.1.0.0/26"); e.State == Any {
			t.Error("the next process knows nothing of what may be there")
		}
		r.dp.takeOps()
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		check(t, "repeated", r.dp.printOps(), "put 10.1.0.0/26 via 10.0.0.2 eth0")
	})
}

// Neither what another source wants besides, nor more than a few routes, is Learn's to carry out.
func TestLearnStartsOnlyWhatComesAlone(t *testing.T) {
	alone(t, func(t *testing.T, r *running) {
		r.SetRoutes(route.Own, []route.Route{drop("10.1.0.0/26")})
		r.Learn(pfx("10.2.0.0/26"), via("10.0.0.2"))
		synctest.Wait()
		r.dp.wantStarts(t, 0)
		var many []BestPaths
		for i := range few + 1 {
			many = append(many, BestPaths{Prefix: host(i), Paths: via("10.0.0.2")})
		}
		time.Sleep(time.Second)
		r.Engine.Learn(many...)
		synctest.Wait()
		r.dp.wantStarts(t, 0)
		if s := r.Stats(); s.Queued != 0 || s.Put != 4+few {
			t.Errorf("%+v", s)
		}
	})
}
