package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/calico/etcd"
	"vpp-route-agent/internal/testcluster"
)

// The cluster whose cost to etcd is measured. What one node costs is measured on some of them, and
// is the same for each.
const (
	clusterNodes  = 1000
	nodeBlocks    = 2
	blockWorkload = 10 // workloads in each block
	podStarts     = 20
	blockClaims   = 20
)

// readLoad is what etcd has to do for 1000 nodes: with BGP, without it, as the first agent of this
// kind did, and with routes compiled by one writer into a subtree of each host.
func readLoad(b *bench) error {
	ways := []struct {
		name  string
		nodes int
		start func(*loadRun) (reader, error)
		// budgets, in MB for 1000 nodes
		atStart, workload budget
	}{
		{"BGP", b.pick(20, 5), sourceReader(calico.Needs{}), atMost(4000), atMost(1)},
		{"etcd", b.pick(20, 5), sourceReader(calico.Needs{NoBGP: true, Hosts: calico.DefaultHosts}),
			noBudget, noBudget},
		{"as the first agent", b.pick(3, 2), (*loadRun).startOriginal, noBudget, noBudget},
		{"compiled per host", b.pick(20, 5), (*loadRun).startCompiled, noBudget, noBudget},
	}
	for _, way := range ways {
		r := &loadRun{b: b, nodes: way.nodes, atStart: way.atStart, workload: way.workload}
		err := r.measure(way.name, way.start)
		r.close()
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
	}
	return nil
}

// reader is one node as etcd sees it.
type reader struct {
	synced func() bool
	stop   func()
}

// loadRun is one etcd with the cluster in it, a relay that counts, and the nodes.
type loadRun struct {
	b       *bench
	nodes   int
	server  *calicotest.Etcd
	relay   *relay
	client  *clientv3.Client // beside the relay
	writer  *compiler        // of the compiled way
	readers []reader

	atStart, workload budget
}

func (r *loadRun) close() {
	for _, x := range r.readers {
		x.stop()
	}
	if r.relay != nil {
		r.relay.close()
	}
	if r.server != nil {
		r.server.Close()
	}
}

func (r *loadRun) measure(name string, start func(*loadRun) (reader, error)) (err error) {
	if r.server, err = calicotest.StartEtcd(calicotest.EtcdOptions{}); err != nil {
		return err
	}
	r.client = r.server.Client()
	to, err := net.ResolveTCPAddr("tcp4", strings.TrimPrefix(r.server.Endpoint(), "http://"))
	if err != nil {
		return err
	}
	if r.relay, err = relayTo(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, to, true); err != nil {
		return err
	}
	if err := r.fill(); err != nil {
		return err
	}
	before := r.count()
	for range r.nodes {
		x, err := start(r)
		if err != nil {
			return err
		}
		r.readers = append(r.readers, x)
	}
	for _, x := range r.readers {
		for !x.synced() {
			if err := testcluster.Pause(r.b.ctx, 10*time.Millisecond); err != nil {
				return err
			}
		}
	}
	if err := r.calm(); err != nil {
		return err
	}
	atStart := r.count()
	r.note(name, "reads at start", float64(atStart.ranges-before.ranges)/float64(r.nodes),
		"requests a node")
	r.check(name, "bytes at start",
		float64(atStart.bytes-before.bytes)/float64(r.nodes)*clusterNodes/1e6,
		"MB, 1000 nodes", r.atStart)
	r.note(name, "watchers",
		float64(atStart.watchers-before.watchers)/float64(r.nodes)*clusterNodes, "1000 nodes")

	for i := range podStarts {
		if err := r.startPod(i); err != nil {
			return err
		}
	}
	if err := r.calm(); err != nil {
		return err
	}
	afterPods := r.count()
	r.check(name, "a workload starts: bytes",
		float64(afterPods.bytes-atStart.bytes)/float64(r.nodes)/podStarts*clusterNodes/1e6,
		"MB, 1000 nodes", r.workload)
	for i := range blockClaims {
		if err := r.claim(i); err != nil {
			return err
		}
	}
	if err := r.calm(); err != nil {
		return err
	}
	afterClaims := r.count()
	r.note(name, "a block is claimed: bytes",
		float64(afterClaims.bytes-afterPods.bytes)/float64(r.nodes)/blockClaims*clusterNodes/1e6,
		"MB, 1000 nodes")
	if r.writer != nil {
		r.note(name, "a block is claimed: writes", clusterNodes, "puts, one for each host")
		r.note(name, "keys", clusterNodes*clusterNodes*nodeBlocks, "1000 nodes")
		r.note(name, "size of etcd's data",
			float64(r.writer.grew)/float64(r.nodes)*clusterNodes/1e9,
			"GB, 1000 nodes; etcd's default quota is 2 GB")
		r.note(name, "first fill", r.writer.took.Seconds()/float64(r.nodes)*clusterNodes,
			"s, 1000 nodes, without fsync")
	}
	return nil
}

func (r *loadRun) note(way, what string, value float64, unit string) {
	r.check(way, what, value, unit, noBudget)
}

func (r *loadRun) check(way, what string, value float64, unit string, limit budget) {
	r.b.single(fmt.Sprintf("etcd load, %s: %s", way, what), unit, value, limit,
		fmt.Sprintf("measured with %d nodes", r.nodes))
}

// calm waits until nothing has come through the relay for a while.
func (r *loadRun) calm() error {
	for last := int64(-1); ; {
		if err := testcluster.Pause(r.b.ctx, 700*time.Millisecond); err != nil {
			return err
		}
		now := r.relay.answered()
		if now-last < 2000*int64(r.nodes) { // probes go on
			return nil
		}
		last = now
	}
}

// url is where etcd is reached through the relay.
func (r *loadRun) url() string { return "http://" + r.relay.l.Addr().String() }

// tally is what etcd has done so far.
type tally struct{ bytes, ranges, watchers int64 }

func (r *loadRun) count() tally {
	return tally{
		r.relay.answered(), etcdMetric("etcd_mvcc_range_total", "etcd_debugging_mvcc_range_total"),
		etcdMetric("etcd_debugging_mvcc_watcher_total"),
	}
}

// etcdMetric reads the embedded server's own counters: the first of names that it has.
func etcdMetric(names ...string) int64 {
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil && len(families) == 0 {
		return 0
	}
	for _, name := range names {
		for _, f := range families {
			if f.GetName() == name && len(f.Metric) > 0 {
				return int64(f.Metric[0].GetCounter().GetValue() +
					f.Metric[0].GetGauge().GetValue())
			}
		}
	}
	return 0
}

func loadNode(i int) string { return fmt.Sprintf("node-%04d", i) }

func loadBlock(i int) netip.Prefix {
	return netip.PrefixFrom(
		netip.AddrFrom4([4]byte{10, byte(64 + i>>10), byte(i >> 2), byte(i << 6)}), 26)
}

// fill writes nodes, blocks, workload endpoints and published addresses.
func (r *loadRun) fill() error {
	var ops []clientv3.Op
	put := func(key calico.Key, value string) {
		ops = append(ops, clientv3.OpPut(key.String(), value))
	}
	for i := range clusterNodes {
		name := loadNode(i)
		address := netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)})
		put(calico.Key{Kind: calico.KindNode, Name: name},
			fmt.Sprintf(nodeValue, name, name, address, name, address))
		ops = append(ops,
			clientv3.OpPut(calico.PeerIP{Host: name}.Key(calico.DefaultHosts), address.String()))
		for n := range nodeBlocks {
			cidr := loadBlock(i*nodeBlocks + n)
			put(calico.Key{Kind: calico.KindBlock, CIDR: cidr},
				loadBlockValue(cidr, name, blockWorkload))
			for w := range blockWorkload {
				// in Kubernetes no two nodes have pods of one name
				key, value := loadEndpoint(name, fmt.Sprintf("w%d-%d-%d", i, n, w),
					cidr.Addr().Next())
				put(key, value)
			}
		}
	}
	return r.commit(ops)
}

// commit writes in transactions of a hundred, etcd's limit being 128.
func (r *loadRun) commit(ops []clientv3.Op) error {
	for len(ops) > 0 {
		n := min(100, len(ops))
		if _, err := r.client.Txn(r.b.ctx).Then(ops[:n]...).Commit(); err != nil {
			return err
		}
		ops = ops[n:]
	}
	return nil
}

// loadBlockValue is a block as Calico stores it, with so many addresses in use.
func loadBlockValue(cidr netip.Prefix, node string, used int) string {
	type attribute struct {
		Handle    string            `json:"handle_id"`
		Secondary map[string]string `json:"secondary"`
	}
	v := struct {
		CIDR        string      `json:"cidr"`
		Affinity    string      `json:"affinity"`
		Allocations []*int      `json:"allocations"`
		Unallocated []int       `json:"unallocated"`
		Attributes  []attribute `json:"attributes"`
		Sequence    uint64      `json:"sequenceNumber"`
		Deleted     bool        `json:"deleted"`
	}{CIDR: cidr.String(), Affinity: "host:" + node, Sequence: 1772442940123456789}
	for i := range 64 {
		if i >= used {
			v.Allocations, v.Unallocated = append(v.Allocations, nil), append(v.Unallocated, i)
			continue
		}
		v.Allocations = append(v.Allocations, &i)
		v.Attributes = append(v.Attributes, attribute{
			Handle: fmt.Sprintf("k8s-pod-network.%064x", i),
			Secondary: map[string]string{"namespace": "production", "node": node,
				"pod":       fmt.Sprintf("frontend-7d9c5b8f6d-x%04d", i),
				"timestamp": "2026-03-02 09:15:40.123 +0000 UTC"},
		})
	}
	raw, _ := json.Marshal(v)
	return string(raw)
}

// Values as Calico writes them: their size is what is measured.
const (
	nodeValue = `{"kind":"Node","apiVersion":"projectcalico.org/v3",` +
		`"metadata":{"name":%q,"uid":"5f0c1d5e-3d5b-4a8e-9c0a-0b1c2d3e4f50",` +
		`"creationTimestamp":"2026-01-05T08:00:00Z",` +
		`"labels":{"kubernetes.io/hostname":%q,"rack":"r7"}},` +
		`"spec":{"bgp":{"ipv4Address":"%s/16","ipv4IPIPTunnelAddr":"10.0.0.1"},` +
		`"orchRefs":[{"nodeName":%q,"orchestrator":"k8s"}],` +
		`"addresses":[{"address":"%s/16","type":"CalicoNodeIP"}]},"status":{}}`
	endpointValue = `{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3",` +
		`"metadata":{"name":%q,"namespace":"production",` +
		`"uid":"5f0c1d5e-3d5b-4a8e-9c0a-0b1c2d3e4f50",` +
		`"creationTimestamp":"2026-01-05T08:00:00Z",` +
		`"labels":{"app":"frontend","pod-template-hash":"7d9c5b8f6d",` +
		`"projectcalico.org/namespace":"production","projectcalico.org/orchestrator":"k8s",` +
		`"projectcalico.org/serviceaccount":"default"}},` +
		`"spec":{"orchestrator":"k8s","workload":"","node":%q,"containerID":"%064x",` +
		`"pod":%q,"endpoint":"eth0","serviceAccountName":"default","ipNetworks":["%s/32"],` +
		`"profiles":["kns.production","ksa.production.default"],` +
		`"interfaceName":"cali0123456789a"}}`
)

func loadEndpoint(node, pod string, address netip.Addr) (calico.Key, string) {
	name := calico.WorkloadEndpointName(node, "k8s", pod, "eth0")
	key := calico.Key{Kind: calico.KindWorkloadEndpoint, Namespace: "production", Name: name}
	return key, fmt.Sprintf(endpointValue, name, node, 7, pod, address)
}

// startPod is what Calico writes when a workload starts: the block, then the endpoint.
func (r *loadRun) startPod(i int) error {
	node, cidr := loadNode(i), loadBlock(i*nodeBlocks)
	key, value := loadEndpoint(node, fmt.Sprintf("new-%d", i), cidr.Addr())
	for _, op := range []clientv3.Op{
		clientv3.OpPut(calico.Key{Kind: calico.KindBlock, CIDR: cidr}.String(),
			loadBlockValue(cidr, node, blockWorkload+1)),
		clientv3.OpPut(key.String(), value),
	} {
		if _, err := r.client.Do(r.b.ctx, op); err != nil {
			return err
		}
	}
	return testcluster.Pause(r.b.ctx, 30*time.Millisecond) // not one burst
}

// claim is a node's claim of a new block.
func (r *loadRun) claim(i int) error {
	node, cidr := loadNode(i), loadBlock(clusterNodes*nodeBlocks+i)
	key := calico.Key{Kind: calico.KindBlock, CIDR: cidr}.String()
	put := clientv3.OpPut(key, loadBlockValue(cidr, node, 0))
	if err := r.commit([]clientv3.Op{put}); err != nil {
		return err
	}
	if r.writer != nil {
		var ops []clientv3.Op
		for n := range r.nodes {
			ops = append(ops, clientv3.OpPut(compiledKey(n, cidr), "172.16.0.1"))
		}
		if err := r.commit(ops); err != nil {
			return err
		}
	}
	return testcluster.Pause(r.b.ctx, 30*time.Millisecond)
}

// sourceReader is our own agent's way of reading. The nodes that read are spread over all, since
// what a list of names can skip depends on the name.
func sourceReader(needs calico.Needs) func(*loadRun) (reader, error) {
	return func(r *loadRun) (reader, error) {
		s, err := etcd.New(etcd.Config{Endpoints: []string{r.url()}},
			loadNode(len(r.readers)*clusterNodes/r.nodes), needs, slog.New(slog.DiscardHandler))
		if err != nil {
			return reader{}, err
		}
		return reader{func() bool { return s.Status().Synced }, r.b.run(s)}, nil
	}
}

// plainReader lists prefixes and then runs follow, on a client of its own.
func (r *loadRun) plainReader(
	prefixes []string, follow func(context.Context, *clientv3.Client),
) (reader, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{r.url()}, Logger: zap.NewNop()})
	if err != nil {
		return reader{}, err
	}
	ctx, cancel := context.WithCancel(r.b.ctx)
	var synced atomic.Bool
	var done sync.WaitGroup
	done.Go(func() {
		for _, p := range prefixes {
			if _, err := client.Get(ctx, p, clientv3.WithPrefix()); err != nil {
				return
			}
		}
		synced.Store(true)
		follow(ctx, client)
	})
	return reader{synced.Load, func() { cancel(); done.Wait(); client.Close() }}, nil
}

// startOriginal watches the tree of blocks, lists it again upon each change, and watches the
// address of each host by itself.
func (r *loadRun) startOriginal() (reader, error) {
	return r.plainReader([]string{calico.DefaultBlocks, calico.DefaultHosts},
		func(ctx context.Context, client *clientv3.Client) {
			var done sync.WaitGroup
			defer done.Wait()
			for i := range clusterNodes {
				done.Go(func() {
					for range client.Watch(ctx,
						calico.PeerIP{Host: loadNode(i)}.Key(calico.DefaultHosts)) {
					}
				})
			}
			for range client.Watch(ctx, calico.DefaultBlocks, clientv3.WithPrefix()) {
				_, err := client.Get(ctx, calico.DefaultBlocks, clientv3.WithPrefix())
				if err != nil {
					return
				}
			}
		})
}

// compiler is the elected writer: what it has written for the hosts, and what that cost.
type compiler struct {
	grew int64 // of etcd's data, in bytes
	took time.Duration
}

func compiledKey(node int, cidr netip.Prefix) string {
	return calico.DefaultHosts + loadNode(node) + "/routes/" +
		strings.Replace(cidr.String(), "/", "-", 1)
}

// startCompiled reads one subtree, which the first call has written for each node that is measured.
func (r *loadRun) startCompiled() (reader, error) {
	if r.writer == nil {
		if err := r.compile(); err != nil {
			return reader{}, err
		}
	}
	prefix := calico.DefaultHosts + loadNode(len(r.readers)) + "/routes/"
	return r.plainReader([]string{prefix}, func(ctx context.Context, client *clientv3.Client) {
		for range client.Watch(ctx, prefix, clientv3.WithPrefix()) {
		}
	})
}

func (r *loadRun) compile() error {
	size := func() int64 { return etcdMetric("etcd_mvcc_db_total_size_in_use_in_bytes") }
	before, began := size(), time.Now()
	for n := range r.nodes {
		var ops []clientv3.Op
		for i := range clusterNodes * nodeBlocks {
			ops = append(ops, clientv3.OpPut(compiledKey(n, loadBlock(i)), "172.16.0.1"))
		}
		if err := r.commit(ops); err != nil {
			return err
		}
	}
	r.writer = &compiler{took: time.Since(began)}
	// etcd commits to its file every 100 ms
	if err := testcluster.Pause(r.b.ctx, time.Second); err != nil {
		return err
	}
	r.writer.grew = size() - before
	return nil
}
