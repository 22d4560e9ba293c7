package etcd

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"pgregory.net/rapid"

	"vpp-route-agent/internal/etcd"
	"vpp-route-agent/internal/external"
	"vpp-route-agent/internal/testlog"
)

const (
	cKey   = "config/vpp/v2/route/vrf/0/dst/10.9.3.0/24"
	cText  = `{"dst_network":"10.9.3.0/24","type":"DROP"}`
	aText2 = `{"dst_network":"10.9.1.0/24","next_hop_addr":"10.0.0.2","weight":2}`
)

// answer is what a data plane says of a snapshot that takes all but the items of one key.
func answer(state, before external.Snapshot, bad string) external.Answer {
	a := external.Answer{Revision: state.Revision, Edition: state.Edition}
	now := state.Sources[0].Items
	for _, key := range slices.Sorted(maps.Keys(now)) {
		v := external.Verdict{Source: Name, Key: key, State: external.Configured,
			Revision: now[key].Revision}
		if p := now[key].Problem; p != (external.Problem{}) {
			v.State, v.Details = p.State, []string{p.Detail}
		} else if key == bad {
			v.State, v.Details = external.Pending, []string{"there is no interface memif1"}
		}
		a.Verdicts = append(a.Verdicts, v)
	}
	if before.Sources == nil {
		return a
	}
	for key := range before.Sources[0].Items {
		if _, there := now[key]; !there {
			a.Verdicts = append(a.Verdicts, external.Verdict{Source: Name, Key: key,
				State: external.Removed})
		}
	}
	return a
}

// inForce prints the messages of a snapshot, and how refused items stand.
func inForce(s external.Snapshot) string {
	var all []string
	for key, i := range s.Sources[0].Items {
		text := strings.TrimPrefix(key, "config/vpp/v2/route/vrf/0/dst/")
		if i.Problem != (external.Problem{}) {
			text += " " + i.Problem.State.String()
		}
		if i.Message != nil && strings.Contains(fmt.Sprint(i.Message), "weight") {
			text += " weight 2"
		} else if i.Message != nil {
			text += " in force"
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func TestAllOrNothing(t *testing.T) {
	t.Parallel()
	e, _ := startEtcd(t)
	dir := t.TempDir()
	put(t, e.Client(), aKey, aText)
	put(t, e.Client(), bKey, bText)
	s, stop := start(t, e.Endpoint(), dir)
	var last external.Snapshot
	is := func(what, want string) {
		t.Helper()
		before := last
		last = await(t, s, what+": "+want, func(s external.Snapshot) bool {
			return inForce(s) == want
		})
		if last.Edition == before.Edition {
			t.Errorf("%s: edition %d again", what, last.Edition)
		}
	}
	commit := func() {
		t.Helper()
		_, err := e.Client().Txn(t.Context()).Then(clientv3.OpPut(base+cKey, cText),
			clientv3.OpPut(base+aKey, aText2), clientv3.OpDelete(base+bKey),
			clientv3.OpPut(base+transactionKey, "")).Commit()
		must(t, err)
	}
	const (
		old     = "10.9.1.0/24/gw/10.0.0.2 in force, 10.9.2.0/24 in force"
		applied = "10.9.1.0/24/gw/10.0.0.2 weight 2, 10.9.3.0/24 in force, "
		undone  = "10.9.1.0/24/gw/10.0.0.2 FAILED in force, 10.9.2.0/24 FAILED in force, " +
			"10.9.3.0/24 FAILED, config/transaction FAILED"
	)
	is("before", old)
	commit()
	before := last
	is("it is applied", applied+"config/transaction PENDING")
	readCopy(t, dir, func(k *kept) bool { return len(k.Open) == 1 })
	s.Answer(answer(last, before, cKey))
	is("one item is pending", undone)
	s.Answer(answer(last, last, ""))
	all := awaitStored(t, e.Client(), "the answer", func(all map[string]string) bool {
		return strings.Contains(all["transaction"], "FAILED")
	})
	for key, want := range map[string]string{
		"transaction":    "is rolled back: " + cKey + " is PENDING: there is no interface memif1",
		statusName(cKey): "this was PENDING: there is no interface memif1",
		statusName(bKey): "is rolled back because of " + cKey,
	} {
		if !strings.Contains(all[key], want) {
			t.Errorf("the status of %s is %s, want %q", key, all[key], want)
		}
	}
	got, err := e.Client().Get(t.Context(), base+aKey)
	must(t, err)
	if string(got.Kvs[0].Value) != aText2 {
		t.Error("a key of the client was changed")
	}
	stop()
	s, stop = start(t, e.Endpoint(), dir)
	last = external.Snapshot{}
	is("the next run", undone)

	commit()
	before = last
	is("again", applied+"config/transaction PENDING")
	stop() // killed before the data plane has answered
	s, stop = start(t, e.Endpoint(), dir)
	last = external.Snapshot{}
	is("it is still open", applied+"config/transaction PENDING")
	s.Answer(answer(last, before, ""))
	is("it counts", applied+"config/transaction CONFIGURED")
	stop()
	s, _ = start(t, e.Endpoint(), dir)
	last = external.Snapshot{}
	is("in the next run as well", applied+"config/transaction CONFIGURED")
	s.Answer(answer(last, last, cKey))
	put(t, e.Client(), bKey, bText)
	is("it has ended", "10.9.1.0/24/gw/10.0.0.2 weight 2, 10.9.2.0/24 in force, "+
		"10.9.3.0/24 in force, config/transaction CONFIGURED")
}

func statusName(key string) string { return strings.TrimPrefix(key, "config/") }

func TestWhatIsWrongIsNeverApplied(t *testing.T) {
	t.Parallel()
	e, _ := startEtcd(t)
	s, _ := start(t, e.Endpoint(), t.TempDir())
	await(t, s, "nothing", func(external.Snapshot) bool { return true })
	_, err := e.Client().Txn(t.Context()).Then(clientv3.OpPut(base+aKey, "{"),
		clientv3.OpPut(base+bKey, bText), clientv3.OpPut(base+transactionKey, "")).Commit()
	must(t, err)
	state := await(t, s, "the transaction", func(external.Snapshot) bool { return true })
	want := "10.9.1.0/24/gw/10.0.0.2 FAILED, 10.9.2.0/24 FAILED, config/transaction FAILED"
	if got := inForce(state); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	put(t, e.Client(), resyncName, "1")
	want = "10.9.1.0/24/gw/10.0.0.2 INVALID, 10.9.2.0/24 in force, config/transaction FAILED"
	await(t, s, "a client takes it as it is: "+want, func(s external.Snapshot) bool {
		return inForce(s) == want
	})
}

func TestATransactionThatCannotBeKeptIsRolledBack(t *testing.T) {
	t.Parallel()
	e, _ := startEtcd(t)
	dir := t.TempDir()
	s, _ := start(t, e.Endpoint(), dir)
	await(t, s, "nothing", func(external.Snapshot) bool { return true })
	s.copy.path = dir + "/nowhere/copy"
	_, err := e.Client().Txn(t.Context()).Then(clientv3.OpPut(base+bKey, bText),
		clientv3.OpPut(base+transactionKey, "")).Commit()
	must(t, err)
	state := await(t, s, "the transaction", func(external.Snapshot) bool { return true })
	if got, want := inForce(state), "10.9.2.0/24 FAILED, config/transaction FAILED"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// The data plane answers for one transaction while the next one is being read. That is read as a
// whole, and published with its revision.
func TestAnAnswerWhileATransactionIsRead(t *testing.T) {
	for what, between := range map[string]int{"in its midst": 1, "before it is published": 2} {
		s, err := New(Config{Etcd: etcd.Config{Endpoints: []string{"http://127.0.0.1:1"}},
			Prefix: DefaultPrefix, Node: "edge-7", StateDir: t.TempDir(), Log: testlog.New(t)})
		must(t, err)
		read := func(revision int64, key, text string) {
			s.store.At(revision)
			s.store.Put(base+key, []byte(text))
		}
		published := func(revision int64) external.Snapshot {
			t.Helper()
			if !s.store.Changed() {
				t.Errorf("%s: revision %d is not published", what, revision)
			}
			s.publish(etcd.Published{Revision: revision, Lists: 1})
			return <-s.out
		}
		s.store.BeginList()
		read(1, aKey, aText)
		s.store.EndList(base)
		first := published(1)
		read(2, transactionKey, "")
		read(2, aKey, aText2)
		second := published(2)
		read(3, transactionKey, "")
		for i, key := range []string{bKey, cKey} {
			read(3, key, map[string]string{bKey: bText, cKey: cText}[key])
			if i+1 == between {
				s.decide(answer(second, first, ""))
			}
		}
		third := published(3)
		s.decide(answer(third, second, cKey))
		const want = "10.9.1.0/24/gw/10.0.0.2 weight 2, 10.9.2.0/24 FAILED, " +
			"10.9.3.0/24 FAILED, config/transaction FAILED"
		if got := inForce(<-s.out); got != want {
			t.Errorf("%s: in the end\n%s, want\n%s", what, got, want)
		}
	}
}

// step is a revision of etcd as the test sees it: texts by key, "": deleted.
type step struct {
	revision int64
	texts    map[string]string
	undone   bool
}

// Whatever is changed and rolled back in whatever order, what counts are the revisions that were
// not rolled back, one after the other.
func TestTransactionsInAnyOrder(t *testing.T) {
	names := []string{aKey, bKey, cKey}
	text := func(key string, weight int) string {
		network := strings.TrimPrefix(key, "config/vpp/v2/route/vrf/0/dst/")
		if key == aKey {
			return strings.Replace(aText, "}", fmt.Sprintf(`,"weight":%d}`, weight), 1)
		}
		return fmt.Sprintf(`{"dst_network":%q,"type":"DROP","weight":%d}`, network, weight)
	}
	rapid.Check(t, func(r *rapid.T) {
		s := newStore(base)
		s.known = true
		var steps []*step
		replay := func() map[string]string {
			out := map[string]string{}
			for _, st := range steps {
				if st.undone {
					continue
				}
				for key, text := range st.texts {
					if out[key] = text; text == "" {
						delete(out, key)
					}
				}
			}
			return out
		}
		inEtcd := map[string]string{}
		previous := s.state(1, 1)
		for revision := int64(2); revision < 14; revision++ {
			st := &step{revision: revision, texts: map[string]string{}}
			atomic := rapid.Bool().Draw(r, "atomic")
			s.At(revision)
			for _, key := range names {
				switch rapid.IntRange(0, 3).Draw(r, "what") {
				case 0:
					if inEtcd[key] != "" {
						delete(inEtcd, key)
						st.texts[key] = ""
						s.Delete(base + key)
					}
				case 1, 2:
					inEtcd[key] = text(key, rapid.IntRange(1, 3).Draw(r, "weight"))
					st.texts[key] = inEtcd[key]
					s.Put(base+key, []byte(inEtcd[key]))
				}
			}
			if atomic {
				for key := range replay() { // deletions that were rolled back
					if _, changed := st.texts[key]; !changed && inEtcd[key] == "" &&
						s.values[key].Gone {
						st.texts[key] = ""
					}
				}
				s.Put(base+transactionKey, nil)
			}
			steps = append(steps, st)
			if !rapid.Bool().Draw(r, "published") {
				continue
			}
			state := s.state(revision, 1)
			bad := rapid.SampledFrom(append(names, "")).Draw(r, "bad")
			for len(s.open) > 0 {
				if !s.decide(answer(state, previous, bad)) {
					r.Fatalf("no decision of %v", s.open[0])
				}
				for _, st := range steps {
					if st.revision == s.ended.Revision { // those before it were confirmed
						st.undone = s.ended.RolledBack != ""
					}
				}
				previous, state = state, s.state(revision, 1)
			}
			previous = state
			got := map[string]string{}
			for key, v := range s.values {
				if v.inForce() != "" {
					got[key] = v.inForce()
				}
			}
			if want := replay(); !maps.Equal(got, want) {
				r.Fatalf("in force\n%v, want\n%v", got, want)
			}
			for key, item := range state.Sources[0].Items {
				if key != transactionKey && (item.Message == nil) != (got[key] == "") {
					r.Fatalf("%s: %v", key, item)
				}
			}
		}
	})
}
