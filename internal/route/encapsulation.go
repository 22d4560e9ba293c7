package route

import (
	"fmt"
	"net/netip"
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
	Name string
	// VTEP is the MAC address of its VXLAN device, as net.HardwareAddr prints it; "": no pool of
	// the address's family has VXLAN, or NoVTEP says why it has none.
	VTEP, NoVTEP string
}

// Encapsulation says how packets of this node leave. It is not changed once it is made.
type Encapsulation struct {
	Pools []Pool
	// Own4 and Own6 are this node's addresses with the lengths of its networks; invalid: none.
	Own4, Own6 netip.Prefix
	// Nodes are the other nodes by their addresses.
	Nodes map[netip.Addr]Node
	// Published are the names of hosts by addresses that they publish for plain packets, and that
	// are not those of Nodes.
	Published map[netip.Addr]string
}

// Leaving is how packets to a prefix leave towards a next hop.
type Leaving struct {
	Encap Encap
	// From and To are the addresses of the outer header, of Encap but Plain alone.
	From, To netip.Addr
	// Reason says for people what decided.
	Reason string
	// Refused: packets can leave neither plain nor encapsulated. Reason says why.
	Refused bool
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
	if pool == nil {
		return Leaving{Reason: "it lies in no pool"}
	}
	if pool.Felix {
		return Leaving{Refused: true, Reason: pool.LeftToFelix()}
	}
	if pool.Encap == Plain {
		why := pool.Note
		if why == "" {
			why = "it does not encapsulate"
		}
		return Leaving{Reason: fmt.Sprintf("IPPool(%s): %s", pool.Name, why)}
	}
	refuse := func(why string) Leaving {
		return Leaving{Refused: true, Reason: fmt.Sprintf("IPPool(%s) has %s: %s", pool.Name,
			pool.mode(), why)}
	}
	own := e.Own4
	if pool.Prefix.Addr().Is6() {
		own = e.Own6
	}
	near := own.IsValid() && own.Masked().Contains(nextHop)
	host, isPublished := e.Published[nextHop]
	switch node, isNode := e.Nodes[nextHop]; {
	case isPublished:
		return Leaving{Reason: fmt.Sprintf("IPPool(%s) has %s, but %s publishes %s as its "+
			"address, which is not that of its Node", pool.Name, pool.mode(), host, nextHop)}
	case pool.CrossSubnet && near:
		return Leaving{Reason: fmt.Sprintf("IPPool(%s) has %s: %s is in this node's network %s",
			pool.Name, pool.mode(), nextHop, own.Masked())}
	case pool.Waits != "":
		return refuse(pool.Waits)
	case !isNode:
		return refuse(fmt.Sprintf("next hop %s is not the address of a Node", nextHop))
	case pool.Encap == VXLAN && node.NoVTEP != "":
		return refuse(node.NoVTEP)
	default:
		return Leaving{Encap: pool.Encap, From: own.Addr(), To: nextHop,
			Reason: fmt.Sprintf("IPPool(%s) has %s: %s is Node(%s)", pool.Name, pool.mode(),
				nextHop, node.Name)}
	}
}
