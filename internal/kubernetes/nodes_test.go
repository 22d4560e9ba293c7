package kubernetes_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/kubernetes"
	"vpp-route-agent/internal/kubernetes/kubetest"
	"vpp-route-agent/internal/testlog"
)

// patience is that of the clients here.
const patience = time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is the stand-in, or a real API server.
type server interface {
	Kubeconfig() string
	Put(name string, change ...kubetest.NodeChange)
	Delete(name string)
	Node(name string) *corev1.Node
	EndWatches()
	Compact()
}

// TestAPIServer runs on build/kube-apiserver what of the tests here a real one can be made to do.
func TestAPIServer(t *testing.T) {
	program := kubetest.FindReal()
	if program == "" {
		t.Skip("there is no build/kube-apiserver: make kube-apiserver builds it")
	}
	e, err := calicotest.StartEtcd(calicotest.EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	s := kubetest.NewReal(t, program, e.Endpoint())
	s.Allow([]string{"list nodes", "watch nodes", "get nodes", "patch nodes"})
	for _, c := range []struct {
		name string
		test func(*testing.T, server)
	}{
		{"nodes are followed", nodesAreFollowed},
		{"a watch ends", aWatchEnds},
		{"cordon", cordon},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.Reset("nodes")
			c.test(t, s)
		})
	}
}

// hasLists sees how often a stand-in has listed the Nodes; a real API server does not count.
func hasLists(t *testing.T, s server, want int, why string) {
	t.Helper()
	if s, ok := s.(*kubetest.Server); ok && s.Lists() != want {
		t.Errorf("%d lists, want %d: %s", s.Lists(), want, why)
	}
}

// follow starts to follow the Nodes of a server.
func follow(t *testing.T, s server) (*kubernetes.Nodes, *testlog.Buffer) {
	t.Helper()
	return followFor(t, s, patience)
}

// followFor waits so long for an answer.
func followFor(t *testing.T, s server, patience time.Duration) (*kubernetes.Nodes,
	*testlog.Buffer) {
	t.Helper()
	if _, standIn := s.(*kubetest.Server); standIn {
		t.Attr("part", "Kubernetes API, a stand-in")
	}
	c, err := kubernetes.NewClient(s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	c.Timeout = patience
	log := &testlog.Buffer{}
	n := kubernetes.NewNodes(c, slog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := n.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait(); c.Close() })
	return n, log
}

// await waits until what is known is as wanted.
func await(t *testing.T, n *kubernetes.Nodes, what string,
	ok func(kubernetes.Known) bool) kubernetes.Known {
	t.Helper()
	end := time.After(40 * time.Second)
	for {
		k := n.Known()
		if ok(k) {
			return k
		}
		select {
		case <-n.Changed():
		case <-time.After(time.Second):
		case <-end:
			t.Fatalf("not seen: %s; known is %+v", what, k)
		}
	}
}

func answers(k kubernetes.Known) bool { return k.Away.IsZero() && k.Nodes != nil }

// What a Node says, and each change of it.
func TestNodesAreFollowed(t *testing.T) {
	nodesAreFollowed(t, kubetest.NewServer(t))
	streams := kubetest.NewServer(t)
	streams.Stream()
	nodesAreFollowed(t, streams)
}

func nodesAreFollowed(t *testing.T, s server) {
	s.Put("a")
	s.Put("b", kubetest.Cordon, kubetest.Taint("dedicated", corev1.TaintEffectNoSchedule))
	n, _ := follow(t, s)
	k := await(t, n, "the first list", answers)
	b := k.Nodes["b"]
	if len(k.Nodes) != 2 || !k.Nodes["a"].NotReady.IsZero() || !b.Unschedulable ||
		!slices.Equal(b.Taints, []kubernetes.Taint{{Key: "dedicated", Effect: "NoSchedule"}}) {
		t.Errorf("%+v", k)
	}
	s.Put("a", kubetest.NotReady)
	k = await(t, n, "a not ready", func(k kubernetes.Known) bool {
		return !k.Nodes["a"].NotReady.IsZero()
	})
	since := k.Nodes["a"].NotReady
	s.Put("a", kubetest.Cordon)
	k = await(t, n, "a cordoned", func(k kubernetes.Known) bool {
		return k.Nodes["a"].Unschedulable
	})
	if k.Nodes["a"].NotReady != since {
		t.Errorf("not ready since %v, was %v", k.Nodes["a"].NotReady, since)
	}
	s.Put("a", kubetest.Ready, kubetest.Deleting)
	await(t, n, "a ready, and on its way out", func(k kubernetes.Known) bool {
		return k.Nodes["a"].NotReady.IsZero() && k.Nodes["a"].Deleted
	})
	version := n.Known().Version
	s.Put("b", func(n *corev1.Node) { n.Status.NodeInfo.KernelVersion = "6.18" })
	s.Delete("a")
	k = await(t, n, "a gone", func(k kubernetes.Known) bool { return len(k.Nodes) == 1 })
	if k.Version != version+1 {
		t.Errorf("version %d after %d: what does not matter here has changed it", k.Version,
			version)
	}
	hasLists(t, s, 1, "all changes come by the watch")
}

// Whatever ends a watch, what it missed is seen afterwards.
func TestAWatchEnds(t *testing.T) { aWatchEnds(t, kubetest.NewServer(t)) }

func aWatchEnds(t *testing.T, s server) {
	s.Put("a")
	n, _ := follow(t, s)
	await(t, n, "the first list", answers)
	// b comes by a watch. After one that ends at once, without an event, client-go lists again.
	s.Put("b")
	await(t, n, "b", func(k kubernetes.Known) bool { return len(k.Nodes) == 2 })
	s.EndWatches()
	s.Put("c")
	await(t, n, "c", func(k kubernetes.Known) bool { return len(k.Nodes) == 3 })
	hasLists(t, s, 1, "the watch goes on where the last one ended")
	s.Compact() // 410 Gone
	s.Put("d")
	await(t, n, "d", func(k kubernetes.Known) bool { return len(k.Nodes) == 4 })
	hasLists(t, s, 2, "another one after 410")
}

// While the API server refuses or is slow, what is known stays, and since when is known.
func TestTheServerIsAway(t *testing.T) {
	for what, fault := range map[string]struct {
		on, off func(*kubetest.Server)
		problem string
	}{
		"401": {
			func(s *kubetest.Server) { s.SetToken("another") },
			func(s *kubetest.Server) { s.SetToken(kubetest.Token) }, "Unauthorized",
		},
		"403": {
			func(s *kubetest.Server) { s.Refuse(http.StatusForbidden) },
			func(s *kubetest.Server) { s.Refuse(0) }, "refused",
		},
		"503": {
			func(s *kubetest.Server) { s.Refuse(http.StatusServiceUnavailable) },
			func(s *kubetest.Server) { s.Refuse(0) }, "refused",
		},
		"slow": {
			func(s *kubetest.Server) { s.Hang(true); s.EndWatches() },
			func(s *kubetest.Server) { s.Hang(false) }, "no answer within 1s",
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := kubetest.NewServer(t)
			s.Put("a", kubetest.Cordon)
			n, log := follow(t, s)
			await(t, n, "the first list", answers)
			began := time.Now()
			fault.on(s)
			k := await(t, n, "that it is away", func(k kubernetes.Known) bool {
				return !k.Away.IsZero()
			})
			if !k.Nodes["a"].Unschedulable || k.Away.Before(began) ||
				!strings.Contains(k.Problem, fault.problem) {
				t.Errorf("%+v", k)
			}
			s.Put("b")
			fault.off(s)
			k = await(t, n, "that it is back", func(k kubernetes.Known) bool {
				return len(k.Nodes) == 2
			})
			if !answers(k) || k.Problem != "" {
				t.Errorf("%+v", k)
			}
			if strings.Contains(log.String(), kubetest.Token) {
				t.Errorf("the log has a token:\n%s", log)
			}
			if got := strings.Count(log.String(), "cannot be read"); got != 1 {
				t.Errorf("%d lines say so:\n%s", got, log)
			}
		})
	}
}

// Where an answer does not come, each request says so in the same words.
func TestNoAnswer(t *testing.T) {
	s := kubetest.NewServer(t)
	s.Hang(true)
	c, err := kubernetes.NewClient(s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Timeout = 50 * time.Millisecond
	pods := kubernetes.Resource{Version: "v1", Plural: "pods"}
	for name, ask := range map[string]func() error{
		"list of Nodes": func() error { _, err := c.Nodes(t.Context()); return err },
		"groups":        func() error { _, err := c.Groups(t.Context()); return err },
		"list": func() error {
			_, err := c.List(t.Context(), pods, kubernetes.ListOptions{}, nil)
			return err
		},
		"watch": func() error { return c.Watch(t.Context(), pods, "1", nil, nil) },
	} {
		err := ask()
		if err == nil || !strings.HasSuffix(err.Error(), ": no answer within 50ms") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A server that takes a watch which is to list all Nodes, and then sends none, does not count as
// one that answers. It is asked for a list then, as before there were such watches.
func TestAListThatStalls(t *testing.T) {
	t.Parallel()
	s := kubetest.NewServer(t)
	s.Put("a")
	s.Stall()
	n, log := followFor(t, s, 10*time.Second)
	time.Sleep(patience / 2)
	if k := n.Known(); k.Nodes != nil || k.Away.IsZero() || log.String() != "" {
		t.Errorf("%+v\n%s", k, log)
	}
	k := await(t, n, "a", answers)
	if k.Problem != "" || len(k.Nodes) != 1 {
		t.Errorf("%+v", k)
	}
	s.Put("b")
	await(t, n, "b", func(k kubernetes.Known) bool { return len(k.Nodes) == 2 })
	s.Compact() // so that it is to list again
	s.Put("c")
	await(t, n, "c", func(k kubernetes.Known) bool { return len(k.Nodes) == 3 })
	if s.Lists() != 2 {
		t.Errorf("%d lists", s.Lists())
	}
}

// Before the first list nothing is known, and why.
func TestNothingIsKnownYet(t *testing.T) {
	s := kubetest.NewServer(t)
	s.Refuse(http.StatusForbidden)
	n, _ := follow(t, s)
	k := await(t, n, "a refusal", func(k kubernetes.Known) bool {
		return strings.Contains(k.Problem, "refused")
	})
	if k.Nodes != nil || k.Away.IsZero() {
		t.Errorf("%+v", k)
	}
	s.Refuse(0)
	await(t, n, "an empty cluster", answers)
}

// A client certificate does, too; and a server that another authority has signed is not trusted.
func TestCredentials(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	self := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, self, self, key.Public(), key)
	private, err2 := x509.MarshalPKCS8PrivateKey(key)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	data := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{
			Type: kind, Bytes: der,
		}))
	}
	s := kubetest.NewServer(t)
	s.Put("a")
	mine := s.KubeconfigFor("client-certificate-data: " + data("CERTIFICATE", certificate) +
		", client-key-data: " + data("PRIVATE KEY", private))
	foreign := s.Kubeconfig()
	ca := filepath.Join(filepath.Dir(foreign), "ca.crt")
	err = os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{
		Type: "CERTIFICATE", Bytes: certificate,
	}), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ file, err string }{
		{s.Kubeconfig(), ""}, {mine, ""},
		{s.KubeconfigFor("token: another"), "nauthorized"},
		{s.KubeconfigFor(""), "nauthorized"},
		{foreign, "certificate signed by unknown authority"},
	} {
		c, err := kubernetes.NewClient(tc.file)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Nodes(t.Context())
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%v, want %q", err, tc.err)
		}
		c.Close()
	}
}

// A file that is no kubeconfig is refused at once.
func TestKubeconfig(t *testing.T) {
	for _, text := range []string{"", "{", "apiVersion: v1\nkind: Config\ncurrent-context: no\n"} {
		file := t.TempDir() + "/kubeconfig"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := kubernetes.NewClient(file); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	if _, err := kubernetes.NewClient("/no/such/file"); err == nil {
		t.Error("a file that does not exist is taken")
	}
}

// What kubectl reads may be several files.
func TestKubeconfigOfKubectl(t *testing.T) {
	s := kubetest.NewServer(t)
	s.Put("a")
	for _, tc := range []struct{ files, err string }{
		{s.Kubeconfig(), ""},
		{"/no/such/file" + string(filepath.ListSeparator) + s.Kubeconfig(), ""},
		{"/no/such/file", "/no/such/file"},
	} {
		t.Setenv("KUBECONFIG", tc.files)
		c, err := kubernetes.NewDefaultClient()
		if err == nil {
			_, err = c.Nodes(t.Context())
			c.Close()
		}
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %v, want %q", tc.files, err, tc.err)
		}
	}
}

// Cordons are marked, and nobody else's is undone.
func TestCordon(t *testing.T) {
	s := kubetest.NewServer(t)
	cordon(t, s)
	if n := len(s.Patches()); n != 2 {
		t.Errorf("patches: %q", s.Patches())
	}
}

func cordon(t *testing.T, s server) {
	s.Put("a")
	s.Put("theirs", kubetest.Cordon)
	c, err := kubernetes.NewClient(s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, tc := range []struct {
		node, cordon string // no cordon: uncordon
		err          string
		cordoned     bool
		note         string
	}{
		{"a", "disk", "", true, "disk"},
		{"a", "another", "", true, "disk"},
		{"a", "", "", false, ""},
		{"a", "", "it is not cordoned", false, ""},
		{"theirs", "disk", "", true, ""},
		{"theirs", "", "somebody else has cordoned it", true, ""},
		{"none", "disk", `nodes "none" not found`, false, ""},
	} {
		var err error
		if tc.cordon != "" {
			err = c.Cordon(t.Context(), tc.node, tc.cordon)
		} else {
			err = c.Uncordon(t.Context(), tc.node)
		}
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%+v: %v", tc, err)
		}
		n := s.Node(tc.node)
		if n != nil && (n.Spec.Unschedulable != tc.cordoned ||
			n.Annotations["vpp-route-agent/cordon"] != tc.note) {
			t.Errorf("%+v: %+v", tc, n)
		}
	}
}
