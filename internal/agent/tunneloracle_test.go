package agent

import (
	"cmp"
	"crypto/sha1"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"vpp-route-agent/internal/route"
)

// cluster texts are Calico's resources as somebody wrote them; "" is a field that is not there.
type (
	nodeText struct{ v4, v6, ipip, vxlan, vxlan6, mac, mac6 string }
	poolText struct{ cidr, ipip, vxlan string }
	// blockText has the owner as in affinity, and by ordinal the nodes that addresses are
	// allocated to.
	blockText struct {
		affinity  string
		allocated map[int]string
	}
	felixText struct {
		port, vni, ipipMTU, vxlanMTU, vxlanMTUV6 int
		noIPIP, noVXLAN                          bool
	}
)

// literal says by the words of docs/encapsulation.md and of Calico what a node's VPP has in the
// end. It shares nothing with the code that it judges, and is as slow as it is plain.
type literal struct {
	nodes      map[string]nodeText // those that can be read
	pools      map[string]poolText
	blocks     map[netip.Prefix]blockText
	affinities map[netip.Prefix]bool // of this node
	felix      felixText
	learned    map[netip.Prefix][]netip.Addr
	bgp, ipam  bool // where routes come from
}

const (
	literalSelf   = "a"
	literalMTU    = 9000 // of VPP's uplink
	literalUplink = "memif0"
)

// literalSubnets are those of the uplink.
var literalSubnets = []netip.Prefix{pfx("10.0.0.0/24"), pfx("fd00::/64")}

// literalOwn are its addresses.
var literalOwn = []netip.Prefix{pfx("10.0.0.1/24"), pfx("10.0.0.4/24"), pfx("fd00::1/64")}

func hostPrefix(s string) (p netip.Prefix) {
	if s == "" {
		return p
	}
	if p, err := netip.ParsePrefix(s); err == nil {
		return p
	}
	a := addr(s)
	return netip.PrefixFrom(a, a.BitLen())
}

func (n nodeText) address(six bool) netip.Prefix {
	if six {
		return hostPrefix(n.v6)
	}
	return hostPrefix(n.v4)
}

// vtep is the node's VXLAN device, "" if it can have none: Felix computes what no MAC address says.
func (n nodeText) vtep(name string, six bool) (mac string, own netip.Addr) {
	tunnel, mac, seed := n.vxlan, n.mac, name
	if six {
		tunnel, mac, seed = n.vxlan6, n.mac6, name+"-v6"
	}
	if tunnel == "" {
		return "", own
	}
	own = addr(tunnel)
	if mac == "" {
		sum := sha1.Sum([]byte(seed))
		return net.HardwareAddr(append([]byte("f"), sum[:5]...)).String(), own
	}
	if hw, err := net.ParseMAC(mac); err == nil && len(hw) == 6 && hw[0]&1 == 0 {
		return hw.String(), own
	}
	return "", own
}

// poolOf is the longest pool with p in it; of two with one CIDR the first by name counts.
func (l *literal) poolOf(p netip.Prefix) (found *poolText) {
	for _, name := range slices.Sorted(maps.Keys(l.pools)) {
		pool := l.pools[name]
		c := pfx(pool.cidr)
		if c.Bits() <= p.Bits() && c.Contains(p.Addr()) &&
			(found == nil || c.Bits() > pfx(found.cidr).Bits()) {
			found = &pool
		}
	}
	return found
}

func (p *poolText) isIPv6() bool { return pfx(p.cidr).Addr().Is6() }

// kind: VXLAN goes before IPIP, and IPIP is for IPv4 alone.
func (p *poolText) kind() (kind route.Encap, crossSubnet bool) {
	switch {
	case p == nil:
	case p.vxlan == "Always" || p.vxlan == "CrossSubnet":
		return route.VXLAN, p.vxlan == "CrossSubnet"
	case (p.ipip == "Always" || p.ipip == "CrossSubnet") && !p.isIPv6():
		return route.IPIP, p.ipip == "CrossSubnet"
	}
	return route.Plain, false
}

// canUse reports whether this node has what a kind of tunnel needs.
func (l *literal) canUse(kind route.Encap, six bool) bool {
	me := l.nodes[literalSelf]
	if !me.address(six).IsValid() {
		return false
	}
	if kind == route.IPIP {
		return me.ipip != "" && !l.felix.noIPIP
	}
	mac, _ := me.vtep(literalSelf, six)
	return mac != "" && (six || !l.felix.noVXLAN)
}

// others are the other nodes by their addresses of a family. Of two with one address the first by
// name has it, those with a VTEP before those without; and none has this node's.
func (l *literal) others(six bool) map[netip.Addr]string {
	out := map[netip.Addr]string{}
	for _, withVTEP := range []bool{true, false} {
		for _, name := range slices.Sorted(maps.Keys(l.nodes)) {
			a := l.nodes[name].address(six)
			mac, _ := l.nodes[name].vtep(name, six)
			if _, taken := out[a.Addr()]; name == literalSelf || !a.IsValid() || taken ||
				withVTEP != (mac != "") ||
				a.Addr() == l.nodes[literalSelf].address(six).Addr() {
				continue
			}
			out[a.Addr()] = name
		}
	}
	return out
}

// literalTunnels are those that VPP has.
type literalTunnels struct {
	mtus  map[string]uint32 // of the interfaces, by name
	ipip  []netip.Addr      // that tunl0 leads to
	vxlan []string          // as vpptest prints them
}

func (l *literal) tunnels() literalTunnels {
	out := literalTunnels{mtus: map[string]uint32{}}
	needed := map[string]bool{}
	for _, p := range l.usedPools() {
		kind, _ := p.kind()
		if kind != route.Plain && l.canUse(kind, p.isIPv6()) {
			needed[fmt.Sprint(kind, p.isIPv6())] = true
		}
	}
	mtu := func(set, header int) uint32 {
		if set >= 68 && set < 1<<16 {
			return uint32(set)
		}
		return uint32(literalMTU - header)
	}
	me := l.nodes[literalSelf]
	if needed[fmt.Sprint(route.IPIP, false)] {
		out.ipip = slices.SortedFunc(maps.Keys(l.others(false)), netip.Addr.Compare)
		out.mtus["tunl0"] = mtu(l.felix.ipipMTU, 20)
	}
	port, vni := 4789, 4096
	if l.felix.port > 0 && l.felix.port < 1<<16 {
		port = l.felix.port
	}
	if l.felix.vni > 0 && l.felix.vni < 1<<24 {
		vni = l.felix.vni
	}
	for _, six := range []bool{false, true} {
		if !needed[fmt.Sprint(route.VXLAN, six)] {
			continue
		}
		size, link := mtu(l.felix.vxlanMTU, 50), "vxlan.calico"
		if six {
			size, link = mtu(l.felix.vxlanMTUV6, 70), "vxlan-v6.calico"
		}
		out.mtus[link] = size
		mac, own := me.vtep(literalSelf, six)
		for a, name := range l.others(six) {
			if far, _ := l.nodes[name].vtep(name, six); far != "" {
				out.vxlan = append(out.vxlan, fmt.Sprintf("%s>%s %d:%d %s %d %s [%s]",
					me.address(six).Addr(), a, vni, port, mac, size, far,
					netip.PrefixFrom(own, own.BitLen())))
			}
		}
	}
	slices.Sort(out.vxlan)
	return out
}

func (l *literal) usedPools() (all []*poolText) {
	for _, p := range l.pools {
		if used := l.poolOf(pfx(p.cidr)); !slices.ContainsFunc(all, func(q *poolText) bool {
			return *q == *used
		}) {
			all = append(all, used)
		}
	}
	return all
}

// literalWant is what one source wants for a prefix.
type literalWant struct {
	distance int
	drop     bool
	hops     []netip.Addr
}

const literalBGP, literalIPAM = 20, 250 // administrative distances

// wants are what all sources want, but what is BGP's in pools with VXLAN.
func (l *literal) wants() map[netip.Prefix][]literalWant {
	out := map[netip.Prefix][]literalWant{}
	owner := func(b blockText) string {
		host, _ := strings.CutPrefix(b.affinity, "host:")
		return host
	}
	isVXLAN := func(p netip.Prefix) bool {
		kind, _ := l.poolOf(p).kind()
		return kind == route.VXLAN
	}
	hosts := map[netip.Prefix]string{} // that blocks and borrowed addresses are on
	own := map[netip.Prefix]bool{}
	for p := range l.affinities {
		if b, there := l.blocks[p]; !there || b.affinity == "" || owner(b) == literalSelf {
			own[p] = true
		}
	}
	for p, b := range l.blocks {
		if b.affinity != "" {
			hosts[p] = owner(b)
		}
		own[p] = own[p] || !l.bgp && owner(b) == literalSelf
	}
	for p, b := range l.blocks {
		a := p.Addr()
		for i := range 8 {
			if on := b.allocated[i]; on != "" && on != owner(b) {
				hosts[netip.PrefixFrom(a, a.BitLen())] = on
			}
			a = a.Next()
		}
	}
	for p := range own {
		for _, n := range l.nodes {
			for _, a := range []netip.Prefix{n.address(false), n.address(true)} {
				own[p] = own[p] && !(a.IsValid() && p.Contains(a.Addr()))
			}
		}
		if own[p] {
			out[p] = append(out[p], literalWant{drop: true})
		}
	}
	for p, host := range hosts {
		a := l.nodes[host].address(p.Addr().Is6())
		if host == literalSelf || !a.IsValid() {
			continue
		}
		if w := (literalWant{hops: []netip.Addr{a.Addr()}}); isVXLAN(p) {
			w.distance = 10
			out[p] = append(out[p], w)
		} else if l.ipam {
			w.distance = literalIPAM
			out[p] = append(out[p], w)
		}
	}
	for p, hops := range l.learned {
		if l.bgp && !isVXLAN(p) && len(hops) > 0 {
			out[p] = append(out[p], literalWant{distance: literalBGP, hops: hops})
		}
	}
	return out
}

// routes are ours in VPP, by prefix: "drop", or the paths, sorted.
func (l *literal) routes() map[netip.Prefix]string {
	out, byBGP := map[netip.Prefix]string{}, map[netip.Prefix]bool{}
	all := l.wants()
	for p, wants := range all {
		slices.SortFunc(wants, func(a, b literalWant) int {
			return cmp.Compare(a.distance, b.distance)
		})
		for _, w := range wants {
			if text := l.leaves(p, w, all); text != "" && w.distance != literalIPAM {
				out[p], byBGP[p] = text, w.distance == literalBGP
				break
			}
		}
	}
	others := maps.Clone(out)
	for p, wants := range all {
		w := wants[len(wants)-1]
		if _, there := out[p]; there || w.distance != literalIPAM {
			continue
		}
		var cover netip.Prefix // IPAM gives way to a shorter one of BGP
		for q := range others {
			if q.Bits() < p.Bits() && q.Contains(p.Addr()) && q.Bits() >= cover.Bits() {
				cover = q
			}
		}
		if text := l.leaves(p, w, all); text != "" && !byBGP[cover] {
			out[p] = text
		}
	}
	return out
}

// leaves says how packets to p leave by what a source wants; "": not at all.
func (l *literal) leaves(p netip.Prefix, w literalWant,
	all map[netip.Prefix][]literalWant) string {
	if w.drop {
		return "drop"
	}
	var near, far []string
	for _, hop := range w.hops {
		text := l.path(p, hop, all)
		switch isNear := l.isNear(hop); {
		case text == "":
		case isNear && w.distance == literalBGP:
			near = append(near, text)
		default:
			far = append(far, text)
		}
	}
	if near != nil { // as BIRD, which compares IGP metrics before it merges paths
		far = near
	}
	slices.Sort(far)
	return strings.Join(slices.Compact(far), ", ")
}

func (l *literal) isNear(hop netip.Addr) bool {
	return slices.ContainsFunc(literalSubnets, func(s netip.Prefix) bool { return s.Contains(hop) })
}

// path is how packets to p leave towards a next hop.
func (l *literal) path(p netip.Prefix, hop netip.Addr, all map[netip.Prefix][]literalWant) string {
	isOwn := slices.ContainsFunc(literalOwn, func(o netip.Prefix) bool { return o.Addr() == hop })
	if isOwn || p.Contains(hop) && (!l.isNear(hop) || p.Bits() >= hop.BitLen()/2) {
		return "" // it is ours, or would be reached by p itself
	}
	text := fmt.Sprintf("via %s %s", hop, literalUplink)
	if !l.isNear(hop) {
		for q, wants := range all { // no next hop is reached through what the agent programs
			if q.Contains(hop) && slices.ContainsFunc(wants, func(w literalWant) bool {
				return w.drop || slices.ContainsFunc(w.hops, func(h netip.Addr) bool {
					return !q.Contains(h)
				})
			}) {
				return ""
			}
		}
		text = fmt.Sprintf("via %s", hop)
	}
	pool := l.poolOf(p)
	kind, crossSubnet := pool.kind()
	mine := l.nodes[literalSelf].address(hop.Is6())
	if kind == route.Plain ||
		crossSubnet && mine.IsValid() && mine.Masked().Contains(hop) {
		return text
	}
	name, isNode := l.others(hop.Is6())[hop]
	far, _ := l.nodes[name].vtep(name, hop.Is6())
	if !l.canUse(kind, pool.isIPv6()) || !isNode || kind == route.VXLAN && far == "" {
		return ""
	}
	return fmt.Sprintf("%s %s", kind, hop)
}
