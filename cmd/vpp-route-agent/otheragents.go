package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"vpp-route-agent/internal/adminclient"
	"vpp-route-agent/internal/calico"
)

// nodeCall is what commands have in common that look at several nodes: the datastore, and agents
// that are asked through their --query-listen.
type nodeCall struct {
	port     string
	patience time.Duration
	asJSON   bool

	cfg  config
	cert *tls.Config // nil: there is no certificate to ask agents with
}

// nodeSettings are the settings of `run` that such commands take.
var nodeSettings = append([]string{"tls-cert-file", "tls-key-file", "tls-client-ca-file"},
	planSettings...)

func (n *nodeCall) addTo(c *cobra.Command) *cobra.Command {
	outputFlag(c, &n.asJSON)
	c.Flags().StringVar(&n.port, "query-port", "", "port of --query-listen of the agents; "+
		"default: that of this node's, else "+queryPort)
	c.Flags().DurationVar(&n.patience, "timeout", 10*time.Second, "how long to wait for an agent")
	addSettings(c.Flags(), func(s setting) bool { return slices.Contains(nodeSettings, s.flag) })
	return c
}

// asking is the part of their help that says how agents are asked.
const asking = `Agents are asked where they have --query-listen, with the certificate of
--tls-cert-file and --tls-key-file; theirs must be for the node's name and signed by an authority of
--tls-client-ca-file. A node's own settings do (--config). docs/operating.md has an example.`

// read reads the settings.
func (n *nodeCall) read(cmd *cobra.Command) (err error) {
	if n.patience <= 0 {
		return usageError{errors.New("--timeout must be longer than 0")}
	}
	if n.cfg, err = settingsOf(cmd); err != nil {
		return usageError{err}
	}
	if n.port == "" {
		n.port = queryPort
		if _, port, err := net.SplitHostPort(n.cfg.queryListen); err == nil {
			n.port = port
		}
	}
	if _, err := strconv.ParseUint(n.port, 10, 16); err != nil {
		return usageError{fmt.Errorf("--query-port: %q is not a port", n.port)}
	}
	if n.cfg.tlsClientCAFile == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(n.cfg.tlsCertFile, n.cfg.tlsKeyFile)
	if err != nil {
		return usageError{fmt.Errorf("--tls-cert-file: %w", err)}
	}
	roots, err := readAuthorities(n.cfg.tlsClientCAFile)
	if err != nil {
		return usageError{err}
	}
	n.cert = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots,
		Certificates: []tls.Certificate{pair}}
	return nil
}

// readAuthorities reads --tls-client-ca-file.
func readAuthorities(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--tls-client-ca-file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--tls-client-ca-file: there is no certificate in %s", file)
	}
	return pool, nil
}

var errNoCertificate = errors.New("there is no certificate to ask agents with: --tls-cert-file, " +
	"--tls-key-file, --tls-client-ca-file")

// agentOf returns a client of the agent of a node.
func (n *nodeCall) agentOf(node calico.Node) (*adminclient.Client, error) {
	if n.cert == nil {
		return nil, errNoCertificate
	}
	address := addressOf(node)
	if !address.IsValid() {
		return nil, fmt.Errorf("Node(%s) has no BGP address, by which to ask its agent", node.Name)
	}
	return adminclient.NewRemote(node.Name, net.JoinHostPort(address.String(), n.port),
		n.cert), nil
}

// addressOf is where other hosts reach a node; invalid: its Node says none.
func addressOf(n calico.Node) netip.Addr {
	if n.IPv4.IsValid() {
		return n.IPv4.Addr()
	}
	return n.IPv6.Addr()
}
