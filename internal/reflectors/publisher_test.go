package reflectors

import (
	"context"
	"errors"
	"flag"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/etcd"
	"vpp-route-agent/internal/testlog"
)

// Tests mostly wait: for leases, grace times and statuses, of which there is one a second. GoBGP
// cannot be ended: its goroutine stays, and a queue for each peer.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/osrg/gobgp/v3/pkg/server.(*BgpServer).Serve"),
		goleak.IgnoreTopFunction(
			"github.com/eapache/channels.(*InfiniteChannel).infiniteBuffer"))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not seen: %s", what)
		}
	}
}

// oracle counts how often it was asked, and fails while it is told to.
type oracle struct {
	mu    sync.Mutex
	asked int
	fails error
}

func (o *oracle) answer(_ context.Context, q reflector.Question) (reflector.Answer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked++
	return reflector.Answer{
		Format: reflector.StatusFormat, Version: "v1", Question: q, Digest: "d",
		IPv4: reflector.Change{Missing: o.asked},
	}, o.fails
}

func (o *oracle) set(fails error) (asked int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fails = fails
	return o.asked
}

// lab is an etcd with the publisher of node edge-7.
type lab struct {
	*Publisher
	oracle oracle
	t      *testing.T
	etcd   *calicotest.Etcd
	stop   func()
}

func newLab(t *testing.T, change func(*calicotest.Etcd, *etcd.Config)) *lab {
	t.Attr("part", "etcd 3.6.16, embedded server")
	e, err := calicotest.StartEtcd(calicotest.EtcdOptions{})
	must(t, err)
	t.Cleanup(e.Close)
	l := &lab{t: t, etcd: e}
	cfg := etcd.Config{Endpoints: []string{e.Endpoint()}}
	change(e, &cfg)
	l.Publisher, err = NewPublisher(PublisherConfig{
		Etcd: cfg, Node: "edge-7", Answer: l.oracle.answer,
		Log: testlog.New(t),
	})
	must(t, err)
	l.exchange.(*etcd.Exchange).RevokeTimeout = 30 * time.Second
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := l.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	l.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(l.stop)
	return l
}

func asRoot(*calicotest.Etcd, *etcd.Config) {}

func (l *lab) put(key string, value []byte) (revision int64) {
	l.t.Helper()
	resp, err := l.etcd.Client().Put(l.t.Context(), key, string(value))
	must(l.t, err)
	return resp.Header.Revision
}

func (l *lab) delete(key string) {
	l.t.Helper()
	_, err := l.etcd.Client().Delete(l.t.Context(), key)
	must(l.t, err)
}

// heard are the keys of the node as a controller hears them.
func (l *lab) heard() map[string]reflector.Said {
	l.t.Helper()
	resp, err := l.etcd.Client().Get(l.t.Context(), reflector.NodesPrefix, clientv3.WithPrefix())
	must(l.t, err)
	all := map[string]reflector.Said{}
	for _, kv := range resp.Kvs {
		said, problem := reflector.Hear(string(kv.Key), kv.Value, "v1")
		if problem != nil || said.Node != "edge-7" || kv.Lease == 0 ||
			len(kv.Value) > reflector.MaxValue {
			l.t.Errorf("%s: %+v, %+v, lease %x", kv.Key, said, problem, kv.Lease)
		}
		all[string(kv.Key)] = said
	}
	return all
}

func (l *lab) answerTo(id string) *reflector.Answer {
	return l.heard()[reflector.AnswerKey("edge-7", id)].Answer
}

func status(up int) reflector.Status {
	return reflector.Status{Format: reflector.StatusFormat, Version: "v1", Wanted: 9, Up: up}
}

func TestQuestionsAreAnsweredOnceEachTimeTheyAreAsked(t *testing.T) {
	t.Parallel()
	l := newLab(t, asRoot)
	mesh := reflector.Question{Mesh: true}
	l.put(reflector.QuestionKey("mesh"), mesh.Encode())
	l.Report(status(1))
	await(t, "the status", func() bool { return len(l.heard()) > 0 })
	await(t, "the answer", func() bool { return l.answerTo("mesh") != nil })
	first := *l.answerTo("mesh")
	again := l.put(reflector.QuestionKey("mesh"), mesh.Encode())
	await(t, "the second answer", func() bool { return l.answerTo("mesh").Revision == again })
	if a := *l.answerTo("mesh"); a.Question != mesh || a.IPv4.Missing != 2 ||
		first.Revision >= again {
		t.Errorf("answers %+v, %+v", first, a)
	}

	l.oracle.set(errors.New("GoBGP is blocked"))
	leave := reflector.Question{Leave: "rr-1", Label: "l"}
	l.put(reflector.QuestionKey("leave"), leave.Encode())
	await(t, "an attempt", func() bool { return l.oracle.set(errors.New("still")) >= 3 })
	l.oracle.set(nil)
	await(t, "the answer at last", func() bool { return l.answerTo("leave") != nil })

	bad := l.put(reflector.QuestionKey("mesh"), []byte(`{"format":1,"mash":true}`))
	l.put(reflector.QuestionsPrefix+"not/an/id", mesh.Encode())
	await(t, "no answer to what cannot be understood", func() bool {
		return l.answerTo("mesh") == nil
	})
	asked := l.oracle.set(nil)
	l.Report(status(2)) // which has nothing to do with it
	l.delete(reflector.QuestionKey("leave"))
	await(t, "the end of the answer, and the next status", func() bool {
		all := l.heard()
		said := all[reflector.StatusKey("edge-7")].Status
		return len(all) == 1 && said != nil && said.Up == 2
	})
	if now := l.oracle.set(nil); now != asked {
		t.Errorf("asked %d times more", now-asked)
	}
	if l.put(reflector.QuestionKey("mesh"), mesh.Encode()) <= bad {
		t.Fatal("etcd counts backwards")
	}
	await(t, "the answer to what can be understood", func() bool {
		return l.answerTo("mesh") != nil
	})
	l.stop()
	if all := l.heard(); len(all) > 0 {
		t.Errorf("after the end etcd has %v", all)
	}
}

// The rights that docs/security.md asks for are enough.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(e *calicotest.Etcd, cfg *etcd.Config) {
		cfg.Username, cfg.Password = "agent", "pw"
		must(t, e.EnableAuth(t.Context(), "secret", map[string]string{"agent": "pw"}))
		root, err := clientv3.New(clientv3.Config{
			Endpoints: cfg.Endpoints, Username: "root", Password: "secret",
		})
		must(t, err)
		defer root.Close()
		for prefix, kind := range map[string]clientv3.PermissionType{
			reflector.OwnPrefix("edge-7"): clientv3.PermissionType(clientv3.PermReadWrite),
			reflector.QuestionsPrefix:     clientv3.PermissionType(clientv3.PermRead),
		} {
			_, err := root.RoleGrantPermission(t.Context(), "reader", prefix,
				clientv3.GetPrefixRangeEnd(prefix), kind)
			must(t, err)
		}
	})
	l.Report(status(1))
	await(t, "it to be written", func() bool {
		return l.Status() == etcd.ExchangeStatus{Written: true}
	})
}

func TestWithoutRightsThereIsASentence(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(e *calicotest.Etcd, cfg *etcd.Config) {
		cfg.Username, cfg.Password = "reader", "pw"
		must(t, e.EnableAuth(t.Context(), "secret", map[string]string{"reader": "pw"}))
	})
	l.Report(status(1))
	await(t, "the refusal", func() bool {
		return strings.Contains(l.Status().Problem, `etcd does not allow user "reader" to write `+
			`under /vpp-route-agent/nodes/edge-7/ and to read under /vpp-route-agent/questions/`)
	})
}
