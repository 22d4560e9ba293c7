package demo

import (
	"context"
	"io"
	"net"
	"sync"

	"vpp-route-agent/internal/calico/calicotest"
)

// ServeEtcd runs an etcd until ctx ends: on listen, and unless socket is empty on that unix socket
// too, for those who do not live in the network of listen.
func ServeEtcd(ctx context.Context, listen, dir, socket string) error {
	server, err := calicotest.StartEtcd(calicotest.EtcdOptions{Listen: listen, Dir: dir})
	if err != nil {
		return err
	}
	defer server.Close()
	if socket == "" {
		<-ctx.Done()
		return nil
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	return relay(ctx, l, listen)
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
