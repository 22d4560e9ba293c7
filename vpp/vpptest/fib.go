package vpptest

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"

	"vpp-route-agent/internal/route"
)

const (
	noInterface = math.MaxUint32

	// noPathsInRoute is VNET_API_ERROR_NO_PATHS_IN_ROUTE (src/vnet/error.h), which GoVPP's list
	// lacks.
	noPathsInRoute = -52

	isDrop       = fib_types.FIB_API_PATH_TYPE_DROP
	isNormal     = fib_types.FIB_API_PATH_TYPE_NORMAL
	isLocal      = fib_types.FIB_API_PATH_TYPE_LOCAL
	isUnreach    = fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH
	isProhibit   = fib_types.FIB_API_PATH_TYPE_ICMP_PROHIBIT
	protoIP4     = fib_types.FIB_API_PATH_NH_PROTO_IP4
	protoIP6     = fib_types.FIB_API_PATH_NH_PROTO_IP6
	lastKnownNH  = fib_types.FIB_API_PATH_NH_PROTO_BIER
	sourceAPI    = 8
	sourceAdj    = 15
	sourceIface  = 4
	sourceSpec   = 1
	sourceRR     = 18
	sourceNoGate = 20
)

// source is a FIB source: the lowest class forwards, within a class the one that was registered
// first.
type source struct {
	name        string
	class, slot uint8
}

func newSource(name string, class uint8, others []source) source {
	s := source{name: name, class: class}
	for _, o := range others {
		if o.class == class {
			s.slot++
		}
	}
	return s
}

// is reports whether the source has that name, with or without a number behind an "@".
func (s source) is(name string) bool {
	return s.name == name || strings.HasPrefix(s.name, name+"@")
}

// builtinSources are VPP's own, by id (src/vnet/fib/fib_source.h).
func builtinSources() []source {
	return []source{
		{"invalid", 0xff, 0}, {"special", 0x00, 0}, {"classify", 0x01, 0}, {"proxy", 0x02, 0},
		{"interface", 0x03, 0}, {"SR", 0x10, 0},
		{"BIER", 0x20, 0}, {"6RD", 0x30, 0}, {"API", 0x80, 0}, {"CLI", 0x81, 0}, {"LISP", 0x90, 0},
		{"MAP", 0xa0, 0}, {"DHCP", 0xb0, 0},
		{"IPv6-proxy-nd", 0xc0, 0}, {"IPv6-nd", 0xc1, 0}, {"adjacency", 0xd0, 0}, {"mpls", 0xe0, 0},
		{"attached_export", 0xf0, 0},
		{"recursive-resolution", 0xfb, 0}, {"urpf-exempt", 0xfc, 0}, {"default-route", 0xfd, 0},
		{"interpose", 0xfe, 0},
	}
}

func (s *Server) sourceNamed(name string) uint8 {
	for id, src := range s.sources {
		if src.is(name) {
			return uint8(id)
		}
	}
	panic("vpptest: no FIB source " + name)
}

type tableKey struct {
	id  uint32
	six bool
}

func keyOf(k route.Key) tableKey { return tableKey{k.Table, k.Prefix.Addr().Is6()} }

// fibs are the tables of one generation.
type fibs map[tableKey]*table

// table is the FIB of one family of a VRF.
type table struct {
	name    string
	locked  bool                    // by the API
	fibs    fibs                    // where next hops in other tables are found
	entries map[netip.Prefix]*entry // by masked prefix

	// nextHops counts the recursive paths to an address. VPP makes a host entry, of source
	// recursive-resolution, for each, that forwards as its cover does and wins the longest match.
	nextHops map[netip.Addr]int
}

// entry is a prefix with what each source wants for it.
type entry struct {
	shown    netip.Prefix // with the host bits of whoever made it: VPP keeps them
	bySource map[uint8][]fib_types.FibPath
	dead     map[deadPath]bool
	stale    bool // marked by ip_table_replace_begin

	counted    bool // it has a statsIndex
	statsIndex uint32
	forwarded  route.Counts
}

// best returns the source that forwards.
func (e *entry) best(sources []source) (uint8, []fib_types.FibPath) {
	var id uint8
	for i := range e.bySource {
		if s, b := sources[i], sources[id]; id == 0 || cmp.Or(cmp.Compare(s.class, b.class),
			cmp.Compare(s.slot, b.slot)) < 0 {
			id = i
		}
	}
	return id, e.bySource[id]
}

// deadPath is a source's path over an interface that was deleted: it leads nowhere until it is put
// again.
type deadPath struct {
	source uint8
	index  uint32
}

// revive forgets the dead paths of a source.
func (e *entry) revive(src uint8) {
	maps.DeleteFunc(e.dead, func(p deadPath, _ bool) bool { return p.source == src })
}

func newTable(f fibs, name string, six bool) *table {
	t := &table{name: name, fibs: f, entries: map[netip.Prefix]*entry{},
		nextHops: map[netip.Addr]int{}}
	special, gaps, proto := []string{"224.0.0.0/4", "240.0.0.0/4"},
		[]string{"0.0.0.0/0", "0.0.0.0/32", "255.255.255.255/32"}, protoIP4
	if six {
		special, gaps, proto = nil, []string{"::/0"}, protoIP6
	}
	drop := []fib_types.FibPath{{SwIfIndex: noInterface, Type: isDrop, Proto: proto, Weight: 1}}
	for _, p := range special {
		t.put(netip.MustParsePrefix(p), sourceSpec, drop)
	}
	for _, p := range gaps {
		t.put(netip.MustParsePrefix(p), sourceNoGate, drop)
	}
	if six { // handed to the tables of link-local addresses
		t.put(netip.MustParsePrefix("fe80::/10"), sourceSpec,
			[]fib_types.FibPath{{SwIfIndex: noInterface, Proto: proto, Weight: 1}})
	}
	return t
}

func (t *table) put(p netip.Prefix, src uint8, paths []fib_types.FibPath) {
	e := t.entries[p.Masked()]
	if e == nil {
		e = &entry{shown: p, bySource: map[uint8][]fib_types.FibPath{}}
		t.entries[p.Masked()] = e
	}
	slices.SortStableFunc(paths, comparePaths)
	t.fibs.count(e.bySource[src], -1)
	t.fibs.count(paths, 1)
	e.bySource[src] = paths
	e.revive(src)
	e.stale = false
}

func comparePaths(a, b fib_types.FibPath) int {
	return cmp.Or(
		cmp.Compare(a.Preference, b.Preference),
		cmp.Compare(a.Proto, b.Proto),
		bytes.Compare(a.Nh.Address.XXX_UnionData[:], b.Nh.Address.XXX_UnionData[:]),
		cmp.Compare(a.SwIfIndex, b.SwIfIndex),
	)
}

func (t *table) remove(p netip.Prefix, src uint8) {
	e := t.entries[p.Masked()]
	if e == nil {
		return
	}
	t.fibs.count(e.bySource[src], -1)
	delete(e.bySource, src)
	e.revive(src)
	e.stale = false
	if len(e.bySource) == 0 {
		delete(t.entries, p.Masked())
	}
}

func (t *table) removeSource(src uint8) {
	for p := range t.entries {
		t.remove(p, src)
	}
}

// occupant returns an entry that is not VPP's own, if there is one.
func (t *table) occupant() (netip.Prefix, bool) {
	for p, e := range t.entries {
		for src := range e.bySource {
			if src != sourceSpec && src != sourceNoGate {
				return p, true
			}
		}
	}
	return netip.Prefix{}, false
}

// count keeps nextHops.
func (f fibs) count(paths []fib_types.FibPath, by int) {
	for _, p := range paths {
		if p.Type != isNormal || p.SwIfIndex != noInterface {
			continue
		}
		next, t := address(p.Nh.Address, p.Proto == protoIP6),
			f[tableKey{p.TableID, p.Proto == protoIP6}]
		if t == nil || next.IsUnspecified() {
			continue
		}
		if t.nextHops[next] += by; t.nextHops[next] == 0 {
			delete(t.nextHops, next)
		}
	}
}

// match returns the longest entry that covers p.
func (t *table) match(p netip.Prefix, sources []source) *entry {
	for bits := p.Bits(); bits >= 0; bits-- {
		cover, _ := p.Addr().Prefix(bits)
		if e := t.find(cover, sources); e != nil {
			return e
		}
	}
	return nil
}

// find returns the entry of exactly p, also one that VPP made for a next hop.
func (t *table) find(p netip.Prefix, sources []source) *entry {
	if e := t.entries[p]; e != nil {
		return e
	}
	if !p.IsSingleIP() || t.nextHops[p.Addr()] == 0 {
		return nil
	}
	above, _ := p.Addr().Prefix(p.Bits() - 1)
	src, paths := t.match(above, sources).best(sources) // the default route at least is there
	// in a connected subnet the next hop is a neighbour
	if src == sourceIface && paths[0].Type == isNormal {
		paths = slices.Clone(paths[:1])
		paths[0].Nh.Address = union(p.Addr())
	}
	return &entry{shown: p, bySource: map[uint8][]fib_types.FibPath{sourceRR: paths}}
}

func (s *Server) addTable(id uint32) {
	for _, six := range []bool{false, true} {
		if k := (tableKey{id, six}); s.tables[k] == nil {
			s.tables[k] = newTable(s.tables, fmt.Sprintf("table-%d", id), six)
			s.tables[k].locked = true
		}
	}
}

// changeRoute is ip_route_add_del in both versions, with their order of checks
// (src/vnet/ip/ip_api.c, src/vnet/fib/fib_api.c). Single paths cannot be added or removed here
// (is_multipath): nobody does, and VPP's rules for that are many.
func (s *Server) changeRoute(isAdd, isMultipath bool, r ip.IPRouteV2) int32 {
	if isMultipath {
		return int32(api.UNIMPLEMENTED)
	}
	six := r.Prefix.Address.Af == ip_types.ADDRESS_IP6
	t := s.tables[tableKey{r.TableID, six}]
	if t == nil {
		return int32(api.NO_SUCH_FIB)
	}
	paths := slices.Clone(r.Paths)
	for i := range paths {
		if retval := s.decodePath(&paths[i]); retval != 0 {
			return retval
		}
	}
	prefix := netip.PrefixFrom(address(r.Prefix.Address.Un, six), int(r.Prefix.Len))
	if !prefix.IsValid() {
		return int32(api.INVALID_PREFIX_LENGTH)
	}
	if len(paths) == 0 && isAdd {
		return noPathsInRoute
	}
	for i := range paths {
		if k := paths[i].Type; isAdd && r.TableID != 0 && (k == isUnreach || k == isProhibit) {
			panic(fmt.Sprintf("vpptest: %s of %s in table %d: a real VPP crashes", k, prefix,
				r.TableID))
		}
		fixup(&paths[i], prefix)
	}
	src := r.Src
	if src == 0 {
		src = sourceAPI
	}
	if int(src) >= len(s.sources) {
		panic(fmt.Sprintf("vpptest: route %s under FIB source %d, which nobody registered: VPP "+
			"reads out of bounds there", prefix, src))
	}
	if isAdd && t.recursesBeside(prefix, src, paths) {
		panic(fmt.Sprintf("vpptest: two sources have a recursive route for %s: a real VPP "+
			"crashes sooner or later", prefix))
	}
	at := imported{tableKey{r.TableID, six}, prefix.Masked(), src}
	if delete(s.imports, at); isAdd {
		t.put(prefix, src, paths)
		s.importPaths(at, r.Paths)
	} else {
		t.remove(prefix, src)
	}
	for k := range s.tables { // the last path that was resolved in a table may have gone
		s.destroyUnlocked(k)
	}
	return 0
}

// imported is a route to an interface of another table. VPP tracks what covers it there, also when
// the interface has left that table (src/vnet/fib/fib_attached_export.c).
type imported struct {
	tableKey
	prefix netip.Prefix
	src    uint8
}

func (s *Server) importPaths(at imported, paths []fib_types.FibPath) {
	for _, p := range paths {
		l := s.links[p.SwIfIndex]
		if l == nil || !address(p.Nh.Address, at.six).IsUnspecified() {
			continue
		}
		if from := (tableKey{l.tables[at.six], at.six}); from != at.tableKey {
			s.imports[at] = from
		}
	}
}

func (s *Server) importsFrom(k tableKey) (n int) {
	for _, from := range s.imports {
		if from == k {
			n++
		}
	}
	return n
}

// recursesBeside reports whether these paths recurse, and those that another registered source has
// for p.
func (t *table) recursesBeside(p netip.Prefix, src uint8, paths []fib_types.FibPath) bool {
	e := t.entries[p.Masked()]
	if e == nil || !recurses(paths) {
		return false
	}
	for other, theirs := range e.bySource {
		if other != src && int(other) >= len(builtinSources()) && recurses(theirs) {
			return true
		}
	}
	return false
}

func recurses(paths []fib_types.FibPath) bool {
	return slices.ContainsFunc(paths, func(p fib_types.FibPath) bool {
		return p.Type == isNormal && p.SwIfIndex == noInterface
	})
}

// decodePath checks a path and brings it into the form in which VPP shows it again.
func (s *Server) decodePath(p *fib_types.FibPath) int32 {
	p.Weight = max(p.Weight, 1)
	if p.Proto > lastKnownNH {
		return int32(api.UNSPECIFIED)
	}
	switch p.Type {
	case isDrop, isUnreach, isProhibit:
		p.SwIfIndex, p.TableID, p.Nh = noInterface, 0, fib_types.FibPathNh{}
		return 0
	case isNormal:
	default:
		return 0
	}
	if p.Proto == protoIP4 {
		clear(p.Nh.Address.XXX_UnionData[4:])
	}
	if p.SwIfIndex != noInterface {
		p.TableID = 0
		if s.links[p.SwIfIndex] == nil {
			return int32(api.NO_MATCHING_INTERFACE)
		}
		return 0
	}
	if s.tables[tableKey{p.TableID, p.Proto == protoIP6}] == nil {
		return int32(api.NO_SUCH_FIB)
	}
	return 0
}

// fixup is VPP's fib_table_route_path_fixup: a route that is its own next hop drops; the next hop
// of a host route to an interface is the host.
func fixup(p *fib_types.FibPath, prefix netip.Prefix) {
	if p.Type != isNormal {
		return
	}
	next := address(p.Nh.Address, p.Proto == protoIP6)
	switch {
	case p.SwIfIndex == noInterface && next == prefix.Addr() && !next.IsUnspecified():
		p.Type, p.TableID, p.Nh = isDrop, 0, fib_types.FibPathNh{}
	case p.SwIfIndex != noInterface && next.IsUnspecified() && prefix.IsSingleIP():
		p.Nh.Address, p.Proto = union(prefix.Addr()), protoOf(prefix.Addr())
	}
}

// message is an entry as dumps and lookups show it: under its best source, whoever asked.
func (s *Server) message(table uint32, e *entry) ip.IPRouteV2 {
	src, paths := e.best(s.sources)
	return ip.IPRouteV2{TableID: table, StatsIndex: s.statsIndex(e),
		Prefix: prefixMessage(e.shown), Src: src, NPaths: uint8(len(paths)), Paths: paths}
}

func (s *Server) dumpRoutes(m ip.IPTable, src uint8, each func(ip.IPRouteV2)) {
	t := s.tables[tableKey{m.TableID, m.IsIP6}]
	if t == nil {
		return
	}
	for _, e := range t.entries {
		if r := s.message(m.TableID, e); src == 0 || src == r.Src {
			each(r)
		}
	}
	if src != 0 && src != sourceRR {
		return
	}
	for next := range t.nextHops {
		if p := route.HostPrefix(next); t.entries[p] == nil {
			each(s.message(m.TableID, t.find(p, s.sources)))
		}
	}
}

func (s *Server) lookupRoute(table uint32, prefix ip_types.Prefix,
	exact bool) (found ip.IPRouteV2, retval int32) {
	six := prefix.Address.Af == ip_types.ADDRESS_IP6
	t := s.tables[tableKey{table, six}]
	if t == nil {
		return ip.IPRouteV2{}, int32(api.NO_SUCH_FIB)
	}
	p := netip.PrefixFrom(address(prefix.Address.Un, six), int(prefix.Len))
	var e *entry
	if exact {
		e = t.find(p.Masked(), s.sources)
	} else if p.IsValid() {
		e = t.match(p.Masked(), s.sources)
	}
	if e == nil {
		return ip.IPRouteV2{}, int32(api.NO_SUCH_ENTRY)
	}
	return s.message(table, e), 0
}
