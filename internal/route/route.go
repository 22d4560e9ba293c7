// Package route defines the forwarding types that the other packages share: routes, when two routes
// are the same, and what a data plane reports about itself. It has values only: no I/O, no
// goroutines, and no knowledge of BGP, Calico, VPP or Linux. Every package may import it.
package route

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
)

// Key identifies an entry of a FIB. Its prefix is normalized (Normalize), so keys are comparable.
type Key struct {
	// VRF: VPP's table id or Linux' routing table; 0 is the default table
	Table uint32
	// Elevated entries take precedence over other owners' entries for the prefix, such as those of
	// local workloads. They are host prefixes: a workload that migrates is on two nodes at once,
	// and traffic must follow it from the old node too.
	Elevated bool
	Prefix   netip.Prefix
}

// String returns the prefix, the table unless it is the default one, and "elevated" where it is.
func (k Key) String() string {
	s := k.Prefix.String()
	if k.Table != 0 {
		s += fmt.Sprintf(" table %d", k.Table)
	}
	if k.Elevated {
		s += " elevated"
	}
	return s
}

// TableID returns the table that k is in.
func (k Key) TableID() TableID { return TableID{k.Table, k.Prefix.Addr().Unmap().Is6()} }

// TableID identifies a table (VRF), which is of one family.
type TableID struct {
	ID   uint32
	IPv6 bool
}

func (t TableID) String() string { return fmt.Sprintf("VRF table %d (%s)", t.ID, t.family()) }

func (t TableID) family() string {
	if t.IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

// Counterpart returns the elevated key of the prefix, or the normal one if k is elevated.
func (k Key) Counterpart() Key {
	k.Elevated = !k.Elevated
	return k
}

// CompareKeys is the order of printed tables: table, prefix, then elevated entries first.
func CompareKeys(a, b Key) int {
	if a.Table != b.Table {
		return cmp.Compare(a.Table, b.Table)
	}
	if c := ComparePrefixes(a.Prefix, b.Prefix); c != 0 || a.Elevated == b.Elevated {
		return c
	}
	if a.Elevated {
		return -1
	}
	return 1
}

// ComparePrefixes orders by address family and address, then shorter prefixes first.
func ComparePrefixes(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return cmp.Compare(a.Bits(), b.Bits())
}

// Normalize masks a prefix and unmaps an IPv4-mapped one (::ffff:a.b.c.d/96+n). Every prefix that
// enters the program passes here. It reports false if p is invalid, or mapped and shorter than /96.
func Normalize(p netip.Prefix) (netip.Prefix, bool) {
	if !p.IsValid() {
		return netip.Prefix{}, false
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, false
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), true
}

// HostPrefix returns the /32 or /128 of a.
func HostPrefix(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	return netip.PrefixFrom(a, a.BitLen())
}

// Kind is what happens to a packet that matches.
type Kind uint8

const (
	Via         Kind = iota // forwarded along Paths
	Drop                    // discarded silently (Linux: blackhole)
	Unreachable             // discarded, the sender gets ICMP unreachable
	Prohibit                // discarded, the sender gets ICMP administratively prohibited
)

func (k Kind) String() string {
	switch k {
	case Via:
		return "via"
	case Drop:
		return "drop"
	case Unreachable:
		return "unreachable"
	case Prohibit:
		return "prohibit"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Path is one way to forward. With Interface and NextHop it is attached: the next hop is a
// neighbour on that interface. Without Interface it is recursive: NextHop is looked up in Table; if
// it is unspecified, the packet's destination is. With Interface alone the destination is the
// neighbour.
type Path struct {
	// unmapped and without zone; zero if the destination itself is on Interface
	NextHop   netip.Addr
	Interface string // by name: an index changes its meaning when an interface is made anew
	// where a recursive NextHop is resolved; 0 and unused when Interface is set
	Table      uint32
	Preference uint8 // lower forwards, higher stands by (VPP); 0 is best
	Weight     uint8 // share of the traffic among paths of one preference, 1…255
}

func (p Path) String() string {
	var b strings.Builder
	switch {
	case p.IsLookup():
		fmt.Fprintf(&b, "lookup in table %d", p.Table)
		p.Table = 0
	case p.NextHop.IsValid():
		fmt.Fprintf(&b, "%s", p.NextHop)
	}
	if p.Interface != "" {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(p.Interface)
	}
	if p.Table != 0 {
		fmt.Fprintf(&b, " table %d", p.Table)
	}
	if p.Preference != 0 {
		fmt.Fprintf(&b, " preference %d", p.Preference)
	}
	if p.Weight > 1 {
		fmt.Fprintf(&b, " weight %d", p.Weight)
	}
	return b.String()
}

// IsLookup reports whether the packet is looked up again, in Table.
func (p Path) IsLookup() bool {
	return p.Interface == "" && p.NextHop.IsValid() && p.NextHop.IsUnspecified()
}

// PathTo returns the path to a next hop, as CanonicalPaths has it.
func PathTo(nextHop netip.Addr) Path {
	return Path{NextHop: nextHop.Unmap().WithZone(""), Weight: 1}
}

func comparePaths(a, b Path) int {
	return cmp.Or(
		cmp.Compare(a.Preference, b.Preference),
		a.NextHop.Compare(b.NextHop),
		cmp.Compare(a.Interface, b.Interface),
		cmp.Compare(a.Table, b.Table),
		cmp.Compare(a.Weight, b.Weight),
	)
}

// CanonicalPaths returns the canonical form of a set of paths: sorted, with weight 0 as 1, with
// next hops unmapped and without zone. Of paths that differ only in weight the heaviest remains.
// Equal sets give equal slices. The input is not changed.
func CanonicalPaths(paths []Path) []Path {
	if len(paths) == 0 {
		return nil
	}
	out := slices.Clone(paths)
	for i := range out {
		out[i].Weight = max(out[i].Weight, 1)
		if out[i].NextHop.IsValid() {
			out[i].NextHop = out[i].NextHop.Unmap().WithZone("")
		}
	}
	slices.SortFunc(out, comparePaths)
	w := 0
	for _, p := range out {
		if w > 0 {
			last := out[w-1]
			last.Weight = p.Weight
			if last == p {
				out[w-1] = p // sorted by weight: the later one is the heavier
				continue
			}
		}
		out[w] = p
		w++
	}
	return out[:w]
}

// Route is an entry of a FIB, desired or actual. Its Paths are canonical and shared: never edit
// them.
type Route struct {
	Key
	Kind   Kind
	Paths  []Path // of Kind Via only, at least one
	Origin Origin // who wants it; not known, and zero, when read back from a data plane
}

// SameForwarding reports whether both routes do the same to packets. Their origins may differ.
func (r Route) SameForwarding(o Route) bool {
	return r.Key == o.Key && r.Kind == o.Kind && slices.Equal(r.Paths, o.Paths)
}

// String returns for instance "10.1.0.64/26 via 192.168.4.3 eth0, 192.168.4.4 eth0".
func (r Route) String() string {
	if r.Kind != Via {
		return r.Key.String() + " " + r.Kind.String()
	}
	paths := make([]string, len(r.Paths))
	for i, p := range r.Paths {
		paths[i] = p.String()
	}
	return r.Key.String() + " via " + strings.Join(paths, ", ")
}

// Digest is a 64-bit FNV-1a hash of what SameForwarding compares, without the key. It is never 0,
// which stands for "no route". The journal stores it: changing it means a new journal version.
func (r Route) Digest() uint64 {
	h := fnv.New64a()
	h.Write([]byte{byte(r.Kind)})
	var fixed [8]byte
	for _, p := range r.Paths {
		next := p.NextHop.AsSlice()
		binary.BigEndian.PutUint32(fixed[0:], p.Table)
		fixed[4], fixed[5] = p.Preference, p.Weight
		fixed[6], fixed[7] = byte(len(next)), byte(len(p.Interface))
		h.Write(fixed[:])
		h.Write(next)
		h.Write([]byte(p.Interface))
	}
	return max(h.Sum64(), 1)
}
