package fib

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"vpp-route-agent/internal/route"
)

// running is an engine on a fake data plane inside a synctest bubble.
type running struct {
	*Engine
	dp     *fake
	stop   func()
	wanted Wanted
	// revision is that of the last Set.
	revision uint64
	// delaysBefore is the sum of Stats.Delays when delayed looked last.
	delaysBefore time.Duration
}

// set sets what is wanted with one change.
func (r *running) set(change func(w *Wanted)) {
	change(&r.wanted)
	r.revision = r.Set(r.wanted)
}

func (r *running) Learn(p netip.Prefix, paths []route.Path) { r.LearnPreferred(p, paths, 0) }

func (r *running) LearnPreferred(p netip.Prefix, paths []route.Path, preference uint32) {
	r.Engine.Learn(BestPaths{Prefix: p, Paths: paths, Preference: preference})
}

func (r *running) SetRoutes(origin route.Origin, routes []route.Route) {
	r.set(func(w *Wanted) { w.Sources[origin].Routes = slices.Clone(routes) })
}

// SetListed is SetRoutes after the source was listed anew.
func (r *running) SetListed(origin route.Origin, routes []route.Route) {
	r.wanted.Sources[origin].List++
	r.SetRoutes(origin, routes)
}

func (r *running) Protect(own, peers []netip.Addr) {
	r.set(func(w *Wanted) { w.Own, w.Peers = own, peers })
}

func (r *running) KeepOut(services []netip.Prefix) {
	r.set(func(w *Wanted) { w.Services = services })
}

func (r *running) SetNormal(v4, v6 uint32) {
	r.set(func(w *Wanted) { w.Normal4, w.Normal6 = v4, v6 })
}

func (r *running) SetBGPConverging(yes bool) { r.set(func(w *Wanted) { w.Converging = yes }) }

// AllowSweep: these sources are complete; none: all are.
func (r *running) AllowSweep(sources ...route.Origin) {
	r.set(func(w *Wanted) {
		w.Complete = w.Complete || len(sources) == 0
		for _, s := range sources {
			w.Sources[s].Complete = true
		}
	})
}

func (r *running) FollowOutgoing(addresses []netip.Addr) {
	r.set(func(w *Wanted) { w.Follow = addresses })
}

func start(dp *fake, journal string) *running { return startWith(dp, Config{Journal: journal}) }

func startWith(dp *fake, c Config) *running {
	if dp.open {
		return startOn(overseer{dp}, dp, c)
	}
	return startOn(dp, dp, c)
}

// startOn starts an engine on d, which is dp with more or other methods. Whatever it does in tests
// is replayed, unless they have a Recorder.
func startOn(d Dataplane, dp *fake, c Config) *running {
	// A new process has a new adapter, which tells its facts again.
	dp.tell(dp.now)
	c.Dataplane = d
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	replay := newReplaying()
	if c.Recorder == nil {
		c.Recorder = replay
	}
	e := New(c)
	if r, is := c.Recorder.(*replaying); is {
		r.e = e
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := e.Run(ctx); err != nil {
			panic(err)
		}
	}()
	return &running{Engine: e, dp: dp, stop: func() {
		cancel()
		<-done
		if all := replay.differences(); len(all) > 0 {
			panic("a replay differs: " + strings.Join(all, "\n"))
		}
	}}
}

// walker takes random steps in a world and on an engine alike.
type walker struct {
	t          *rapid.T
	w          *world
	dp         *fake
	e          *running
	replay     *replaying // of what e was told
	journal    string
	generation int
	full       []route.Interface
	sameIndex  bool // the interface that is gone comes back under its index
	normal     uint32
	prefs      map[netip.Prefix]uint32
	// in the data plane when this engine started, and not wanted since
	adopted map[route.Key]bool
	swept   bool
	ever    map[route.Origin]map[route.Key]bool // what each origin has wanted
	objects []route.Object                      // of the uplink
	// of this node, with the encapsulation
	endpoints []route.Object
	tables    []route.Object           // of external configuration
	others    map[route.ObjectKey]bool // objects that others have made
	amnesia   bool                     // the journal was damaged
}

var (
	walkPrefixes = []string{
		"10.1.0.0/26", "10.1.0.64/26", "10.1.0.64/32", "10.1.0.0/16", "0.0.0.0/0", "10.9.0.0/24",
		"10.8.0.0/24", "10.8.0.0/16", "10.9.0.5/32",
		"10.0.0.0/24", "10.0.0.2/32", "10.0.1.2/32", "10.77.0.0/24", "fd10::/64", "fd10::/122",
		"::/0", "127.0.0.0/8",
	}
	walkHops4 = []string{
		"10.0.0.2", "10.0.0.3", "10.0.1.2", "10.9.0.5", "10.8.0.5", "10.9.0.6", "10.77.0.7",
		"10.0.0.1", "192.0.2.1",
	}
	walkHops6 = []string{"fd00::2", "fd00::3", "fe80::2", "fd09::5"}
	// of interfaces, some of which are next hops
	walkAddresses = []string{"10.0.0.2/24", "10.9.0.9/25", "10.9.0.5/24", "10.8.0.9/29",
		"10.77.0.9/24", "fd09::9/64"}
)

func (w *walker) prefix() netip.Prefix {
	return pfx(rapid.SampledFrom(walkPrefixes).Draw(w.t, "prefix"))
}

func (w *walker) paths(p netip.Prefix, least int) []route.Path {
	hops := walkHops4
	if p.Addr().Is6() {
		hops = walkHops6
	}
	return via(rapid.SliceOfN(rapid.SampledFrom(hops), least, 3).Draw(w.t, "hops")...)
}

func (w *walker) want(k route.Key, c Candidate) {
	w.w.want(k, c)
	if len(c.Paths) > 0 || c.Kind != route.Via {
		if w.ever[c.Origin] == nil {
			w.ever[c.Origin] = map[route.Key]bool{}
		}
		w.ever[c.Origin][k] = true
		delete(w.adopted, k)
		delete(w.adopted, k.Counterpart())
	}
}

func (w *walker) learn() {
	p := w.prefix()
	paths := w.paths(p, 0)
	w.prefs[p] = rapid.SampledFrom([]uint32{100, 2147482623, 2147483135}).Draw(w.t, "local pref")
	w.wantBGP(p, paths)
	w.e.LearnPreferred(p, paths, w.prefs[p])
}

// wantBGP wants the paths, elevated if their LOCAL_PREF says so.
func (w *walker) wantBGP(p netip.Prefix, paths []route.Path) {
	elevated := p.IsSingleIP() && w.prefs[p] > w.normal && w.normal > 0
	w.want(route.Key{Prefix: p}, Candidate{Origin: route.BGP, Elevated: elevated, Paths: paths})
}

// setNormal changes the LOCAL_PREF of what is not elevated.
func (w *walker) setNormal() {
	w.normal = rapid.SampledFrom([]uint32{0, 99, 2147482623}).Draw(w.t, "normal")
	w.e.SetNormal(w.normal, w.normal)
	for k, wants := range maps.Clone(w.w.wants) {
		if c, ok := wants[route.BGP]; ok {
			w.wantBGP(k.Prefix, c.Paths)
		}
	}
}

// setRoutes replaces all of one origin.
func (w *walker) setRoutes() {
	origin := rapid.SampledFrom(walkOrigins).Draw(w.t,
		"origin")
	for k := range w.w.wants {
		w.want(k, Candidate{Origin: origin})
	}
	for _, s := range rapid.SliceOfNDistinct(rapid.SampledFrom(walkPrefixes), 0, 4, rapid.ID).Draw(
		w.t, "prefixes") {
		c := Candidate{
			Origin: origin,
			Kind: rapid.SampledFrom([]route.Kind{route.Drop, route.Drop, route.Via}).Draw(w.t,
				"own kind"),
		}
		if origin != route.Own {
			c.Kind = rapid.SampledFrom([]route.Kind{route.Via, route.Via, route.Unreachable}).Draw(
				w.t, "kind")
		}
		if c.Kind == route.Via {
			c.Paths = w.paths(pfx(s), 1)
		}
		w.want(key(s), c)
	}
	if origin == route.External {
		w.tables = rapid.SliceOfNDistinct(rapid.SampledFrom(walkTables), 0, 2,
			route.Object.Key).Draw(w.t, "tables")
		for _, o := range w.tables {
			if rapid.Bool().Draw(w.t, "with a route") {
				w.want(inTable(o.(route.Table).ID, walkPrefixes[0]).Key,
					Candidate{Origin: origin, Kind: route.Drop})
			}
		}
	}
	w.hand(origin)
}

func (w *walker) hand(origin route.Origin) {
	var routes []route.Route
	for k, wants := range w.w.wants {
		if c, ok := wants[origin]; ok {
			routes = append(routes, route.Route{Key: k, Kind: c.Kind, Paths: c.Paths})
		}
	}
	w.e.set(func(all *Wanted) {
		s := &all.Sources[origin]
		if s.Routes = routes; rapid.Bool().Draw(w.t, "listed") {
			s.List++
		}
		if origin == route.External {
			s.Objects = w.tables
		}
	})
}

func (w *walker) protect() {
	pick := rapid.SliceOfN(rapid.SampledFrom(walkHops4), 0, 3)
	w.w.own, w.w.peers = nil, nil
	for _, s := range pick.Draw(w.t, "peers") {
		w.w.peers = append(w.w.peers, addr(s))
	}
	if rapid.Bool().Draw(w.t, "own") {
		w.w.own = []netip.Addr{addr("10.77.0.7")}
	}
	w.e.Protect(w.w.own, w.w.peers)
}

func (w *walker) keepOut() {
	pick := rapid.SliceOfNDistinct(rapid.SampledFrom(walkPrefixes), 0, 3, rapid.ID)
	w.w.services = nil
	for _, s := range pick.Draw(w.t, "services") {
		w.w.services = append(w.w.services, pfx(s))
	}
	w.e.KeepOut(w.w.services)
}

// encapsulate changes pools and nodes, and with the nodes the endpoints that are wanted.
func (w *walker) encapsulate() {
	e := &route.Encapsulation{Own4: pfx("10.0.0.1/24")}
	for _, s := range rapid.SliceOfNDistinct(rapid.SampledFrom(walkPools), 0, 3, rapid.ID).Draw(
		w.t, "pools") {
		e.Pools = append(e.Pools, route.Pool{
			Name: s, Prefix: pfx(s), CrossSubnet: rapid.Bool().Draw(w.t, "cross-subnet"),
			Encap: rapid.SampledFrom([]route.Encap{route.Plain, route.IPIP,
				route.VXLAN}).Draw(w.t, "encap"),
		})
	}
	for _, s := range rapid.SliceOfNDistinct(rapid.SampledFrom(walkHops4), 0, 5, rapid.ID).Draw(
		w.t, "nodes") {
		n := route.Node{Address: addr(s), Name: s, VXLAN: &route.VTEP{MAC: "66:00:00:00:00:01"}}
		if rapid.IntRange(0, 3).Draw(w.t, "no VTEP") == 0 {
			n.VXLAN = &route.VTEP{Problem: "it has none"}
		}
		e.Nodes = e.Nodes.With(route.Nodes{n}, nil)
	}
	if w.w.encap = e; rapid.IntRange(0, 3).Draw(w.t, "none") == 0 {
		w.w.encap = nil
	}
	w.handEncapsulation()
}

var walkPools = []string{"10.1.0.0/16", "10.1.0.64/26", "10.9.0.0/24", "10.8.0.0/15", "fd10::/64"}

// walkOrigins are those that set their routes at once.
var walkOrigins = []route.Origin{route.Own, route.External, route.Etcd, route.Overlay}

func (w *walker) handEncapsulation() {
	w.endpoints = nil
	if w.w.encap != nil {
		for _, n := range w.w.encap.Nodes {
			a := n.Address
			w.endpoints = append(w.endpoints, route.Endpoint{Interface: "tunl0", Outer: a})
			if n.NoVTEP() == "" {
				w.endpoints = append(w.endpoints, route.Endpoint{Interface: "vxlan.calico",
					Outer: a, VXLAN: route.VXLANSettings{MAC: n.VXLAN.MAC}})
			}
		}
	}
	if len(w.endpoints) > 0 {
		w.endpoints = rapid.Permutation(w.endpoints).Draw(w.t, "in this order")
		w.endpoints = append(w.endpoints, w.endpoints[0]) // twice
	}
	w.e.set(func(all *Wanted) {
		all.Encapsulation, all.Sources[route.Own].Objects = w.w.encap, w.endpoints
	})
}

// stealEndpoint takes a tunnel away by another's hand.
func (w *walker) stealEndpoint() {
	a := addr(rapid.SampledFrom(walkHops4).Draw(w.t, "node"))
	by := rapid.SampledFrom([]string{"tunl0", "vxlan.calico"}).Draw(w.t, "by")
	w.dp.steal(route.Endpoint{Interface: by, Outer: a})
}

func (w *walker) follow() {
	var hops []netip.Addr
	for _, s := range rapid.SliceOfN(rapid.SampledFrom(walkHops4), 0, 3).Draw(w.t, "followed") {
		hops = append(hops, addr(s))
	}
	w.e.FollowOutgoing(hops)
}

// foreign adds or removes somebody else's route; the data plane has no event for that.
func (w *walker) foreign() {
	k := key(
		rapid.SampledFrom([]string{"0.0.0.0/0", "10.9.0.0/16", "10.8.0.0/15", "10.77.0.0/25",
			"fd09::/32"}).Draw(w.t, "foreign"))
	w.dp.state(func() {
		if _, ok := w.dp.foreign[k]; ok {
			delete(w.dp.foreign, k)
		} else {
			w.dp.foreign[k] = rapid.Bool().Draw(w.t, "forwards")
		}
	})
}

// link takes an interface down, away or back, perhaps under another index.
func (w *walker) link() {
	f := w.w.facts
	for _, l := range w.full {
		if _, there := f.Interface(l.Name); !there && w.sameIndex {
			w.resurrect(l.Name)
		}
	}
	f.Interfaces = slices.Clone(w.full)
	i := rapid.SampledFrom([]int{0, 1, 3, 4}).Draw(w.t, "interface")
	events := []string{"up", "down", "gone", "new index", "blink", "anew", "address"}
	switch rapid.SampledFrom(events).Draw(w.t, "link") {
	case "down":
		f.Interfaces[i].Up = false
	case "gone":
		w.stale(f.Interfaces[i].Name)
		f.Interfaces = slices.Delete(f.Interfaces, i, i+1)
		w.full = slices.Clone(w.full)
		if w.sameIndex = rapid.Bool().Draw(w.t, "it comes back under its index"); !w.sameIndex {
			w.full[i].Index += 10
		}
	case "new index":
		w.stale(f.Interfaces[i].Name)
		f.Interfaces[i].Index += 10
		w.full = slices.Clone(f.Interfaces)
	case "blink":
		w.dropped(f.Interfaces[i].Name)
		f.Interfaces[i].Generation++
		w.full = slices.Clone(f.Interfaces)
	case "anew":
		w.e.mu.Lock()
		isKnown := w.e.sync.identity != ""
		w.e.mu.Unlock()
		w.dp.state(func() { w.dp.stick(f.Interfaces[i].Name) })
		if isKnown { // an agent that was away is not told
			f.Interfaces[i].Generation++
		}
		w.full = slices.Clone(f.Interfaces)
	case "address":
		if f.Interfaces[i].Name == "vxlan.calico" {
			return // what is near there looks like tunnels
		}
		a := pfx(rapid.SampledFrom(walkAddresses).Draw(w.t, "address"))
		all := slices.DeleteFunc(slices.Clone(f.Interfaces[i].Addresses),
			func(b netip.Prefix) bool { return a == b })
		if len(all) == len(f.Interfaces[i].Addresses) {
			all = append(all, a)
		}
		f.Interfaces[i].Addresses = all
		w.full = slices.Clone(f.Interfaces)
	}
	w.w.facts = f
	if w.dp.now.Identity != "" {
		w.dp.tell(f)
	}
}

// stale: what went over that interface is gone with it; the data plane keeps a route that looks the
// same and leads nowhere.
func (w *walker) stale(name string) {
	w.over(name, func(k route.Key) {
		w.dp.dead[k] = true
		delete(w.dp.stuck, k)
	})
}

// resurrect: an interface comes back under the index that it had. Routes over it look as before.
func (w *walker) resurrect(name string) {
	w.over(name, func(k route.Key) {
		if w.dp.dead[k] {
			w.dp.stuck[k], w.dp.anew[name] = true, true
			delete(w.dp.dead, k)
		}
	})
}

// dropped: Linux drops what goes over an interface that is set down.
func (w *walker) dropped(name string) {
	w.over(name, func(k route.Key) {
		delete(w.dp.ours, k)
		delete(w.dp.dead, k)
		delete(w.dp.stuck, k)
		delete(w.adopted, k)
	})
}

// over does something to each of our routes over that interface.
func (w *walker) over(name string, do func(route.Key)) {
	w.dp.state(func() {
		for k, r := range w.dp.ours {
			if slices.ContainsFunc(r.Paths, func(p route.Path) bool {
				return p.Interface == name
			}) {
				do(k)
			}
		}
	})
}

// edit is somebody's hand on routes that carry our mark: one is lost or another, or there is one
// more.
func (w *walker) edit() {
	k := key(rapid.SampledFrom(append(walkPrefixes, "10.6.0.0/24", "10.7.0.0/24")).Draw(w.t,
		"edited"))
	lost := rapid.Bool().Draw(w.t, "lost")
	w.dp.state(func() {
		delete(w.dp.dead, k)
		delete(w.dp.stuck, k)
		if lost {
			delete(w.dp.ours, k)
		} else {
			w.dp.ours[k] = route.Route{Key: k, Kind: route.Prohibit}
		}
	})
	delete(w.adopted, k)
}

// hide lets another's route come before one of ours, or go.
func (w *walker) hide() {
	k := w.prefix()
	w.dp.state(func() {
		if w.dp.hidden[route.Key{Prefix: k}] == "" {
			w.dp.hidden[route.Key{Prefix: k}] = "CLI"
		} else {
			delete(w.dp.hidden, route.Key{Prefix: k})
		}
	})
}

func (w *walker) audit() { w.e.Audit(context.Background()) } // it may well fail now

func (w *walker) lose() { w.dp.tell(route.Facts{Problem: "away"}) }

func (w *walker) reconnect() { w.dp.tell(w.w.facts) }

func (w *walker) restartDataplane() {
	w.lose()
	if rapid.Bool().Draw(w.t, "seen") {
		synctest.Wait()
	}
	w.generation++
	w.w.facts.Identity = fmt.Sprintf("generation %d", w.generation)
	w.dp.state(func() { clear(w.dp.ours); clear(w.dp.dead); clear(w.dp.stuck) })
	clear(w.adopted)
	w.reconnect()
}

func (w *walker) restartAgent() {
	w.e.stop()
	if rapid.Bool().Draw(w.t, "an interface is made anew meanwhile") {
		i := rapid.SampledFrom(w.w.facts.Interfaces).Draw(w.t, "which")
		w.dp.state(func() { w.dp.stick(i.Name) })
	}
	w.startAgent()
	w.handEncapsulation()
	for _, o := range walkOrigins {
		w.hand(o)
	}
	w.e.Protect(w.w.own, w.w.peers)
	w.e.KeepOut(w.w.services)
	for k, wants := range w.w.wants {
		if c, ok := wants[route.BGP]; ok {
			w.e.LearnPreferred(k.Prefix, c.Paths, w.prefs[k.Prefix])
		}
	}
	w.e.SetNormal(w.normal, w.normal)
}

func (w *walker) startAgent() {
	w.adopted, w.swept = make(map[route.Key]bool), false
	for k := range w.dp.ours {
		// its counterpart may take its place, see want
		if len(w.w.wants[k])+len(w.w.wants[k.Counterpart()]) == 0 {
			w.adopted[k] = true
		}
	}
	var d Dataplane = w.dp
	if rapid.Bool().Draw(w.t, "starts") {
		d = starter{w.dp}
		w.dp.state(func() { w.dp.notStarting = rapid.Bool().Draw(w.t, "not now") })
	}
	w.replay = newReplaying()
	w.e = startOn(d, w.dp, Config{
		Journal: w.journal, Recorder: w.replay,
		Tuning: Tuning{SpotChecks: 5, RepairDrift: true, GuardShare: 0.3, GuardMinimum: 1},
	})
	slice := rapid.IntRange(1, 5).Draw(w.t, "taken in at once") // it may panic
	w.e.mu.Lock()
	w.e.sync.objects.bulk.slice = slice
	w.e.mu.Unlock()
}

var walkObjects = []route.Object{
	up0, on("eth0", "192.168.4.7/24"), on("eth0", "192.168.4.8/24"), on("eth0", "192.168.4.7/25"),
	on("eth1", "192.168.4.7/24"), on("eth1", "fd04::7/64"), on("eth2", "192.168.5.7/24"),
}

var walkTables = []route.Object{vrf(7, "red"), vrf(8, "blue"), vrf(9, "green")}

// stealTable takes a table away by another's hand.
func (w *walker) stealTable() {
	t := rapid.SampledFrom(walkTables).Draw(w.t, "table").(route.Table)
	w.dp.steal(t)
	maps.DeleteFunc(w.adopted, func(k route.Key, _ bool) bool { return k.TableID() == t.TableID })
}

func (w *walker) setObjects() {
	w.objects = rapid.SliceOfNDistinct(rapid.SampledFrom(walkObjects), 0, 4,
		route.Object.Key).Draw(w.t, "objects")
	w.e.setObjects(route.Uplink, w.objects...)
}

// editObject is another's hand on an object: it makes one that the agent has nothing to do with, or
// takes one away.
func (w *walker) editObject() {
	o := rapid.SampledFrom(walkObjects).Draw(w.t, "object")
	k := o.Key()
	known := slices.ContainsFunc(w.e.Objects(), func(e Entry) bool { return e.Object == k })
	w.dp.mu.Lock()
	_, there := w.dp.objects[k]
	possible := w.dp.reach(k) == nil
	w.dp.mu.Unlock()
	switch {
	case there:
		w.dp.steal(o)
		delete(w.others, k)
	case !known && w.e.Stats().Present && possible:
		w.others[w.dp.others(o)] = true
	}
}

// checkObjects: nobody else's object is ever deleted, unless it went with its interface.
func (w *walker) checkObjects() {
	w.dp.mu.Lock()
	defer w.dp.mu.Unlock()
	for k := range w.others {
		if _, ok := w.dp.objects[k]; ok {
			continue
		}
		if !w.dp.went[k] {
			w.t.Fatalf("%v of another was deleted", k)
		}
		delete(w.others, k)
	}
}

// settledObjects: all that is wanted is there unless it cannot be, and nothing of ours besides.
func (w *walker) settledObjects() {
	w.dp.mu.Lock()
	defer w.dp.mu.Unlock()
	wanted := map[route.ObjectKey]bool{}
	for _, o := range slices.Concat(w.objects, w.tables, w.endpoints) {
		k := o.Key()
		wanted[k] = true
		excluder, excludes := o.(route.Excluder)
		inTheWay := excludes && slices.ContainsFunc(slices.Concat(w.objects, slices.Collect(
			maps.Values(w.dp.objects))), func(x route.Object) bool {
			return x.Key() != k && excluder.Excludes(x.Key())
		})
		if _, ok := w.dp.objects[k]; !ok && !inTheWay && w.dp.reach(k) == nil {
			w.t.Fatalf("%v is not there: %v", k, w.e.objectStates())
		}
	}
	programmed := 0
	for k := range wanted {
		if w.e.FindObject(k).State == Programmed {
			programmed++
		}
	}
	if c := w.e.Stats().Objects; c.Desired != len(wanted) || c.Programmed != programmed {
		w.t.Fatalf("%d objects, %d programmed, counted %+v", len(wanted), programmed, c)
	}
	for k := range w.dp.objects {
		if !wanted[k] && !w.others[k] && (!w.amnesia || k.Kind == route.TunnelEndpoint) {
			w.t.Fatalf("%v is left over: %v", k, w.e.objectStates())
		}
	}
}

func (w *walker) allowSweep() { w.e.AllowSweep(); w.swept = true }

// sweepOne completes one source: what it has never wanted stays.
func (w *walker) sweepOne() {
	origin := rapid.SampledFrom([]route.Origin{route.Own, route.External, route.BGP,
		route.Etcd}).Draw(w.t, "heard")
	w.e.AllowSweep(origin)
	maps.DeleteFunc(w.adopted, func(k route.Key, _ bool) bool {
		k.Elevated = false
		return w.ever[origin][k]
	})
}

// fault makes the data plane misbehave until the next one, or the end.
func (w *walker) fault() {
	w.heal()
	w.dp.state(func() {
		switch rapid.SampledFrom([]string{"none", "refuse", "sever", "hang", "list", "resolve",
			"lookup", "objects"}).Draw(w.t, "fault") {
		case "objects":
			w.dp.lostObjects = rapid.Bool().Draw(w.t, "carried out")
			for _, o := range rapid.SliceOfN(rapid.SampledFrom(slices.Concat(walkObjects,
				walkTables)), 1, 4).Draw(w.t, "refused objects") {
				w.dp.refuseObject[o.Key()] = errGone
			}
		case "refuse":
			for _, s := range rapid.SliceOfN(rapid.SampledFrom(walkPrefixes), 1, 4).Draw(w.t,
				"refused") {
				w.dp.refuse[key(s)] = fmt.Errorf("refused %s", s)
			}
		case "sever":
			w.dp.sever = rapid.IntRange(0, 3).Draw(w.t, "after")
			w.dp.lost = rapid.IntRange(0, 3).Draw(w.t, "unheard")
		case "hang":
			w.dp.hang = true
		case "list":
			w.dp.listErr = errGone
		case "resolve":
			w.dp.resolveErr = errGone
		case "lookup":
			w.dp.lookupErr = errGone
		}
	})
}

func (w *walker) heal() { w.dp.heal() }

// breakJournal damages what the next process would read.
func (w *walker) breakJournal() {
	w.amnesia = true
	switch rapid.SampledFrom([]string{"remove", "garbage"}).Draw(w.t, "damage") {
	case "remove":
		os.Remove(w.journal)
	case "garbage":
		if b, err := os.ReadFile(w.journal); err == nil && len(b) > 0 {
			b[rapid.IntRange(0, len(b)-1).Draw(w.t, "at")] ^= 0x40
			os.WriteFile(w.journal, b, 0o600)
		}
	}
}

func (w *walker) pause() {
	time.Sleep(time.Duration(rapid.IntRange(0, 3000).Draw(w.t, "ms")) * time.Millisecond)
}

// check holds at any time: adopted routes that nobody wants stay until the sweep is allowed.
func (w *walker) check() {
	synctest.Wait()
	w.checkObjects()
	if w.swept {
		return
	}
	w.dp.state(func() {
		for k := range w.adopted {
			if _, ok := w.dp.ours[k]; !ok {
				w.t.Fatalf("%v was deleted before the sweep was allowed", k)
			}
		}
	})
}

// settle ends all faults and compares with the dumb loop.
func (w *walker) settle() {
	w.heal()
	w.dp.state(func() { clear(w.dp.hidden) })
	w.reconnect()
	w.allowSweep()
	w.e.setObjects(route.Uplink, w.objects...)
	w.e.setObjects(route.External, w.tables...)
	w.e.setObjects(route.Own, w.endpoints...)
	w.e.SetBGPConverging(false)
	// the guard holds nothing longer, and then no back-off is longer
	time.Sleep(guardHold + lastRetry + 5*time.Second)
	synctest.Wait()
	w.e.audit(w.t)
	time.Sleep(lastRetry + 5*time.Second) // what was extra may have been in the way of next hops
	synctest.Wait()

	w.w.resolutions = w.foreignResolutions()
	// what leads to them by us is not in their way
	for _, a := range slices.Concat(w.w.own, w.w.peers) {
		if r, _ := w.dp.Resolve(context.Background(), 0, a); r.Ours {
			w.w.resolutions[NextHop{Address: a}] = r
		}
	}
	want := w.w.fib()
	w.dp.state(func() {
		if ops := Diff(want, w.dp.ours); len(ops) > 0 {
			for _, e := range w.e.table.all {
				w.t.Logf("%+v", w.e.show(e, true))
			}
			w.t.Fatalf("the FIB needs %v", ops)
		}
		for k := range w.dp.dead {
			w.t.Fatalf("%v goes over an interface that is no more", k)
		}
		for k := range w.dp.stuck {
			w.t.Fatalf("%v leads nowhere", k)
		}
	})
	if w.replay.compared == 0 {
		w.t.Fatal("nothing was replayed")
	}
	if all := w.replay.differences(); len(all) > 0 {
		w.t.Fatalf("a replay differs: %s", strings.Join(all, "\n"))
	}
	w.checkCounts(want)
	w.checkAudit(want)
	w.checkObjects()
	w.settledObjects()
}

// checkAudit: all is well, and nothing is to be written because of a shadow.
func (w *walker) checkAudit(want map[route.Key]route.Route) {
	w.dp.takeOps()
	if r := w.e.audit(w.t); len(r.Findings) != 0 || r.Compared != len(want) ||
		r.Listed != len(want) {
		w.t.Fatalf("%+v", r)
	}
	for k := range want {
		w.dp.state(func() { w.dp.hidden[k] = "CLI" })
	}
	if r := w.e.audit(w.t); r.Hidden != len(want) ||
		len(inState(w.e.Engine, Shadowed)) != len(want) {
		w.t.Fatalf("%+v", r)
	}
	w.dp.state(func() { clear(w.dp.hidden) })
	w.e.audit(w.t)
	if n := len(inState(w.e.Engine, Programmed)); n != len(want) {
		w.t.Fatalf("%d programmed", n)
	}
	synctest.Wait()
	if ops := w.dp.takeOps(); len(ops) != 0 {
		w.t.Fatalf("written: %v", ops)
	}
}

func (w *walker) checkCounts(want map[route.Key]route.Route) {
	programmed := 0
	for _, c := range w.e.Stats().Routes {
		programmed += c.Programmed
		if c.Desired != c.Programmed || c.Failed+c.Held+c.Deleting != 0 {
			w.t.Fatalf("counts do not say that all is done: %+v", c)
		}
	}
	s := w.e.Settled(1000)
	for _, e := range s.Open { // only what selection refuses
		if e.State != Unusable && e.Object == (route.ObjectKey{}) {
			w.t.Fatalf("not settled: %+v", e)
		}
	}
	if s.Taken != w.e.revision || s.More > 0 || len(s.Open) == 0 && s.Revision != s.Taken {
		w.t.Fatalf("%d set, %+v", w.e.revision, s)
	}
	if programmed != len(want) || len(inState(w.e.Engine, Programmed)) != len(want) {
		w.t.Fatalf("%d programmed, counted %d, want %d",
			len(inState(w.e.Engine, Programmed)), programmed, len(want))
	}
}

// foreignResolutions is what the data plane would answer if none of our routes were there.
func (w *walker) foreignResolutions() map[NextHop]route.Resolution {
	out := make(map[NextHop]route.Resolution)
	var ours map[route.Key]route.Route
	w.dp.state(func() { ours, w.dp.ours = w.dp.ours, nil })
	for _, s := range slices.Concat(walkHops4, walkHops6) {
		r, err := w.dp.Resolve(context.Background(), 0, addr(s))
		if err != nil {
			w.t.Fatal(err)
		}
		out[hop(s)] = r
	}
	w.dp.state(func() { w.dp.ours = ours })
	return out
}

// TestWalk takes any sequence of inputs, faults, restarts and reconnects; when the faults stop the
// FIB is what is wanted.
func TestWalk(t *testing.T) { testWalk(t) }

// TestWalkOfObjects is a walk where hardly anything but objects changes.
func TestWalkOfObjects(t *testing.T) {
	testWalk(t, "objects", "objects more", "edit object", "edit object more", "routes",
		"steal table", "link", "lose", "reconnect", "restart dataplane", "restart agent", "sweep",
		"fault", "pause", "settle")
}

// TestWalkOfTunnels is a walk where pools and nodes change most.
func TestWalkOfTunnels(t *testing.T) {
	testWalk(t, "encapsulate", "encapsulate more", "steal endpoint", "learn", "learn more",
		"routes", "link", "lose", "reconnect", "restart dataplane", "restart agent", "sweep",
		"fault", "foreign", "journal", "pause", "settle")
}

// testWalk takes these steps; none: all.
func testWalk(t *testing.T, steps ...string) {
	t.Parallel() // a walk of one agent keeps one processor busy at most
	dir := memoryDir(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		journal := filepath.Join(dir, fmt.Sprint(n))
		var failed any // rapid stops a run by a panic, which must not end in the bubble
		synctest.Test(t, func(*testing.T) {
			defer func() { failed = recover() }()
			walk(rt, journal, steps)
		})
		if failed == nil {
			return
		}
		if fmt.Sprintf("%T", failed) == "rapid.invalidData" {
			// on a line of its own: rapid tells failures apart by where they come from
			panic(failed)
		}
		panic(failed)
	})
}

// memoryDir is a folder in memory where there is one: the journals of a walk are written so often
// that it would wait for the disk half of its time.
func memoryDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "fib-walk-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func walk(t *rapid.T, journal string, names []string) {
	f := node("generation 0")
	f.Interfaces = append(f.Interfaces, route.Interface{Name: "tunl0", Index: 4, Up: true},
		route.Interface{Name: "vxlan.calico", Index: 5, Up: true})
	f.AttachedOnly = rapid.Bool().Draw(t, "attached only")
	w := &walker{
		t: t, w: newWorld(f), dp: newFake(f), full: f.Interfaces, journal: journal,
		normal: 2147482623, prefs: map[netip.Prefix]uint32{},
		ever: map[route.Origin]map[route.Key]bool{}, others: map[route.ObjectKey]bool{},
	}
	w.dp.foreign[key("0.0.0.0/0")] = true
	w.startAgent()
	w.e.SetNormal(w.normal, w.normal)
	defer func() { w.heal(); w.e.stop() }()
	steps := map[string]func(){
		"learn": w.learn, "learn more": w.learn, "normal": w.setNormal, "routes": w.setRoutes,
		"protect": w.protect, "keep out": w.keepOut, "follow": w.follow,
		"foreign": w.foreign, "link": w.link,
		"lose": w.lose, "reconnect": w.reconnect, "restart dataplane": w.restartDataplane,
		"restart agent": w.restartAgent,
		"sweep":         w.allowSweep, "sweep one": w.sweepOne, "fault": w.fault, "edit": w.edit,
		"edit more": w.edit, "objects": w.setObjects, "edit object": w.editObject,
		"objects more": w.setObjects, "edit object more": w.editObject,
		"steal table": w.stealTable, "encapsulate": w.encapsulate,
		"encapsulate more": w.encapsulate, "steal endpoint": w.stealEndpoint,
		"hide": w.hide, "audit": w.audit, "release": func() { w.e.ReleaseGuard() },
		"converging": func() { w.e.SetBGPConverging(rapid.Bool().Draw(t, "converging")) },
		"journal":    w.breakJournal, "pause": w.pause, "settle": w.settle,
	}
	if names == nil {
		names = slices.Sorted(maps.Keys(steps))
	}
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		steps[rapid.SampledFrom(names).Draw(t, "step")]()
		w.check()
	}
	w.settle()
}
