package calicotest

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestEtcdStopsAtOnceAndStartsAgainOnItsPort(t *testing.T) {
	for _, secure := range []bool{false, true} {
		o := EtcdOptions{Dir: t.TempDir()}
		var config *tls.Config
		if secure {
			certs := do[Certs](t)(WriteCerts(t.TempDir()))
			o.CertFile, o.KeyFile, o.ClientCAFile = certs.ServerCert, certs.ServerKey, certs.CA
			config = clientTLS(t, certs)
		}
		e := do[*Etcd](t)(StartEtcd(o))
		c := do[*Cluster](t)(Connect(t.Context(), e.Endpoint(), config))
		defer c.Close()
		must(t, c.AddNode(t.Context(), "edge-7", pfx("172.30.8.7/24")))
		events := c.client.Watch(t.Context(), "/calico/", clientv3.WithPrefix(),
			clientv3.WithCreatedNotify())
		<-events // the watch is there

		began := time.Now()
		e.Close()
		// it would be 5 s if it waited for the client
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("secure %v: with a client connected, Close took %v", secure, took)
		}
		if _, err := os.Stat(o.Dir); err != nil {
			t.Errorf("a directory that was given is gone: %v", err)
		}
		endpoint := e.Endpoint()
		o.Listen = endpoint[strings.LastIndex(endpoint, "/")+1:]
		e = do[*Etcd](t)(StartEtcd(o))
		defer e.Close()
		if e.Endpoint() != endpoint {
			t.Errorf("started again on %s, not %s", e.Endpoint(), endpoint)
		}
		if s := snapshot(t, e.Cluster(), "edge-7"); len(s.Nodes) != 1 {
			t.Errorf("nodes %v", s.Nodes)
		}
	}
}

func clientTLS(t *testing.T, certs Certs) *tls.Config {
	pair := do[tls.Certificate](t)(tls.LoadX509KeyPair(certs.ClientCert, certs.ClientKey))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(do[[]byte](t)(os.ReadFile(certs.CA)))
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}
}

func TestCloseRemovesATemporaryDirectory(t *testing.T) {
	e := do[*Etcd](t)(StartEtcd(EtcdOptions{}))
	e.Close()
	if _, err := os.Stat(e.tempDir); !os.IsNotExist(err) {
		t.Errorf("%s: %v", e.tempDir, err)
	}
}

func TestStartOnATakenPortSaysSo(t *testing.T) {
	e := do[*Etcd](t)(StartEtcd(EtcdOptions{}))
	defer e.Close()
	taken := strings.TrimPrefix(e.Endpoint(), "http://")
	if second, err := StartEtcd(EtcdOptions{Listen: taken}); err == nil {
		second.Close()
		t.Error("two servers on one port")
	} else if !strings.Contains(err.Error(), taken) {
		t.Errorf("error %q does not name %s", err, taken)
	}
}
