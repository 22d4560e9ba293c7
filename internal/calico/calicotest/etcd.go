// Package calicotest writes Calico's data as Calico stores it in etcd v3, and runs an etcd: for
// tests, the demo and labs. Only its Cluster writes such data in this repository.
package calicotest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
	"golang.org/x/crypto/bcrypt"
	"google.golang.org/grpc"
)

// EtcdOptions configure an etcd. The zero value is usable: a free port of 127.0.0.1, and a
// directory that is removed with the server.
type EtcdOptions struct {
	// Dir keeps the data; empty: a temporary one, removed by Close.
	Dir string
	// Listen is host:port for clients; empty: 127.0.0.1 and a free port. Clients must reach that
	// host.
	Listen string
	// CertFile and KeyFile enable TLS. With ClientCAFile, clients need a certificate signed by it.
	CertFile, KeyFile, ClientCAFile string
	// Token makes the cluster's id differ from those with other tokens.
	Token string
	// ProgressInterval is the interval of progress notifications; zero: etcd's default, 10 minutes.
	ProgressInterval time.Duration
}

// Etcd is an etcd server of one member in this process.
type Etcd struct {
	server  *embed.Etcd
	rpc     *grpc.Server
	tempDir string
	client  *clientv3.Client
	scheme  string
}

// StartEtcd starts a server and waits until it answers. The caller closes it.
func StartEtcd(o EtcdOptions) (*Etcd, error) {
	e := &Etcd{scheme: "http"}
	cfg := embed.NewConfig()
	cfg.Name = "calicotest"
	cfg.Dir = o.Dir
	if cfg.Dir == "" {
		dir, err := os.MkdirTemp("", "calicotest-etcd-")
		if err != nil {
			return nil, fmt.Errorf("etcd: %w", err)
		}
		e.tempDir, cfg.Dir = dir, dir
	}
	if o.CertFile != "" {
		e.scheme = "https"
		cfg.ClientTLSInfo.CertFile, cfg.ClientTLSInfo.KeyFile = o.CertFile, o.KeyFile
		cfg.ClientTLSInfo.TrustedCAFile, cfg.ClientTLSInfo.ClientCertAuth = o.ClientCAFile,
			o.ClientCAFile != ""
	}
	listen := o.Listen
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	peers := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	clients := []url.URL{{Scheme: e.scheme, Host: listen}}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = clients, clients
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = peers, peers
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	if o.Token != "" {
		cfg.InitialClusterToken = o.Token
	}
	makeCheap(cfg)
	cfg.TickMs, cfg.ElectionMs = 10, 50
	if o.ProgressInterval != 0 {
		cfg.WatchProgressNotifyInterval = o.ProgressInterval
	}
	rpc := make(chan *grpc.Server, 1) // there is one listener
	cfg.ServiceRegister = func(s *grpc.Server) { rpc <- s }

	server, err := embed.StartEtcd(cfg)
	// A port that was free a moment ago may be the local one of somebody's connection.
	for range 100 {
		if o.Listen == "" || !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
		time.Sleep(50 * time.Millisecond)
		server, err = embed.StartEtcd(cfg)
	}
	if err != nil {
		e.removeTemp()
		return nil, fmt.Errorf("etcd on %s: %w", listen, err)
	}
	e.server = server
	select {
	case e.rpc = <-rpc: // made once the server is ready
	case err = <-server.Err():
		err = fmt.Errorf("stopped: %w", err)
	case <-time.After(2 * time.Minute):
		err = errors.New("not ready after 2 min")
	}
	if err != nil {
		server.Close()
		e.removeTemp()
		return nil, fmt.Errorf("etcd on %s: %w", listen, err)
	}
	e.client = v3client.New(server.Server)
	return e, nil
}

// makeCheap saves what a server of tests need not spend. What it holds is not worth keeping over a
// crash of the machine, and its passwords are no secrets: with the race detector one log-in costs
// seconds else.
func makeCheap(cfg *embed.Config) {
	cfg.UnsafeNoFsync = true
	cfg.BcryptCost = uint(bcrypt.MinCost)
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
}

// Endpoint returns the URL for clients.
func (e *Etcd) Endpoint() string { return e.scheme + "://" + e.server.Clients[0].Addr().String() }

// Client talks to the server inside the process and is closed with it. It cannot log in.
func (e *Etcd) Client() *clientv3.Client { return e.client }

// Cluster writes to this server.
func (e *Etcd) Cluster() *Cluster { return NewCluster(e.client) }

// EnableAuth requires clients to log in: as root with all rights, or as one of readers (name to
// password), who may read Calico's keys.
func (e *Etcd) EnableAuth(ctx context.Context, rootPassword string,
	readers map[string]string) error {
	c := e.client
	_, err := c.RoleAdd(ctx, "reader")
	if err == nil {
		_, err = c.RoleGrantPermission(ctx, "reader", "/calico/",
			clientv3.GetPrefixRangeEnd("/calico/"), clientv3.PermissionType(clientv3.PermRead))
	}
	add := func(user, password, role string) {
		if err == nil {
			_, err = c.UserAdd(ctx, user, password)
		}
		if err == nil {
			_, err = c.UserGrantRole(ctx, user, role)
		}
	}
	if err == nil {
		_, err = c.RoleAdd(ctx, "root")
	}
	add("root", rootPassword, "root")
	for user, password := range readers {
		add(user, password, "reader")
	}
	if err == nil {
		_, err = c.AuthEnable(ctx)
	}
	if err != nil {
		return fmt.Errorf("etcd: enable authentication: %w", err)
	}
	return nil
}

// Close stops the server at once, despite open connections, and removes a temporary directory.
func (e *Etcd) Close() {
	e.client.Close()
	// Stop alone, under TLS, waits for clients that come back, since its listener is etcd's.
	// Without it etcd waits 5 s for clients to leave.
	var stopping sync.WaitGroup
	stopping.Go(e.rpc.Stop)
	e.server.Close()
	stopping.Wait()
	e.removeTemp()
}

func (e *Etcd) removeTemp() {
	if e.tempDir != "" {
		os.RemoveAll(e.tempDir)
	}
}

// Connect returns a Cluster that writes to a running etcd, and checks that it answers. The caller
// closes it. tlsConfig may be nil.
func Connect(ctx context.Context, endpoint string, tlsConfig *tls.Config) (*Cluster, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:       []string{endpoint},
		TLS:             tlsConfig,
		DialTimeout:     5 * time.Second,
		MaxUnaryRetries: 2,
		Logger:          zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("etcd %s: %w", endpoint, err)
	}
	if _, err := client.Get(ctx, "/calico/", clientv3.WithKeysOnly()); err != nil {
		client.Close()
		return nil, fmt.Errorf("etcd %s: %w", endpoint, err)
	}
	return NewCluster(client), nil
}
