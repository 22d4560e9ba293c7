package demo

import (
	"context"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"vpp-route-agent/internal/netlab"
)

// node is one machine of the cluster.
type node struct {
	name    string
	address netip.Addr // on the underlay: what BGP runs from
	nextHop netip.Addr // what others use as next hop: the same, but where VPP has an address of its own and publishes that
	ns      *netlab.Namespace
	fib     forwarder
	speaker speaker
	ports   int // made so far, for names
}

// speaker is a node's BGP daemon, in a process of its own.
type speaker interface {
	name() string // for people: "vpp-route-agent", "BIRD 1.6.8"
	start(ctx context.Context) error
	// sessions are the addresses of the peers with which it is Established, sorted.
	sessions(ctx context.Context) ([]netip.Addr, error)
	// quote runs a command that shows its peers to a person.
	quote(ctx context.Context) (command, output string, err error)
	// commands are what a person may try.
	commands() []string
}

// tail returns the end of a log, for an error message.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// await asks until holds returns true. When the time is up it returns the last error that holds gave, if any: what does not answer
// yet is not an error before.
func await(ctx context.Context, patience time.Duration, holds func(context.Context) (bool, error)) (ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		ok, asked := holds(ctx)
		if ok && asked == nil {
			return true, nil
		}
		if ctx.Err() == nil {
			err = asked
		}
		select {
		case <-ctx.Done():
			return false, err
		case <-time.After(pollInterval):
		}
	}
}

// pollInterval bounds from below what the measured times can resolve.
const pollInterval = 2 * time.Millisecond

// pause lets time pass in which something is observed.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func allBut[T comparable](all []T, one T) []T {
	return slices.DeleteFunc(slices.Clone(all), func(x T) bool { return x == one })
}
