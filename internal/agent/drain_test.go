package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"vpp-route-agent/bgp"
)

// preferences are the LOCAL_PREF and community of what is announced, by prefix.
func preferences(p bgp.Plan) map[string]bgp.Announcement {
	out := map[string]bgp.Announcement{}
	for _, a := range p.Announcements {
		out[a.Prefix.String()] = a
	}
	return out
}

// endedWait is the note of a drain whose wait was over long ago.
const endedWait = `{"phase":"draining","since":"1999-01-01T00:00:00Z",
	"until":"1999-01-01T00:00:00Z","stay":false}`

// back is the peer of cluster() when its session is up and it has sent all its routes.
var back = bgp.PeerState{ID: bgp.PeerID{Address: addr("192.168.4.3")}, Established: true, GR: true,
	EndOfRIB: true}

func TestDrainSteps(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(1e9+int64(seconds), 0) }
	idle, done := drainFacts{idle: true}, drainFacts{withdrawn: true}
	type step struct {
		at      int // seconds after a drain with a wait of 10 s began
		facts   drainFacts
		entered drainState
		early   bool
	}
	for name, c := range map[string]struct {
		stay  bool
		steps []step
	}{
		"to the end": {false, []step{
			{9, done, drainNone, false},
			{10, drainFacts{}, drainWithdrawing, false},
			{11, drainFacts{}, drainNone, false},
			{12, done, drainWithdrawn, false},
			{16, done, drainNone, false},
			{17, drainFacts{}, drainOver, false},
			{99, done, drainNone, false}}},
		"idle before its time": {false, []step{
			{3, idle, drainWithdrawing, true}, {3, done, drainWithdrawn, false},
			{8, idle, drainOver, false}}},
		"idle when it is time anyway": {false, []step{{10, idle, drainWithdrawing, false}}},
		"it stays": {true, []step{
			{10, done, drainWithdrawing, false}, {10, done, drainWithdrawn, false},
			{9999, done, drainNone, false}}},
	} {
		t.Run(name, func(t *testing.T) {
			var d drain
			if err := d.begin(at(0), DrainOptions{Wait: 10 * time.Second,
				Stay: c.stay}); err != nil {
				t.Fatal(err)
			}
			for i, s := range c.steps {
				entered, early := d.step(at(s.at), s.facts)
				if entered != s.entered || early != s.early {
					t.Errorf("step %d: entered %v, early %v; want %+v", i, entered, early, s)
				}
				if early && d.note().Until != at(s.at) {
					t.Errorf("a restart would wait until %s", d.note().Until)
				}
			}
		})
	}
}

// Every state but the last can be left by another drain or by cancelling it.
func TestDrainCanBeChangedUntilItIsOver(t *testing.T) {
	now := time.Unix(1e9, 0)
	for state, planned := range map[drainState]DrainPhase{
		drainNone: NotDraining, drainWaiting: Draining,
		drainWithdrawing: Withdrawn, drainWithdrawn: Withdrawn, drainOver: Withdrawn,
	} {
		if got := state.planned(); got != planned {
			t.Errorf("state %d is planned as %q", state, got)
		}
		again := drain{state: state}
		err := again.begin(now, DrainOptions{})
		if (err != nil) != (state == drainOver) || err == nil && again.state != drainWaiting {
			t.Errorf("state %d, drained again: %+v, %v", state, again, err)
		}
		cancelled := drain{state: state}
		err = cancelled.cancel()
		if (err != nil) != (state == drainOver || state == drainNone) ||
			err == nil && cancelled != (drain{}) {
			t.Errorf("state %d, cancelled: %+v, %v", state, cancelled, err)
		}
	}
	if err := (&drain{request: DrainStatus{NotKept: "a directory"}}).cancel(); err != nil {
		t.Errorf("the note of an earlier drain cannot be removed: %v", err)
	}
	n := (&drain{state: drainOver, request: DrainStatus{Until: now}}).note()
	if n != (DrainStatus{}) {
		t.Errorf("the process after a drain gets the note %+v", n)
	}
}

func TestDrainMakesWorstThenWithdrawsThenStops(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drain.json")
	inBubble(t, func(t *testing.T, n *node) {
		n.speaker.setStates(back)
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(time.Second)
		before := preferences(n.speaker.current())
		n.take()
		if _, err := n.agent.Drain(DrainOptions{Wait: time.Minute}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		for prefix, a := range preferences(n.speaker.current()) {
			if a.LocalPref != 0 || !a.GracefulShutdown {
				t.Errorf("%s is announced as %+v", prefix, a)
			}
		}
		if !n.speaker.current().Policies.Leaving {
			t.Error("what is passed on is not the worst choice")
		}
		if _, err := n.agent.CancelDrain(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		for prefix, a := range preferences(n.speaker.current()) {
			if a != before[prefix] {
				t.Errorf("%s is announced as %+v after the drain was cancelled, before as %+v",
					prefix, a, before[prefix])
			}
		}
		if n.speaker.current().Policies.Leaving {
			t.Error("what is passed on stays the worst choice")
		}
		n.take()

		if _, err := n.agent.Drain(DrainOptions{Wait: 10 * time.Second}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		n.take()
		n.expect(t, 10*time.Second, "withdraw 10.1.0.0/26", "withdraw 10.1.0.77/32",
			"withdraw 10.1.9.9/32")
		n.expect(t, 6*time.Second, "stop") // and no route is deleted
		if err := <-n.ended; !errors.Is(err, ErrDrained) {
			t.Errorf("ended with %v", err)
		}
		if _, err := n.agent.CancelDrain(); err == nil {
			t.Error("a drain that is over was cancelled")
		}
	}, func(c *Config) { c.DrainFile = file })
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the next start would drain again: %v", err)
	}
}

// SIGTERM may come while BGP ends: the process was told to stop, and has not failed.
func TestToldToStopAtTheEndOfADrain(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.speaker.setStates(back)
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(time.Second)
		if _, err := n.agent.Drain(DrainOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		n.take()
		n.speaker.setDelay(time.Minute)
		n.expect(t, 10*time.Second, "stop")
		n.stop()
		if err := <-n.ended; err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestDrainGoesOnAfterARestart(t *testing.T) {
	for name, note := range map[string]string{
		"a drain that stays":        strings.Replace(endedWait, "false", "true", 1),
		"a note that is unreadable": `{"phase":`,
		"a note of something else":  `{"phase":"resting"}`,
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "drain.json")
			if err := os.WriteFile(file, []byte(note), 0o600); err != nil {
				t.Fatal(err)
			}
			inBubble(t, func(t *testing.T, n *node) {
				n.dataplane.facts <- live
				n.snapshots <- cluster()
				n.expect(t, time.Hour, "put 10.1.0.0/26 drop")
				if s := n.agent.Status(); s.Drain == nil || s.Drain.Phase != Withdrawn || s.Ready {
					t.Errorf("status %+v", s.Drain)
				}
				if _, err := n.agent.CancelDrain(); err != nil {
					t.Fatal(err)
				}
				n.expect(t, time.Second, "announce 10.1.0.0/26", "announce 10.1.0.77/32",
					"announce 10.1.9.9/32")
			}, func(c *Config) { c.DrainFile = file })
		})
	}
}

// Who takes this node out of service says so here; Calico's data have no part in it.
func TestDrainGoesOnWhileTheDatastoreIsLocked(t *testing.T) {
	for _, stay := range []bool{true, false} {
		inBubble(t, func(t *testing.T, n *node) {
			n.dataplane.facts <- live
			n.snapshots <- cluster()
			time.Sleep(time.Second)
			if _, err := n.agent.Drain(DrainOptions{Wait: time.Minute, Stay: stay}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			n.take()
			n.snapshots <- lockedDatastore()
			want := []string{"withdraw 10.1.0.0/26", "withdraw 10.1.0.77/32",
				"withdraw 10.1.9.9/32"}
			if !stay {
				want = append(want, "stop")
			}
			n.expect(t, time.Hour, want...)
			if d := n.drained(); d.Phase != Withdrawn {
				t.Errorf("with stay %t: %+v", stay, d)
			}
		})
	}
}

func TestNothingIsWithdrawnBeforeTheSpeakerSaysSo(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(time.Second)
		n.take()
		n.speaker.setRefusal(errors.New("not today"))
		if _, err := n.agent.Drain(DrainOptions{Wait: 10 * time.Second}); err != nil {
			t.Fatal(err)
		}
		n.expect(t, time.Hour)
		if d := n.drained(); d.Phase != Draining || d.NotWithdrawn != "not today" {
			t.Errorf("%+v", d)
		}
		if c := n.agent.Status().Conditions; !strings.Contains(
			c[len(c)-1].Message, "not everything is withdrawn yet: not today") {
			t.Errorf("conditions %+v", c)
		}
		n.speaker.setRefusal(nil)
		n.expect(t, 4*time.Second, "withdraw 10.1.0.0/26", "withdraw 10.1.0.77/32",
			"withdraw 10.1.9.9/32")
		if d := n.drained(); d.Phase != Withdrawn || d.NotWithdrawn != "" {
			t.Errorf("%+v", d)
		}
		n.expect(t, 3*time.Second, "stop")
	})
}

// What peers keep of an earlier run is announced as far as they know, until this one has sent them
// something else.
func TestNothingIsWithdrawnByASpeakerThatHasNotStarted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drain.json")
	if err := os.WriteFile(file, []byte(endedWait), 0o600); err != nil {
		t.Fatal(err)
	}
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		n.snapshots <- lockedDatastore()
		n.expect(t, time.Hour)
		if d := n.drained(); d.Phase != Draining ||
			!strings.Contains(d.NotWithdrawn, "datastoreReady: false") {
			t.Errorf("%+v", d)
		}
		n.snapshots <- cluster()
		n.expect(t, 10*time.Second, "put 10.1.0.0/26 drop")
		if d := n.drained(); d.Phase != Draining ||
			!strings.HasPrefix(d.NotWithdrawn, "waiting until ") ||
			!strings.HasSuffix(d.NotWithdrawn,
				" at most for 192.168.4.3, which may keep what an earlier run announced") {
			t.Errorf("without a session: %+v", d)
		}
		n.speaker.setStates(back)
		n.expect(t, 4*time.Second)
		n.expect(t, 3*time.Second, "stop")
	}, func(c *Config) { c.DrainFile = file })
}

func TestADrainWaitsForNoPeerForLong(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drain.json")
	for deferral, patience := range map[time.Duration]time.Duration{
		30 * time.Second: 30 * time.Second,
		time.Hour:        120 * time.Second, // the restart time: nobody keeps anything for longer
	} {
		if err := os.WriteFile(file, []byte(endedWait), 0o600); err != nil {
			t.Fatal(err)
		}
		inBubble(t, func(t *testing.T, n *node) {
			n.dataplane.facts <- live
			n.snapshots <- cluster()
			n.expect(t, patience, "put 10.1.0.0/26 drop")
			n.expect(t, 10*time.Second, "stop")
		}, func(c *Config) { c.DrainFile, c.Deferral = file, deferral })
	}
}

// A clock that was set back while the agent was away makes the wait no longer than it was to be.
func TestADrainOutlivesNoClockThatIsSetBack(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drain.json")
	note := strings.NewReplacer("00:00:00", "00:01:00", "1999", "2099").Replace(endedWait)
	note = strings.Replace(note, "00:01:00", "00:00:00", 1)
	if err := os.WriteFile(file, []byte(note), 0o600); err != nil {
		t.Fatal(err)
	}
	inBubble(t, func(t *testing.T, n *node) {
		n.speaker.setStates(back)
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		n.expect(t, 50*time.Second, "put 10.1.0.0/26 drop", "announce 10.1.0.0/26",
			"announce 10.1.0.77/32", "announce 10.1.9.9/32")
		n.expect(t, 20*time.Second, "withdraw 10.1.0.0/26", "withdraw 10.1.0.77/32",
			"withdraw 10.1.9.9/32", "stop")
	}, func(c *Config) { c.DrainFile = file })
}

// The time that withdrawals have to reach every node begins when the speaker has taken them, which
// with many peers may be seconds after it was asked to.
func TestSessionsOutliveAWithdrawalThatTakesLong(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.speaker.setStates(back)
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(time.Second)
		n.take()
		n.speaker.setDelay(4 * time.Second)
		if _, err := n.agent.Drain(DrainOptions{}); err != nil {
			t.Fatal(err)
		}
		n.expect(t, 8*time.Second, "withdraw 10.1.0.0/26", "withdraw 10.1.0.77/32",
			"withdraw 10.1.9.9/32")
		n.expect(t, 2*time.Second, "stop")
	})
}

// A drain that cannot be noted is one that a restart would undo, and one whose note cannot be
// removed would come back: neither is a reason not to do what was asked for.
func TestWhatARestartWouldDoIsSaid(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	file := filepath.Join(dir, "drain.json")
	last := func(n *node) Condition {
		c := n.agent.Status().Conditions
		return c[len(c)-1]
	}
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(time.Minute)
		d, err := n.agent.Drain(DrainOptions{Wait: time.Hour, Stay: true})
		if err != nil || d.Phase != Draining || !strings.Contains(d.NotKept, "no such file") {
			t.Errorf("%+v, %v", d, err)
		}
		if c := last(n); n.drained().NotKept == "" ||
			!strings.Contains(c.Message, "; a restart would forget the drain: open ") {
			t.Errorf("status says %+v, conditions end with %+v", n.drained(), c)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if d, err = n.agent.Drain(DrainOptions{Wait: time.Hour, Stay: true}); err != nil ||
			d.NotKept != "" || n.drained().NotKept != "" {
			t.Errorf("with a folder to write to: %+v, %v", d, err)
		}
		if kept, err := readDrainNote(file); err != nil || kept.request.NotKept != "" ||
			!kept.request.Stay {
			t.Errorf("noted is %+v, %v", kept, err)
		}

		if err := errors.Join(os.Remove(file),
			os.MkdirAll(filepath.Join(file, "x"), 0o700)); err != nil {
			t.Fatal(err)
		}
		if d, err = n.agent.CancelDrain(); err != nil || d.Phase != NotDraining ||
			!strings.Contains(d.NotKept, "not empty") {
			t.Errorf("cancelled: %+v, %v", d, err)
		}
		if c := last(n); !c.OK || !strings.Contains(c.Message, "a restart would drain again: "+
			"remove ") || n.agent.Status().Drain != nil {
			t.Errorf("cancelled, conditions end with %+v", c)
		}
		if err := os.Remove(filepath.Join(file, "x")); err != nil {
			t.Fatal(err)
		}
		if d, err = n.agent.CancelDrain(); err != nil || d.NotKept != "" {
			t.Errorf("cancelled once more: %+v, %v", d, err)
		}
		if c := last(n); c.Name == "drain" {
			t.Errorf("conditions end with %+v", c)
		}
		if _, err = n.agent.CancelDrain(); err == nil {
			t.Error("cancelled for a third time")
		}
	}, func(c *Config) { c.DrainFile = file })
}

// A new process knows of a drain by its note alone: without it the node would return to service.
func TestNoNewProcessForgetsADrain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drain.json")
	if err := os.MkdirAll(filepath.Join(file, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	inBubble(t, func(t *testing.T, n *node) {
		n.speaker.setStates(back)
		drain := DrainOptions{Wait: time.Hour, Stay: true}
		if d, err := n.agent.Drain(drain); err != nil || d.NotKept == "" {
			t.Fatalf("%+v, %v", d, err)
		}
		n.asksForANewProcess(3 * time.Second)
		n.expect(t, time.Minute)
		if len(n.ended) > 0 {
			t.Fatal("a new process takes over that does not know of the drain")
		}
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
		n.expect(t, noteRetry+2*time.Second) // it is noted without being asked for once more
		n.handsOver(t, false)
	}, func(c *Config) { c.DrainFile = file })
}

func TestNoNewProcessWhileADrainIsBeingNoted(t *testing.T) {
	a := New(Config{Node: "a", Log: slog.New(slog.DiscardHandler)})
	a.setError = bgp.ErrSpeakerChanged
	if !a.needsNewProcess() {
		t.Error("no new process without a drain")
	}
	if err := a.changeDrain(func() error { return nil }); err != nil || a.needsNewProcess() {
		t.Errorf("a new process before the change is noted: %v", err)
	}
	if a.noteDrain(); !a.needsNewProcess() {
		t.Error("no new process although the drain is noted")
	}
}

func TestNoDrainWhileNothingMayChange(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		migrating := cluster()
		migrating.DatastoreNotReady = true
		n.snapshots <- migrating
		time.Sleep(time.Second)
		if _, err := n.agent.Drain(DrainOptions{Wait: time.Second}); err == nil {
			t.Error("draining although nothing may be changed")
		}
		if _, err := n.agent.Drain(DrainOptions{Wait: MaxDrain + 1}); err == nil {
			t.Error("an endless drain was accepted")
		}
	})
}

// A pipe that nobody reads stands for a disk that stalls. The fake clock stands still while a write
// hangs, so this test is outside of a bubble.
func TestADiskThatStallsHoldsUpNobodyButTheDrain(t *testing.T) {
	limit := 1e9
	for name, o := range map[string]DrainOptions{
		"a drain begins":                       {Wait: time.Minute},
		"its wait ends early, and is so noted": {Wait: time.Minute, UntilIdle: &limit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "drain.json")
			if err := syscall.Mkfifo(file+".new", 0o600); err != nil {
				t.Fatal(err)
			}
			a := New(Config{
				Node: "a", Speaker: &speaker{history: &history{}}, Datastore: make(datastoreStub),
				DrainFile: file, Log: slog.New(slog.DiscardHandler),
				Forwarded: func() (uint64, error) { return 0, nil },
			})
			ctx, cancel := context.WithCancel(t.Context())
			var tasks sync.WaitGroup
			tasks.Go(func() { a.Run(ctx) })
			tasks.Go(func() {
				if _, err := a.Drain(o); err != nil {
					t.Error(err)
				}
			})
			eventually(t, "the drain is on its way", func() bool {
				waits := a.drainState() == drainWaiting && o.UntilIdle == nil
				return waits || a.drainState() == drainWithdrawing
			})
			for range 2 {
				before := time.Now()
				eventually(t, "the loop turns, as the watchdog asks, and status answers",
					func() bool {
						return a.Turned().After(before) && a.Status().Drain != nil
					})
			}
			cancel()
			disk, err := os.OpenFile(file+".new", os.O_RDWR, 0) // it goes on
			if err != nil {
				t.Fatal(err)
			}
			defer disk.Close()
			tasks.Wait()
			if o.UntilIdle != nil { // the second note is a file of its own
				eventually(t, "the end of the wait is noted", func() bool {
					info, err := os.Stat(file)
					return err == nil && info.Mode().IsRegular()
				})
			}
		})
	}
}

// eventually fails the test when holds does not return true within 30 s.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	end := time.After(30 * time.Second)
	met := make(chan struct{})
	go func() {
		defer close(met)
		for !holds() {
			time.Sleep(5 * time.Millisecond)
		}
	}()
	select {
	case <-met:
	case <-end:
		t.Fatalf("not so: %s", what)
	}
}
