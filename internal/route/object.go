package route

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"strconv"
	"strings"
)

// Object is something besides routes that a data plane is to have: the value type of one kind. The
// FIB engine knows keys, digests and dependencies; what a kind means is known to its value type,
// to the data planes and to the source that wants it.
type Object interface {
	Key() ObjectKey
	// Digest is a hash of everything that may change under the key, never 0. The journal stores it.
	Digest() uint64
	// Needs are objects that must be there first, if we want them, and that go after this one.
	Needs() []ObjectKey
	// Marked: what is found like this carries our mark, and is ours whoever put it.
	Marked() bool
}

// Excluder is an Object that may have to wait for others.
type Excluder interface {
	// Excludes reports whether an object that is about to go must be gone first.
	Excludes(ObjectKey) bool
}

// ObjectKey identifies an object. It says all that is needed to delete one.
type ObjectKey struct {
	Kind ObjectKind
	// Interface is the one that the object is, or that it is on and goes with; "": none.
	Interface string
	Name      string // among objects of one kind on one interface
}

// TakesAlong reports whether what k identifies is an interface, with which another object goes.
func (k ObjectKey) TakesAlong(other ObjectKey) bool {
	return k.Kind == MadeLink && k.Interface == other.Interface && k != other
}

// ObjectKind is a kind of object. The journal stores these numbers.
type ObjectKind uint8

const (
	AdminUp           ObjectKind = iota + 1 // that an interface is up
	InterfaceAddress                        // an address of an interface
	VRFTable                                // a table but 0
	StaticNeighbour                         // an entry for ARP or Neighbor Discovery
	L2Connected                             // that an interface's frames go out by another
	L3Connected                             // that an interface's packets go out by others
	MadeLink                                // an interface that we make
	InterfaceTable                          // that an interface is in a table but 0
	ProxyARPInterface                       // that an interface answers ARP for others
	ProxyARPAddresses                       // and for which addresses
	KernelRoute                             // a route of Linux that is not one of the FIB's
	TunnelEndpoint                          // that a tunnel interface leads to a node
)

// IsMany reports whether there may be thousands of a kind. All of them on an interface of ours are
// ours, so that none is looked up before it is put (fib.Bulk).
func (k ObjectKind) IsMany() bool { return k == TunnelEndpoint }

// ObjectOp puts an object, or deletes that of a key.
type ObjectOp struct {
	Key ObjectKey
	Put Object // nil: it is deleted
}

func (k ObjectKey) String() string {
	switch k.Kind {
	case AdminUp:
		return "interface " + k.Interface
	case MadeLink:
		return "new interface " + k.Interface
	case InterfaceTable:
		return fmt.Sprintf("%s table of %s", k.Name, k.Interface)
	case InterfaceAddress:
		return fmt.Sprintf("address %s of %s", k.Name, k.Interface)
	case StaticNeighbour:
		return fmt.Sprintf("neighbour %s on %s", k.Name, k.Interface)
	case ProxyARPInterface:
		return "proxy ARP on " + k.Interface
	case ProxyARPAddresses:
		return "proxy ARP for " + k.Name
	case TunnelEndpoint:
		return fmt.Sprintf("tunnel to %s by %s", k.Name, k.Interface)
	case KernelRoute:
		return fmt.Sprintf("route %s over %s", k.Name, k.Interface)
	case L2Connected:
		return "cross-connect of " + k.Interface
	case L3Connected:
		return fmt.Sprintf("%s cross-connect of %s", k.Name, k.Interface)
	case VRFTable:
		if t, err := TableOf(k); err == nil {
			return fmt.Sprintf("%s %q", t.TableID, t.Name)
		}
	}
	return fmt.Sprintf("object %d %s %s", k.Kind, k.Interface, k.Name)
}

// CompareObjectKeys is the order of printed lists.
func CompareObjectKeys(a, b ObjectKey) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Interface, b.Interface),
		strings.Compare(a.Name, b.Name))
}

// ErrUnanswered says that an operation on an object may have happened or not.
var ErrUnanswered = errors.New("no answer")

// digestOf hashes the settings of an object.
func digestOf(settings string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(settings))
	return max(h.Sum64(), 1)
}

// Up wants an interface to be administratively up. Whoever does not want it any more leaves it up,
// unless we have made it.
type Up struct{ Interface string }

func (u Up) Key() ObjectKey     { return ObjectKey{Kind: AdminUp, Interface: u.Interface} }
func (u Up) Digest() uint64     { return digestOf("up") }
func (u Up) Needs() []ObjectKey { return []ObjectKey{LinkKey(u.Interface)} }
func (u Up) Marked() bool       { return false }

// linkUp is what objects on an interface need.
func linkUp(name string) []ObjectKey { return []ObjectKey{LinkKey(name), Up{name}.Key()} }

// Address wants an interface to have an address, with the length of its subnet. In a table but 0 it
// is another object: an interface with addresses cannot be moved.
type Address struct {
	Interface string
	Address   netip.Prefix
	Table     uint32 // that the interface is in
}

const inTable = " table "

// AddressOf returns the address that k identifies.
func AddressOf(k ObjectKey) (Address, error) {
	text, number, isIn := strings.Cut(k.Name, inTable)
	p, err := netip.ParsePrefix(text)
	a := Address{Interface: k.Interface, Address: p}
	if isIn && err == nil {
		var table uint64
		table, err = strconv.ParseUint(number, 10, 32)
		a.Table = uint32(table)
	}
	if err == nil && k.Kind != InterfaceAddress {
		err = fmt.Errorf("%s is not an address", k)
	}
	return a, err
}

func (a Address) Key() ObjectKey {
	k := ObjectKey{InterfaceAddress, a.Interface, a.Address.String()}
	if a.Table != 0 {
		k.Name += inTable + fmt.Sprint(a.Table)
	}
	return k
}

func (a Address) Digest() uint64 { return digestOf("address") }

func (a Address) Needs() []ObjectKey {
	if a.Table == 0 {
		return linkUp(a.Interface)
	}
	return append(linkUp(a.Interface), a.inTable())
}

func (a Address) Marked() bool { return false }

func (a Address) inTable() ObjectKey {
	of := TableID{IPv6: a.Address.Addr().Is6()}
	return InTable{a.Interface, Table{TableID: of}}.Key()
}

// Excludes is VPP's rule (src/vnet/ip/ip4_forward.c): subnets of one table must not overlap, but on
// one interface they may be equal. Before an address in table 0 comes, the interface comes back.
func (a Address) Excludes(k ObjectKey) bool {
	if k.Kind == InterfaceTable {
		return a.Table == 0 && k == a.inTable()
	}
	old, err := AddressOf(k)
	switch {
	case err != nil, !old.Address.Overlaps(a.Address), !sameNamespace(old.Interface, a.Interface):
		return false
	case old.Interface != a.Interface:
		return old.Table == a.Table
	}
	return old.Table != a.Table || old.Address.Bits() != a.Address.Bits() ||
		old.Address.Addr() == a.Address.Addr()
}

// Neighbour wants an interface to reach an address by a MAC address, without asking for it.
type Neighbour struct {
	Interface string
	Address   netip.Addr
	MAC       string // as net.HardwareAddr prints it
}

// NeighbourOf returns the neighbour that k identifies, without its MAC address.
func NeighbourOf(k ObjectKey) (Neighbour, error) {
	a, err := netip.ParseAddr(k.Name)
	if err == nil && k.Kind != StaticNeighbour {
		err = fmt.Errorf("%s is not a neighbour", k)
	}
	return Neighbour{Interface: k.Interface, Address: a}, err
}

func (n Neighbour) Key() ObjectKey {
	return ObjectKey{StaticNeighbour, n.Interface, n.Address.String()}
}

func (n Neighbour) Digest() uint64 { return digestOf(n.MAC) }

// Needs: Linux forgets the neighbours of an interface that goes down (neigh_ifdown).
func (n Neighbour) Needs() []ObjectKey { return linkUp(n.Interface) }
func (n Neighbour) Marked() bool       { return false }

// L2CrossConnect wants all frames that come in by one interface to go out by another.
type L2CrossConnect struct{ Interface, To string }

func (x L2CrossConnect) Key() ObjectKey {
	return ObjectKey{Kind: L2Connected, Interface: x.Interface}
}
func (x L2CrossConnect) Digest() uint64 { return digestOf(x.To) }
func (x L2CrossConnect) Needs() []ObjectKey {
	return []ObjectKey{LinkKey(x.Interface), LinkKey(x.To)}
}
func (x L2CrossConnect) Marked() bool { return false }

// L3CrossConnect wants all packets of a family that come in by one interface to go out by these
// paths, which are canonical and have interfaces. They are not looked up in a table.
type L3CrossConnect struct {
	Interface string
	IPv6      bool
	Paths     []Path
}

// L3CrossConnectOf returns the cross-connect that k identifies, without its paths.
func L3CrossConnectOf(k ObjectKey) (L3CrossConnect, error) {
	x := L3CrossConnect{Interface: k.Interface}
	if x.IPv6 = k != x.Key(); k != x.Key() {
		return x, fmt.Errorf("%s is not a cross-connect of packets", k)
	}
	return x, nil
}

func (x L3CrossConnect) Key() ObjectKey {
	return ObjectKey{L3Connected, x.Interface, TableID{IPv6: x.IPv6}.family()}
}
func (x L3CrossConnect) Digest() uint64     { return digestOf(fmt.Sprint(x.Paths)) }
func (x L3CrossConnect) Needs() []ObjectKey { return []ObjectKey{LinkKey(x.Interface)} }
func (x L3CrossConnect) Marked() bool       { return false }

// Table wants a table (VRF) to exist under a name, by which it is known to be ours. Routes in it,
// and next hops that are looked up in it, wait for it; it goes when it is empty.
type Table struct {
	TableID
	Name string
}

// TableOf returns the table that k identifies.
func TableOf(k ObjectKey) (Table, error) {
	if k.Kind != VRFTable {
		return Table{}, fmt.Errorf("%s is not a table", k)
	}
	number, rest, _ := strings.Cut(k.Name, " ")
	family, name, ok := strings.Cut(rest, " ")
	id, err := strconv.ParseUint(number, 10, 32)
	if err != nil || !ok {
		return Table{}, fmt.Errorf("%q is not the name of a table", k.Name)
	}
	t := Table{TableID{ID: uint32(id)}, name}
	t.IPv6 = family != t.family()
	return t, nil
}

func (t Table) Key() ObjectKey {
	return ObjectKey{Kind: VRFTable, Name: fmt.Sprintf("%d %s %s", t.ID, t.family(), t.Name)}
}

func (t Table) Digest() uint64     { return digestOf(t.Name) }
func (t Table) Needs() []ObjectKey { return nil }
func (t Table) Marked() bool       { return true }

// Excludes: a table that gets another name is made anew.
func (t Table) Excludes(k ObjectKey) bool {
	old, err := TableOf(k)
	return err == nil && old.TableID == t.TableID
}
