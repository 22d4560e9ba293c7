package bgp

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// PeerID identifies a peer of a node. It is the address alone for the first session to an
// address, and has the port as well for a further one.
type PeerID struct {
	Address netip.Addr
	Port    uint16
}

// beforePort stands between address and port of a further session.
const beforePort = " port "

// ID is how p is named wherever a peer is named.
func (p Peer) ID() PeerID {
	if !p.Further {
		return PeerID{Address: p.Address}
	}
	return PeerID{p.Address, p.Port}
}

// IsValid reports whether id is of a peer.
func (id PeerID) IsValid() bool { return id.Address.IsValid() }

// Compare sorts by address, the first session to it before the others.
func (id PeerID) Compare(o PeerID) int {
	return cmp.Or(id.Address.Compare(o.Address), cmp.Compare(id.Port, o.Port))
}

func (id PeerID) String() string {
	if id.Port == 0 {
		return id.Address.String()
	}
	return fmt.Sprint(id.Address, beforePort, id.Port)
}

// MarshalText is String; empty without an address.
func (id PeerID) MarshalText() ([]byte, error) {
	if !id.IsValid() {
		return nil, nil
	}
	return []byte(id.String()), nil
}

// UnmarshalText reads what MarshalText writes.
func (id *PeerID) UnmarshalText(text []byte) error {
	*id = PeerID{}
	if len(text) == 0 {
		return nil
	}
	addr, port, further := strings.Cut(string(text), beforePort)
	var err error
	if id.Address, err = netip.ParseAddr(addr); err != nil || !further {
		return err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("%q is no port of a peer", port)
	}
	id.Port = uint16(n)
	return nil
}
