package gobgp

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	"github.com/osrg/gobgp/v3/pkg/apiutil"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"github.com/osrg/gobgp/v3/pkg/server"
)

// watched is what the guard's GoBGP calls Watched (internal/gobgpguard/watch.go.txt), field by field: a struct without a name is the same type
// there and here.
type watched = struct {
	Peer       netip.Addr
	NLRI       packet.AddrPrefixInterface
	Attributes []packet.PathAttributeInterface
	Withdrawn  bool
	Stale      bool
	More       bool
	EndOfRIB   packet.RouteFamily
	Up         bool
}

// pathWatcher is a GoBGP that make has built. Another one tells the same over its API, which takes most of the time that there is for a route
// (docs/decisions/0013-best-paths-without-protobuf.md).
type pathWatcher interface {
	WatchPaths(best bool) (next func(context.Context) []watched)
}

// watch registers for everything at once: only the events of one watch are ordered among each other. There is nothing to miss before, so it does
// without the present state. What it returns waits, after ctx has ended, until nobody is told any more.
func (s *Speaker) watch(ctx context.Context) (wait func(), err error) {
	// Best paths cost time, and over the API more than all the rest that GoBGP does with a route: not where nobody asks.
	best := s.cfg.Sink != nil || s.cfg.GRPCWrite
	if w, ok := any(s.applied.server).(pathWatcher); ok {
		return watchPaths(ctx, w, best, s.learned.take), nil
	}
	return func() {}, watchAPI(ctx, s.applied.server, best, s.learned.take)
}

func watchPaths(ctx context.Context, w pathWatcher, best bool, take func([]watched, time.Time)) (wait func()) {
	next, ended := w.WatchPaths(best), make(chan struct{})
	go func() {
		defer close(ended)
		for batch := next(ctx); batch != nil; batch = next(ctx) {
			take(batch, time.Now())
		}
	}()
	return func() { <-ended }
}

// watchAPI does without the initial dump also because its conversion races with GoBGP (upstream issue 2705). GoBGP may call for a while after
// ctx has ended.
func watchAPI(ctx context.Context, srv *server.BgpServer, best bool, take func([]watched, time.Time)) error {
	filters := []*api.WatchEventRequest_Table_Filter{{Type: api.WatchEventRequest_Table_Filter_EOR}}
	if best {
		filters = append(filters, &api.WatchEventRequest_Table_Filter{Type: api.WatchEventRequest_Table_Filter_BEST})
	}
	req := &api.WatchEventRequest{Peer: &api.WatchEventRequest_Peer{}, Table: &api.WatchEventRequest_Table{Filters: filters}}
	err := srv.WatchEvent(ctx, req, func(r *api.WatchEventResponse) {
		if ctx.Err() == nil {
			take(eventOf(r), time.Now())
		}
	})
	if err != nil {
		return fmt.Errorf("gobgp: watch: %w", err)
	}
	return nil
}

// eventOf is an event of the API. All of its paths are one set: there is no event with several but for the initial dump.
func eventOf(r *api.WatchEventResponse) []watched {
	if t := r.GetTable(); t != nil {
		batch := make([]watched, 0, len(t.Paths))
		for i, p := range t.Paths {
			w := pathOfAPI(p)
			if p.Nlri == nil {
				w.EndOfRIB = apiutil.ToRouteFamily(p.Family)
			}
			w.More = i < len(t.Paths)-1
			batch = append(batch, w)
		}
		return batch
	}
	// Type UNKNOWN is the late echo of a session that was taken out of the configuration.
	if p := r.GetPeer(); p != nil && p.Type == api.WatchEventResponse_PeerEvent_STATE {
		addr, err := netip.ParseAddr(p.Peer.GetState().GetNeighborAddress())
		if err == nil {
			return []watched{{Peer: addr, Up: p.Peer.State.SessionState == api.PeerState_ESTABLISHED}}
		}
	}
	return nil
}

// pathOfAPI reads a path of GoBGP's API. What cannot be read is missing: an NLRI becomes one of no family.
func pathOfAPI(p *api.Path) watched {
	w := watched{Withdrawn: p.IsWithdraw, Stale: p.Stale}
	if addr, err := netip.ParseAddr(p.NeighborIp); err == nil { // GoBGP prints that a path is local as a nil net.IP
		w.Peer = addr.Unmap()
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
