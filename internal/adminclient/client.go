// Package adminclient queries a running agent through its admin socket, or one on another host
// through --query-listen, for the commands and for tests that run agents. internal/agent defines
// requests and answers.
package adminclient

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"vpp-route-agent/internal/agent"
)

// Client queries whichever agent is behind a socket now: it keeps no connection, so one agent may
// follow another. Its methods may be used at the same time.
type Client struct {
	socket string   // "": it is on another host
	url    *url.URL // scheme and host
	http   http.Client
	// node and address are those of an agent on another host.
	node, address string
}

// New returns a client of the agent with that admin socket, which need not be there yet.
func New(socket string) *Client {
	c := &Client{socket: socket, url: &url.URL{Scheme: "http", Host: "agent"}}
	c.http.CheckRedirect = noRedirect
	c.http.Transport = &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}
	return c
}

// NewRemote returns a client of the agent of a node on another host, whose --query-listen is at
// address. The certificate of the agent must be for the node's name: an address can be taken over.
// conf has our certificate, and the authorities of theirs.
func NewRemote(node, address string, conf *tls.Config) *Client {
	conf = conf.Clone()
	conf.ServerName = node
	c := &Client{url: &url.URL{Scheme: "https", Host: address}, node: node, address: address}
	c.http.CheckRedirect = noRedirect
	c.http.Transport = &http.Transport{DisableKeepAlives: true, TLSClientConfig: conf}
	return c
}

// noRedirect: an agent sends nobody elsewhere, and our certificate is for the agent alone.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Get reads path, with a query that may be nil, and decodes the answer into out. It waits as long
// as ctx allows.
func (c *Client) Get(ctx context.Context, path string, query url.Values, out any) error {
	return c.call(ctx, http.MethodGet, path, query, out)
}

// Post has the agent do something, and decodes its answer into out.
func (c *Client) Post(ctx context.Context, path string, query url.Values, out any) error {
	return c.call(ctx, http.MethodPost, path, query, out)
}

// Status is how the agent stands.
func (c *Client) Status(ctx context.Context) (s agent.Status, err error) {
	return s, c.Get(ctx, "/v1/status", nil, &s)
}

// Copy reads path, whatever it answers with, into w.
func (c *Client) Copy(ctx context.Context, path string, query url.Values, w io.Writer) error {
	resp, err := c.do(ctx, http.MethodGet, path, query)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return c.explain(ctx, err)
	}
	if resp.StatusCode != http.StatusOK {
		return StatusError(resp.Status)
	}
	return nil
}

// ErrAway is the cause of an error where nobody answers in time, or no packet gets there. A host
// that refuses the connection is there.
var ErrAway = errors.New("away")

type awayError struct{ error }

func (e awayError) Unwrap() []error { return []error{e.error, ErrAway} }

// StatusError is the status of an answer that Copy has copied, other than 200 OK.
type StatusError string

func (e StatusError) Error() string { return "the agent answers " + string(e) }

func (c *Client) call(ctx context.Context, method, path string, query url.Values, out any) error {
	resp, err := c.do(ctx, method, path, query)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return fmt.Errorf("%s does not know %s %s: it is of another version", c, method, path)
	}
	if resp.StatusCode/100 == 3 {
		return fmt.Errorf("%s sends us elsewhere: %s", c, resp.Status)
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return errors.New(strings.TrimSpace(string(text)))
	}
	limit := int64(maxAnswer)
	if path == "/v1/routes" {
		limit = maxRoutes
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, limit)).Decode(out)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return c.explain(ctx, ctx.Err())
	}
	return fmt.Errorf("%s answers what cannot be read: %w", c, err)
}

const (
	// maxRoutes bounds an answer with routes: a million have some 300 MB.
	maxRoutes = 1 << 30
	// maxAnswer bounds any other.
	maxAnswer = 64 << 20
)

func (c *Client) String() string {
	if c.socket != "" {
		return "the agent behind " + c.socket
	}
	return fmt.Sprintf("the agent of %s (%s)", c.node, c.address)
}

func (c *Client) do(ctx context.Context, method, path string, query url.Values) (*http.Response,
	error) {
	u := *c.url
	u.Path, u.RawQuery = path, query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	return resp, nil
}

func (c *Client) explain(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return errors.New("interrupted")
	case errors.Is(err, context.DeadlineExceeded):
		return awayError{fmt.Errorf("%s does not answer: %w", c, context.DeadlineExceeded)}
	case c.socket == "":
		return c.explainRemote(err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no agent answers on %s; is `vpp-route-agent run` running, with the "+
			"same --admin-socket?", c.socket)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("no permission for %s: try again as root or as a member of its group",
			c.socket)
	}
	return err
}

func (c *Client) explainRemote(err error) error {
	var wrong *tls.CertificateVerificationError
	var refused *net.OpError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing listens on %s: is the agent of %s running, with "+
			"--query-listen?", c.address, c.node)
	case errors.As(err, &wrong):
		return fmt.Errorf("%s is not believed: %w", c, wrong.Err)
	case errors.As(err, &refused) && refused.Op == "remote error":
		return fmt.Errorf("%s does not accept our certificate: %w", c, refused.Err)
	}
	var ofURL *url.Error
	if errors.As(err, &ofURL) {
		err = ofURL.Err
	}
	out := fmt.Errorf("%s: %w", c, err)
	for _, away := range []error{syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH} {
		if errors.Is(err, away) {
			return awayError{out}
		}
	}
	return out
}
