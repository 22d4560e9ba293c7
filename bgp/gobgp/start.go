package gobgp

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	api "github.com/osrg/gobgp/v3/api"

	"vpp-route-agent/bgp"
)

func sameSpeaker(a, b bgp.Speaker) bool {
	return a.AS == b.AS && a.RouterID == b.RouterID && a.ListenPort == b.ListenPort &&
		slices.Equal(a.ListenAddresses, b.ListenAddresses)
}

func global(sp bgp.Speaker) *api.Global {
	g := &api.Global{
		Asn:              sp.AS,
		RouterId:         sp.RouterID.String(),
		ListenPort:       int32(sp.ListenPort),
		UseMultiplePaths: true,
		// GoBGP's numbers for ipv4-unicast and ipv6-unicast (oc.AfiSafiType); otherwise it makes a
		// table for each of its 30 families.
		Families: []uint32{0, 1},
	}
	if sp.ListenPort == 0 {
		g.ListenPort = -1 // 0 would mean 179
	}
	addrs := sp.ListenAddresses
	if len(addrs) == 0 {
		addrs = anyAddresses()
	}
	for _, a := range addrs {
		g.ListenAddresses = append(g.ListenAddresses, a.String())
	}
	return g
}

// canListen reports why a process that takes over from have could not listen as sp says: better to
// stay with what works. A port that have holds itself will be free.
func canListen(sp, have bgp.Speaker) error {
	addrs := sp.ListenAddresses
	if len(addrs) == 0 {
		addrs = anyAddresses()
	}
	port := sp.ListenPort
	if port == have.ListenPort {
		port = 0 // any free one: only whether the address is there
	}
	for _, a := range addrs {
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, port)))
		if err != nil {
			return fmt.Errorf("gobgp: BGP stays as it is: %w", err)
		}
		l.Close()
	}
	return nil
}

// anyAddresses returns the wildcard addresses of the families this machine has. GoBGP's default is
// both, and with IPv6 switched off in the kernel it would not start.
func anyAddresses() []netip.Addr {
	addrs := []netip.Addr{netip.IPv4Unspecified()}
	if l, err := net.Listen("tcp6", "[::]:0"); err == nil {
		l.Close()
		addrs = append(addrs, netip.IPv6Unspecified())
	}
	return addrs
}
