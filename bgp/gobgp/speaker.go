// Package gobgp keeps one embedded GoBGP equal to a bgp.Plan and hands on what peers announce. It owns the BgpServer, its gRPC
// and everything configured in it; it decides nothing: what to announce, whom to peer with and what to accept stands in the
// plan. It is the only importer of GoBGP, and GoBGP's types do not leave it.
//
// GoBGP keeps its multipath switch in a process-wide variable, so every Speaker of a process uses multipath.
package gobgp

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
)

// Sink takes what peers announce. Learned is called with the complete best-path set of a prefix each time it may have changed: the
// paths replace what was known, sorted by next hop and peer. An empty set means that no remote path is best: it is gone, or our own announcement of the prefix is
// best. Learned is called from one goroutine at a time, GoBGP's watch: it stores, marks dirty and returns, and must not call the
// Speaker. A stop of the speaker inside Set (AS, router ID, listen port or addresses changed) withdraws everything this way too.
type Sink interface {
	Learned(prefix netip.Prefix, paths []bgp.Path)
}

// Passwords finds TCP MD5 keys. ok is false while the secret is not there; then its peers are not configured, and come up with the
// next Set after it appeared.
type Passwords func(calico.SecretKeyRef) (password string, ok bool)

// Config is what a Speaker is made of. Log and Sink are required.
type Config struct {
	Log  *slog.Logger
	Sink Sink
	// Passwords may be nil: no secret is known.
	Passwords Passwords
	// GRPC is where GoBGP's own API listens, for the gobgp CLI: "127.0.0.1:50051", "unix:///path" or several with commas. Empty: off.
	GRPC string
	// GRPCWrite opens the calls that change something. They bypass the plan.
	GRPCWrite bool
}

// Speaker is one embedded BGP speaker. Its methods may be called from any goroutine, also before Run, for which they then wait.
type Speaker struct {
	cfg Config
}

// New returns a Speaker that does nothing until Run.
func New(cfg Config) *Speaker { return &Speaker{cfg: cfg} }

// Run starts GoBGP and serves until ctx ends (nil) or GoBGP fails for good. It leaves sessions and sockets as they are, on purpose:
// the process is expected to exit, the peers see a connection that closes without CEASE and keep our routes (RFC 4724). Use
// Stop to say goodbye.
func (s *Speaker) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Set makes GoBGP equal to p: announcements first, then policies, then peers. The same plan twice does nothing. Errors of single
// items are joined, name their peer or prefix, and hold up nothing else; the next Set tries those again.
func (s *Speaker) Set(ctx context.Context, p bgp.Plan) error { return errors.ErrUnsupported }

// RejectNextHops rejects, on import, paths with one of these next hops, so that a dead best path does not hide a live second one. The
// list replaces the one before.
func (s *Speaker) RejectNextHops(ctx context.Context, dead []netip.Addr) error {
	return errors.ErrUnsupported
}

// Stop sends CEASE to every peer, which then drop our routes, and ends Run.
func (s *Speaker) Stop(ctx context.Context) error { return errors.ErrUnsupported }

// Peers returns how every peer of the plan stands, by address.
func (s *Speaker) Peers() []bgp.PeerState { return nil }

// Announced returns what is originated now, by prefix.
func (s *Speaker) Announced() []bgp.Announcement { return nil }

// Changed has an item when a session came up or went down, or a peer's End-of-RIB came, since it was last read.
func (s *Speaker) Changed() <-chan struct{} { return nil }
