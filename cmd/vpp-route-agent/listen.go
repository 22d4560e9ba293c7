package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/net/netutil"
)

// queryConnections bounds those of --query-listen: each costs a goroutine before TLS has told who
// it is. Others wait.
const queryConnections = 64

// local reports whether a listener at address is reached from this host only.
func local(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// samePort reports whether one listener leaves no room for the other.
func samePort(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	all := func(host string) bool { return host == "" || host == "0.0.0.0" || host == "::" }
	return errA == nil && errB == nil && portA == portB && portA != "0" &&
		(hostA == hostB || all(hostA) || all(hostB))
}

// checkListeners refuses to serve the agent's state over a network without TLS, unless --plaintext
// allows it.
func (c *config) checkListeners() error {
	if (c.tlsCertFile == "") != (c.tlsKeyFile == "") {
		return fmt.Errorf("--tls-cert-file and --tls-key-file must be given together")
	}
	if c.tlsClientCAFile != "" && c.tlsCertFile == "" {
		return fmt.Errorf("--tls-client-ca-file needs --tls-cert-file and --tls-key-file")
	}
	if c.learnBGP && samePort(c.metricsListen, c.gobgpListen) {
		return fmt.Errorf("--metrics-listen %s and --gobgp-listen %s are one port",
			c.metricsListen, c.gobgpListen)
	}
	for flag, address := range map[string]string{
		"--metrics-listen": c.metricsListen, "--gobgp-listen": c.gobgpListen,
	} {
		if address != "" && !local(address) && c.tlsCertFile == "" && !c.plaintext {
			return fmt.Errorf("%s %s leaves this host: give --tls-cert-file and --tls-key-file, "+
				"or say --plaintext", flag, address)
		}
	}
	if c.queryListen != "" && c.tlsClientCAFile == "" {
		return errors.New("--query-listen is for clients with certificates alone: give " +
			"--tls-client-ca-file, which theirs are signed by")
	}
	for flag, address := range map[string]string{
		"--metrics-listen": c.metricsListen, "--gobgp-listen": c.gobgpListen,
		"--external-grpc-listen": c.externalListen,
	} {
		if c.queryListen != "" && address != "" && samePort(c.queryListen, address) {
			return fmt.Errorf("--query-listen %s and %s %s are one port", c.queryListen, flag,
				address)
		}
	}
	if c.externalListen != "" && c.tlsClientCAFile == "" && !c.plaintext {
		return errors.New("--external-grpc-listen lets clients change routes: give " +
			"--tls-client-ca-file, which their certificates are signed by, or say --plaintext")
	}
	return nil
}

// tlsFor is what a listener at address speaks: nil on loopback, and where plain text was asked for.
func (c *config) tlsFor(address string) (*tls.Config, error) {
	if c.tlsCertFile == "" || local(address) {
		return nil, nil
	}
	return c.serverTLS()
}

// externalTLS is what --external-grpc-listen speaks, on loopback, too; nil: plain text.
func (c *config) externalTLS() (*tls.Config, error) {
	if c.externalListen == "" || c.tlsClientCAFile == "" {
		return nil, nil
	}
	return c.serverTLS()
}

// serverTLS reads the certificate anew for each connection, so that a renewed one needs no restart.
func (c *config) serverTLS() (*tls.Config, error) {
	if _, err := tls.LoadX509KeyPair(c.tlsCertFile, c.tlsKeyFile); err != nil {
		return nil, fmt.Errorf("--tls-cert-file: %w", err)
	}
	conf := &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(c.tlsCertFile, c.tlsKeyFile)
			return &pair, err
		},
	}
	if c.tlsClientCAFile == "" {
		return conf, nil
	}
	pool, err := readAuthorities(c.tlsClientCAFile)
	conf.ClientCAs, conf.ClientAuth = pool, tls.RequireAndVerifyClientCert
	return conf, err
}

// listenQueries opens the listener for clients with certificates, on loopback, too.
func (c *config) listenQueries() (net.Listener, error) {
	conf, err := c.serverTLS()
	if err != nil {
		return nil, usageError{err}
	}
	l, err := net.Listen("tcp", c.queryListen)
	if err != nil {
		return nil, fmt.Errorf("--query-listen: %w", err)
	}
	return tls.NewListener(netutil.LimitListener(l, queryConnections), conf), nil
}

// listenHealth opens the listener of metrics and health.
func (c *config) listenHealth() (net.Listener, error) {
	conf, err := c.tlsFor(c.metricsListen)
	if err != nil {
		return nil, usageError{err}
	}
	l, err := net.Listen("tcp", c.metricsListen)
	if err != nil {
		return nil, fmt.Errorf("--metrics-listen: %w", err)
	}
	if conf != nil {
		l = tls.NewListener(l, conf)
	}
	return l, nil
}

// pageRefused says why the status page is not served; "": it is. It shows routes and peers, which
// leave this host to clients with certificates alone, as by --query-listen.
func (c *config) pageRefused() string {
	if local(c.metricsListen) || c.tlsClientCAFile != "" {
		return ""
	}
	return "The status page is not served here: --metrics-listen leaves this host, and clients " +
		"need no certificate (--tls-client-ca-file)."
}

// named reports whether our certificate, if listeners have one, names a host.
func (c *config) named(host string) bool {
	pair, err := tls.LoadX509KeyPair(c.tlsCertFile, c.tlsKeyFile)
	return err == nil && pair.Leaf.VerifyHostname(host) == nil
}
