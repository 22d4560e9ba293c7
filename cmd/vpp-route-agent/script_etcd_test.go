package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/calico/kubernetes"
	"vpp-route-agent/internal/kubernetes/kubetest"
)

// etcdLab is an etcd that the agent reaches only through a relay. While the relay is closed etcd is
// gone for the agent, and the cluster goes on changing it.
//
// With api the agent reads the Kubernetes API instead, which has the same cluster.
type etcdLab struct {
	server  *calicotest.Etcd
	cluster *calicotest.Cluster
	api     *kubetest.Server // nil: the agent reads etcd
	end     func()           // of the mirror
	relay   *relay           // nil: closed
}

func (e *etcdLab) close() {
	if e.relay != nil {
		e.relay.close()
	}
	if e.api != nil {
		e.end()
		e.api.Close()
	}
	e.server.Close()
}

// mirror has the Kubernetes API hold the same.
func (e *etcdLab) mirror() {
	e.api = kubetest.Start()
	ctx, cancel := context.WithCancel(context.Background())
	var mirroring sync.WaitGroup
	mirroring.Go(func() {
		_ = calicotest.Mirror(ctx, e.server.Client(), kubernetes.GroupV1, e.api)
	})
	e.end = func() { cancel(); mirroring.Wait() }
}

// address is where the relay leads.
func (e *etcdLab) address() string {
	if e.api != nil {
		return strings.TrimPrefix(e.api.URL(), "https://")
	}
	return strings.TrimPrefix(e.server.Endpoint(), "http://")
}

// datastore starts etcd at its first use.
func (sc *script) datastore() (*etcdLab, error) {
	if sc.etcd == nil {
		server, err := calicotest.StartEtcd(calicotest.EtcdOptions{Dir: sc.path("etcd")})
		if err != nil {
			return nil, err
		}
		sc.etcd = &etcdLab{server: server, cluster: server.Cluster()}
		if sc.kubernetes {
			sc.etcd.mirror()
		}
	}
	return sc.etcd, nil
}

// relay passes connections on to one address.
type relay struct {
	listener net.Listener
	to       string
	wg       sync.WaitGroup

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]bool
}

// newRelay tries again where the address is in use: that of a relay that was closed is held by each
// child of this process that was forked meanwhile, until it runs its program.
func newRelay(listen, to string) (*relay, error) {
	l, err := net.Listen("tcp4", listen)
	for range 100 {
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
		time.Sleep(50 * time.Millisecond)
		l, err = net.Listen("tcp4", listen)
	}
	if err != nil {
		return nil, err
	}
	r := &relay{listener: l, to: to, open: map[net.Conn]bool{}}
	r.wg.Go(r.accept)
	return r, nil
}

func (r *relay) accept() {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp4", r.to)
		if err != nil {
			in.Close()
			continue
		}
		if !r.keep(in, out) {
			return
		}
		r.wg.Go(func() { io.Copy(out, in); out.Close() })
		r.wg.Go(func() { io.Copy(in, out); in.Close() })
	}
}

func (r *relay) keep(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		if r.closed {
			c.Close()
			continue
		}
		r.open[c] = true
	}
	return !r.closed
}

func (r *relay) close() {
	r.listener.Close()
	r.mu.Lock()
	r.closed = true
	for c := range r.open {
		c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

var etcdCommand = verbs(map[string]command{
	"start":   etcdStart,
	"stop":    etcdStop,
	"put":     etcdPut,
	"delete":  etcdDelete,
	"has":     etcdHas,
	"shows":   etcdShows,
	"compact": etcdCompact,
})

// etcd start: the agent can reach etcd from now on.
func etcdStart(sc *script, _ []string) (string, error) {
	e, err := sc.datastore()
	if err != nil {
		return "", err
	}
	if e.relay != nil {
		return "", usage("etcd runs already")
	}
	e.relay, err = newRelay(sc.net+".1:2379", e.address())
	return "", err
}

// etcd stop: the agent loses etcd: connections end and new ones are refused.
func etcdStop(sc *script, _ []string) (string, error) {
	if sc.etcd == nil || sc.etcd.relay == nil {
		return "", usage("etcd does not run")
	}
	sc.etcd.relay.close()
	sc.etcd.relay = nil
	return "", nil
}

// etcd put KEY VALUE: any bytes under any key.
func etcdPut(sc *script, args []string) (string, error) {
	if len(args) != 2 {
		return "", usage("etcd put KEY VALUE")
	}
	return sc.write(func(ctx context.Context, c *calicotest.Cluster) error {
		return c.PutRaw(ctx, args[0], args[1])
	})
}

// etcd delete KEY, or with a "/" at the end all keys below.
func etcdDelete(sc *script, args []string) (string, error) {
	if len(args) != 1 {
		return "", usage("etcd delete KEY")
	}
	return sc.write(func(ctx context.Context, c *calicotest.Cluster) error {
		return c.DeleteRaw(ctx, args[0])
	})
}

// etcd has KEY VALUE: the key has exactly this value.
func etcdHas(sc *script, args []string) (string, error) {
	if len(args) != 2 {
		return "", usage("etcd has KEY VALUE")
	}
	e, err := sc.datastore()
	if err != nil {
		return "", err
	}
	ctx, cancel := brief()
	defer cancel()
	resp, err := e.server.Client().Get(ctx, args[0])
	if err == nil && (len(resp.Kvs) == 0 || string(resp.Kvs[0].Value) != args[1]) {
		err = fmt.Errorf("%s has %v", args[0], resp.Kvs)
	}
	return "", err
}

// etcd shows KEY PATTERN: the value of the key matches.
func etcdShows(sc *script, args []string) (string, error) {
	if len(args) != 2 {
		return "", usage("etcd shows KEY PATTERN")
	}
	pattern, err := regexp.Compile(args[1])
	if err != nil {
		return "", usage("%v", err)
	}
	e, err := sc.datastore()
	if err != nil {
		return "", err
	}
	ctx, cancel := brief()
	defer cancel()
	resp, err := e.server.Client().Get(ctx, args[0])
	if err == nil && (len(resp.Kvs) == 0 || !pattern.Match(resp.Kvs[0].Value)) {
		err = fmt.Errorf("%s has %v", args[0], resp.Kvs)
	}
	return "", err
}

// etcd compact: it forgets its history, so that who was away lists everything again.
func etcdCompact(sc *script, _ []string) (string, error) {
	e, err := sc.datastore()
	if err != nil {
		return "", err
	}
	ctx, cancel := brief()
	defer cancel()
	now, err := e.server.Client().Get(ctx, "/")
	if err == nil {
		_, err = e.server.Client().Compact(ctx, now.Header.Revision)
	}
	return "", err
}

func (sc *script) write(f func(context.Context, *calicotest.Cluster) error) (string, error) {
	e, err := sc.datastore()
	if err != nil {
		return "", err
	}
	ctx, cancel := brief()
	defer cancel()
	return "", f(ctx, e.cluster)
}

// labWrites does what calicoctl and Calico's CNI plugin do.
var labWrites = verbs(map[string]command{
	"nodes": labNodes,
	"apply": labApply,
	"delete": labVerb(2, "lab delete KIND NAME",
		func(ctx context.Context, c *calicotest.Cluster, a []string) error {
			return c.Delete(ctx, a[0], a[1])
		}),
	"claim": labVerb(2, "lab claim NODE BLOCK",
		func(ctx context.Context, c *calicotest.Cluster, a []string) error {
			block, err := netip.ParsePrefix(a[1])
			if err != nil {
				return usage("%v", err)
			}
			return c.ClaimBlock(ctx, a[0], block)
		}),
	"unclaim": labVerb(1, "lab unclaim BLOCK",
		func(ctx context.Context, c *calicotest.Cluster, a []string) error {
			block, err := netip.ParsePrefix(a[0])
			if err != nil {
				return usage("%v", err)
			}
			_, err = c.ReleaseBlock(ctx, block)
			return err
		}),
	"attach": labVerb(3, "lab attach NODE POD ADDRESS",
		func(ctx context.Context, c *calicotest.Cluster, a []string) error {
			_, err := c.Attach(ctx, a[0], a[1], a[2])
			return err
		}),
	"move": labVerb(2, "lab move POD NODE",
		func(ctx context.Context, c *calicotest.Cluster, a []string) error {
			_, err := c.Move(ctx, a[0], a[1])
			return err
		}),
	"release": labVerb(1, "lab release POD",
		func(ctx context.Context, c *calicotest.Cluster, a []string) error {
			_, err := c.Release(ctx, a[0])
			return err
		}),
})

func labVerb(n int, use string, f func(context.Context, *calicotest.Cluster,
	[]string) error) command {
	return func(sc *script, args []string) (string, error) {
		if len(args) != n {
			return "", usage("%s", use)
		}
		return sc.write(func(ctx context.Context, c *calicotest.Cluster) error {
			return f(ctx, c, args)
		})
	}
}

// lab nodes NAME…: a cluster in the script's network with these nodes: pool 10.1.0.0/16 of /26
// blocks, the mesh, AS 64512.
func labNodes(sc *script, names []string) (string, error) {
	conf := fmt.Sprintf("kind: BGPConfiguration\napiVersion: projectcalico.org/v3\nmetadata: "+
		"{name: default}\n"+
		"spec: {asNumber: 64512, nodeToNodeMeshEnabled: true, listenPort: %d, bindMode: NodeIP}\n",
		bgpPort)
	return sc.write(func(ctx context.Context, c *calicotest.Cluster) error {
		if _, err := c.Apply(ctx, []byte(conf)); err != nil {
			return err
		}
		for _, name := range names {
			addr, err := sc.address(name)
			if err != nil {
				return err
			}
			if err := c.AddNode(ctx, name, netip.PrefixFrom(addr, 24)); err != nil {
				return err
			}
		}
		return c.AddPool(ctx, "pods", netip.MustParsePrefix("10.1.0.0/16"), 26)
	})
}

// address returns $NET.N for a name that ends in -N.
func (sc *script) address(name string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(sc.net + "." + name[strings.LastIndex(name, "-")+1:])
	if err != nil {
		return addr, usage("name %q does not end in a number", name)
	}
	return addr, nil
}

// lab apply FILE: calicoctl's YAML.
func labApply(sc *script, args []string) (string, error) {
	if len(args) != 1 {
		return "", usage("lab apply FILE")
	}
	text, err := sc.read(args[0])
	if err != nil {
		return "", err
	}
	return sc.write(func(ctx context.Context, c *calicotest.Cluster) error {
		_, err := c.Apply(ctx, []byte(text))
		return err
	})
}
