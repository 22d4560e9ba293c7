package etcd

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vpp-route-agent/internal/calico/calicotest"
)

// TestAConnectionWithoutRequestsIsLeftAlone: etcd takes keepalives on it for an attack. After three
// it closes the connection with too_many_pings, and gRPC doubles the time between keepalives on all
// connections that come after, until a dead one is found no more.
func TestAConnectionWithoutRequestsIsLeftAlone(t *testing.T) {
	t.Parallel()
	e := startEtcd(t, calicotest.EtcdOptions{})
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	var sent atomic.Int64 // bytes to etcd
	var all sync.WaitGroup
	all.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp4", strings.TrimPrefix(e.Endpoint(), "http://"))
			if err != nil {
				from.Close()
				continue
			}
			all.Go(func() {
				_, _ = io.Copy(to, io.TeeReader(from, counter{&sent}))
				to.Close()
			})
			all.Go(func() {
				_, _ = io.Copy(from, to)
				from.Close()
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	c, err := NewClient(Config{Endpoints: []string{"http://" + l.Addr().String()}}, "")
	must(t, err)
	must(t, c.Once(t.Context(), func(ctx context.Context, client *clientv3.Client) error {
		if _, err := client.Get(ctx, "/a"); err != nil {
			return err
		}
		time.Sleep(time.Second)
		before := sent.Load()
		time.Sleep(keepAliveTime + time.Second)
		if after := sent.Load(); before == 0 || after != before {
			t.Errorf("%d bytes were sent with a request, and %d without one", before, after-before)
		}
		return nil
	}))
}

// counter counts bytes.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}
