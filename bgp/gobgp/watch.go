package gobgp

import (
	"context"
	"net/netip"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	"github.com/osrg/gobgp/v3/pkg/apiutil"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"github.com/osrg/gobgp/v3/pkg/server"
)

// watch registers for everything at once: only the events of one watch are ordered among each
// other. It starts without the present state, since nothing happened before. The returned function
// waits, after ctx has ended, until the Sink is not called any more.
func (s *Speaker) watch(ctx context.Context) (wait func()) {
	take := func(events []server.Watched) { s.learned.take(events, time.Now()) }
	// Watching best paths costs time, so it needs a reader.
	next := s.applied.server.WatchPaths(s.cfg.Sink != nil || s.cfg.GRPCWrite, take)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for batch := next(ctx); batch != nil; batch = next(ctx) {
			take(batch)
		}
	}()
	return func() { <-ended }
}

// pathOfAPI reads a path of GoBGP's API. What cannot be read is missing: an NLRI becomes one of no
// family.
func pathOfAPI(p *api.Path) server.Watched {
	w := server.Watched{Withdrawn: p.IsWithdraw, Stale: p.Stale}
	// GoBGP prints that a path is local as a nil net.IP
	if addr, err := netip.ParseAddr(p.NeighborIp); err == nil {
		w.Peer = netip.AddrPortFrom(addr.Unmap(), 0)
	}
	if p.Nlri == nil {
		return w
	}
	var err error
	if w.NLRI, err = apiutil.GetNativeNlri(p); err != nil || w.NLRI == nil {
		w.NLRI = &packet.OpaqueNLRI{}
	}
	if p.IsWithdraw {
		return w
	}
	for _, a := range p.Pattrs {
		if attr, err := apiutil.UnmarshalAttribute(a); err == nil {
			w.Attributes = append(w.Attributes, attr)
		}
	}
	return w
}
