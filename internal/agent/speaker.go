package agent

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/bgp/reflector"
)

// Speaker is the BGP side; bgp/gobgp provides it.
type Speaker interface {
	Set(ctx context.Context, p bgp.Plan) error
	// SetUsable ignores paths with next hops that cannot be used for their prefix, so that a second
	// path takes over. usable is asked about what there is, and then about each path that comes.
	SetUsable(ctx context.Context, usable func(netip.Prefix, netip.Addr) bool) error
	// NextHops are those of the Adj-RIB-In of peers whose import filters ask for interfaces.
	NextHops() []netip.Addr
	// Peers are those of the plan, sorted by ID.
	Peers() []bgp.PeerState
	// Without says what would change for the routes of other nodes if only some paths stayed.
	Without(ctx context.Context, keeps reflector.Keeps) (ipv4, ipv6 reflector.Change, err error)
	// PathsOf says all that is known of those of prefixes, of one family, that have a path.
	PathsOf(ctx context.Context, prefixes []netip.Prefix) ([]bgp.PrefixPaths, error)
	Counters() bgp.Counters
	Announced() []bgp.Announcement
	Changed() <-chan struct{}
	// Stop ends all sessions with CEASE.
	Stop(ctx context.Context) error
}

// noSpeaker is the speaker of a node without BGP.
type noSpeaker struct{}

func (noSpeaker) Set(context.Context, bgp.Plan) error { return nil }
func (noSpeaker) NextHops() []netip.Addr              { return nil }
func (noSpeaker) Peers() []bgp.PeerState              { return nil }
func (noSpeaker) Counters() bgp.Counters              { return bgp.Counters{} }
func (noSpeaker) Announced() []bgp.Announcement       { return nil }
func (noSpeaker) Changed() <-chan struct{}            { return nil }
func (noSpeaker) Without(context.Context, reflector.Keeps) (
	ipv4, ipv6 reflector.Change, err error) {
	return ipv4, ipv6, nil
}
func (noSpeaker) SetUsable(context.Context, func(netip.Prefix, netip.Addr) bool) error {
	return nil
}
func (noSpeaker) PathsOf(context.Context, []netip.Prefix) ([]bgp.PrefixPaths, error) {
	return nil, nil
}
func (noSpeaker) Stop(context.Context) error { return nil }

// setRetry makes a plan that the speaker did not take be handed over at each tick, not at each
// event: the sessions of a large mesh come up within one second.
const setRetry = 900 * time.Millisecond

// setSpeaker hands the plan to the speaker.
func (a *Agent) setSpeaker(ctx context.Context) {
	if !a.sessions.step(time.Now(), sessionFacts{
		nodeUnknown: a.waitingForNode != "",
		settled:     a.cfg.FIB == nil || len(a.plan.Deferred) == 0 && a.plannedWith.Adopted,
	}) {
		return
	}
	a.publish() // it may take long
	a.setAt = time.Now()
	p := a.plan.BGP
	err := a.cfg.Speaker.Set(ctx, p)
	if ctx.Err() != nil {
		return
	}
	switch was := a.setError; {
	case errors.Is(err, bgp.ErrSpeakerChanged) && !errors.Is(was, bgp.ErrSpeakerChanged):
		a.cfg.Log.Info("the speaker changes: a new process takes over once the peers "+
			"have announced what they know", "as", p.Speaker.AS, "router_id", p.Speaker.RouterID,
			"port", p.Speaker.ListenPort, "addresses", p.Speaker.ListenAddresses)
	case err != nil && was == nil:
		a.cfg.Log.Error("the speaker did not take the whole plan; it is tried again each second",
			"err", err)
	}
	if a.setError = err; !errors.Is(err, bgp.ErrSpeakerChanged) {
		a.spokeTo = p.Peers
	}
	if a.sessions.configured.IsZero() && (err == nil || len(p.Peers) > 0 && a.speaksTo(p.Peers)) {
		a.sessions.configured = time.Now()
	}
}

// speaksTo reports whether the speaker has taken these peers, though it may have refused other
// parts of the plan. One that could not start has none, and gets no announcements.
func (a *Agent) speaksTo(peers []bgp.Peer) bool {
	any := func(bgp.PeerState) bool { return true }
	return len(missingPeers(peers, a.cfg.Speaker.Peers(), any)) == 0
}
