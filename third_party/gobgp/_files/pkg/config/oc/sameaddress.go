// This file is vpp-route-agent's, not GoBGP's.

package oc

import (
	"fmt"
	"strconv"
	"strings"
)

// beforePort stands between address and port in the name of a peer.
const beforePort = " port "

// PeerName names the peer at a port of an address. Port 0 is the first peer of the address, which
// alone has the plain address for a name.
func PeerName(addr string, port uint16) string {
	if port == 0 {
		return addr
	}
	return fmt.Sprint(addr, beforePort, port)
}

// Peer returns the two parts of the neighbour's name, which State.NeighborAddress is.
func (n *Neighbor) Peer() (addr string, port uint16) {
	addr, text, _ := strings.Cut(n.State.NeighborAddress, beforePort)
	p, _ := strconv.ParseUint(text, 10, 16)
	return addr, uint16(p)
}

// Address is where the neighbour is.
func (n *Neighbor) Address() string {
	addr, _ := n.Peer()
	return addr
}
