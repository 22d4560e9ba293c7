package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/kubernetes"
	"vpp-route-agent/internal/kubernetes/kubetest"
	"vpp-route-agent/internal/testlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// kinds are those of Calico that are read.
var kinds = []string{"ippools", "bgpconfigurations", "bgppeers", "bgpfilters",
	"felixconfigurations", "clusterinformations", "blockaffinities", "ipamblocks"}

// v1 is a kind of Calico's as RBAC names it.
func v1(plural string) string { return plural + ".crd.projectcalico.org" }

// server is what a source reads: kubetest's stand-in, or an API server.
type server interface {
	calicotest.Objects
	Uninstall(kind string)
	Unserve(kind string)
	EndWatches()
	Compact()
	Allow(rights []string)
	Deny(right string, denied bool)
	Version() int
	Kubeconfig() string
}

// newServer is a stand-in with a small cluster.
func newServer(t *testing.T) *kubetest.Server {
	t.Helper()
	t.Attr("part", "Kubernetes API, a stand-in")
	s := kubetest.NewServer(t)
	fill(s)
	return s
}

// fill makes a cluster of two nodes with a block and a pod each.
func fill(s server) {
	s.Install(GroupV1, kinds...)
	putNode(s, "edge-7", "172.30.8.7/24")
	putNode(s, "edge-10", "172.30.8.10/24")
	put(s, "ippools", "edge-v4", `{"cidr":"10.77.0.0/16","blockSize":26}`)
	put(s, "clusterinformations", "default", `{"datastoreReady":true}`)
	put(s, "bgppeers", "tor", `{"peerIP":"192.0.2.1","asNumber":65000}`)
	for i, node := range []string{"edge-7", "edge-10"} {
		claim(s, node, fmt.Sprintf("10.77.%d.0/26", i))
		putPod(s, node, fmt.Sprintf("pod-%d", i), fmt.Sprintf("10.77.%d.1", i))
	}
}

// put writes an object of Calico's.
func put(s server, plural, name, spec string) {
	s.PutObject(v1(plural), fmt.Appendf(nil, `{"metadata":{"name":%q},`+
		`"spec":%s}`, name, spec))
}

func putNode(s server, name, address string) {
	s.PutObject("nodes", fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Node","metadata":{"name":%q,`+
		`"annotations":{"projectcalico.org/IPv4Address":%q}}}`, name, address))
}

func putPod(s server, node, name, ip string) {
	s.PutObject("pods", fmt.Appendf(nil, `{"metadata":{"name":%q,"namespace":"shop"},"spec":{`+
		`"nodeName":%q},"status":{"phase":"Running","podIPs":[{"ip":%q}]}}`, name, node, ip))
}

func claim(s server, node, cidr string) {
	name := strings.NewReplacer(".", "-", "/", "-").Replace(cidr)
	put(s, "ipamblocks", name, fmt.Sprintf(`{"cidr":%q,"affinity":"host:%s","allocations":[0],`+
		`"attributes":[{"handle_id":"h","secondary":{"node":%q}}]}`, cidr, node, node))
	put(s, "blockaffinities", node+"-"+name, fmt.Sprintf(
		`{"cidr":%q,"node":%q,"state":"confirmed","deleted":"false"}`, cidr, node))
}

// running is a source under test, its log, and the newest snapshot it has published.
type running struct {
	*Source
	log  *testlog.Buffer
	last *calico.Snapshot
	stop func()
}

// run starts a source of edge-7 that ends with the test.
func run(t *testing.T, s server, change ...func(*Config)) *running {
	t.Helper()
	client, err := kubernetes.NewClient(s.Kubeconfig())
	must(t, err)
	client.Timeout = 5 * time.Second
	cfg := Config{Node: "edge-7"}
	for _, c := range change {
		c(&cfg)
	}
	r := &running{log: new(testlog.Buffer)}
	r.Source, err = New(client, cfg, slog.New(slog.NewTextHandler(r.log, nil)))
	must(t, err)
	r.ProbeEvery, r.AbsentEvery = 200*time.Millisecond, 200*time.Millisecond
	r.RelistSpread, r.LastRetry = 20*time.Millisecond, 500*time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	r.stop = func() { cancel(); done.Wait() }
	t.Cleanup(func() {
		r.stop()
		if t.Failed() {
			t.Logf("log:\n%s", r.log)
		}
	})
	return r
}

// until takes snapshots until ok likes one.
func (r *running) until(t *testing.T, what string,
	ok func(*calico.Snapshot) bool) *calico.Snapshot {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for r.last == nil || !ok(r.last) {
		select {
		case r.last = <-r.Snapshots():
		case <-timeout:
			t.Fatalf("not seen: %s; status %+v, last snapshot %+v", what, r.Status(), r.last)
		}
	}
	return r.last
}

func (r *running) untilStatus(t *testing.T, what string,
	ok func(kubernetes.Status) bool) kubernetes.Status {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		st := r.Status()
		if ok(st) {
			return st
		}
		if time.Now().After(end) {
			t.Fatalf("not seen: %s; status %+v", what, st)
		}
	}
}

func connected(s kubernetes.Status) bool { return s.Connected }

func says(words ...string) func(kubernetes.Status) bool {
	return func(s kubernetes.Status) bool {
		for _, w := range words {
			if !strings.Contains(s.Error, w) {
				return false
			}
		}
		return !s.Connected
	}
}

// requests is how many the stand-in had; an API server does not count for us.
func requests(s server, verb, kind string) int {
	if s, ok := s.(*kubetest.Server); ok {
		return s.Asked(verb, kind)
	}
	return 0
}

func any1(*calico.Snapshot) bool { return true }

func hasNode(name string) func(*calico.Snapshot) bool {
	return func(s *calico.Snapshot) bool { _, ok := s.Nodes[name]; return ok }
}

func hasPeer(name string) func(*calico.Snapshot) bool {
	return func(s *calico.Snapshot) bool { _, ok := s.BGPPeers[name]; return ok }
}

// content is what a plan is made of.
func content(s *calico.Snapshot) string {
	c := *s
	c.Revision, c.Lists, c.Versions, c.Received = 0, 0, nil, time.Time{}
	text, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// unchanged fails if a snapshot with other content comes, now or for a while.
func (r *running) unchanged(t *testing.T, before string, during time.Duration) {
	t.Helper()
	for timeout := time.After(during); ; {
		select {
		case r.last = <-r.Snapshots():
			if now := content(r.last); now != before {
				t.Fatalf("changed:\n%s", cmp.Diff(before, now))
			}
		case <-timeout:
			return
		}
	}
}

// suite is what holds with the stand-in as with an API server. Each begins with fill.
var suite = []struct {
	name string
	test func(*testing.T, server)
}{
	{"the first snapshot is complete", firstSnapshotIsComplete},
	{"changes are followed", changesAreFollowed},
	{"without BGP all blocks are read", withoutBGPAllBlocksAreRead},
	{"podCIDRs", podCIDRs},
	{"lists of many pages", listsOfManyPages},
	{"a missing kind is empty unless it had objects", aMissingKindIsEmptyUnlessItHadObjects},
	{"a kind that is deleted is empty", aKindThatIsDeletedIsEmpty},
	{"garbage is named", garbageIsNamed},
	{"two objects of one block", twoObjectsOfOneBlock},
	{"a right that is missing from the start", aRightIsMissingFromTheStart},
	{"a right to watch is lost", aRightToWatchIsLost},
	{"watches end", watchesEnd},
	{"history is lost", historyIsLost},
	{"groups", groups},
}

func TestStandIn(t *testing.T) {
	for _, c := range suite {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(t, newServer(t))
		})
	}
}

// TestAPIServer runs the same with build/kube-apiserver, one after the other on one server, and
// then what is the same in etcd and there.
func TestAPIServer(t *testing.T) {
	program := kubetest.FindReal()
	if program == "" {
		t.Skip("there is no build/kube-apiserver: make kube-apiserver builds it")
	}
	e, err := calicotest.StartEtcd(calicotest.EtcdOptions{})
	must(t, err)
	t.Cleanup(e.Close)
	s := kubetest.NewReal(t, program, e.Endpoint())
	empty := func() {
		all := []string{"nodes", "pods"}
		for _, plural := range kinds {
			all = append(all, v1(plural), plural+".projectcalico.org")
		}
		s.Reset(all...)
		s.Allow(rights(t))
	}
	for _, c := range suite {
		t.Run(c.name, func(t *testing.T) {
			empty()
			fill(s)
			c.test(t, s)
		})
	}
	t.Run("random changes are the same", func(t *testing.T) {
		empty()
		randomChangesAreTheSame(t, s, calico.Needs{})
	})
}

func firstSnapshotIsComplete(t *testing.T, s server) {
	least := s.Version()
	r := run(t, s)
	first := <-r.Snapshots()
	if len(first.Nodes) != 2 || len(first.Blocks) != 1 || len(first.Affinities) != 1 ||
		len(first.WorkloadEndpoints) != 1 || len(first.IPPools) != 1 || len(first.BGPPeers) != 1 ||
		first.Lists != 1 || len(first.Problems) != 0 || first.Revision < int64(least) ||
		first.Revision > int64(s.Version()) {
		t.Errorf("first snapshot %+v", first)
	}
	if own := first.Blocks[pfx("10.77.0.0/26")]; own.Owner.Host != "edge-7" {
		t.Errorf("own block: %+v", own)
	}
	st := r.untilStatus(t, "connected", connected)
	if !st.Synced || st.Error != "" || st.Lists != 1 || time.Since(st.LastContact) > 5*time.Second {
		t.Errorf("status %+v", st)
	}
	if n := requests(s, "list", v1("ipamblocks")); n > 1 {
		t.Errorf("%d requests for blocks: others' are not needed", n)
	}
}

// Every kind is followed, and what is gone is gone.
func changesAreFollowed(t *testing.T, s server) {
	r := run(t, s)
	r.until(t, "the first", any1)
	putNode(s, "edge-11", "172.30.8.11/24")
	r.until(t, "a node", hasNode("edge-11"))
	s.DeleteObject("nodes", "edge-11")
	r.until(t, "no such node", func(x *calico.Snapshot) bool { return !hasNode("edge-11")(x) })
	putPod(s, "edge-7", "web", "10.77.0.9")
	r.until(t, "a pod", func(x *calico.Snapshot) bool { return len(x.WorkloadEndpoints) == 2 })
	putPod(s, "edge-10", "other", "10.77.1.9")
	s.DeleteObject("pods", "shop/web")
	r.until(t, "no pod", func(x *calico.Snapshot) bool { return len(x.WorkloadEndpoints) == 1 })

	two := pfx("10.77.2.0/26")
	claim(s, "edge-7", two.String())
	x := r.until(t, "a second block", func(x *calico.Snapshot) bool {
		return x.Affinities[two] == calico.AffinityConfirmed
	})
	if x.Blocks[two].Owner.Host != "edge-7" {
		t.Errorf("an affinity was published before its block: %+v", x.Blocks)
	}
	put(s, "ipamblocks", "10-77-2-0-26", `{"cidr":"10.77.2.0/26","affinity":"host:edge-10"}`)
	r.until(t, "a change of it", func(x *calico.Snapshot) bool {
		return x.Blocks[two].Owner.Host == "edge-10"
	})
	s.DeleteObject(v1("blockaffinities"), "edge-7-10-77-2-0-26")
	r.until(t, "neither affinity nor block", func(x *calico.Snapshot) bool {
		_, block := x.Blocks[two]
		return x.Affinities[two] == "" && !block
	})
	if st := r.untilStatus(t, "connected", connected); st.Lists != 1 || st.Failures != 0 {
		t.Errorf("status %+v", st)
	}
}

// What a node without BGP reads.
func withoutBGPAllBlocksAreRead(t *testing.T, s server) {
	r := run(t, s, func(c *Config) { c.Needs = calico.Needs{NoBGP: true} })
	x := r.until(t, "the first", any1)
	if len(x.Blocks) != 2 || len(x.BGPPeers)+len(x.WorkloadEndpoints) != 0 {
		t.Errorf("%+v", x)
	}
	if n := requests(s, "list", "pods") + requests(s, "list", v1("bgppeers")); n != 0 {
		t.Errorf("%d requests for what only BGP needs", n)
	}
}

func podCIDRs(t *testing.T, s server) {
	s.PutObject("nodes", []byte(`{"metadata":{"name":"edge-7"},"spec":{`+
		`"podCIDRs":["10.1.4.0/24"]}}`))
	r := run(t, s, func(c *Config) { c.UsePodCIDR = true })
	x := r.until(t, "the first", any1)
	if len(x.Affinities) != 1 || x.Blocks[pfx("10.1.4.0/24")].Owner.Host != "edge-7" {
		t.Errorf("%+v", x)
	}
	s.DeleteObject("nodes", "edge-7")
	r.until(t, "no block", func(x *calico.Snapshot) bool {
		return len(x.Affinities)+len(x.Blocks) == 0
	})
	if n := requests(s, "list", v1("ipamblocks")); n != 0 {
		t.Errorf("%d requests for IPAM's blocks", n)
	}
}

// The group of Calico's data is the one that there is, v1 where both are.
func groups(t *testing.T, s server) {
	all := rights(t)
	for _, right := range all {
		if v1right, isCalico := strings.CutSuffix(right, ".crd.projectcalico.org"); isCalico {
			all = append(all, v1right+".projectcalico.org")
		}
	}
	s.Allow(all)
	for _, tc := range []struct {
		installed []string
		given     string
		want      string
	}{
		{[]string{GroupV1, GroupV3}, "", "v1"}, {[]string{GroupV3}, "", "v3"},
		{[]string{GroupV1, GroupV3}, GroupV3, "v3"}, {[]string{GroupV1}, "", "v1"},
	} {
		for _, plural := range kinds {
			s.Uninstall(v1(plural))
			s.Uninstall(plural + ".projectcalico.org")
		}
		r := run(t, s, func(c *Config) { c.Group = tc.given })
		if tc.given == "" {
			r.untilStatus(t, "no Calico", says("Calico's resources are not installed"))
		}
		for _, g := range tc.installed {
			s.Install(g, kinds...)
			group, version, _ := strings.Cut(g, "/")
			s.PutObject("bgppeers."+group, fmt.Appendf(nil, `{"metadata":{"name":%q},"spec":{`+
				`"peerIP":"192.0.2.1","asNumber":65000}}`, version))
		}
		r.until(t, fmt.Sprint(tc), hasPeer(tc.want))
		r.stop()
	}
}

func listsOfManyPages(t *testing.T, s server) {
	for i := range 1001 {
		putNode(s, fmt.Sprintf("n%04d", i), "172.30.9.1/24")
	}
	if x := <-run(t, s).Snapshots(); len(x.Nodes) != 1003 {
		t.Errorf("%d nodes", len(x.Nodes))
	}
	if s, ok := s.(*kubetest.Server); ok {
		s.ExpireLists()
		if x := <-run(t, s).Snapshots(); len(x.Nodes) != 1003 {
			t.Errorf("lists that expire: %d nodes", len(x.Nodes))
		}
	}
}

// A kind that is not installed counts as empty and is looked for again, unless it was there.
func aMissingKindIsEmptyUnlessItHadObjects(t *testing.T, s server) {
	s.Uninstall(v1("bgpfilters"))
	s.Uninstall(v1("bgppeers"))
	r := run(t, s)
	r.until(t, "the first", func(x *calico.Snapshot) bool { return len(x.BGPPeers) == 0 })
	r.untilStatus(t, "connected", connected)
	s.Install(GroupV1, "bgppeers")
	put(s, "bgppeers", "tor", `{"peerIP":"192.0.2.1","asNumber":65000}`)
	r.until(t, "a peer", hasPeer("tor"))

	s.Unserve(v1("bgppeers"))
	r.untilStatus(t, "named", says("list bgppeers.crd.projectcalico.org", "404",
		"what it had before stays in use"))
	putNode(s, "edge-11", "172.30.8.11/24")
	r.until(t, "another kind goes on", hasNode("edge-11"))
	if !hasPeer("tor")(r.last) {
		t.Error("the peer is gone with its kind")
	}

	// also after a restart
	again := run(t, s, func(c *Config) { c.Versions = r.last.Versions })
	again.untilStatus(t, "named", says("list bgppeers.crd.projectcalico.org", "404"))
	select {
	case x := <-again.Snapshots():
		t.Errorf("published: %+v", x)
	case <-time.After(300 * time.Millisecond):
	}
}

// Whoever deletes a CRD deletes its objects first, which everybody sees. Then it is not missing.
func aKindThatIsDeletedIsEmpty(t *testing.T, s server) {
	r := run(t, s)
	r.until(t, "the first", hasPeer("tor"))
	r.untilStatus(t, "connected", connected)
	s.Uninstall(v1("bgppeers"))
	x := r.until(t, "no peer", func(x *calico.Snapshot) bool { return !hasPeer("tor")(x) })
	putNode(s, "edge-11", "172.30.8.11/24")
	r.until(t, "another kind goes on", hasNode("edge-11"))
	time.Sleep(300 * time.Millisecond) // it has been looked for
	r.untilStatus(t, "connected", connected)

	again := run(t, s, func(c *Config) { c.Versions = r.last.Versions })
	now := again.until(t, "the first", any1)
	if len(now.BGPPeers) != 0 || len(now.IPPools) != len(x.IPPools) {
		t.Errorf("after a restart: %+v", now)
	}
}

// A bad object is named as kubectl names it, once, and the rest goes on.
func garbageIsNamed(t *testing.T, s server) {
	r := run(t, s)
	before := content(r.until(t, "the first", any1))
	put(s, "ipamblocks", "10-77-0-0-26", `{"cidr":7}`)
	put(s, "bgppeers", "tor", `{"asNumber":"many"}`)
	s.PutObject("pods", []byte(`{"metadata":{"name":"pod-0","namespace":"shop","annotations":{`+
		`"cni.projectcalico.org/podIP":"?"}},"spec":{"nodeName":"edge-7"},"status":{}}`))
	x := r.until(t, "three problems", func(x *calico.Snapshot) bool { return len(x.Problems) == 3 })
	for i, want := range []string{"BGPPeer(tor)", "IPAMBlock(10-77-0-0-26)", "Pod(shop/pod-0)"} {
		if x.Problems[i].Resource != want {
			t.Errorf("%+v, want %s", x.Problems[i], want)
		}
	}
	without := *x
	without.Problems = nil
	if now := content(&without); now != before {
		t.Errorf("changed:\n%s", cmp.Diff(before, now))
	}
	named := func() int { return strings.Count(r.log.String(), "cannot be used") }
	r.untilStatus(t, "three lines", func(kubernetes.Status) bool { return named() >= 3 })
	putNode(s, "edge-11", "172.30.8.11/24") // another snapshot has the same problems
	r.until(t, "a node", hasNode("edge-11"))
	r.stop()
	if n := named(); n != 3 {
		t.Errorf("named %d times", n)
	}
}

// Two objects with one CIDR: the first counts.
func twoObjectsOfOneBlock(t *testing.T, s server) {
	put(s, "blockaffinities", "zz", `{"cidr":"10.77.0.0/26","node":"edge-7","state":"pending"}`)
	x := run(t, s).until(t, "the first", any1)
	if len(x.Problems) != 1 || x.Problems[0].Resource != "BlockAffinity(zz)" ||
		!maps.Equal(x.Affinities, map[netip.Prefix]calico.AffinityState{
			pfx("10.77.0.0/26"): calico.AffinityConfirmed}) {
		t.Errorf("%v %v", x.Problems, x.Affinities)
	}
}

func watchesEnd(t *testing.T, s server) {
	r := run(t, s)
	r.until(t, "the first", any1)
	r.untilStatus(t, "connected", connected)
	for i := range 3 {
		s.EndWatches()
		name := fmt.Sprintf("edge-%d", 20+i)
		putNode(s, name, "172.30.8.20/24")
		r.until(t, name, hasNode(name))
	}
	if st := r.untilStatus(t, "connected", connected); st.Lists != 1 {
		t.Errorf("watches resume without a list: %+v", st)
	}
}

// Versions are Gone from which watches would resume: they are listed again, and nothing else is
// seen of it.
func historyIsLost(t *testing.T, s server) {
	r := run(t, s)
	r.until(t, "the first", any1)
	r.untilStatus(t, "connected", connected)
	s.DeleteObject(v1("bgppeers"), "tor")
	r.until(t, "no peer", func(x *calico.Snapshot) bool { return !hasPeer("tor")(x) })
	before := content(r.last)
	s.Compact()
	putNode(s, "edge-11", "172.30.8.11/24")
	r.until(t, "a node", hasNode("edge-11"))
	seen := *r.last
	seen.Nodes = maps.Clone(seen.Nodes)
	delete(seen.Nodes, "edge-11")
	if now := content(&seen); now != before {
		t.Errorf("changed:\n%s", cmp.Diff(before, now))
	}
	r.untilStatus(t, "another list", func(st kubernetes.Status) bool {
		return connected(st) && st.Lists > 1
	})
}
