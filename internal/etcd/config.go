package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Config says how to reach etcd. The caller reads the environment variables, which are
// calico-node's.
type Config struct {
	// Endpoints are the members' client URLs, "http://host:port" or "https://host:port", all of one
	// scheme. At least one (ETCD_ENDPOINTS).
	Endpoints []string
	// Username and Password log in to etcd; both or neither (ETCD_USERNAME, ETCD_PASSWORD).
	Username, Password string
	// CACertFile has the CA certificates (PEM); empty: those of the system. It is read for every
	// connection (ETCD_CA_CERT_FILE).
	CACertFile string
	// CertFile and KeyFile are our certificate and key (PEM), both or neither. They are read for
	// every connection, so that all three files can be renewed (ETCD_CERT_FILE, ETCD_KEY_FILE).
	CertFile, KeyFile string
}

// What an operator sets the files by, for errors.
const (
	caSetting   = "--etcd-ca-cert-file (ETCD_CA_CERT_FILE)"
	certSetting = "--etcd-cert-file (ETCD_CERT_FILE)"
	keySetting  = "--etcd-key-file (ETCD_KEY_FILE)"
	pairSetting = certSetting + " and " + keySetting
)

const (
	// As in calico-node, but a dead connection is detected sooner (calico: 30 s and 10 s).
	dialTimeout      = 10 * time.Second
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 5 * time.Second
)

// client checks c and returns the etcd client's configuration. An error is one sentence.
func (c Config) client() (clientv3.Config, error) {
	scheme, err := c.scheme()
	if err != nil {
		return clientv3.Config{}, err
	}
	if (c.Username == "") != (c.Password == "") {
		return clientv3.Config{}, errors.New("etcd user name and password: one is given " +
			"without the other")
	}
	out := clientv3.Config{
		Endpoints:            c.Endpoints,
		Username:             c.Username,
		Password:             c.Password,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		// We retry ourselves: the client would try a hundred times and end in a bare "deadline
		// exceeded" that hides the reason.
		MaxUnaryRetries: uint(len(c.Endpoints)) + 1,
		DialOptions:     []grpc.DialOption{grpc.WithChainUnaryInterceptor(failFast)},
		Logger:          zap.NewNop(),
	}
	tlsConfig, err := c.tls()
	if err != nil {
		return clientv3.Config{}, err
	}
	if scheme == "https" {
		out.TLS = tlsConfig
		// The client appends these to its own TLS options, so they win.
		out.DialOptions = append(out.DialOptions,
			grpc.WithTransportCredentials(renewable{credentials.NewTLS(tlsConfig), c}))
	}
	return out, nil
}

// failFast makes a request fail with the reason when no endpoint can be connected. It waits while
// one is connecting.
func failFast(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(ctx, method, req, reply, conn, append(opts, grpc.WaitForReady(false))...)
}

// scheme returns the endpoints' common scheme. The etcd client takes its transport from the first
// endpoint, so a mixture would fail or send clear text.
func (c Config) scheme() (string, error) {
	if len(c.Endpoints) == 0 {
		return "", errors.New("no etcd endpoint is given")
	}
	scheme := ""
	for i, e := range c.Endpoints {
		u, err := url.Parse(e)
		switch {
		case err != nil:
			return "", fmt.Errorf("%s is not a URL like http://host:port", c.shown(i))
		case u.Scheme != "http" && u.Scheme != "https":
			return "", fmt.Errorf("%s must start with http:// or https://", c.shown(i))
		case u.User != nil:
			return "", fmt.Errorf("%s must be scheme, host and port only: user name and password "+
				"have settings of their own", c.shown(i))
		case u.Hostname() == "" || u.Port() == "":
			return "", fmt.Errorf("%s must name a host and a port", c.shown(i))
		case !isPort(u.Port()):
			return "", fmt.Errorf("%s must name a port from 1 to 65535", c.shown(i))
		case strings.TrimSuffix(u.Path, "/") != "" || u.RawQuery != "":
			return "", fmt.Errorf("%s must be scheme, host and port only", c.shown(i))
		case scheme != "" && scheme != u.Scheme:
			return "", errors.New("etcd endpoints mix http and https")
		}
		scheme = u.Scheme
	}
	return scheme, nil
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// shown names an endpoint in an error. With an @ it may contain a password, parts of which may be
// other endpoints after a comma. Endpoints then are numbered, and errors of url.Parse, which quote,
// are hidden.
func (c Config) shown(i int) string {
	if strings.Contains(strings.Join(c.Endpoints, ","), "@") {
		return fmt.Sprintf("etcd endpoint %d (not shown: there may be a password in it)", i+1)
	}
	return fmt.Sprintf("etcd endpoint %q", c.Endpoints[i])
}

func (c Config) tls() (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CACertFile != "" {
		pem, err := os.ReadFile(c.CACertFile)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", caSetting, err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: %s has no certificate in PEM form", caSetting,
				c.CACertFile)
		}
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		return nil, errors.New(pairSetting + ": one is given without the other")
	}
	if c.CertFile != "" {
		if _, err := c.pair(); err != nil {
			return nil, err
		}
		out.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return c.pair()
		}
	}
	return out, nil
}

// pair reads our certificate and key.
func (c Config) pair() (*tls.Certificate, error) {
	cert, err := os.ReadFile(c.CertFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certSetting, err)
	}
	key, err := os.ReadFile(c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keySetting, err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", pairSetting, err)
	}
	return &pair, nil
}
