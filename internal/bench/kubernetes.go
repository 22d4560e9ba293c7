package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/calico/etcd"
	calicokubernetes "vpp-route-agent/internal/calico/kubernetes"
	"vpp-route-agent/internal/kubernetes"
	"vpp-route-agent/internal/kubernetes/kubetest"
	"vpp-route-agent/internal/testcluster"
)

// The cluster of the Kubernetes benchmarks, besides the nodes and blocks of readLoad.
const (
	podsHere          = 110
	serviceCount      = 5000
	sliceKind         = "endpointslices.discovery.k8s.io"
	serviceChangeRate = 100 // a second
	// What follows a change sooner is published together with others (internal/settle).
	endpointInterval = 300 * time.Millisecond
)

// kubernetesCluster is the cluster of readLoad in etcd, and in a stand-in for the Kubernetes API.
type kubernetesCluster struct {
	*loadRun
	api *kubetest.Server
	dir string
	end func() // of the mirror
}

func (b *bench) startKubernetes() (k *kubernetesCluster, err error) {
	k = &kubernetesCluster{loadRun: &loadRun{b: b}}
	defer func() {
		if err != nil {
			k.stop()
		}
	}()
	if k.server, err = calicotest.StartEtcd(calicotest.EtcdOptions{}); err != nil {
		return k, err
	}
	k.client = k.server.Client()
	if err := k.fill(); err != nil {
		return k, err
	}
	for i := range podsHere - nodeBlocks*blockWorkload {
		key, value := loadEndpoint(loadNode(0), fmt.Sprintf("pod-%d", i), loadBlock(0).Addr())
		if _, err := k.client.Put(b.ctx, key.String(), value); err != nil {
			return k, err
		}
	}
	k.api = kubetest.Start()
	ctx, cancel := context.WithCancel(b.ctx)
	var mirroring sync.WaitGroup
	mirroring.Go(func() {
		_ = calicotest.Mirror(ctx, k.client, calicokubernetes.GroupV1, k.api)
	})
	k.end = func() { cancel(); mirroring.Wait() }
	k.dir, err = os.MkdirTemp("", "bench-kubernetes-")
	return k, err
}

func (k *kubernetesCluster) stop() {
	k.loadRun.close()
	if k.end != nil {
		k.end()
	}
	if k.api != nil {
		k.api.Close()
	}
	os.RemoveAll(k.dir)
}

// source reads from the API, at that address.
func (k *kubernetesCluster) source(url, node string, needs calico.Needs) (source, error) {
	file, err := k.api.WriteKubeconfig(k.dir, url, "token: "+kubetest.Token)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewClient(file)
	if err != nil {
		return nil, err
	}
	return calicokubernetes.New(client, calicokubernetes.Config{Node: node, Needs: needs}, discard)
}

// kubernetesSource has both sources read the same cluster, in turn. All blocks are read, since a
// pool has VXLAN.
func kubernetesSource(b *bench) error {
	k, err := b.startKubernetes()
	if err != nil {
		return err
	}
	defer k.stop()
	_, err = k.client.Put(b.ctx, calico.Key{Kind: calico.KindIPPool, Name: "pods"}.String(),
		`{"kind":"IPPool","metadata":{"name":"pods"},"spec":{"cidr":"10.0.0.0/8",`+
			`"vxlanMode":"Always"}}`)
	if err != nil {
		return err
	}
	byEtcd := func() (source, error) {
		return etcd.New(etcd.Config{Endpoints: []string{k.server.Endpoint()}}, loadNode(0),
			calico.Needs{VXLAN: true}, discard)
	}
	byAPI := func() (source, error) {
		return k.source(k.api.URL(), loadNode(0), calico.Needs{VXLAN: true})
	}
	return b.compareSources(byEtcd, byAPI)
}

// kubernetesLoad is what the API server has to send to 1000 nodes with BGP, as readLoad has it of
// etcd.
func kubernetesLoad(b *bench) error {
	k, err := b.startKubernetes()
	if err != nil {
		return err
	}
	defer k.stop()
	k.nodes = b.pick(20, 5)
	to, err := net.ResolveTCPAddr("tcp4", strings.TrimPrefix(k.api.URL(), "https://"))
	if err != nil {
		return err
	}
	k.relay, err = relayTo(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, to, true)
	if err != nil {
		return err
	}
	err = b.awaitMirror(func() (source, error) {
		return k.source(k.api.URL(), loadNode(0), calico.Needs{NoBGP: true})
	}, 0)
	if err != nil {
		return err
	}
	before := k.tally()
	for i := range k.nodes {
		s, err := k.source("https://"+k.relay.l.Addr().String(), loadNode(i*clusterNodes/k.nodes),
			calico.Needs{})
		if err != nil {
			return err
		}
		k.readers = append(k.readers, reader{stop: b.run(s)})
		select {
		case <-s.Snapshots():
		case <-time.After(time.Minute):
			return fmt.Errorf("no snapshot")
		}
	}
	note := func(what string, value float64, unit string) {
		b.single("Kubernetes load: "+what, unit, value, noBudget,
			fmt.Sprintf("measured with %d nodes", k.nodes))
	}
	perNode := func(from, to int64) float64 { return float64(to-from) / float64(k.nodes) }
	step := func(what string, from tally, times int, change func(i int) error) (tally, error) {
		for i := range times {
			if err := change(i); err != nil {
				return from, err
			}
		}
		if err := k.calmAPI(); err != nil {
			return from, err
		}
		now := k.tally()
		note(what+": bytes", perNode(from.bytes, now.bytes)/float64(times)*clusterNodes/1e6,
			"MB, 1000 nodes")
		note(what+": lists", perNode(from.ranges, now.ranges)/float64(times)*clusterNodes,
			"1000 nodes")
		note(what+": watches", perNode(from.watchers, now.watchers)/float64(times)*clusterNodes,
			"1000 nodes")
		return now, nil
	}
	now, err := step("at start", before, 1, func(int) error { return nil })
	if err == nil {
		now, err = step("a workload starts", now, podStarts, k.startPod)
	}
	if err == nil {
		now, err = step("a block is claimed", now, blockClaims, k.claim)
	}
	if err == nil {
		_, err = step("all watches end", now, 1, func(int) error { k.api.EndWatches(); return nil })
	}
	return err
}

// calmAPI waits until the API has what etcd has, and the nodes have heard of it.
func (k *kubernetesCluster) calmAPI() error {
	for last := -1; last != k.api.Version(); {
		last = k.api.Version()
		if err := testcluster.Pause(k.b.ctx, time.Second); err != nil {
			return err
		}
	}
	return k.calm()
}

// tally is what the API has been asked for so far, through the relay and beside it.
func (k *kubernetesCluster) tally() tally {
	t := tally{bytes: k.relay.answered()}
	for _, kind := range []string{"nodes", "pods", "ippools", "bgpconfigurations", "bgppeers",
		"bgpfilters", "felixconfigurations", "clusterinformations", "blockaffinities",
		"ipamblocks"} {
		if kind != "nodes" && kind != "pods" {
			kind += ".crd.projectcalico.org"
		}
		t.ranges += int64(k.api.Asked("list", kind))
		t.watchers += int64(k.api.Asked("watch", kind))
	}
	return t
}

// source is where an agent has Calico's data from.
type source interface {
	Run(context.Context) error
	Snapshots() <-chan *calico.Snapshot
}

// run runs a source until stop.
func (b *bench) run(s source) (stop func()) {
	ctx, cancel := context.WithCancel(b.ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	return func() { cancel(); running.Wait() }
}

func (b *bench) compareSources(byEtcd, byAPI func() (source, error)) error {
	var timesEtcd, timesAPI, heapEtcd, heapAPI series
	// read runs a source until its first snapshot, and returns what it and that take.
	read := func(start func() (source, error), times, heap *series) func() error {
		return func() error {
			before := heapInUse()
			began := time.Now()
			s, err := start()
			if err != nil {
				return err
			}
			defer b.run(s)()
			select {
			case x := <-s.Snapshots():
				*times = append(*times, time.Since(began).Seconds()*1000)
				if err := isCluster(x, podsHere); err != nil {
					return err
				}
				*heap = append(*heap, (float64(heapInUse())-float64(before))/(1<<20))
				runtime.KeepAlive(x)
			case <-time.After(time.Minute):
				return fmt.Errorf("no snapshot")
			}
			return nil
		}
	}
	if err := b.awaitMirror(byAPI, podsHere); err != nil {
		return err
	}
	err := rounds(b.pick(9, 3), read(byEtcd, &timesEtcd, &heapEtcd),
		read(byAPI, &timesAPI, &heapAPI))
	if err != nil {
		return err
	}
	note := fmt.Sprintf("%d nodes, %d blocks, %d pods here; %d rounds", clusterNodes,
		clusterNodes*nodeBlocks, podsHere, len(timesAPI))
	b.compare("Kubernetes: start to the first snapshot", "ms", timesAPI, "etcd", timesEtcd,
		b.quiet(atMost(2)), note)
	b.single("Kubernetes: heap, more than with etcd", "MiB", heapAPI.median()-heapEtcd.median(),
		b.quiet(atMost(60)), "the heap has the server's side, too")
	return nil
}

func isCluster(x *calico.Snapshot, pods int) error {
	if len(x.Nodes) != clusterNodes || len(x.Blocks) != clusterNodes*nodeBlocks ||
		len(x.WorkloadEndpoints) != pods {
		return fmt.Errorf("%d nodes, %d blocks, %d workloads", len(x.Nodes), len(x.Blocks),
			len(x.WorkloadEndpoints))
	}
	return nil
}

// awaitMirror waits until the API has all. The source shows so many pods.
func (b *bench) awaitMirror(byAPI func() (source, error), pods int) error {
	s, err := byAPI()
	if err != nil {
		return err
	}
	defer b.run(s)()
	patience, last := time.After(time.Minute), error(nil)
	for {
		select {
		case x := <-s.Snapshots():
			if last = isCluster(x, pods); last == nil {
				return nil
			}
		case <-patience:
			return fmt.Errorf("the API does not have the cluster: %w", last)
		}
	}
}

// services has an agent with BGP announce the addresses of services one by one. A service is
// announced while an endpoint is on the node.
func services(l *lab) error {
	b := l.b
	var listener net.Listener
	err := l.node.Do(func() (err error) {
		listener, err = net.Listen("tcp4", netip.AddrPortFrom(nodeAddress, 6443).String())
		return err
	})
	if err != nil {
		return err
	}
	api := kubetest.StartOn(listener)
	defer api.Close()
	api.Install("discovery.k8s.io/v1", "endpointslices")
	file, err := api.WriteKubeconfig(l.Dir(), "https://"+listener.Addr().String(),
		"token: "+kubetest.Token)
	if err != nil {
		return err
	}
	for i := range serviceCount {
		putService(api, i)
		putSlice(api, i, 0, "node", 0)
		putSlice(api, i, 1, "elsewhere", 0)
	}
	if err := l.apply(`{kind: BGPConfiguration, apiVersion: projectcalico.org/v3,
  metadata: {name: default}, spec: {serviceClusterIPs: [{cidr: 40.0.0.0/8}]}}`); err != nil {
		return err
	}
	n, err := l.startAgent("state", "--dataplane", "none", "--kubeconfig", file)
	if err != nil {
		return err
	}
	heard := &announced{came: make(chan time.Time, 1)}
	s, err := connect(b.ctx, l.far, peerAddress(0), nodeAddress, heard.update)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.send(endOfRIB); err != nil {
		return err
	}
	err = await(b.ctx, time.Minute, 10*time.Millisecond, func() error {
		if got := heard.prefixes.Load(); got < serviceCount {
			return fmt.Errorf("%d services announced", got)
		}
		return n.Alive()
	})
	if err != nil {
		return err
	}
	b.single("services: UPDATEs", "messages", float64(heard.messages.Load()), atMost(50),
		fmt.Sprintf("for %d announcements", serviceCount))
	if err := l.changeOneEndpoint(api, listener.Addr().String(), heard); err != nil {
		return err
	}
	return l.changeSlices(n, api, heard)
}

// announced counts what UPDATEs announce, and says when one came.
type announced struct {
	prefixes, messages atomic.Int64
	came               chan time.Time
}

func (a *announced) update(body []byte) {
	withdrawn, now := prefixesIn(body)
	a.prefixes.Add(int64(now))
	if now+withdrawn > 0 {
		a.messages.Add(1)
		select {
		case a.came <- time.Now():
		default:
		}
	}
}

// prefixesIn counts the IPv4 prefixes that an UPDATE withdraws and announces (RFC 4271 §4.3).
func prefixesIn(body []byte) (withdrawn, announced int) {
	count := func(b []byte) (n int) {
		for len(b) > 0 && len(b) > int(b[0]+7)/8 {
			b, n = b[1+int(b[0]+7)/8:], n+1
		}
		return n
	}
	gone := int(body[0])<<8 | int(body[1])
	rest := body[2+gone:]
	attributes := int(rest[0])<<8 | int(rest[1])
	return count(body[2 : 2+gone]), count(rest[2+attributes:])
}

// changeOneEndpoint takes the time from a change of one slice to the UPDATE, beside a client that
// only watches slices.
func (l *lab) changeOneEndpoint(api *kubetest.Server, address string, heard *announced) error {
	b := l.b
	watch, err := l.watchSlices(address, api.Version())
	if err != nil {
		return err
	}
	defer watch.body.Close()
	samples, watched := make([]time.Duration, b.pick(200, 30)), []time.Duration(nil)
	for i := range samples {
		time.Sleep(endpointInterval)
		drainTimes(heard.came)
		drainTimes(watch.came)
		node := "node"
		if i%2 == 0 {
			node = "elsewhere"
		}
		began := time.Now()
		putSlice(api, i/2, 0, node, i)
		for _, from := range []chan time.Time{heard.came, watch.came} {
			select {
			case at := <-from:
				if from == heard.came {
					samples[i] = at.Sub(began)
				} else {
					watched = append(watched, at.Sub(began))
				}
			case <-b.ctx.Done():
				return b.ctx.Err()
			case <-time.After(10 * time.Second):
				return fmt.Errorf("change %d has no effect", i)
			}
		}
	}
	slices.Sort(samples)
	slices.Sort(watched)
	for _, share := range []float64{0.5, 0.99} {
		limit := noBudget
		if share == 0.99 {
			limit = b.quiet(atMost(3))
		}
		b.compare(fmt.Sprintf("services: an endpoint changes, to the UPDATE, p%g", 100*share), "ms",
			series{quantile(samples, share)}, "a client that watches",
			series{quantile(watched, share)}, limit,
			fmt.Sprintf("%d changes, beside %d services", len(samples), serviceCount))
	}
	return nil
}

func drainTimes(c chan time.Time) {
	select {
	case <-c:
	default:
	}
}

// changeSlices changes slices so that nothing is announced or withdrawn.
func (l *lab) changeSlices(n *node, api *kubetest.Server, heard *announced) error {
	b := l.b
	span := time.Duration(b.pick(30, 5)) * time.Second
	before := heard.messages.Load()
	used, err := n.CPUSeconds()
	if err != nil {
		return err
	}
	tick := time.NewTicker(time.Second / serviceChangeRate)
	defer tick.Stop()
	for i := range int(span.Seconds()) * serviceChangeRate {
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			return b.ctx.Err()
		}
		putSlice(api, serviceCount-1-i%1000, 0, "node", i+1)
	}
	now, err := n.CPUSeconds()
	if err != nil {
		return err
	}
	if more := heard.messages.Load() - before; more != 0 {
		return fmt.Errorf("%d UPDATEs although nothing changed", more)
	}
	b.single(fmt.Sprintf("services: %d slices a second change", serviceChangeRate), "% of a CPU",
		(now-used)/span.Seconds()*100, b.quiet(atMost(5)),
		fmt.Sprintf("over %s; nothing of what is announced changes", span))
	return nil
}

func putService(s *kubetest.Server, i int) {
	ip := serviceAddress(i)
	s.PutObject("services", fmt.Appendf(nil, `{"metadata":{"name":"s%d","namespace":"shop"},`+
		`"spec":{"type":"NodePort","clusterIP":%q,"clusterIPs":[%q],"ipFamilies":["IPv4"],`+
		`"externalTrafficPolicy":"Local"}}`, i, ip, ip))
}

func serviceAddress(i int) string { return addrAt(40<<24 | uint32(i)<<4).String() }

// putSlice has one ready endpoint on a node. What is in its number does not count.
func putSlice(s *kubetest.Server, service, slice int, node string, number int) {
	s.PutObject(sliceKind, fmt.Appendf(nil, `{"metadata":{"name":"s%d-%d","namespace":"shop",`+
		`"labels":{"kubernetes.io/service-name":"s%d"}},"addressType":"IPv4","endpoints":[{`+
		`"addresses":[%q],"nodeName":%q,"conditions":{"ready":true}}]}`, service, slice, service,
		addrAt(41<<24|uint32(number)&0xffff).String(), node))
}

// sliceWatch is a client that reads the events of slices, and nothing else.
type sliceWatch struct {
	came chan time.Time
	body io.Closer
}

func (l *lab) watchSlices(address string, version int) (*sliceWatch, error) {
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // it is in this process
		DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
			err = l.far.Do(func() (err error) {
				c, err = (&net.Dialer{}).DialContext(ctx, network, address)
				return err
			})
			return c, err
		},
	}}
	url := fmt.Sprintf("https://%s/apis/discovery.k8s.io/v1/endpointslices?watch=1"+
		"&resourceVersion=%d", address, version)
	r, err := http.NewRequestWithContext(l.b.ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+kubetest.Token)
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("watch: %s", resp.Status)
	}
	w := &sliceWatch{came: make(chan time.Time, 1), body: resp.Body}
	go func() {
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			select {
			case w.came <- time.Now():
			default:
			}
		}
	}()
	return w, nil
}
