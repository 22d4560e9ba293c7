package etcd

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/external"
)

// verdicts answers for a and b.
func verdicts(revision int64, a, b external.State) external.Answer {
	return external.Answer{Revision: revision, Verdicts: []external.Verdict{
		{Source: Name, Key: aKey, Canonical: aKey, State: a, Revision: 1},
		{Source: Name, Key: bKey, Canonical: bKey, State: b, Revision: 1},
	}}
}

// states reports whether etcd has these states of a and b, and the summary.
func states(a, b external.State) func(map[string]string) bool {
	return func(all map[string]string) bool {
		return len(all) == 3 && strings.Contains(all[summaryName], "observed") &&
			strings.Contains(all[statusName(aKey)], `"state":"`+a.String()+`"`) &&
			strings.Contains(all[statusName(bKey)], `"state":"`+b.String()+`"`)
	}
}

// An unfinished answer counts as one after a time, from when its revision was heard of.
func TestUnfinishedAnswerWaits(t *testing.T) {
	a := newAnswers(nil, base, slog.New(slog.DiscardHandler))
	says := func(what string, observed int64, resync string, waits bool) {
		t.Helper()
		_, all, again := a.wanted()
		if all.ObservedRevision != observed || all.ResyncID != resync || (again > 0) != waits {
			t.Errorf("%s: %+v, once more in %s", what, all, again)
		}
	}
	answer := func(revision int64, resync string) {
		all := verdicts(revision, external.Pending, external.Configured)
		all.Resync, all.Verdicts[0].Unfinished = resync, true
		a.set(all)
	}
	answer(7, "one")
	says("at first", 0, "", true)
	a.since = time.Now().Add(-unfinishedTime)
	answer(7, "one")
	says("after its time, though another answer came", 7, "one", false)
	answer(8, "two")
	says("the next revision", 0, "", true)
	a.newest.Verdicts[0].Unfinished = false
	says("the data plane has answered", 8, "two", false)
}

// Answers that come faster than they are written, without an end, are written nonetheless.
func TestAnswersThatNeverRestAreWritten(t *testing.T) {
	t.Parallel()
	e, _ := startEtcd(t)
	s, _ := start(t, e.Endpoint(), t.TempDir())
	over := make(chan struct{})
	var answering sync.WaitGroup
	answering.Go(func() {
		for n := int64(1); ; n++ {
			s.Answer(external.Answer{Revision: n})
			select {
			case <-over:
				return
			case <-time.After(writePause / 5):
			}
		}
	})
	defer answering.Wait()
	defer close(over)
	end, rounds, last := time.Now().Add(time.Minute), 0, int64(0)
	for rounds < 5 {
		if now := observed(t, stored(t, e.Client())); now != last {
			rounds, last = rounds+1, now
		}
		if time.Now().After(end) {
			t.Fatalf("%d answers were written in %d rounds", last, rounds)
		}
		time.Sleep(writePause / 5)
	}
}

// What another deletes is written again. What the agent itself deletes is not mistaken for it.
func TestDeletedStatusIsWrittenAgain(t *testing.T) {
	t.Parallel()
	e, _ := startEtcd(t)
	s, _ := start(t, e.Endpoint(), t.TempDir())
	both := states(external.Configured, external.Pending)
	s.Answer(verdicts(7, external.Configured, external.Pending))
	awaitStored(t, e.Client(), "the status", both)
	for _, key := range []string{statusDir, "config", statusDir + statusName(bKey),
		statusDir + summaryName} {
		_, err := e.Client().Delete(t.Context(), base+key, clientv3.WithPrefix())
		must(t, err)
		awaitStored(t, e.Client(), "the status after the end of "+key, both)
	}

	one := verdicts(8, external.Configured, external.Pending)
	one.Verdicts = one.Verdicts[:1]
	s.Answer(one)
	awaitStored(t, e.Client(), "the end of b", func(all map[string]string) bool {
		return len(all) == 2 && observed(t, all) == 8
	})
	before, err := e.Client().Get(t.Context(), "/")
	must(t, err)
	time.Sleep(time.Second)
	after, err := e.Client().Get(t.Context(), "/")
	must(t, err)
	n, problem := after.Header.Revision-before.Header.Revision, s.Status().AnswerProblem
	if n != 0 || problem != "" {
		t.Errorf("%d writes without a change; %s", n, problem)
	}
}

// A backup has our lease, and an older status under it.
func TestStatusIsWrittenAgainInARestoredEtcd(t *testing.T) {
	t.Attr("part", "etcd 3.6.16, embedded server")
	for _, tc := range []struct {
		name   string
		writes int // of others in the restored etcd, before the agent sees it
	}{
		{"the revision is lower", 0},
		{"the revision has caught up", 60},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o := calicotest.EtcdOptions{Dir: t.TempDir()}
			e, err := calicotest.StartEtcd(o)
			must(t, err)
			stop := sync.OnceFunc(e.Close)
			defer func() { stop() }()
			restart := func(o calicotest.EtcdOptions) {
				stop()
				e, err = calicotest.StartEtcd(o)
				must(t, err)
				stop = sync.OnceFunc(e.Close)
			}
			listen := strings.TrimPrefix(e.Endpoint(), "http://")
			s, _ := start(t, e.Endpoint(), t.TempDir())
			old := states(external.Retrying, external.Pending)
			s.Answer(verdicts(7, external.Retrying, external.Pending))
			awaitStored(t, e.Client(), "the first status", old)
			stop()
			backup := t.TempDir()
			must(t, os.CopyFS(backup, os.DirFS(o.Dir)))
			o.Listen = listen
			restart(o)
			for i := range 20 {
				put(t, e.Client(), "vpp/other", fmt.Sprint(i))
			}
			put(t, e.Client(), aKey, aText)
			await(t, s, "an item that the backup lacks", func(state external.Snapshot) bool {
				return keys(state) == aKey
			})
			now := states(external.Configured, external.Configured)
			s.Answer(verdicts(8, external.Configured, external.Configured))
			awaitStored(t, e.Client(), "the next status", now)

			restart(calicotest.EtcdOptions{Dir: backup})
			if all := stored(t, e.Client()); !old(all) {
				t.Fatalf("the backup has %v", all)
			}
			for i := range tc.writes {
				put(t, e.Client(), "vpp/other", fmt.Sprint(i))
			}
			restart(calicotest.EtcdOptions{Dir: backup, Listen: listen})
			awaitStored(t, e.Client(), "the status in the restored etcd", now)
		})
	}
}

// An item whose status does not fit into a request of etcd's takes no other's away.
func TestLargeStatusHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	e, _ := startEtcd(t)
	s, _ := start(t, e.Endpoint(), t.TempDir())
	answer := verdicts(7, external.Invalid, external.Pending)
	for i := range answer.Verdicts { // in error, and in details
		answer.Verdicts[i].Details = []string{"first", strings.Repeat("x", 900<<10), "last"}
	}
	for i := range 100 { // a control character takes six bytes in JSON
		answer.Verdicts = append(answer.Verdicts, external.Verdict{Source: Name,
			Key: fmt.Sprint("config/x/", i), Details: []string{strings.Repeat("\x01", 10<<10)}})
	}
	long := external.Verdict{Source: Name, Key: "config/" + strings.Repeat("y", 900<<10)}
	answer.Verdicts = append(answer.Verdicts, long)
	s.Answer(answer)
	all := awaitStored(t, e.Client(), "all but one", func(all map[string]string) bool {
		return len(all) == 103 && observed(t, all) == 7 &&
			s.Status().AnswerProblem == "the status of 1 item is too large for etcd"
	})
	for key, text := range all {
		if len(text) > 32<<10 {
			t.Errorf("%s has %d bytes", key, len(text))
		}
	}
	if b := all[statusName(bKey)]; !strings.Contains(b, `["first","xxx`) ||
		!strings.Contains(b, `xxx…","and 1 more"]`) {
		t.Errorf("b: %.60s…%s", b, b[max(0, len(b)-100):])
	}
	answer.Verdicts = answer.Verdicts[:10]
	answer.Revision = 8
	s.Answer(answer)
	awaitStored(t, e.Client(), "the next", func(all map[string]string) bool {
		return len(all) == 11 && observed(t, all) == 8 && s.Status().AnswerProblem == ""
	})
}
