package demo

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"

	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/calico/kubernetes"
	"vpp-route-agent/internal/kubernetes/kubetest"
)

// Datastore says where ServeEtcd serves what.
type Datastore struct {
	Listen string // address and port of etcd
	Dir    string // of etcd's data; empty: a temporary folder
	// Socket is a unix socket of etcd for those who do not live in the network of Listen; empty:
	// none.
	Socket string
	// Kubernetes is the address and port where a stand-in for the Kubernetes API has what is in
	// etcd; empty: there is none. The kubeconfig for it is in KubeconfigDir before there is Socket.
	Kubernetes, KubeconfigDir string
}

// ServeEtcd runs an etcd until ctx ends.
func ServeEtcd(ctx context.Context, at Datastore) error {
	server, err := calicotest.StartEtcd(calicotest.EtcdOptions{Listen: at.Listen, Dir: at.Dir})
	if err != nil {
		return err
	}
	defer server.Close()
	serving, ctx := errgroup.WithContext(ctx)
	if at.Kubernetes != "" {
		l, err := net.Listen("tcp", at.Kubernetes)
		if err != nil {
			return err
		}
		api := kubetest.StartOn(l)
		defer api.Close()
		if _, err := api.WriteKubeconfig(at.KubeconfigDir, api.URL(),
			"token: "+kubetest.Token); err != nil {
			return err
		}
		serving.Go(func() error {
			err := calicotest.Mirror(ctx, server.Client(), kubernetes.GroupV1, api)
			if ctx.Err() != nil {
				return nil
			}
			return err
		})
	}
	if at.Socket != "" {
		l, err := net.Listen("unix", at.Socket)
		if err != nil {
			return err
		}
		serving.Go(func() error { return relay(ctx, l, at.Listen) })
	}
	<-ctx.Done()
	return serving.Wait()
}

// ServeKubernetes runs a stand-in for the Kubernetes API at an address until ctx ends. What it has
// is kept in a folder, with a kubeconfig for it.
func ServeKubernetes(ctx context.Context, listen, dir string) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	api := kubetest.StartOn(l)
	defer api.Close()
	api.Install(kubernetes.GroupV1, calicotest.Plurals...)
	if err := api.Keep(filepath.Join(dir, "objects.json")); err != nil {
		return err
	}
	if _, err := api.WriteKubeconfig(dir, api.URL(), "token: "+kubetest.Token); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// relay joins each connection on l with one to the TCP address to, until ctx ends.
func relay(ctx context.Context, l net.Listener, to string) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		c, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		wg.Go(func() { join(ctx, c, to) })
	}
}

// join copies both ways until one side ends or ctx does.
func join(ctx context.Context, a net.Conn, to string) {
	defer a.Close()
	b, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
	if err != nil {
		return
	}
	closeBoth := func() { a.Close(); b.Close() }
	defer context.AfterFunc(ctx, closeBoth)()
	var wg sync.WaitGroup
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		wg.Go(func() {
			io.Copy(pair[0], pair[1]) // ends when either is closed
			closeBoth()
		})
	}
	wg.Wait()
}
