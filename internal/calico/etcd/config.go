package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Config says how to reach etcd. The names of the environment variables are calico-node's; reading them is the caller's business.
type Config struct {
	// Endpoints are the members' client URLs, "http://host:port" or "https://host:port", all of one scheme. At least one
	// (ETCD_ENDPOINTS).
	Endpoints []string
	// Username and Password log in to etcd; both or neither (ETCD_USERNAME, ETCD_PASSWORD).
	Username, Password string
	// CACertFile has the certificates (PEM) that may sign the members' certificates; empty: those of the system. It is read again
	// for every connection (ETCD_CA_CERT_FILE).
	CACertFile string
	// CertFile and KeyFile are our own certificate and key (PEM), both or neither. They are read again for every
	// connection too, so that all three can be renewed in place (ETCD_CERT_FILE, ETCD_KEY_FILE).
	CertFile, KeyFile string
}

const (
	// As calico-node's client, except that a dead connection is noticed sooner (calico: 30 s and 10 s).
	dialTimeout      = 10 * time.Second
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 5 * time.Second
)

// client checks c and makes of it the etcd client's configuration. Errors are one sentence for the person who wrote c.
func (c Config) client() (clientv3.Config, error) {
	scheme, err := c.scheme()
	if err != nil {
		return clientv3.Config{}, err
	}
	if (c.Username == "") != (c.Password == "") {
		return clientv3.Config{}, errors.New("etcd user name and password: one is given without the other")
	}
	out := clientv3.Config{
		Endpoints:            c.Endpoints,
		Username:             c.Username,
		Password:             c.Password,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		PermitWithoutStream:  true,
		// Retrying is ours: the client's own way, to wait for a connection and to try a hundred times, ends in a bare "deadline
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
		// The client puts these options behind those that it makes of TLS: they win.
		out.DialOptions = append(out.DialOptions, grpc.WithTransportCredentials(renewable{credentials.NewTLS(tlsConfig), c}))
	}
	return out, nil
}

// failFast makes a request fail with the reason when no endpoint can be connected. While one of them is still connecting, it waits.
func failFast(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(ctx, method, req, reply, conn, append(opts, grpc.WaitForReady(false))...)
}

// scheme checks the endpoints and returns the scheme that they share. The etcd client takes its transport from the first one
// only, so a mixture would either fail or talk in clear.
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
			return "", fmt.Errorf("%s must be scheme, host and port only: user name and password have settings of their own", c.shown(i))
		case u.Hostname() == "" || u.Port() == "":
			return "", fmt.Errorf("%s must name a host and a port", c.shown(i))
		case strings.TrimSuffix(u.Path, "/") != "" || u.RawQuery != "":
			return "", fmt.Errorf("%s must be scheme, host and port only", c.shown(i))
		case scheme != "" && scheme != u.Scheme:
			return "", errors.New("etcd endpoints mix http and https")
		}
		scheme = u.Scheme
	}
	return scheme, nil
}

// shown is what an error calls an endpoint. An @ follows user name and password where no URL should have them; a comma in that password
// makes another endpoint of a part of it. Then endpoints have numbers only, and what url.Parse says of them, which quotes, is not told.
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
			return nil, fmt.Errorf("etcd CA certificate: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("etcd CA certificate: %s has no certificate in PEM form", c.CACertFile)
		}
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		return nil, errors.New("etcd client certificate and key: one is given without the other")
	}
	if c.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile); err != nil {
			return nil, fmt.Errorf("etcd client certificate: %w", err)
		}
		out.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
			return &pair, err
		}
	}
	return out, nil
}
