package testcluster

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"sync"

	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/calico/kubernetes"
	"vpp-route-agent/internal/durable"
	"vpp-route-agent/internal/kubernetes/kubetest"
	"vpp-route-agent/internal/netlab"
)

// APIServer is a stand-in for the Kubernetes API in this process, which has what is in etcd.
type APIServer struct {
	*kubetest.Server
	tokenFile string
	cancel    context.CancelFunc
	mirroring sync.WaitGroup
	mirrored  error // valid once mirroring has ended
}

// ServeKubernetes has agents that start from now on find Calico's data in a Kubernetes API at an
// address of ns. The caller closes it.
func (c *Cluster) ServeKubernetes(ns *netlab.Namespace, address netip.Addr) (*APIServer, error) {
	var l net.Listener
	err := ns.Do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(address, 6443).String())
		return err
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	a := &APIServer{Server: kubetest.StartOn(l), cancel: cancel,
		tokenFile: filepath.Join(c.Dir(), "token")}
	a.mirroring.Go(func() {
		a.mirrored = calicotest.Mirror(ctx, c.Data.Client(), kubernetes.GroupV1, a)
	})
	err = a.WriteToken(kubetest.Token)
	if err == nil {
		c.Kubeconfig, err = a.WriteKubeconfig(c.Dir(), a.URL(), "tokenFile: "+a.tokenFile)
	}
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// WriteToken has clients use a token, within the minute after which they read its file again.
func (a *APIServer) WriteToken(token string) error {
	return durable.WriteFile(a.tokenFile, []byte(token))
}

// Close ends the server, and says why it did not have all that is in etcd.
func (a *APIServer) Close() error {
	a.cancel()
	a.mirroring.Wait()
	a.Server.Close()
	if errors.Is(a.mirrored, context.Canceled) {
		return nil
	}
	return a.mirrored
}
