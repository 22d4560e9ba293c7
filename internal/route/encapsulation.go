package route

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Encap is what packets to another node travel in.
type Encap uint8

const (
	Plain Encap = iota // as they are
	IPIP               // in IPv4 (RFC 2003)
	VXLAN              // in Ethernet in UDP (RFC 7348)
)

func (e Encap) String() string {
	switch e {
	case Plain:
		return "none"
	case IPIP:
		return "IPIP"
	case VXLAN:
		return "VXLAN"
	}
	return fmt.Sprintf("encapsulation(%d)", uint8(e))
}

// Interface is the name of the interface that packets to a node leave by, "" for those that leave
// plain. It is what Felix calls its own.
func (e Encap) Interface(node netip.Addr) string {
	switch {
	case e == IPIP:
		return ipipInterface
	case e == VXLAN && node.Is6():
		return vxlan6Interface
	case e == VXLAN:
		return vxlanInterface
	}
	return ""
}

const (
	ipipInterface   = "tunl0"
	vxlanInterface  = "vxlan.calico"
	vxlan6Interface = "vxlan-v6.calico"
)

// EncapBy returns what packets travel in that leave by the interface of that name.
func EncapBy(name string) Encap {
	switch name {
	case ipipInterface:
		return IPIP
	case vxlanInterface, vxlan6Interface:
		return VXLAN
	}
	return Plain
}

// MarshalText is for JSON.
func (e Encap) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText is for JSON.
func (e *Encap) UnmarshalText(text []byte) error {
	for _, known := range []Encap{Plain, IPIP, VXLAN} {
		if known.String() == string(text) {
			*e = known
			return nil
		}
	}
	return fmt.Errorf("%q is no encapsulation", text)
}

// Pool is an IP pool as far as it says how packets to its addresses leave.
type Pool struct {
	Name   string
	Prefix netip.Prefix
	Encap  Encap
	// CrossSubnet: packets to nodes in this node's network leave as they are.
	CrossSubnet bool
	// Waits says why this node cannot encapsulate, "" if it can; Note why a pool with a mode is
	// Plain all the same.
	Waits, Note string
	// Felix has its routes, as on Linux those of VXLAN pools: no other is programmed.
	Felix bool
}

func (p Pool) mode() string {
	if p.CrossSubnet {
		return p.Encap.String() + " CrossSubnet"
	}
	return p.Encap.String()
}

// LeftToFelix says for people that Felix has the pool's routes.
func (p Pool) LeftToFelix() string {
	return fmt.Sprintf("IPPool(%s) has %s: on Linux Felix programs its routes", p.Name, p.mode())
}

// Node is another node, as one of its addresses has it.
type Node struct {
	Address netip.Addr
	Name    string
	VXLAN   *VTEP // nil: no pool of the address's family needs it
}

// VTEP is the VXLAN device of a node.
type VTEP struct {
	MAC     string // as net.HardwareAddr prints it
	Address netip.Addr
	Problem string // why packets cannot be sent to it; "": they can
}

// Equal reports whether both are the same.
func (n Node) Equal(m Node) bool {
	if n.VXLAN == nil || m.VXLAN == nil {
		return n == m
	}
	return n.Address == m.Address && n.Name == m.Name && *n.VXLAN == *m.VXLAN
}

// NoVTEP says why VXLAN packets cannot be sent to it; "": they can, or no pool has VXLAN.
func (n Node) NoVTEP() string {
	if n.VXLAN == nil {
		return ""
	}
	return n.VXLAN.Problem
}

// Encapsulation says how packets of this node leave. It is not changed once it is made.
type Encapsulation struct {
	Pools []Pool
	// Own4 and Own6 are this node's addresses with the lengths of its networks; invalid: none.
	Own4, Own6 netip.Prefix
	// Nodes are the other nodes.
	Nodes Nodes
	// Published are the names of hosts by addresses that they publish for plain packets, and that
	// are not those of Nodes.
	Published map[netip.Addr]string
}

// Equal reports whether packets leave alike by both.
func (e *Encapsulation) Equal(f *Encapsulation) bool {
	if e == nil || f == nil {
		return e == f
	}
	return e.Own4 == f.Own4 && e.Own6 == f.Own6 && slices.Equal(e.Pools, f.Pools) &&
		slices.EqualFunc(e.Nodes, f.Nodes, Node.Equal) && maps.Equal(e.Published, f.Published)
}

// Leaving is how packets to a prefix leave towards a next hop.
type Leaving struct {
	Encap Encap
	// From and To are the addresses of the outer header, of Encap but Plain alone.
	From, To netip.Addr
	// Refused: packets can leave neither plain nor encapsulated.
	Refused bool

	pool    *Pool // nil: none
	nextHop netip.Addr
	why     why
	name    string // of the node or host, or what is wrong
	network netip.Prefix
}

// why is what decided how packets leave.
type why uint8

const (
	poolIsPlain why = iota
	poolIsFelix
	addressIsPublished
	nextHopIsNear
	poolWaits
	isNoNode
	nodeHasNoVTEP
	nodeIsFar
)

// Reason says for people what decided.
func (l Leaving) Reason() string {
	if l.pool == nil {
		return "it lies in no pool"
	}
	has := fmt.Sprintf("IPPool(%s) has %s", l.pool.Name, l.pool.mode())
	switch l.why {
	case poolIsPlain:
		return fmt.Sprintf("IPPool(%s): %s", l.pool.Name,
			cmp.Or(l.pool.Note, "it does not encapsulate"))
	case poolIsFelix:
		return l.pool.LeftToFelix()
	case addressIsPublished:
		return fmt.Sprintf("%s, but %s publishes %s as its address, which is not that of its Node",
			has, l.name, l.nextHop)
	case nextHopIsNear:
		return fmt.Sprintf("%s: %s is in this node's network %s", has, l.nextHop, l.network)
	case isNoNode:
		return fmt.Sprintf("%s: next hop %s is not the address of a Node", has, l.nextHop)
	case nodeIsFar:
		return fmt.Sprintf("%s: %s is Node(%s)", has, l.nextHop, l.name)
	default: // the pool or the node says it in its own words
		return has + ": " + l.name
	}
}

// Encapsulates reports whether any pool does.
func (e *Encapsulation) Encapsulates() bool {
	if e == nil {
		return false
	}
	for _, p := range e.Pools {
		if p.Encap != Plain {
			return true
		}
	}
	return false
}

// PoolOf returns the longest pool that p lies in, as Felix does
// (felix/calc/l3_route_resolver.go); nil: it lies in none.
func (e *Encapsulation) PoolOf(p netip.Prefix) (found *Pool) {
	if e == nil {
		return nil
	}
	for i := range e.Pools {
		pool := &e.Pools[i]
		if pool.Prefix.Bits() <= p.Bits() && pool.Prefix.Contains(p.Addr()) &&
			(found == nil || pool.Prefix.Bits() > found.Prefix.Bits()) {
			found = pool
		}
	}
	return found
}

// Leaves says how packets to an address of pool, nil for an address of none, leave towards a next
// hop. With CrossSubnet the length of this node's own network decides, so that the two directions
// between two nodes may differ. That is the rule of BIRD and Felix.
func (e *Encapsulation) Leaves(pool *Pool, nextHop netip.Addr) Leaving {
	l := Leaving{pool: pool, nextHop: nextHop}
	switch {
	case pool == nil:
		return l
	case pool.Felix:
		l.why, l.Refused = poolIsFelix, true
		return l
	case pool.Encap == Plain:
		return l // poolIsPlain
	}
	own := e.Own4
	if pool.Prefix.Addr().Is6() {
		own = e.Own6
	}
	l.network = own.Masked()
	host, isPublished := e.Published[nextHop]
	switch node, isNode := e.Nodes.Find(nextHop); {
	case isPublished:
		l.why, l.name = addressIsPublished, host
	case pool.CrossSubnet && own.IsValid() && l.network.Contains(nextHop):
		l.why = nextHopIsNear
	case pool.Waits != "":
		l.why, l.name, l.Refused = poolWaits, pool.Waits, true
	case !isNode:
		l.why, l.Refused = isNoNode, true
	case pool.Encap == VXLAN && node.NoVTEP() != "":
		l.why, l.name, l.Refused = nodeHasNoVTEP, node.NoVTEP(), true
	default:
		l.why, l.name = nodeIsFar, node.Name
		l.Encap, l.From, l.To = pool.Encap, own.Addr(), nextHop
	}
	return l
}
