package vpp

import (
	"context"

	"go.fd.io/govpp/binapi/ethernet_types"
	interfaces "go.fd.io/govpp/binapi/interface"

	"vpp-route-agent/internal/route"
)

// A client's MAC address does not tell an AF_PACKET interface of ours that has no mark yet, and
// with one of ours first, to be changed later, VPP would change that of the kernel's interface,
// too. So a loopback claims it: its tag has the name, and it has the MAC address that comes.

// claimPrefix is that of the tag. It begins no mark, so a claim has VPP's name for us.
const claimPrefix = "vra-claim:"

const afPacketDevice = "af-packet"

func needsClaim(want route.Link) bool { return want.Kind == route.AFPacket && want.MAC != "" }

// claim is a loopback that claims an interface; nil: there is none.
type claim interfaces.SwInterfaceDetails

func claimFor(all []*interfaces.SwInterfaceDetails, name string) *claim {
	for _, d := range all {
		if text(d.Tag) == claimPrefix+name {
			return (*claim)(d)
		}
	}
	return nil
}

// covers reports whether the claim is about d.
func (c *claim) covers(d *interfaces.SwInterfaceDetails) bool {
	return c != nil && isUnmarkedAFPacket(d, c.L2Address)
}

func isUnmarkedAFPacket(d *interfaces.SwInterfaceDetails, mac ethernet_types.MacAddress) bool {
	return text(d.Tag) == "" && text(d.InterfaceDevType) == afPacketDevice && d.L2Address == mac
}

// claim makes one. It is refused if it would cover another program's interface.
func (l *session) claim(ctx context.Context, want route.Link) error {
	all, err := readDetails(ctx, l.conn)
	if err != nil {
		return err
	}
	for _, d := range all {
		if isUnmarkedAFPacket(d, macOf(want)) {
			return declined("another program's " + text(d.InterfaceName) +
				" has that MAC address")
		}
	}
	index, err := l.createLoopback(ctx,
		&interfaces.CreateLoopbackInstance{MacAddress: l.ownMAC(want.Name)})
	if err == nil {
		err = l.tag(ctx, index, claimPrefix+want.Name)
	}
	if err == nil {
		err = l.setMAC(ctx, index, macOf(want))
	}
	return err
}

// unclaim ends the claim for a name.
func (l *session) unclaim(ctx context.Context, name string) error {
	all, err := readDetails(ctx, l.conn)
	if err != nil {
		return err
	}
	return l.dropClaim(ctx, claimFor(all, name))
}

func (l *session) dropClaim(ctx context.Context, c *claim) error {
	if c == nil {
		return nil
	}
	return removeLoopback(ctx, l, (*interfaces.SwInterfaceDetails)(c))
}
