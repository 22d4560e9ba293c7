package route

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
)

// Facts is what a data plane knows about itself. Values are immutable once published.
type Facts struct {
	// Identity names one life of the data plane together with our mark on its routes (for VPP: boot time, pid and FIB source
	// id). While it stays the same, what we programmed is still there; when it changes, nothing of it is. Empty while the data
	// plane is absent.
	Identity string
	// Version is for people: "VPP 25.10-release", "Linux 6.1.0".
	Version string
	// Problem says in one sentence why the data plane is absent or only partly usable; empty when all is well.
	Problem string
	// Preflight is how the data plane's API compared with ours; zero where there is nothing to compare or nobody answered.
	Preflight Preflight
	// Interfaces, sorted by name.
	Interfaces []Interface
}

// Preflight is the outcome of comparing what a data plane's API offers with what we need.
type Preflight struct {
	Outcome Outcome
	// Lacks are the messages that are missing or have another form, as name and checksum ("ip_route_add_del_v2_521ef330"), sorted.
	Lacks []string
}

// Outcome of a preflight, in words for people and metrics.
type Outcome string

const (
	FullAPI    Outcome = "full"
	RefusedAPI Outcome = "refused" // not used at all
)

// Interface is a link of the data plane.
type Interface struct {
	Name string
	// Life is another one when the interface has lost the routes over it since, however short that was and however it looks now: Index was given up
	// and handed out again; Linux set it down, or took its last address of a family.
	Life      uint32
	Index     uint32         // VPP's sw_if_index, Linux' ifindex: reused for other interfaces later
	Up        bool           // administratively up and carrier present
	Table     uint32         // the VRF it belongs to, 0 the default
	Addresses []netip.Prefix // host address with the length of its subnet, sorted
}

// Connected returns the interface in table to whose subnets addr belongs, by longest match; an interface that is down does not
// count. With equal subnets the first by name wins.
func (f Facts) Connected(table uint32, addr netip.Addr) (name string, subnet netip.Prefix, ok bool) {
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

// Resolution answers how the data plane would forward to an address: the longest match.
type Resolution struct {
	Prefix netip.Prefix // the matching prefix; invalid when nothing matches
	Ours   bool         // the match is a route of ours: BIRD's rule says a next hop must not resolve through one
	Usable bool         // the match forwards packets somewhere (no drop, not ours, interface up)
	// Interface is the one by which a usable match forwards; "" where it forwards by several, or
	// where the data plane does not tell.
	Interface string
}

// Forwards notes that a path of the match forwards by an interface; "": by which is not known.
func (r *Resolution) Forwards(by string) {
	if r.Usable && r.Interface != by {
		by = ""
	}
	r.Usable, r.Interface = true, by
}

// Outgoing says by which interface packets to the addresses in a prefix leave; the longest counts.
type Outgoing struct {
	Prefix    netip.Prefix
	Interface string
}

// HiddenError is a data plane's answer about a route of ours when another's for the same prefix goes before it.
type HiddenError struct {
	By string // who owns the other route, in the data plane's words: VPP's name of the FIB source, Linux' protocol and metric
}

func (e HiddenError) Error() string { return "hidden by a route of " + e.By }

// Op is one change to a data plane: the whole route of its key is put (added or replaced), or deleted.
type Op struct {
	Delete bool
	Route  Route // for a delete only the Key matters
}

// Link is one interface as it was when somebody asked for it: newer than Facts, and with what only who sets it up wants to know.
type Link struct {
	Interface
	// Identity is Facts.Identity of the data plane that answered.
	Identity string
	// AdminUp: somebody has brought it up; whether there is a carrier is another matter.
	AdminUp bool
}

// ErrNoLink is for a question about an interface that does not exist.
var ErrNoLink = errors.New("there is no interface")

// FindLink returns the index in names of the interface that text names, or numbers where no name is the same; -1: there is none.
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
