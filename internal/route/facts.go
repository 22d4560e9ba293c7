package route

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Facts is what a data plane knows about itself. Values are immutable once published.
type Facts struct {
	// Identity names one generation of the data plane and our mark on its routes (VPP: boot time,
	// pid and FIB source id). While it is unchanged, what we programmed is still there. A new one
	// means that the data plane has none of it. Empty while the data plane is absent.
	Identity string
	// Version is shown to people: "VPP 25.10-release", "Linux 6.1.0".
	Version string
	// Problem is one sentence: why the data plane is absent or partly usable. Empty without a
	// problem.
	Problem string
	// Preflight is zero until the data plane has answered, or where there is no API to compare.
	Preflight Preflight
	// AttachedOnly says that routes must name neighbours and interfaces: the data plane resolves no
	// next hops itself.
	AttachedOnly bool
	// RouteChanges counts, where there are events for that, changes of routes that are not ours.
	RouteChanges uint32
	// Interfaces are sorted by name.
	Interfaces []Interface
	// Elsewhere are those in other network namespaces of Linux, by name, see InNamespace. Objects
	// can be on them, but no route of the FIB leads there.
	Elsewhere []Interface
}

// AllInterfaces returns all that objects can be on, by name.
func (f Facts) AllInterfaces() []Interface {
	if len(f.Elsewhere) == 0 {
		return f.Interfaces
	}
	all := slices.Concat(f.Interfaces, f.Elsewhere)
	slices.SortFunc(all, func(a, b Interface) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Preflight is the outcome of comparing what a data plane's API offers with what we need.
type Preflight struct {
	Outcome Outcome
	// Lacks lists the messages that are missing or differ, sorted, as name and checksum
	// ("ip_route_add_del_v2_521ef330").
	Lacks []string
}

// Outcome is the result of a preflight, as shown to people and in metrics.
type Outcome string

const (
	FullAPI    Outcome = "full"
	RefusedAPI Outcome = "refused" // not used at all
)

// Interface is an interface of the data plane.
type Interface struct {
	Name string
	// Generation changes whenever the interface has lost the routes over it: its index was reused;
	// Linux set it down or removed its last address of a family.
	Generation uint32
	// VPP's sw_if_index, Linux' ifindex: reused for other interfaces later
	Index     uint32
	Up        bool           // administratively up and carrier present
	Table     uint32         // the VRF it belongs to, 0 the default
	MTU       uint16         // of IP packets, in bytes; 0: not known
	Addresses []netip.Prefix // host address with the length of its subnet, sorted
}

// Connected returns the interface of a table whose subnet contains addr, and that subnet. The
// longest match wins, then the first name. Interfaces that are down are ignored.
func (f Facts) Connected(table uint32,
	addr netip.Addr) (name string, subnet netip.Prefix, ok bool) {
	for _, i := range f.Interfaces {
		if !i.Up || i.Table != table {
			continue
		}
		for _, a := range i.Addresses {
			if a.Masked().Contains(addr) && (!ok || a.Bits() > subnet.Bits()) {
				name, subnet, ok = i.Name, a.Masked(), true
			}
		}
	}
	return name, subnet, ok
}

// Interface returns the interface of that name.
func (f Facts) Interface(name string) (Interface, bool) {
	i, ok := slices.BinarySearchFunc(f.Interfaces, name, func(i Interface, n string) int {
		switch {
		case i.Name < n:
			return -1
		case i.Name > n:
			return 1
		}
		return 0
	})
	if !ok {
		return Interface{}, false
	}
	return f.Interfaces[i], true
}

// Resolution is the longest match by which the data plane forwards to an address.
type Resolution struct {
	Prefix netip.Prefix // the matching prefix; invalid when nothing matches
	Owner  string       // whose route it is, for people; Equal leaves it out
	// the match is one of our routes, which BIRD does not accept for a next hop
	Ours   bool
	Usable bool // the match forwards packets somewhere (no drop, not ours, interface up)
	// Interface is the outgoing interface of a usable match. It is empty if there are several or
	// the data plane does not report it.
	Interface string
	// Paths are the neighbours by which a usable match forwards, with AttachedOnly. One without a
	// next hop stands for the address itself.
	Paths []Path
}

// Equal reports whether both say the same.
func (r Resolution) Equal(o Resolution) bool {
	return r.Prefix == o.Prefix && r.Ours == o.Ours && r.Usable == o.Usable &&
		r.Interface == o.Interface && slices.Equal(r.Paths, o.Paths)
}

// Forwards adds a path of the match that forwards over interface by, or "" if it is unknown.
func (r *Resolution) Forwards(by string) {
	if r.Usable && r.Interface != by {
		by = ""
	}
	r.Usable, r.Interface = true, by
}

// Outgoing is the interface over which packets to a prefix leave. The longest prefix wins.
type Outgoing struct {
	Prefix    netip.Prefix
	Interface string
}

// HiddenError reports that another owner's route for the same prefix takes precedence over ours.
type HiddenError struct {
	// the other route's owner: VPP's name of the FIB source, or Linux' protocol and metric
	By string
}

func (e HiddenError) Error() string { return "hidden by a route of " + e.By }

// DeadPathError reports that a path of a route of ours, which is there, leads nowhere: its
// interface was deleted and made again under the same index.
type DeadPathError struct{ Interface string }

func (e DeadPathError) Error() string {
	return "nothing leaves by " + e.Interface +
		", which was deleted and made again since the route was put"
}

// Op is one change to a data plane. It deletes a route, or puts (adds or replaces) it as a whole.
type Op struct {
	Delete bool
	Route  Route // for a delete only the Key matters
}

// ErrNoLink means that the interface does not exist.
var ErrNoLink = errors.New("there is no interface")

// FindLink returns the position of the interface with this name, else with this index, or -1.
func FindLink(text string, list []Interface) int {
	byIndex := -1
	for i, l := range list {
		if l.Name == text {
			return i
		}
		if strconv.FormatUint(uint64(l.Index), 10) == text {
			byIndex = i
		}
	}
	return byIndex
}
