package calicotest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Certs are the paths (PEM) of a temporary CA's certificate, and of certificates signed by it.
type Certs struct {
	CA                    string
	ServerCert, ServerKey string // for 127.0.0.1, ::1, localhost and the names given
	ClientCert, ClientKey string
}

// WriteCerts makes new certificates, good for a day, in dir. The server has these names, too.
func WriteCerts(dir string, names ...string) (Certs, error) {
	at := func(name string) string { return filepath.Join(dir, name) }
	c := Certs{at("ca.pem"), at("server.pem"), at("server-key.pem"), at("client.pem"),
		at("client-key.pem")}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, fmt.Errorf("certificates: %w", err)
	}
	ca := template(1, "calicotest authority")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	if err := writeCert(c.CA, "", ca, ca, caKey, caKey); err != nil {
		return c, err
	}
	server := template(2, "calicotest etcd")
	server.DNSNames = append([]string{"localhost"}, names...)
	server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	// etcd's gateway connects to its own port with the server's certificate.
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	client := template(3, "calicotest client")
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for _, leaf := range []struct {
		cert, key string
		template  *x509.Certificate
	}{{c.ServerCert, c.ServerKey, server}, {c.ClientCert, c.ClientKey, client}} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return c, fmt.Errorf("certificates: %w", err)
		}
		if err := writeCert(leaf.cert, leaf.key, leaf.template, ca, key, caKey); err != nil {
			return c, err
		}
	}
	return c, nil
}

func template(serial int64, name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour), // clocks differ
		NotAfter:     time.Now().Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

// writeCert signs template and writes it, and key if keyFile is not empty.
func writeCert(certFile, keyFile string, template, parent *x509.Certificate, key,
	parentKey *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	if err := writePEM(certFile, "CERTIFICATE", der); err != nil || keyFile == "" {
		return err
	}
	if der, err = x509.MarshalECPrivateKey(key); err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	return writePEM(keyFile, "EC PRIVATE KEY", der)
}

func writePEM(file, kind string, der []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
