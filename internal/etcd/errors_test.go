package etcd

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// `status` and the log show the reason of a failed dial, without what gRPC puts around it.
func TestTheReasonOfAFailedDialStandsAlone(t *testing.T) {
	const reason = "dial tcp 192.168.4.12:2379: connect: network is unreachable"
	c := &Client{}
	for _, text := range []string{
		reason,
		`connection error: desc = "transport: Error while dialing: ` + reason + `"`,
	} {
		if got := c.Explain(status.Error(codes.Unavailable, text)); got != reason {
			t.Errorf("%q, want %q", got, reason)
		}
	}
	got := c.Explain(status.Error(codes.Unavailable,
		`connection error: desc = "error reading server preface: EOF"`))
	if want := "the endpoint is not an etcd with the v3 API, or wants https: " +
		"error reading server preface: EOF"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
