package vpp

import (
	"cmp"
	"context"
	"errors"

	"go.fd.io/govpp/binapi/af_packet"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/tapv2"

	"vpp-route-agent/internal/route"
)

// makeTAP marks it with the message that makes it, as one that is not finished.
func makeTAP(ctx context.Context, l *session, want route.Link) (uint32, error) {
	req := &tapv2.TapCreateV3{ID: ^uint32(0), MacAddress: l.macFor(want), NumRxQueues: 1,
		NumTxQueues: 1, RxRingSz: want.TAP.RxRing, TxRingSz: want.TAP.TxRing,
		HostIfNameSet: want.HostName != "", HostIfName: want.HostName,
		Tag: mark{want.Name, unfinished}.tag()}
	if want.TAP.GSO {
		req.TapFlags = tapv2.TAP_API_FLAG_GSO
	}
	r, err := ask[tapv2.TapCreateV3Reply](ctx, l.conn, req)
	if err = cmp.Or(err, vppError(r.Retval)); errors.Is(err, systemCall1) {
		err = declined("VPP cannot open /dev/vhost-net")
	}
	return uint32(r.SwIfIndex), err
}

func removeTAP(ctx context.Context, l *session, d *interfaces.SwInterfaceDetails) error {
	r, err := ask[tapv2.TapDeleteV2Reply](ctx, l.conn,
		&tapv2.TapDeleteV2{SwIfIndex: d.SwIfIndex})
	return cmp.Or(err, vppError(r.Retval))
}

// hostPrefix begins the names that VPP gives to AF_PACKET interfaces.
const hostPrefix = "host-"

func makeAFPacket(ctx context.Context, l *session, want route.Link) (uint32, error) {
	if needsClaim(want) {
		if err := l.claim(ctx, want); err != nil {
			return 0, err
		}
	}
	r, err := ask[af_packet.AfPacketCreateV3Reply](ctx, l.conn, &af_packet.AfPacketCreateV3{
		Mode: af_packet.AF_PACKET_API_MODE_ETHERNET, HwAddr: l.macFor(want),
		HostIfName: want.HostName, NumRxQueues: 1, NumTxQueues: 1})
	if err != nil {
		return 0, err // it may be there, so the claim stays
	}
	switch err = vppError(r.Retval); {
	case errors.Is(err, invalidInterface):
		err = declined("the kernel has no interface " + want.HostName)
	case errors.Is(err, interfaceExists):
		err = declined("another interface is bound to " + want.HostName)
	}
	if err != nil && needsClaim(want) {
		err = errors.Join(err, l.unclaim(ctx, want.Name))
	}
	return uint32(r.SwIfIndex), err
}

// removeAFPacket asks for the kernel's name: the one in VPP can be changed.
func removeAFPacket(ctx context.Context, l *session, d *interfaces.SwInterfaceDetails) error {
	host := ""
	err := dump(ctx, l.conn, []request{&af_packet.AfPacketDump{}},
		func(_ int, is *af_packet.AfPacketDetails) {
			if is.SwIfIndex == d.SwIfIndex {
				host = text(is.HostIfName)
			}
		})
	if err != nil || host == "" {
		return err
	}
	r, err := ask[af_packet.AfPacketDeleteReply](ctx, l.conn,
		&af_packet.AfPacketDelete{HostIfName: host})
	return cmp.Or(err, vppError(r.Retval))
}
