package etcd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vpp-route-agent/internal/calico/calicotest"
)

func TestBadConfigurationIsOneSentence(t *testing.T) {
	dir := t.TempDir()
	certs, err := calicotest.WriteCerts(dir)
	must(t, err)
	empty := filepath.Join(dir, "empty.pem")
	must(t, os.WriteFile(empty, nil, 0o600))
	http, https := []string{"http://127.0.0.1:2379"}, []string{"https://127.0.0.1:2379"}
	for _, tc := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"no such port", Config{Endpoints: []string{"http://a:99999"}}, "a port from 1 to 65535"},
		{"no endpoint", Config{}, "no etcd endpoint"},
		{"no scheme", Config{Endpoints: []string{"127.0.0.1:2379"}}, `"127.0.0.1:2379"`},
		{"other scheme", Config{Endpoints: []string{"ftp://127.0.0.1:2379"}},
			"must start with http"},
		{"no port", Config{Endpoints: []string{"http://127.0.0.1"}}, "a host and a port"},
		{"blank", Config{Endpoints: []string{"http://a:1", " http://b:1"}}, `" http://b:1"`},
		{"path", Config{Endpoints: []string{"http://a:1/v2"}}, "scheme, host and port only"},
		{"mixed schemes", Config{Endpoints: []string{http[0], https[0]}}, "mix http and https"},
		{"user without password", Config{Endpoints: http, Username: "u"},
			"one is given without the other"},
		{"password without user", Config{Endpoints: http, Password: "p"},
			"one is given without the other"},
		{"no CA file", Config{Endpoints: https, CACertFile: "/nowhere/ca.pem"},
			caSetting + ": open /nowhere/ca.pem"},
		{"CA file without certificate", Config{Endpoints: https, CACertFile: empty},
			caSetting + ": " + empty + " has no certificate"},
		{"key without certificate", Config{Endpoints: https, KeyFile: certs.ClientKey},
			"one is given without the other"},
		{"no certificate file", Config{Endpoints: https, CertFile: "/nowhere/c.pem",
			KeyFile: certs.ClientKey}, certSetting + ": open /nowhere/c.pem"},
		{"no key file", Config{Endpoints: https, CertFile: certs.ClientCert,
			KeyFile: "/nowhere/k.pem"}, keySetting + ": open /nowhere/k.pem"},
		{"no certificate", Config{Endpoints: https, CertFile: empty, KeyFile: certs.ClientKey},
			pairSetting + ": tls: failed to find any PEM data in certificate input"},
		{"key of another certificate", Config{Endpoints: https, CertFile: certs.ClientCert,
			KeyFile: certs.ServerKey}, pairSetting + ": tls: private key does not match"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := NewClient(tc.cfg, "")
			if err == nil || !strings.Contains(err.Error(), tc.want) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// A password in an endpoint's URL is refused, and never shown: errors are for the log.
func TestNoErrorShowsAPasswordInAnEndpoint(t *testing.T) {
	for _, endpoint := range []string{
		"http://root:hunter2@10.0.0.1:2379", "https://root:hunter2@10.0.0.1:23x79",
		"root:hunter2@10.0.0.1:2379", "http://hunter2@10.0.0.1:2379",
		"http://root:hunter2/@10.0.0.1:2379", "http://root:%hunter2@10.0.0.1:2379",
		"ftp://root:hunter2@10.0.0.1:2379", "http://root:hunter2@10.0.0.1",
		"http://root: hunter2@10.0.0.1:2379",
	} {
		_, err := Config{Endpoints: []string{"http://10.0.0.2:2379", endpoint}}.client()
		if err == nil || strings.Contains(err.Error(), "hunter2") ||
			!strings.Contains(err.Error(), "etcd endpoint 2 ") {
			t.Errorf("%s: got %v, want which endpoint it is, without the password", endpoint, err)
		}
	}
	if _, err := (Config{Endpoints: strings.Split("http://root:hunter2,3@10.0.0.1:2379",
		",")}).client(); strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}
