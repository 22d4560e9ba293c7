package etcd

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/etcd"
	"vpp-route-agent/internal/external"
)

const (
	base  = "/vnf-agent/edge-7/"
	aKey  = "config/vpp/v2/route/vrf/0/dst/10.9.1.0/24/gw/10.0.0.2"
	aText = `{"dst_network":"10.9.1.0/24","next_hop_addr":"10.0.0.2"}`
	bKey  = "config/vpp/v2/route/vrf/0/dst/10.9.2.0/24"
	bText = `{"dst_network":"10.9.2.0/24","type":"DROP"}`
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func startEtcd(t *testing.T) (e *calicotest.Etcd, stop func()) {
	t.Helper()
	e, err := calicotest.StartEtcd(calicotest.EtcdOptions{})
	must(t, err)
	stop = sync.OnceFunc(func() { e.Close() })
	t.Cleanup(stop)
	return e, stop
}

func put(t *testing.T, c *clientv3.Client, key, text string) int64 {
	t.Helper()
	resp, err := c.Put(t.Context(), base+key, text)
	must(t, err)
	return resp.Header.Revision
}

func remove(t *testing.T, c *clientv3.Client, key string) {
	t.Helper()
	_, err := c.Delete(t.Context(), base+key)
	must(t, err)
}

// start runs a source until stop, or the end of the test.
func start(t *testing.T, endpoint, dir string) (s *Source, stop func()) {
	t.Helper()
	s, err := New(Config{Etcd: etcd.Config{Endpoints: []string{endpoint}}, Prefix: DefaultPrefix,
		Node: "edge-7", StateDir: dir, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	t.Cleanup(stop)
	return s, stop
}

// await reads states until one suits.
func await(t *testing.T, s *Source, what string,
	suits func(external.Snapshot) bool) external.Snapshot {
	t.Helper()
	late := time.After(30 * time.Second)
	for {
		select {
		case state := <-s.Snapshots():
			if suits(state) {
				return state
			}
		case <-late:
			t.Fatalf("not seen: %s", what)
		}
	}
}

func keys(s external.Snapshot) string {
	var all []string
	for key, i := range s.Sources[0].Items {
		if i.Problem != (external.Problem{}) {
			key += " " + i.Problem.State.String()
		}
		all = append(all, key)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func TestStatesFollowEtcd(t *testing.T) {
	t.Parallel()
	e, _ := startEtcd(t)
	put(t, e.Client(), aKey, aText)
	put(t, e.Client(), "vpp/status/v2/interface/x", "{}") // not configuration
	s, _ := start(t, e.Endpoint(), t.TempDir())
	first := await(t, s, "the first state", func(external.Snapshot) bool { return true })
	if !first.Complete || keys(first) != aKey || first.Sources[0].Name != "etcd" {
		t.Errorf("first: %+v", first)
	}

	// One revision is one state: of four keys, two of them bad, none comes alone.
	ops := []clientv3.Op{clientv3.OpDelete(base + aKey), clientv3.OpPut(base+bKey, bText)}
	for _, key := range []string{"config/vpp/acls/v2/acl/a", "config/vpp/v2/route/x"} {
		ops = append(ops, clientv3.OpPut(base+key, "{}"))
	}
	resp, err := e.Client().Txn(t.Context()).Then(ops...).Commit()
	must(t, err)
	state := await(t, s, "the transaction", func(external.Snapshot) bool { return true })
	want := "config/vpp/acls/v2/acl/a UNIMPLEMENTED, config/vpp/v2/route/vrf/0/dst/" +
		"10.9.2.0/24, config/vpp/v2/route/x INVALID"
	if keys(state) != want || state.Revision != resp.Header.Revision {
		t.Errorf("revision %d: %s\nwant %s", state.Revision, keys(state), want)
	}
	if state.Sources[0].Items[bKey].Revision != resp.Header.Revision {
		t.Errorf("the item is of revision %d", state.Sources[0].Items[bKey].Revision)
	}

	// Keys of Ligato v1 are elsewhere.
	put(t, e.Client(), "vpp/config/v1/vrf/0/fib/10.0.0.0/8/", "{}")
	want += ", vpp/config/v1/vrf/0/fib/10.0.0.0/8/ INVALID"
	await(t, s, "the old key", func(s external.Snapshot) bool { return keys(s) == want })

	// What was good stays when what comes is bad.
	put(t, e.Client(), bKey, "{")
	state = await(t, s, "a bad value", func(external.Snapshot) bool { return true })
	if b := state.Sources[0].Items[bKey]; b.Message == nil || b.Problem.State != external.Invalid {
		t.Errorf("after a bad value: %+v", b)
	}
	// The same value again is a revision of its own, for whose answer its client waits.
	again := put(t, e.Client(), bKey, "{")
	state = await(t, s, "the same again", func(s external.Snapshot) bool {
		return s.Revision == again
	})
	if state.Sources[0].Items[bKey].Revision == again {
		t.Error("an unchanged value has become newer")
	}
}

// readCopy waits until the file has what is wanted.
func readCopy(t *testing.T, dir string, suits func(k *kept) bool) {
	t.Helper()
	path := filepath.Join(dir, "external-etcd.json")
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		raw, err := os.ReadFile(path)
		if err == nil {
			k, err := decodeCopy(raw, base)
			must(t, err)
			if suits(k) {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%s is not as it should be: %v", path, err)
		}
	}
}

func TestAStartWithoutEtcdUsesTheCopy(t *testing.T) {
	t.Parallel()
	e, stopEtcd := startEtcd(t)
	dir := t.TempDir()
	put(t, e.Client(), aKey, aText)
	put(t, e.Client(), bKey, bText)
	s, stop := start(t, e.Endpoint(), dir)
	await(t, s, "the first state", func(external.Snapshot) bool { return true })
	put(t, e.Client(), bKey, "{") // the last good value is kept too
	await(t, s, "the bad value", func(external.Snapshot) bool { return true })
	readCopy(t, dir, func(k *kept) bool { return k.Items[bKey].Good == bText })
	stop()
	endpoint := e.Endpoint()
	stopEtcd()

	s, stop = start(t, endpoint, dir)
	state := await(t, s, "the copy", func(external.Snapshot) bool { return true })
	if state.Complete || keys(state) != aKey+", "+bKey+" INVALID" ||
		state.Sources[0].Items[bKey].Message == nil || !s.Status().Stale {
		t.Errorf("from the copy: %+v, stale: %v", state, s.Status().Stale)
	}
	stop()

	raw, err := os.ReadFile(filepath.Join(dir, "external-etcd.json"))
	must(t, err)
	for _, n := range []int{0, 1, 40, len(raw) / 2, len(raw) - 1} {
		if _, err := decodeCopy(raw[:n], base); err == nil {
			t.Errorf("a copy of %d of %d bytes is accepted", n, len(raw))
		}
	}
	if _, err := decodeCopy(raw, "/vnf-agent/other/"); err == nil {
		t.Error("the copy of another node is accepted")
	}
}

// The wait for etcd ends as its first list is being published, before the follower is synced.
func TestTheCopyDoesNotReplaceWhatEtcdHas(t *testing.T) {
	s, err := New(Config{Etcd: etcd.Config{Endpoints: []string{"http://127.0.0.1:1"}},
		Prefix: DefaultPrefix, Node: "edge-7", StateDir: t.TempDir(),
		Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	s.store.restore(&kept{Base: base, Items: map[string]value{aKey: {Text: aText}}})
	s.store.BeginList()
	s.store.Put(base+bKey, []byte(bText))
	s.store.EndList(base + "config/vpp/")
	s.publish(etcd.Published{Revision: 9, Lists: 1})
	s.useCopy(s.store.restored, time.Now())
	if state := <-s.Snapshots(); keys(state) != bKey || s.Status().Stale {
		t.Errorf("%s, stale %v", keys(state), s.Status().Stale)
	}
}

// A restart over unchanged configuration reads the same, and writes nothing.
func TestAnUnchangedResyncWritesNothing(t *testing.T) {
	t.Parallel()
	e, _ := startEtcd(t)
	dir := t.TempDir()
	put(t, e.Client(), aKey, aText)
	s, stop := start(t, e.Endpoint(), dir)
	await(t, s, "the first state", func(external.Snapshot) bool { return true })
	readCopy(t, dir, func(k *kept) bool { return k.Items[aKey].Text == aText })
	stop()
	path := filepath.Join(dir, "external-etcd.json")
	before, err := os.Stat(path)
	must(t, err)
	s, stop = start(t, e.Endpoint(), dir)
	await(t, s, "the state again", func(s external.Snapshot) bool { return s.Complete })
	time.Sleep(2 * writeDelay)
	stop()
	after, err := os.Stat(path)
	must(t, err)
	if !os.SameFile(before, after) || before.ModTime() != after.ModTime() {
		t.Error("the copy was written again")
	}
}

// stored returns what etcd has under the node's config-status/.
func stored(t *testing.T, c *clientv3.Client) map[string]string {
	t.Helper()
	resp, err := c.Get(t.Context(), base+statusDir, clientv3.WithPrefix())
	must(t, err)
	out := map[string]string{}
	for _, kv := range resp.Kvs {
		if kv.Lease == 0 {
			t.Errorf("%s has no lease", kv.Key)
		}
		out[strings.TrimPrefix(string(kv.Key), base+statusDir)] = string(kv.Value)
	}
	return out
}

func observed(t *testing.T, all map[string]string) int64 {
	t.Helper()
	var s summary
	if text := all[summaryName]; text != "" {
		must(t, json.Unmarshal([]byte(text), &s))
	}
	return s.ObservedRevision
}

func awaitStored(t *testing.T, c *clientv3.Client, what string,
	suits func(map[string]string) bool) map[string]string {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		all := stored(t, c)
		if suits(all) {
			return all
		}
		if time.Now().After(end) {
			t.Fatalf("not seen: %s; there is %v", what, all)
		}
	}
}

func TestAnswersAreWrittenBack(t *testing.T) {
	t.Parallel()
	e, _ := startEtcd(t)
	s, stop := start(t, e.Endpoint(), t.TempDir())
	answer := external.Answer{Revision: 7, Verdicts: []external.Verdict{
		{Source: Name, Key: aKey, Canonical: aKey, State: external.Pending, Unfinished: true,
			Details: []string{"wait"}, Revision: 7},
		{Source: Name, Key: bKey, State: external.Invalid, Details: []string{"bad"}, Revision: 6},
	}}
	began := time.Now()
	s.Answer(answer)
	all := awaitStored(t, e.Client(), "an item that is not finished",
		func(all map[string]string) bool { return len(all) == 3 })
	aStatus := strings.TrimPrefix(aKey, "config/")
	want := `{"key":"` + aKey + `","state":"PENDING","details":["wait"],"source":"etcd",` +
		`"config_revision":7}`
	if all[aStatus] != want {
		t.Errorf("status %s, want %s", all[aStatus], want)
	}
	if time.Since(began) < unfinishedTime && observed(t, all) != 0 {
		t.Error("a revision is observed though the data plane has not answered")
	}
	awaitStored(t, e.Client(), "the revision in the end", func(all map[string]string) bool {
		return observed(t, all) == 7
	})

	answer.Revision = 8
	answer.Verdicts = slices.Clone(answer.Verdicts[:1])
	answer.Verdicts[0].State, answer.Verdicts[0].Unfinished = external.Configured, false
	s.Answer(answer)
	all = awaitStored(t, e.Client(), "the next answer", func(all map[string]string) bool {
		return observed(t, all) == 8
	})
	if len(all) != 2 || !strings.Contains(all[aStatus], `"CONFIGURED"`) {
		t.Errorf("next: %v", all)
	}

	// A status of an earlier run goes with its item. With the agent all go.
	stop()
	s, stop = start(t, e.Endpoint(), t.TempDir())
	s.Answer(external.Answer{Revision: 9})
	awaitStored(t, e.Client(), "nothing but the summary, as status says",
		func(all map[string]string) bool {
			return observed(t, all) == 9 && len(all) == 1 && s.Status().Observed == 9 &&
				s.Status().AnswerProblem == ""
		})
	stop()
	awaitStored(t, e.Client(), "the end of the lease", func(all map[string]string) bool {
		return len(all) == 0
	})
}

func TestManyAnswersArePutInBatches(t *testing.T) {
	t.Parallel()
	e, _ := startEtcd(t)
	s, _ := start(t, e.Endpoint(), t.TempDir())
	answer := external.Answer{Revision: 7}
	for i := range 1000 {
		answer.Verdicts = append(answer.Verdicts, external.Verdict{
			Source: Name, Key: "config/x/" + strings.Repeat("y", i), State: external.Configured,
		})
	}
	s.Answer(answer)
	awaitStored(t, e.Client(), "all", func(all map[string]string) bool {
		return observed(t, all) == 7 && len(all) == 1001
	})
}

// A client asks to read everything again, and hears when that is done.
func TestResyncOnRequest(t *testing.T) {
	t.Parallel()
	e, _ := startEtcd(t)
	put(t, e.Client(), aKey, aText)
	put(t, e.Client(), resyncName, "before the start")
	s, _ := start(t, e.Endpoint(), t.TempDir())
	state := await(t, s, "the first list", func(s external.Snapshot) bool { return s.Complete })
	if state.Resync != "before the start" || state.List != 1 || keys(state) != aKey {
		t.Errorf("%+v", state)
	}
	for i, id := range []string{"one", "two"} {
		put(t, e.Client(), resyncName, id)
		state = await(t, s, id, func(s external.Snapshot) bool { return s.Resync == id })
		if state.List != 2+i || keys(state) != aKey {
			t.Errorf("%+v", state)
		}
	}
	began := time.Now()
	s.Answer(external.Answer{Revision: 9, Resync: "two", Verdicts: []external.Verdict{
		{Source: Name, Key: aKey, State: external.Pending, Unfinished: true}}})
	all := awaitStored(t, e.Client(), "the items", func(all map[string]string) bool {
		return len(all) == 2
	})
	if time.Since(began) < unfinishedTime && strings.Contains(all[summaryName], "resync_id") {
		t.Errorf("it is done before the data plane has answered: %s", all[summaryName])
	}
	s.Answer(external.Answer{Revision: 9, Resync: "two", Verdicts: []external.Verdict{
		{Source: Name, Key: aKey, State: external.Configured}}})
	awaitStored(t, e.Client(), "the answer", func(all map[string]string) bool {
		return strings.Contains(all[summaryName], `"resync_id":"two"`)
	})
}

// What is staged counts from a commit that fits, whole, until the commit goes.
func TestGroupsAreStagedAndCommitted(t *testing.T) {
	t.Parallel()
	e, _ := startEtcd(t)
	dir := t.TempDir()
	s, stop := start(t, e.Endpoint(), dir)
	is := func(what, want string) {
		t.Helper()
		await(t, s, what+": "+want, func(s external.Snapshot) bool { return keys(s) == want })
	}
	is("at first", "")
	put(t, e.Client(), stagingDir+"g/"+aKey, aText)
	put(t, e.Client(), stagingDir+"g/"+bKey, bText)
	put(t, e.Client(), stagingDir+"g", `{"items":3}`)
	is("the commit does not fit", "staging/g INVALID")
	sum := digest(map[string]string{aKey: aText, bKey: bText})
	put(t, e.Client(), stagingDir+"g", `{"items":2,"sha256":"`+sum+`"}`)
	is("it fits", aKey+", "+bKey)
	remove(t, e.Client(), stagingDir+"g/"+bKey)
	is("an item is missing now", aKey+", "+bKey+", staging/g INVALID")
	readCopy(t, dir, func(k *kept) bool { return k.Items[bKey].Group == "g" })
	stop()
	s, _ = start(t, e.Endpoint(), dir)
	is("the last that fitted is kept on disk", aKey+", "+bKey+", staging/g INVALID")
	put(t, e.Client(), stagingDir+"g", `{"items":1}`)
	is("a new commit", aKey)
	put(t, e.Client(), aKey, "{")
	is("a key of its own goes first", aKey+" INVALID")
	remove(t, e.Client(), aKey)
	is("and is gone", aKey)
	remove(t, e.Client(), stagingDir+"g")
	is("no commit", "")
}

// An item of a group is of the revision of its commit, also where a list has told of it.
func TestItemsOfGroupsHaveTheRevisionOfTheirCommit(t *testing.T) {
	t.Parallel()
	e, _ := startEtcd(t)
	dir := t.TempDir()
	put(t, e.Client(), stagingDir+"g/"+bKey, bText)
	first := put(t, e.Client(), stagingDir+"g", `{"items":1}`)
	put(t, e.Client(), stagingDir+"h/"+aKey, aText)
	s, stop := start(t, e.Endpoint(), dir)
	var second int64 // the commit of h; 0: there is none yet
	is := func(what string) {
		t.Helper()
		await(t, s, what, func(state external.Snapshot) bool {
			items := state.Sources[0].Items
			if items[bKey].Key == "" || second != 0 && items[aKey].Key == "" {
				return false
			}
			if a, b := items[aKey].Revision, items[bKey].Revision; a != second || b != first {
				t.Errorf("%s: revisions %d and %d, want %d and %d", what, a, b, second, first)
			}
			return true
		})
	}
	is("a list")
	second = put(t, e.Client(), stagingDir+"h", `{"items":1}`)
	is("a commit")
	readCopy(t, dir, func(k *kept) bool { return k.Items[aKey].Group == "h" })
	stop()
	s, stop = start(t, e.Endpoint(), dir)
	is("the next run")
	stop()
	s, _ = start(t, e.Endpoint(), t.TempDir())
	is("without a copy")
}
