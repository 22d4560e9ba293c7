package agent

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/ipam"
)

// evidence is all that an explanation is made of, each part as it was when it was asked for.
type evidence struct {
	state
	node, dataplane string // Config's
	asked           netip.Prefix
	datastore       DatastoreStatus

	owned       []calico.Ownership // what the snapshot may lack
	ownedError  string
	blocksKnown bool // what neither has is not there

	peers      []PeerStatus // of plan.BGP.Peers, in their order
	announced  []bgp.Announcement
	paths      []bgp.PrefixPaths // the longest prefix first
	pathsError string

	noFIB      bool          // there is no data plane
	accounts   []fib.Account // the longest prefix first
	inside     []fib.Entry
	insideMore int
	facts      route.Facts
	unusable   []NextHopStatus
	tunnels    []TunnelStatus

	match      *route.Resolution // of the first address asked about; nil: not known
	matchError string
	matched    *lookedUp     // of a match that is ours, which does not say where it leads
	found      *lookedUp     // of the first of accounts that was acknowledged; nil: none was
	counted    *route.Counts // of the same; nil: it is not counted
	countError string        // why not; "" where there is no entry
	hops       []route.HopCounts
	hopsError  string // why there are none
}

// lookedUp is the answer to an exact look-up.
type lookedUp struct {
	key   route.Key
	route route.Route
	ok    bool
	err   error
}

const (
	// askPatience bounds each question to etcd, GoBGP and the data plane.
	askPatience = 3 * time.Second
	// maxInside bounds the routes inside a prefix that are shown.
	maxInside = 20
)

func (a *Agent) serveExplain(r *http.Request) (any, error) {
	asked, err := ParsePrefixOrAddr(r.URL.Query().Get("prefix"))
	if err != nil {
		return nil, badRequest{err}
	}
	return a.Explain(r.Context(), asked), nil
}

// Explain says how packets to a prefix are forwarded, or why not. It holds up nothing: what it asks
// for does not grow with the routes, but for those inside a prefix, which are counted a piece at a
// time.
func (a *Agent) Explain(ctx context.Context, asked netip.Prefix) Explanation {
	out := explain(a.gather(ctx, asked))
	out.Version = a.cfg.Version
	return out
}

func (a *Agent) gather(ctx context.Context, asked netip.Prefix) evidence {
	a.mu.Lock()
	e := evidence{state: a.shown}
	a.mu.Unlock()
	e.node, e.dataplane, e.asked = a.cfg.Node, a.cfg.Dataplane, asked
	e.datastore = a.cfg.Datastore.Status()
	e.peers = bgpStatus(e.plan, a.cfg.Speaker).Peers
	e.announced = a.cfg.Speaker.Announced()
	around := covering(asked)
	a.gatherOwners(ctx, &e)
	asking, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	var err error
	if e.paths, err = a.cfg.Speaker.PathsOf(asking, around); err != nil {
		e.pathsError = "GoBGP does not answer: " + err.Error()
	}
	if e.noFIB = a.cfg.FIB == nil; !e.noFIB {
		a.gatherRoutes(&e, around)
		a.askDataplane(ctx, &e)
	}
	return e
}

// covering returns all prefixes that cover p, the longest, p itself, first.
func covering(p netip.Prefix) (all []netip.Prefix) {
	for bits := p.Bits(); bits >= 0; bits-- {
		q, _ := p.Addr().Prefix(bits)
		all = append(all, q)
	}
	return all
}

// gatherOwners reads the blocks that the snapshot lacks.
func (a *Agent) gatherOwners(ctx context.Context, e *evidence) {
	s := e.inputs.snapshot
	e.blocksKnown = a.noBGP // which reads all
	if s == nil || a.cfg.Owners == nil {
		return
	}
	lacking := slices.DeleteFunc(s.BlocksAround(e.asked), func(cidr netip.Prefix) bool {
		_, there := s.Blocks[cidr]
		return there
	})
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	var err error
	if e.owned, err = a.cfg.Owners(ctx, lacking); err != nil {
		e.ownedError = err.Error()
	}
	e.blocksKnown = err == nil && e.locked == "" // of a locked datastore much may be missing
}

func (a *Agent) gatherRoutes(e *evidence, around []netip.Prefix) {
	keys := make([]route.Key, len(around))
	for i, p := range around {
		keys[i].Prefix = p
	}
	e.accounts = a.cfg.FIB.Account(keys)
	e.facts = a.cfg.FIB.Facts()
	e.unusable = append(unusableHops(a.cfg.FIB), a.usable.list()...)
	if !e.asked.IsSingleIP() {
		e.inside, e.insideMore = a.cfg.FIB.Inside(e.asked, maxInside)
		e.insideMore -= len(e.inside)
	}
	if pool := e.plan.Encapsulation.PoolOf(e.asked); pool == nil || pool.Encap == route.Plain {
		return
	}
	hops := map[netip.Addr]bool{}
	for _, x := range e.accounts {
		for _, c := range x.Claims {
			for _, w := range c.Paths {
				hops[w.Path.NextHop] = true
			}
		}
	}
	e.tunnels = slices.DeleteFunc(a.Tunnels(), func(t TunnelStatus) bool {
		return !hops[t.OuterDestination]
	})
}

// askDataplane makes two look-ups, and a third where another route of ours than expected matches.
func (a *Agent) askDataplane(ctx context.Context, e *evidence) {
	if e.facts.Identity == "" || a.cfg.Resolve == nil {
		return
	}
	resolving, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	if r, err := a.resolve(resolving, e.asked); err != nil {
		e.matchError = err.Error()
	} else {
		e.match = &r
	}
	i := slices.IndexFunc(e.accounts, func(x fib.Account) bool {
		return x.State.IsAcknowledged() || x.State == fib.Held
	})
	if a.cfg.Lookup == nil {
		return
	}
	if i >= 0 {
		e.found = a.lookUp(ctx, e.accounts[i].Key)
		a.count(ctx, e)
	}
	switch m := e.match; {
	case m == nil || !m.Ours:
	case i >= 0 && e.found.key.Prefix == m.Prefix:
		e.matched = e.found
	default:
		e.matched = a.lookUp(ctx, route.Key{Prefix: m.Prefix})
	}
}

// resolve has the longest match of p's first address. VPP has nothing for that of 0.0.0.0/0, and
// drops packets to that of each subnet: then the address in the middle stands for p.
func (a *Agent) resolve(ctx context.Context, p netip.Prefix) (route.Resolution, error) {
	r, err := a.cfg.Resolve(ctx, 0, p.Addr())
	ofAll := r.Prefix.IsValid() && !r.Prefix.IsSingleIP()
	if err != nil || p.IsSingleIP() || ofAll || r.Ours || r.Usable {
		return r, err
	}
	return a.cfg.Resolve(ctx, 0, middle(p))
}

// middle is the first address of the upper half of a prefix that has one.
func middle(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	b[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	a, _ := netip.AddrFromSlice(b)
	return a
}

func (a *Agent) lookUp(ctx context.Context, k route.Key) *lookedUp {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	r, ok, err := a.cfg.Lookup(ctx, k)
	return &lookedUp{k, r, ok, err}
}

// count waits no longer than for another answer, though the data plane may be frozen.
func (a *Agent) count(ctx context.Context, e *evidence) {
	if a.cfg.Counter == nil {
		e.countError = a.uncounted()
		return
	}
	counting, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	key := e.found.key
	counts, err := a.cfg.Counter.CountRoutes(counting, []route.Key{key})
	if c, ok := counts[key]; err != nil {
		e.countError = err.Error()
	} else if ok {
		e.counted = &c
	}
	e.hops, e.hopsError = a.countHops(ctx)
}

// differs says how an exact look-up differs from what was acknowledged; "": it does not.
func (l lookedUp) differs(x fib.Account) string {
	var hidden route.HiddenError
	switch {
	case errors.As(l.err, &hidden):
		return hidden.Error()
	case l.err != nil:
		return l.err.Error()
	case !l.ok:
		return "it is not there any more"
	case x.State == fib.Held:
		return ""
	}
	want := route.Route{Key: x.Key, Kind: x.Kind, Paths: x.Paths}
	if want.Digest() != l.route.Digest() {
		return "it has " + l.route.String()
	}
	return ""
}

// ownership puts together what IPAM says.
func (e *evidence) ownership() (ipam.Ownership, OwnershipStatus) {
	s := e.inputs.snapshot
	if s == nil {
		return ipam.Ownership{}, OwnershipStatus{}
	}
	o := ipam.OwnershipOf(e.node, e.asked, e.owned, s)
	out := OwnershipStatus{Affinity: string(o.Affinity), Allocated: o.Allocation != nil,
		Owner: o.Owner.Host, Problem: e.ownedError}
	if o.Pool != nil {
		out.Pool, out.PoolDisabled = o.Pool.Name, o.Pool.Disabled
		out.NoExport = o.Pool.DisableBGPExport
	}
	if o.Block.IsValid() {
		out.Block = &o.Block
	}
	if o.Owner.Virtual != "" {
		out.Owner = "virtual:" + o.Owner.Virtual
	}
	if o.Borrowed {
		out.Borrower = o.Host
	}
	return o, out
}
