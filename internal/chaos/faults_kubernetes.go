package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/kubernetes/kubetest"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

var (
	// inKubernetes has three nodes whose agents read the Kubernetes API.
	inKubernetes = layout{kubernetes: true}
	// the controllers work there, too
	twelveInKubernetes = layout{controlled: true, kubernetes: true}
)

// kubernetesFaults are those of the Kubernetes datastore. Its stand-in has what is in etcd.
var kubernetesFaults = []fault{
	{
		name: "kube-away", kind: kernelNodes, layout: inKubernetes, onlyFirst: true, allowed: "0",
		long: true,
		what: "the Kubernetes API away for 20 s, a change meanwhile; agent SIGKILL, started " +
			"again while it is away", run: kubernetesAway,
	},
	{
		name: "kube-refuses", keepsSessions: true, kind: kernelNodes, layout: inKubernetes,
		allowed: "0", long: true,
		what: "the Kubernetes API answers 429, 500 and 504, for 4 s each, then 503 " +
			"to every second request; a change meanwhile", run: kubernetesRefuses,
	},
	{
		name: "kube-frozen", keepsSessions: true, kind: kernelNodes, layout: inKubernetes,
		allowed: "0", long: true,
		what: "the Kubernetes API hangs for 30 s, a change meanwhile", run: kubernetesFrozen,
	},
	{
		name: "kube-empty", keepsSessions: true, kind: kernelNodes, layout: inKubernetes,
		allowed: "0", long: true,
		what: "the Kubernetes API comes back empty, and has its data again after 20 s",
		run:  kubernetesEmpty,
	},
	{
		name: "kube-older", keepsSessions: true, kind: kernelNodes, layout: inKubernetes,
		allowed: "0", long: true,
		what: "the Kubernetes API's etcd restored from a backup, without a block that came since",
		run:  kubernetesOlder,
	},
	{
		name: "kube-watches", keepsSessions: true, kind: kernelNodes, layout: inKubernetes,
		allowed: "0", long: true,
		what: "watches end each second and tell bookmarks, their versions are gone when they go " +
			"on, and lists lag behind; 100 new blocks meanwhile", run: kubernetesWatches,
	},
	{
		name: "kube-apart", keepsSessions: true, kind: kernelNodes, layout: inKubernetes,
		allowed: "0", long: true,
		what: "kinds out of step: the right to BlockAffinities is lost, then that to Nodes; a " +
			"change meanwhile", run: kubernetesApart,
	},
	{
		name: "kube-credentials", keepsSessions: true, kind: kernelNodes, layout: inKubernetes,
		allowed: "0", long: true,
		what: "the API server's certificate is renewed, and then the token, a change meanwhile",
		run:  kubernetesCredentials,
	},
	{
		name: "kube-garbage", keepsSessions: true, kind: kernelNodes, layout: inKubernetes,
		allowed: "0", long: true,
		what: "garbage in the fields of every kind, objects of 1.5 MB, events that are no JSON",
		run:  kubernetesGarbage,
	},
	{
		name: "kube-move", kind: kernelNodes, layout: inKubernetes, allowed: "0",
		what: "both agents move from Kubernetes to etcd by a restart, and from etcd to Kubernetes",
		run:  moveDatastore,
	},
	{
		name: "vpp-kube-move", kind: vppNodes, layout: inKubernetes, allowed: "0", long: true,
		what: "both agents move from Kubernetes to etcd by a restart, and from etcd to Kubernetes",
		run:  moveDatastore,
	},
	{
		name: "kube-controller", kind: kernelNodes, layout: twelveInKubernetes, allowed: "0",
		long: true,
		what: "in the Kubernetes datastore the controller that leads is killed in the middle " +
			"of a step to reflectors, and of one back to the mesh; another does the rest",
		run: killInSteps,
	},
}

// status waits until an agent's status is so.
func (t *trial) status(
	ctx context.Context, a *testcluster.Agent, what string, is func(agent.Status) bool,
) error {
	return netlab.Await(ctx, recovery, what, func(ctx context.Context) error {
		s, err := a.Status(ctx)
		if err == nil && !is(s) {
			err = fmt.Errorf("datastore: %+v", s.Datastore)
		}
		return err
	})
}

// notConnected waits until both agents say that they do not reach the datastore.
func (t *trial) notConnected(ctx context.Context) error {
	var errs []error
	for _, n := range t.agents() {
		errs = append(errs, t.status(ctx, n.agent(), n.Name+" notices",
			func(s agent.Status) bool { return !s.Datastore.Connected }))
	}
	return errors.Join(errs...)
}

// reachAPI has the agents' nodes reach the API, or not.
func (t *trial) reachAPI(ctx context.Context, can bool) error {
	verb := map[bool]string{true: "del", false: "add"}[can]
	for _, n := range t.agents() {
		_, err := n.NS.Run(ctx, "ip", "route", verb, "unreachable", apiAddress.String()+"/32")
		if err != nil {
			return err
		}
	}
	return nil
}

func kubernetesAway(ctx context.Context, t *trial) error {
	a := t.ours(1)
	err := t.status(ctx, a, "the copy on disk has the last change",
		func(s agent.Status) bool { return !s.Datastore.KeptBehind })
	if err != nil {
		return err
	}
	t.start = time.Now()
	if err := errors.Join(t.reachAPI(ctx, false), a.Kill()); err != nil {
		return err
	}
	if err := a.Start(ctx); err != nil {
		return err
	}
	if err := t.converged(ctx, recovery); err != nil {
		return fmt.Errorf("without the API: %w", err)
	}
	t.note("converged without the API after %.1f s", time.Since(t.start).Seconds())
	if err := t.wroteNothing(ctx, a, 0); err != nil {
		return err
	}
	s, err := a.Status(ctx)
	if err != nil {
		return err
	}
	t.must(s.Datastore.Stale, "status does not say that the data are stale")
	if err := t.claim(ctx, t.nodes[1], spare); err != nil { // seen when the API is back
		return err
	}
	if err := testcluster.Pause(ctx, 20*time.Second-time.Since(t.start)); err != nil {
		return err
	}
	t.start = time.Now()
	if err := t.reachAPI(ctx, true); err != nil {
		return err
	}
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	return t.release(ctx, spare)
}

func kubernetesRefuses(ctx context.Context, t *trial) error {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusGatewayTimeout} {
		t.kube.Refuse(status)
		if err := t.notConnected(ctx); err != nil {
			return err
		}
		if err := testcluster.Pause(ctx, 4*time.Second); err != nil {
			return err
		}
	}
	if err := t.claim(ctx, t.nodes[1], spare); err != nil {
		return err
	}
	t.kube.RefuseEach(2, http.StatusServiceUnavailable, time.Second)
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	t.kube.Refuse(0)
	return t.release(ctx, spare)
}

func kubernetesFrozen(ctx context.Context, t *trial) error {
	t.kube.Freeze(true)
	err := errors.Join(t.claim(ctx, t.nodes[1], spare), testcluster.Pause(ctx, 30*time.Second))
	t.start = time.Now()
	t.kube.Freeze(false)
	if err != nil {
		return err
	}
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	return t.release(ctx, spare)
}

func kubernetesEmpty(ctx context.Context, t *trial) error {
	saved := t.kube.Save()
	t.kube.Restore(kubetest.Empty())
	t.kube.EndWatches()
	if err := testcluster.Pause(ctx, 20*time.Second); err != nil {
		return err
	}
	for _, n := range t.agents() {
		s, err := n.agent().Status(ctx)
		if err != nil {
			return err
		}
		t.must(strings.Contains(s.Datastore.Error, "what it had before stays in use"),
			"%s does not say what is in use: %+v", n.Name, s.Datastore)
	}
	t.start = time.Now()
	t.kube.Restore(saved)
	t.kube.EndWatches()
	return t.getsThrough(ctx)
}

// kubernetesOlder: what the backup does not have is gone. A route of it goes, and nothing else. The
// watches stay, and are silent.
func kubernetesOlder(ctx context.Context, t *trial) error {
	saved := t.kube.Save()
	if err := t.withSpare(ctx, t.nodes[1]); err != nil {
		return err
	}
	t.start = time.Now()
	t.kube.Restore(saved)
	delete(t.blocks, spare)
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	t.note("the older data were taken after %.1f s", time.Since(t.start).Seconds())
	if err := t.release(ctx, spare); err != nil { // etcd was not restored
		return err
	}
	return t.getsThrough(ctx)
}

func kubernetesWatches(ctx context.Context, t *trial) error {
	t.kube.WatchesLive(time.Second)
	t.kube.Bookmarks()
	defer func() { t.kube.WatchesLive(0) }()
	release, err := t.manyBlocks(ctx, 100)
	if err != nil {
		return err
	}
	for range 5 {
		t.kube.Compact()
		if err := testcluster.Pause(ctx, time.Second); err != nil {
			return err
		}
	}
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	// a list that is older than what has been seen withdraws nothing
	t.kube.Lag(true)
	defer t.kube.Catch()
	if err := t.claim(ctx, t.nodes[1], spare); err != nil {
		return err
	}
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	t.kube.Compact()
	if err := testcluster.Pause(ctx, 3*time.Second); err != nil {
		return err
	}
	if err := t.converged(ctx, 10*time.Second); err != nil { // looking takes its time, too
		return fmt.Errorf("after a list that lags behind: %w", err)
	}
	t.kube.Catch()
	return errors.Join(release(), t.release(ctx, spare))
}

func kubernetesApart(ctx context.Context, t *trial) error {
	const affinities = "blockaffinities.crd.projectcalico.org"
	for _, kind := range []string{affinities, "nodes"} {
		for _, verb := range []string{"list ", "watch "} {
			t.kube.Deny(verb+kind, true)
		}
		if err := t.notConnected(ctx); err != nil {
			return err
		}
		if err := t.claim(ctx, t.nodes[1], spare); err != nil {
			return err
		}
		if err := testcluster.Pause(ctx, 3*time.Second); err != nil {
			return err
		}
		s, err := t.ours(1).Status(ctx)
		if err != nil {
			return err
		}
		t.must(strings.Contains(s.Datastore.Error, " "+kind+": 403 Forbidden"),
			"status does not name the right to %s: %+v", kind, s.Datastore)
		t.start = time.Now()
		for _, verb := range []string{"list ", "watch "} {
			t.kube.Deny(verb+kind, false)
		}
		if err := t.converged(ctx, recovery); err != nil {
			return err
		}
		if err := t.release(ctx, spare); err != nil {
			return err
		}
	}
	return nil
}

// kubernetesCredentials: the token's file is read again after a minute at the latest.
func kubernetesCredentials(ctx context.Context, t *trial) error {
	t.kube.RenewCertificate()
	if err := t.getsThrough(ctx); err != nil {
		return err
	}
	t.note("a change got through %.1f s after the certificate's renewal",
		time.Since(t.start).Seconds())
	const renewed = "renewed"
	t.start = time.Now()
	err := t.kube.WriteToken(renewed)
	t.kube.SetToken(renewed)
	if err != nil {
		return err
	}
	return t.getsThrough(ctx)
}

// garbled are objects of a name whose fields are nonsense.
func garbled(name string, noise string) (all []string) {
	for _, rest := range []string{
		``, `,"spec":null`, `,"spec":[]`, `,"spec":"text"`,
		`,"spec":{"cidr":7,"node":[],"peerIP":{}}`,
		`,"spec":{"cidr":"0.0.0.0/99","node":"node-1","state":"confirmed","deleted":"perhaps"}`,
		`,"spec":{"nodeName":"node-1","hostNetwork":"x"},"status":{"podIP":"10.1.0.300"}`,
		`,"spec":{"asNumber":-1,"listenPort":70000,"peerSelector":"((("}`,
		`,"status":{"addresses":"x","conditions":{}}`,
	} {
		all = append(all, `{"metadata":{"name":"`+name+`"}`+rest+`}`)
	}
	annotations := `,"annotations":{"projectcalico.org/IPv4Address":"nonsense",` +
		`"projectcalico.org/ASNumber":"x","projectcalico.org/labels":"{","noise":"` + noise + `"}`
	return append(all, `{"metadata":{"name":"`+name+`"`+annotations+`}}`)
}

func kubernetesGarbage(ctx context.Context, t *trial) error {
	before, err := t.footprint(ctx)
	if err != nil {
		return err
	}
	const crd = ".crd.projectcalico.org"
	kinds := []string{"nodes", "ippools" + crd, "bgppeers" + crd, "bgpconfigurations" + crd,
		"bgpfilters" + crd, "felixconfigurations" + crd, "clusterinformations" + crd,
		"blockaffinities" + crd, "ipamblocks" + crd}
	objects := garbled("garbage", strings.Repeat("x", 3<<19))
	most := 0
	look := func() error {
		if err := testcluster.Pause(ctx, 300*time.Millisecond); err != nil {
			return err
		}
		s, err := t.ours(1).Status(ctx)
		most = max(most, len(s.Problems))
		return err
	}
	for _, object := range objects {
		for _, kind := range kinds {
			t.kube.PutObject(kind, []byte(object))
		}
		inNamespace := strings.Replace(object, `{"name"`, `{"namespace":"default","name"`, 1)
		t.kube.PutObject("pods", []byte(inNamespace))
		if err := look(); err != nil {
			return err
		}
	}
	for late := time.Now().Add(recovery); most < 3 && time.Now().Before(late); {
		if err := look(); err != nil { // megabytes take their time on a busy machine
			return err
		}
	}
	t.must(most >= 3, "status named %d problems at most", most)
	t.note("%d kinds, %d objects of each, up to %d named as problems", len(kinds)+1, len(objects),
		most)
	t.kube.Compact() // they are listed, too
	if err := testcluster.Pause(ctx, time.Second); err != nil {
		return err
	}
	for _, kind := range kinds {
		t.kube.DeleteObject(kind, "garbage")
	}
	t.kube.DeleteObject("pods", "default/garbage")
	t.kube.Garble([]byte("\xff{"))
	if err := t.claim(ctx, t.nodes[1], spare); err != nil {
		return err
	}
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	t.kube.Garble(nil)
	return errors.Join(t.noGrowth(ctx, before, 64<<20), t.release(ctx, spare))
}

// moveDatastore: what both hold is the same, so that no route is written.
func moveDatastore(ctx context.Context, t *trial) error {
	kubeconfig := t.Kubeconfig
	defer func() { t.Kubeconfig = kubeconfig }()
	for _, at := range []string{"", kubeconfig} {
		t.Kubeconfig = at
		for _, n := range t.agents() {
			if err := t.restart(ctx, n.agent()); err != nil {
				return err
			}
			s, err := n.agent().Status(ctx)
			if err != nil {
				return err
			}
			want := map[bool]string{true: "etcdv3", false: "kubernetes"}[at == ""]
			t.must(s.Datastore.Type == want && s.Datastore.Connected && !s.Datastore.Stale,
				"the datastore of %s is %+v, want %s", n.Name, s.Datastore, want)
			if err := t.wroteNothing(ctx, n.agent(), 0); err != nil {
				return err
			}
		}
	}
	return t.getsThrough(ctx)
}

// killInSteps kills the leader at the first write to a Node: the step is taken and not done.
func killInSteps(ctx context.Context, t *trial) error {
	return t.controlled(ctx, "mesh", fibWrites{}, func() error {
		err := t.killedInAStep(ctx, func() error {
			return t.there(ctx, func() error { return nil })
		})
		if err != nil {
			return err
		}
		return t.killedInAStep(ctx, func() error { return t.back(ctx) })
	})
}

func (t *trial) killedInAStep(ctx context.Context, migrate func() error) error {
	leader, err := t.leading(ctx)
	if err != nil {
		return err
	}
	var killed atomic.Bool
	t.kube.OnWrite(func(verb, kind, name string) int {
		if kind != "nodes" || !killed.CompareAndSwap(false, true) {
			return 0
		}
		if err := leader.process.Kill(); err != nil {
			t.log.Error("the controller lives on", "err", err)
		}
		t.note("%s was killed before %s %s %s", leader.name, verb, kind, name)
		return http.StatusInternalServerError
	})
	defer t.kube.OnWrite(nil)
	if err := migrate(); err != nil {
		return err
	}
	t.must(killed.Load(), "no controller was killed")
	return t.startController(leader)
}
