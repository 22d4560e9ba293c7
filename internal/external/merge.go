package external

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"vpp-route-agent/internal/external/proto/ligato/linux"
	"vpp-route-agent/internal/external/proto/ligato/vpp"
	"vpp-route-agent/internal/external/proto/ligato/vpp/l3"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// Policy is what the operator allows.
type Policy struct {
	// Table0: routes in the default table are allowed.
	Table0 bool
	// Linux: the data plane is the kernel, which takes no tables and no cross-connects, and
	// in which the agent makes no interfaces for items of VPP.
	Linux bool
	// Takes says by their keys which items are for this data plane; nil: all are.
	Takes func(key string) bool
	// Own are the addresses that the agent itself sets.
	Own []route.Address
}

// Plan is what a set of sources comes to: what to program, and for each item what is known of it
// without the data plane. Equal inputs give equal plans.
type Plan struct {
	// Routes are sorted by key, of origin route.External.
	Routes []route.Route
	// Objects are what is wanted besides, by key.
	Objects []route.Object
	groups  map[route.Key]*group // whose Routes are, and of prefixes that miss a table
	items   []planned            // by source's rank, then key
}

// Owner names the source that has a route; "": none has.
func (p Plan) Owner(k route.Key) string {
	if g := p.groups[k]; g != nil && !g.missing {
		return g.first.source
	}
	return ""
}

// planned is an item and what became of it.
type planned struct {
	source  string
	item    Item
	problem Problem // of this item as part of the whole
	missing []string
	key     route.Key
	path    route.Path // of Kind Via
	kind    route.Kind
	isRoute bool
	group   *group // that the path belongs to; nil: to none
	// claim is what an item wants that is no route, in words; of one claim one source has it. "":
	// nothing is known of it.
	claim   string
	objects []route.Object
	refused []string // why some of them cannot be; they are not among objects
	link    string   // the interface that an item is about
}

// Merge merges what sources want, the first has the highest rank. Per table and prefix one source
// wins whole; what others want for it waits, and takes over as soon as that one no longer has it.
func Merge(sources []Source, p Policy) Plan {
	m := merger{policy: p, sources: sources, tables: map[route.TableID]route.Table{},
		claims: map[string]*planned{}, named: map[string]*planned{},
		single: map[route.Path][]route.Path{}}
	for _, a := range p.Own {
		m.subnets.add(a)
	}
	for _, s := range sources {
		keys := make([]string, 0, len(s.Items))
		for key := range s.Items {
			if p.Takes == nil || p.Takes(key) {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		n := len(m.plan.items)
		m.plan.items = append(m.plan.items, make([]planned, len(keys))...)
		EachInParallel(len(keys), func(i int) {
			m.plan.items[n+i] = plannedOf(s.Name, s.Items[keys[i]])
		})
	}
	m.plan.groups = make(map[route.Key]*group, len(m.plan.items))
	m.groups = make([]group, 0, len(m.plan.items))
	for i := range m.plan.items {
		m.nameLinux(&m.plan.items[i])
	}
	for i := range m.plan.items {
		m.place(&m.plan.items[i])
	}
	for i := range m.plan.items {
		m.require(&m.plan.items[i])
	}
	m.collect()
	return m.plan
}

// group is what the winner for one prefix wants.
type group struct {
	first   *planned
	more    []route.Path // besides that of first
	missing bool         // a table is, so nothing is programmed
	at      int          // in Plan.Routes
}

type merger struct {
	policy  Policy
	sources []Source
	plan    Plan
	groups  []group                       // of plan.groups; it does not grow
	single  map[route.Path][]route.Path   // canonical sets of one path
	tables  map[route.TableID]route.Table // that are wanted
	claims  map[string]*planned
	named   map[string]*planned // interfaces of Linux, by the name of their item
	subnets subnets             // of addresses that are wanted
}

// plannedOf says what an item is about.
func plannedOf(source string, item Item) planned {
	p := planned{source: source, item: item}
	switch m := item.Message.(type) {
	case *l3.VrfTable: // two labels are one table
		t := tableOf(m)
		p.claim, p.objects = t.TableID.String(), []route.Object{t}
	case *l3.ARPEntry:
		p.claims(neighbourOf(m.Interface, m.IpAddress, m.PhysAddress))
	case *l3.L3XConnect:
		p.claims(l3XConnectOf(m))
	case *vpp.XConnectPair:
		p.claims(xConnectPairOf(m))
	case *l3.ProxyARP: // its objects follow when all tables are known
		p.claim = "proxy ARP"
	case *vpp.Interface:
		p.link, p.claim, p.objects = m.Name, "interface "+m.Name, objectsOf(m)
	case *linux.Interface:
		p.link, p.objects = deviceOf(m), objectsOfLinux(m)
		p.claim = "interface " + p.link
	}
	r, ok := item.Message.(*l3.Route)
	if !ok {
		return p
	}
	p.isRoute = true
	p.key = route.Key{Table: r.VrfId, Prefix: mustPrefix(r.DstNetwork)}
	hop, _ := addressOf("", r.NextHopAddr)
	p.path = route.Path{NextHop: hop, Interface: r.OutgoingInterface,
		Weight: max(uint8(r.Weight), 1), Preference: uint8(r.Preference)}
	switch r.Type {
	case l3.Route_DROP:
		p.kind, p.path = route.Drop, route.Path{}
	case l3.Route_INTER_VRF:
		if p.path.Table = r.ViaVrfId; !hop.IsValid() {
			p.path.NextHop = unspecified(p.key.Prefix)
		}
	default:
		if p.path.Interface == "" {
			p.path.Table = r.VrfId
		}
	}
	return p
}

// unspecified is the next hop of a path that looks the packet up again.
func unspecified(p netip.Prefix) netip.Addr {
	if p.Addr().Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// tableOf names a table without a label as Ligato does.
func tableOf(t *l3.VrfTable) route.Table {
	out := route.Table{Name: t.Label}
	out.ID, out.IPv6 = t.Id, t.Protocol == l3.VrfTable_IPV6
	if out.Name == "" {
		out.Name = fmt.Sprintf("%s-VRF:%d", strings.ToLower(t.Protocol.String()), t.Id)
	}
	return out
}

func neighbourOf(on, address, mac string) route.Neighbour {
	mac, _ = canonicalMAC(mac)
	a, _ := netip.ParseAddr(address)
	return route.Neighbour{Interface: on, Address: a.Unmap(), MAC: mac}
}

// place puts an item where it belongs, or says why not.
func (m *merger) place(p *planned) {
	m.placeLinux(p)
	switch first := m.claims[p.claim]; {
	case len(p.missing) > 0 || !p.problem.ok():
	case p.isRoute:
		m.placeRoute(p)
	case p.claim == "":
	case m.policy.Linux && p.isInTable():
		p.problem = unimplemented("field vrf with this data plane")
	case m.policy.Linux && p.isMade():
		p.problem = unimplemented("making an interface with this data plane")
	case m.policy.Linux && (isVPPs(p.objects) || p.isProxyARP()):
		p.problem = unimplemented("model %s with this data plane", ModelOf(p.item.Message).Name())
	case m.isUplink(p.objects):
		p.problem = Problem{Failed, p.objects[0].Key().Interface + " is the uplink of this node"}
	case first == nil:
		m.claims[p.claim] = p
		m.placeObjects(p)
	case first.source == p.source:
		p.problem = invalid("another key of this source is about %s", p.claim)
	default:
		p.missing = append(p.missing, "source "+first.source+" has "+p.claim)
	}
}

// claims: the item is about one object.
func (p *planned) claims(o route.Object) {
	p.claim, p.objects = o.Key().String(), []route.Object{o}
}

// isVPPs reports whether Linux has nothing like these objects.
func isVPPs(objects []route.Object) bool {
	return slices.ContainsFunc(objects, func(o route.Object) bool {
		return o.Key().Kind == route.VRFTable || isCrossConnect(o)
	})
}

// isUplink reports whether a cross-connect would take the packets of the agent's own interface.
func (m *merger) isUplink(objects []route.Object) bool {
	return slices.ContainsFunc(objects, func(o route.Object) bool {
		return isCrossConnect(o) && slices.ContainsFunc(m.policy.Own, func(a route.Address) bool {
			return a.Interface == o.Key().Interface
		})
	})
}

func isCrossConnect(o route.Object) bool {
	k := o.Key().Kind
	return k == route.L2Connected || k == route.L3Connected
}

// isInTable: it is about an interface in a table but 0.
func (p *planned) isInTable() bool {
	i, ok := p.item.Message.(*vpp.Interface)
	return ok && i.Vrf != 0
}

func (p *planned) isProxyARP() bool {
	_, is := p.item.Message.(*l3.ProxyARP)
	return is
}

// isMade: the item makes the interface that it is about.
func (p *planned) isMade() bool {
	return len(p.objects) > 0 && p.objects[0].Key().Kind == route.MadeLink
}

// placeObjects leaves out addresses that the data plane would refuse, or that would keep it from
// having one of the agent's own.
func (m *merger) placeObjects(p *planned) {
	p.objects = slices.DeleteFunc(p.objects, func(o route.Object) bool {
		switch o := o.(type) {
		case route.Table:
			m.tables[o.TableID] = o
		case route.Address:
			if other, ok := m.subnets.obstacle(o); ok {
				p.refused = append(p.refused, overlap(o, other))
				return true
			}
			m.subnets.add(o)
		}
		return false
	})
}

func overlap(a, other route.Address) string {
	return fmt.Sprintf("%s overlaps %s of %s", a.Address, other.Address, other.Interface)
}

func (m *merger) placeRoute(p *planned) {
	if p.key.Table == 0 && !m.policy.Table0 {
		p.problem = invalid("routes in table 0 are Calico's: --external-table-0 is not set")
		return
	}
	if tables := p.needs(); m.policy.Linux && len(tables) > 0 {
		p.problem = unimplemented("%v with this data plane", tables[0])
		return
	}
	g := m.plan.groups[p.key]
	switch {
	case g == nil:
		m.groups = append(m.groups, group{first: p})
		g = &m.groups[len(m.groups)-1]
		m.plan.groups[p.key] = g
	case g.first.source != p.source:
		p.missing = append(p.missing, "source "+g.first.source+" has "+p.key.String())
		return
	case g.first.kind != p.kind:
		p.problem = invalid("%s says otherwise what to do with packets to %v",
			g.first.item.Key, p.key)
		return
	case p.kind != route.Via:
	case p.samePath(g.first.path) || slices.ContainsFunc(g.more, p.samePath):
		p.problem = invalid("another key of this source has the same path")
		return
	default:
		g.more = append(g.more, p.path)
	}
	p.group = g
}

// samePath compares what makes a path: not its weight and preference.
func (p *planned) samePath(q route.Path) bool {
	q.Weight, q.Preference = p.path.Weight, p.path.Preference
	return p.path == q
}

// require looks for the tables that a route needs. One that misses a table keeps all paths of its
// prefix back: a part of the paths would be another route.
func (m *merger) require(p *planned) {
	m.requireTables(p)
	m.requirePeer(p)
	m.requireTap(p)
	if arp, ok := p.item.Message.(*l3.ProxyARP); ok && m.claims[p.claim] == p {
		p.objects, p.missing = proxyARPOf(arp, m.tables)
	}
	if p.group == nil {
		return
	}
	for _, id := range p.needs() {
		if _, ok := m.tables[id]; !ok {
			p.missing = append(p.missing, "there is no "+id.String())
		}
	}
	if len(p.missing) > 0 {
		p.group.missing = true
	}
}

// needs are the tables that a route needs.
func (p *planned) needs() (all []route.TableID) {
	for _, id := range []uint32{p.key.Table, p.path.Table} {
		t := p.key.TableID()
		if t.ID = id; id != 0 && !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	return all
}

// collect makes the tables and routes.
func (m *merger) collect() {
	for _, p := range m.claims {
		m.plan.Objects = append(m.plan.Objects, p.objects...)
	}
	slices.SortFunc(m.plan.Objects, func(a, b route.Object) int {
		return route.CompareObjectKeys(a.Key(), b.Key())
	})
	m.plan.Routes = make([]route.Route, 0, len(m.plan.groups))
	for i := range m.plan.items {
		p := &m.plan.items[i]
		switch g := p.group; {
		case g == nil:
		case g.missing:
			if len(p.missing) == 0 {
				p.missing = append(p.missing, "another path of "+p.key.String())
			}
		case g.first == p:
			g.at = len(m.plan.Routes)
			m.plan.Routes = append(m.plan.Routes, route.Route{
				Key: p.key, Kind: p.kind, Paths: m.paths(g), Origin: route.External})
		}
	}
}

// paths returns those of a group. Routes with one and the same path, which most are, share them.
func (m *merger) paths(g *group) []route.Path {
	switch {
	case g.first.kind != route.Via:
		return nil
	case len(g.more) > 0:
		return route.CanonicalPaths(append(g.more, g.first.path))
	}
	p := g.first.path
	if m.single[p] == nil {
		m.single[p] = route.CanonicalPaths([]route.Path{p})
	}
	return m.single[p]
}

// Keys are the keys whose state in the data plane Judge asks for, in the order of Routes.
func (p Plan) Keys() []route.Key {
	keys := make([]route.Key, len(p.Routes))
	for i, r := range p.Routes {
		keys[i] = r.Key
	}
	return keys
}

// gone returns the items of p that next lacks, as far as they may be in the data plane.
func (p Plan) gone(next Plan) (out []planned) {
	if len(p.items) == 0 {
		return nil
	}
	there := make(map[itemID]bool, len(next.items))
	for i := range next.items {
		there[next.items[i].id()] = true
	}
	for _, i := range p.items {
		if (i.isRoute || i.claim != "") && !there[i.id()] {
			out = append(out, i)
		}
	}
	return out
}

// itemID identifies an item of all sources.
type itemID struct{ source, key string }

func compareItems(a, b itemID) int {
	return cmp.Or(strings.Compare(a.source, b.source), strings.Compare(a.key, b.key))
}

func (p *planned) id() itemID { return itemID{p.source, p.item.Key} }

func sameObject(a, b route.Object) bool {
	return a.Key() == b.Key() && a.Digest() == b.Digest()
}

// Same reports whether both plans program the same.
func (p Plan) Same(o Plan) bool {
	return slices.EqualFunc(p.Objects, o.Objects, sameObject) &&
		slices.EqualFunc(p.Routes, o.Routes, route.Route.SameForwarding)
}

// wanted is what the FIB is to be set to.
func (p Plan) wanted() fib.Source {
	return fib.Source{Routes: p.Routes, Objects: p.Objects}
}
