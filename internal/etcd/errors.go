package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrRestored means that etcd lost the history that we followed.
var ErrRestored = errors.New("etcd was replaced or restored from older data, reading all again")

// errCompacted means that etcd dropped events that we have not seen.
var errCompacted = errors.New("etcd compacted events that were not read")

// errRelist means that Relist was called.
var errRelist = errors.New("everything is to be listed again")

// ErrWatchEnded is for a watch that ends without a reason.
var ErrWatchEnded = errors.New("watch ended")

// Explain turns err into a sentence that says what the operator can change.
func (c *Client) Explain(err error) string {
	user := c.cfg.Username
	switch {
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return fmt.Sprintf("etcd refuses the password of user %q, or does not know the user", user)
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return "etcd asks for a user name and a password"
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Sprintf("etcd does not allow user %q %s", user, c.purpose)
	case errors.Is(err, rpctypes.ErrNoLeader):
		return "etcd has no leader"
	case errors.Is(err, context.DeadlineExceeded), status.Code(err) == codes.DeadlineExceeded:
		return "etcd does not answer: " + err.Error()
	case status.Code(err) == codes.Unimplemented:
		return "the endpoint is not an etcd with the v3 API: " + message(err)
	}
	text := message(err)
	for _, hint := range []struct{ sign, means string }{
		{"signed by unknown authority",
			caSetting + " does not hold the authority of etcd's certificate"},
		{"remote error: tls: ", "etcd refuses our TLS: is " + certSetting + " what it wants?"},
		// it speaks HTTP/1 or TLS
		{"server preface", "the endpoint is not an etcd with the v3 API, or wants https"},
		{"http2: frame", "the endpoint is not an etcd with the v3 API, or wants https"},
		{"content-type", "the endpoint is not an etcd with the v3 API"},
		{"handshake failed: EOF", "the endpoint does not speak TLS, perhaps it is http"},
		{"first record does not look like a TLS",
			"the endpoint does not speak TLS, perhaps it is http"},
	} {
		if strings.Contains(text, hint.sign) {
			return hint.means + ": " + text
		}
	}
	return text
}

// codeOf returns the kind of an error.
func codeOf(err error) codes.Code {
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		return known.Code()
	}
	return status.Code(err)
}

// message returns the text of a gRPC error without what gRPC puts around the reason.
func message(err error) string {
	st, ok := status.FromError(err)
	if !ok {
		return err.Error()
	}
	text := st.Message()
	if quoted, ok := strings.CutPrefix(text, "connection error: desc = "); ok {
		if reason, err := strconv.Unquote(quoted); err == nil {
			text = strings.TrimPrefix(reason, "transport: ")
		}
	}
	return strings.TrimPrefix(text, "Error while dialing: ")
}
