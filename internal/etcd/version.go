package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// oldServerError means that a server has only the v2 API.
type oldServerError struct{ endpoint, version string }

func (e oldServerError) Error() string {
	return fmt.Sprintf("%s is etcd %s, which has the v2 API only: the v3 API is needed, etcd "+
		"3.4 or later", e.endpoint, e.version)
}

const versionTimeout = 2 * time.Second

// diagnose checks whether err comes from a server that is too old and speaks HTTP/1, which gRPC
// reports unclearly. It returns other errors unchanged.
func (c Config) diagnose(ctx context.Context, err error) error {
	if code := codeOf(err); code != codes.Unavailable && code != codes.Unknown &&
		code != codes.DeadlineExceeded {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	tlsConfig, tlsErr := c.tls()
	if tlsErr != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true}
	client := http.Client{Transport: transport}
	for _, endpoint := range c.Endpoints {
		version := serverVersion(ctx, &client, endpoint)
		major, _, _ := strings.Cut(version, ".")
		if n, convErr := strconv.Atoi(major); convErr == nil && n < 3 {
			return oldServerError{endpoint, version}
		}
	}
	return err
}

// serverVersion reads /version, which every etcd since 2.0 has; "" without an answer.
func serverVersion(ctx context.Context, client *http.Client, endpoint string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(endpoint, "/")+
		"/version", nil)
	if err != nil {
		return ""
	}
	resp, err := client.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var v struct {
		Server string `json:"etcdserver"`
	}
	if json.NewDecoder(io.LimitReader(resp.Body, 1<<10)).Decode(&v) != nil || len(v.Server) > 40 {
		return ""
	}
	return v.Server
}
