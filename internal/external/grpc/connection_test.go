package grpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // which the agent has, by its etcd client
	"google.golang.org/grpc/test/bufconn"

	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/external"
	"vpp-route-agent/internal/external/proto/ligato/configurator"
	"vpp-route-agent/internal/external/proto/ligato/generic"
	"vpp-route-agent/internal/external/proto/ligato/vpp/l3"
	"vpp-route-agent/internal/route"
)

// pipes is a server whose clients all are one, over connections in memory.
type pipes struct {
	*bed
	accept *bufconn.Listener
}

// large makes an answer to Get larger than the window that a client grants without reading.
type large struct{ All }

func (large) Sources() []external.Source {
	long := &l3.Route{DstNetwork: strings.Repeat("x", 100_000)}
	return []external.Source{{Items: map[string]external.Item{"x": {Key: "x", Message: long}}}}
}

// inMemory runs a test with a server, and the time of synctest.
func inMemory(t *testing.T, test func(t *testing.T, p *pipes)) { inMemoryOf(t, large{}, test) }

func inMemoryOf(t *testing.T, all All, test func(t *testing.T, p *pipes)) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{bed: newBed(t.TempDir()), accept: bufconn.Listen(1 << 20)}
		ctx, cancel := context.WithCancel(t.Context())
		server := NewServer(p.Source, all, Policy{}, nil, slog.New(slog.DiscardHandler))
		done := make(chan error, 1)
		go func() { done <- server.Serve(ctx, p.accept) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			p.stop()
		}()
		test(t, p)
	})
}

// client returns a client with a connection of its own, and windows of 64 KiB.
func (p *pipes) client(t *testing.T) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient("passthrough:///x", grpc.WithStaticStreamWindowSize(1<<16),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return p.accept.DialContext(ctx)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func get(ctx context.Context, c *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := configurator.NewConfiguratorServiceClient(c).Get(ctx, &configurator.GetRequest{})
	return err
}

// A call whose answer nobody reads stays under way, until its connection is closed for it.
func TestAnswersThatNobodyReads(t *testing.T) {
	for _, options := range [][]grpc.CallOption{nil, {grpc.UseCompressor("gzip")}} {
		inMemory(t, func(t *testing.T, p *pipes) {
			unread := p.client(t)
			defer unread.Close()
			for range maxCalls {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s, err := unread.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true},
					configurator.ConfiguratorService_Get_FullMethodName, options...)
				if err == nil {
					err = s.SendMsg(&configurator.GetRequest{})
				}
				if err == nil {
					err = s.CloseSend()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			other := p.client(t)
			defer other.Close()
			checkError(t, "one more", get(t.Context(), other), codes.ResourceExhausted,
				fmt.Sprintf("bufconn has %d calls under way", maxCalls))
			time.Sleep(answerPatience + time.Second)
			for range 2 * maxCalls {
				checkError(t, "after a minute", get(t.Context(), other), codes.OK, "")
			}
		})
	}
}

// Calls that end without an answer, or whose client leaves, are under way no longer.
func TestCallsThatEndOtherwise(t *testing.T) {
	inMemory(t, func(t *testing.T, p *pipes) {
		c := p.client(t)
		defer c.Close()
		for range 2 * maxCalls {
			_, err := generic.NewManagerServiceClient(c).SetConfig(t.Context(),
				&generic.SetConfigRequest{})
			checkError(t, "refused", err, codes.PermissionDenied, "")
			err = c.Invoke(t.Context(), "/rpc.None/None", &configurator.GetRequest{},
				&configurator.GetResponse{})
			checkError(t, "unknown", err, codes.Unimplemented, "")
			ctx, cancel := context.WithCancel(t.Context())
			_, err = configurator.NewConfiguratorServiceClient(c).Notify(ctx,
				&configurator.NotifyRequest{})
			checkError(t, "a stream", err, codes.OK, "")
			cancel()
			synctest.Wait()
		}
	})
}

// blocked is an All whose Sources come when the test says so.
type blocked struct {
	All
	begun atomic.Int32
	end   chan struct{}
}

func (b *blocked) Sources() []external.Source {
	b.begun.Add(1)
	<-b.end
	return nil
}

// A call whose client has left is under way as long as it is worked at.
func TestACallCountsWhileItIsWorkedAt(t *testing.T) {
	work := &blocked{}
	inMemoryOf(t, work, func(t *testing.T, p *pipes) {
		work.end = make(chan struct{})
		for range 4 {
			c := p.client(t)
			defer c.Close()
			api := configurator.NewConfiguratorServiceClient(c)
			for range maxCalls {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
				_, err := api.Get(ctx, &configurator.GetRequest{})
				cancel()
				if err == nil {
					t.Fatal("answered")
				}
				synctest.Wait()
			}
		}
		if n := work.begun.Load(); n != maxCalls {
			t.Errorf("%d calls are worked at, want %d", n, maxCalls)
		}
		close(work.end)
		synctest.Wait()
		other := p.client(t)
		defer other.Close()
		checkError(t, "when they are done", get(t.Context(), other), codes.OK, "")
	})
}

// Calls that their clients cancel at any moment leave nothing behind.
func TestCancelledCallsAreUnderWayNoLonger(t *testing.T) {
	b := newBed(t.TempDir())
	defer b.stop()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	at := &blocked{end: make(chan struct{})}
	close(at.end)
	s := NewServer(b.Source, at, Policy{}, nil, slog.New(slog.DiscardHandler))
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	defer func() { cancel(); <-done }()
	c, err := grpc.NewClient("unix:"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	api := configurator.NewConfiguratorServiceClient(c)
	for i := range 3000 {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Duration(i%300)*time.Microsecond, cancel)
		_, _ = api.Get(ctx, &configurator.GetRequest{})
		cancel()
	}
	underWay := func() int {
		s.calls.mu.Lock()
		defer s.calls.mu.Unlock()
		return len(s.calls.used)
	}
	for late := time.Now().Add(30 * time.Second); underWay() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("under way are %v", s.calls.used)
		}
	}
}

func TestAClientHasALimitedNumberOfConnections(t *testing.T) {
	inMemory(t, func(t *testing.T, p *pipes) {
		var all []*grpc.ClientConn
		for range maxConnections {
			c := p.client(t)
			defer c.Close()
			all = append(all, c)
			checkError(t, "get", get(t.Context(), c), codes.OK, "")
		}
		more := p.client(t)
		defer more.Close()
		checkError(t, "one more", get(t.Context(), more), codes.Unavailable, "")
		all[0].Close()
		time.Sleep(time.Minute) // gRPC waits before it dials again
		checkError(t, "in the place of another", get(t.Context(), more), codes.OK, "")
	})
}

// Connections without calls are closed; one with a stream is not, however long nothing happens.
func TestIdleConnectionsAreClosed(t *testing.T) {
	inMemory(t, func(t *testing.T, p *pipes) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p.do(Change{Puts: puts(1)}) // so that eth0 has been seen
		busy := p.client(t)
		defer busy.Close()
		stream, err := configurator.NewConfiguratorServiceClient(busy).Notify(ctx,
			&configurator.NotifyRequest{Idx: 1})
		if err != nil {
			t.Fatal(err)
		}
		idle, err := p.accept.DialContext(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer idle.Close()
		if _, err := idle.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" +
			"\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil { // and no settings
			t.Fatal(err)
		}
		closed := make(chan time.Time, 1)
		began := time.Now()
		go func() {
			for b := make([]byte, 100); err == nil; {
				_, err = idle.Read(b)
			}
			closed <- time.Now()
		}()
		time.Sleep(48 * time.Hour)
		if d := (<-closed).Sub(began); d < idleTime || d > 2*idleTime {
			t.Errorf("the idle connection was closed after %v", d)
		}
		p.fib.set(func() {
			p.fib.links = append(p.fib.links, route.Interface{Name: "eth1", Index: 7, Up: true})
		})
		got, err := stream.Recv()
		if err != nil || got.GetNotification().GetVppNotification().GetInterface().GetState().
			GetName() != "eth1" {
			t.Errorf("%v %v", got, err)
		}
	})
}

// Over TCP a client is known by its certificate, or by nothing.
func TestCallsOverTCP(t *testing.T) {
	certs, err := calicotest.WriteCerts(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	conf := func(cert, key string) *tls.Config {
		pair, err := tls.LoadX509KeyPair(cert, key)
		ca, err2 := os.ReadFile(certs.CA)
		if err = errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(ca)
		return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, ClientCAs: pool,
			ClientAuth: tls.RequireAndVerifyClientCert}
	}
	for _, test := range []struct {
		server *tls.Config
		client credentials.TransportCredentials
		policy Client
	}{
		{nil, insecure.NewCredentials(), Client{Anonymous: true}},
		{conf(certs.ServerCert, certs.ServerKey),
			credentials.NewTLS(conf(certs.ClientCert, certs.ClientKey)),
			Client{Certificate: "calicotest client"}},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		b := newBed(t.TempDir())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		server := NewServer(b.Source, large{}, Policy{Clients: []Client{test.policy}}, test.server,
			slog.New(slog.DiscardHandler))
		done := make(chan error, 1)
		go func() { done <- server.Serve(ctx, l) }()
		conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(test.client))
		if err != nil {
			t.Fatal(err)
		}
		checkError(t, "get", get(ctx, conn), codes.OK, "")
		_, err = generic.NewManagerServiceClient(conn).SetConfig(ctx, &generic.SetConfigRequest{})
		checkError(t, "set", err, codes.OK, "")
		conn.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		b.stop()
	}
}
