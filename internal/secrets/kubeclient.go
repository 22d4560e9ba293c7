package secrets

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// answerTime bounds a list, and the start of a watch.
	answerTime = 10 * time.Second
	// watchTime is the duration requested for a watch. It bounds how long a dead connection goes
	// unnoticed.
	watchTime = 5 * time.Minute
	// maxAnswer exceeds the size of any Secret (1 MiB, and a third for base64).
	maxAnswer = 4 << 20
)

func newClient(cfg KubeConfig) (*http.Client, error) {
	pem, err := os.ReadFile(cfg.CAFile)
	if err != nil {
		return nil, fmt.Errorf("secrets: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("secrets: %s has no certificate", cfg.CAFile)
	}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:           (&net.Dialer{Timeout: answerTime}).DialContext,
			TLSClientConfig:       &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:   answerTime,
			ResponseHeaderTimeout: answerTime,
			IdleConnTimeout:       time.Minute,
		},
		// never send our token to another host
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}, nil
}

// object is the part of a Secret that we read.
type object struct {
	Data map[string][]byte `json:"data"`
}

// contents is non-nil for an existing Secret, even an empty one.
func (o object) contents() map[string][]byte {
	if o.Data == nil {
		return map[string][]byte{}
	}
	return o.Data
}

// errUnreadable replaces errors of the JSON decoder, which may quote a password.
var errUnreadable = errors.New("the answer of the Kubernetes API cannot be read")

// listAndWatch reads a Secret and follows it until the watch ends.
func (k *Kube) listAndWatch(ctx context.Context, name string) error {
	version, err := k.list(ctx, name)
	if err != nil {
		return err
	}
	return k.watch(ctx, name, version)
}

func (k *Kube) list(ctx context.Context, name string) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	body, err := k.get(ctx, name, nil)
	if err != nil {
		return "", err
	}
	defer body.Close()
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []object `json:"items"`
	}
	if json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(&list) != nil ||
		len(list.Items) > 1 {
		return "", errUnreadable
	}
	if len(list.Items) == 1 {
		k.found(name, list.Items[0].contents())
	} else {
		k.found(name, nil)
	}
	return list.Metadata.ResourceVersion, nil
}

// watch returns nil when the API server ends the watch, as it does after watchTime or when version
// has expired. The caller lists again then.
func (k *Kube) watch(ctx context.Context, name, version string) error {
	ctx, cancel := context.WithTimeout(ctx, watchTime+answerTime)
	defer cancel()
	body, err := k.get(ctx, name, url.Values{
		"watch": {"true"}, "resourceVersion": {version},
		"timeoutSeconds": {strconv.Itoa(int(watchTime / time.Second))},
	})
	if err != nil {
		return err
	}
	defer body.Close()
	events := json.NewDecoder(body)
	for {
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := events.Decode(&e); err != nil {
			return nil // the connection's end; what was lost with it the list brings
		}
		var o object
		switch e.Type {
		case "ADDED", "MODIFIED":
			if json.Unmarshal(e.Object, &o) != nil {
				return errUnreadable
			}
			k.found(name, o.contents())
		case "DELETED":
			k.found(name, nil)
		case "ERROR": // 410 Gone, mostly
			return nil
		}
	}
}

// get requests the Secret of that name from the list endpoint.
func (k *Kube) get(ctx context.Context, name string, query url.Values) (io.ReadCloser, error) {
	token, err := os.ReadFile(k.cfg.TokenFile)
	if err != nil {
		return nil, err
	}
	if query == nil {
		query = url.Values{}
	}
	query.Set("fieldSelector", "metadata.name="+name)
	address := k.cfg.Server + "/api/v1/namespaces/" + url.PathEscape(k.cfg.Namespace) +
		"/secrets?" + query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Header.Set("Accept", "application/json")
	resp, err := k.client.Do(req)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) { // without the long URL
			err = e.Err
		}
		return nil, fmt.Errorf("%s: %w", k.cfg.Server, err)
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("%s says %s", k.cfg.Server, resp.Status)
	}
	return resp.Body, nil
}

// serviceAccount is where Kubernetes mounts a pod's credentials.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// InCluster returns how a pod reaches the Kubernetes API, and false outside of pods. Pass
// os.LookupEnv as env.
func InCluster(env func(string) (string, bool)) (KubeConfig, bool) {
	host, _ := env("KUBERNETES_SERVICE_HOST")
	port, _ := env("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return KubeConfig{}, false
	}
	return KubeConfig{
		Server: "https://" + net.JoinHostPort(host, port), CAFile: serviceAccount + "/ca.crt",
		TokenFile: serviceAccount + "/token",
	}, true
}
