package vpp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/ipip"
	"go.fd.io/govpp/binapi/teib"
	"go.fd.io/govpp/binapi/tunnel_types"

	"vpp-route-agent/internal/route"
)

// An IPIP interface is one multipoint interface of VPP, whose TEIB entries say where the packets of
// a next hop go. VPP takes packets only from addresses that have an entry (src/vnet/ipip/ipip.c,
// ipip_teib_mk_key); it drops and counts all others. docs/decisions/0023-teib.md has why.

const (
	// ipipDevice is what VPP calls the device of an IPIP interface.
	ipipDevice = "IPIP tunnel device"
	// ipipInstance is the number of ours, which any client may choose. It is in the name, by which
	// we know one that has no mark yet.
	ipipInstance = 17900000
)

var ipipNeeds = []api.Message{(*ipip.IpipAddTunnel)(nil), (*ipip.IpipAddTunnelReply)(nil),
	(*ipip.IpipDelTunnel)(nil), (*ipip.IpipDelTunnelReply)(nil), (*teib.TeibDump)(nil),
	(*teib.TeibDetails)(nil), (*teib.TeibEntryAddDel)(nil), (*teib.TeibEntryAddDelReply)(nil),
	(*ipip.IpipTunnelDump)(nil), (*ipip.IpipTunnelDetails)(nil)}

func isOwnIPIP(d *interfaces.SwInterfaceDetails) bool {
	return text(d.InterfaceName) == fmt.Sprintf("ipip%d", ipipInstance)
}

// likeLinux are what Linux' tunl0 does: TTL, DF and ECN of the outer header are those of the
// packet; the rest of its TOS is 0.
const likeLinux = tunnel_types.TUNNEL_API_ENCAP_DECAP_FLAG_ENCAP_COPY_HOP_LIMIT |
	tunnel_types.TUNNEL_API_ENCAP_DECAP_FLAG_ENCAP_COPY_DF |
	tunnel_types.TUNNEL_API_ENCAP_DECAP_FLAG_ENCAP_COPY_ECN |
	tunnel_types.TUNNEL_API_ENCAP_DECAP_FLAG_DECAP_COPY_ECN

// ipips are the IPIP interfaces that were made or that endpoints were put on, by name: what is put
// on one costs no look-up. They belong to those who write. The zero value is ready to use.
type ipips map[string]linkID

func (i *ipips) note(name string, on linkID) {
	if *i == nil {
		*i = ipips{}
	}
	(*i)[name] = on
}

// ipipIndex looks an interface up once, and again when one with its index was deleted.
func (l *session) ipipIndex(ctx context.Context, name string) (uint32, error) {
	if id, ok := l.ipips[name]; ok && l.gone.count(id.index) == id.generation {
		return id.index, nil
	}
	deleted := l.gone.counts() // so far: one that is deleted meanwhile is looked up again
	index, _, err := l.findLink(ctx, name)
	if err != nil {
		return 0, err
	}
	l.ipips.note(name, linkID{index, deleted[index]})
	return index, nil
}

func makeIPIP(ctx context.Context, l *session, want route.Link) (uint32, error) {
	clear(l.ipips)
	deleted := l.gone.counts()
	r, err := ask[ipip.IpipAddTunnelReply](ctx, l.conn, &ipip.IpipAddTunnel{
		Tunnel: ipip.IpipTunnel{Instance: ipipInstance, Src: encodeAddress(want.Source),
			Dst: encodeAddress(netip.IPv4Unspecified()), Flags: likeLinux,
			Mode: tunnel_types.TUNNEL_API_MODE_MP}})
	if err != nil {
		return 0, err
	}
	switch err = vppError(r.Retval); {
	case errors.Is(err, interfaceExists):
		err = declined(fmt.Sprintf("another program has a multipoint IPIP interface with the "+
			"source address %s", want.Source))
	case errors.Is(err, instanceInUse):
		err = declined(fmt.Sprintf("another program has the IPIP interface %d", ipipInstance))
	}
	if err != nil {
		return 0, err
	}
	index := uint32(r.SwIfIndex)
	l.ipips.note(want.Name, linkID{index, deleted[index]})
	return index, nil
}

// removeIPIP deletes the endpoints first: they would outlive the interface, and be those of the
// next one with its index.
func removeIPIP(ctx context.Context, l *session, d *interfaces.SwInterfaceDetails) error {
	clear(l.ipips)
	if err := l.deleteEndpoints(ctx, d.SwIfIndex); err != nil {
		return err
	}
	r, err := ask[ipip.IpipDelTunnelReply](ctx, l.conn, &ipip.IpipDelTunnel{SwIfIndex: d.SwIfIndex})
	return cmp.Or(err, vppError(r.Retval))
}

func (l *session) deleteEndpoints(ctx context.Context, on interface_types.InterfaceIndex) error {
	if len(l.conn.missing(ipipNeeds)) > 0 {
		return nil
	}
	all, err := readTEIB(ctx, l.conn)
	var reqs []request
	for _, e := range all {
		if err == nil && e.SwIfIndex == on {
			reqs = append(reqs, &teib.TeibEntryAddDel{Entry: e})
		}
	}
	if err != nil || len(reqs) == 0 {
		return err
	}
	for _, a := range change(ctx, l.conn, reqs) {
		if a.err != nil && !errors.Is(a.err, noSuchEntry) {
			return a.err
		}
	}
	return nil
}

func readTEIB(ctx context.Context, c *conn) ([]teib.TeibEntry, error) {
	var all []teib.TeibEntry
	err := dump(ctx, c, []request{&teib.TeibDump{}}, func(_ int, d *teib.TeibDetails) {
		all = append(all, d.Entry)
	})
	if err != nil {
		return nil, err // the reader may still be in the handler
	}
	return all, nil
}

func endpointRequest(on uint32, e route.Endpoint, add bool) *teib.TeibEntryAddDel {
	req := &teib.TeibEntryAddDel{Entry: teib.TeibEntry{
		SwIfIndex: interface_types.InterfaceIndex(on), Peer: encodeAddress(e.NextHop()),
		Nh: encodeAddress(e.Outer)}}
	if add {
		req.IsAdd = 1
	}
	return req
}

// endpoint returns what an entry is, if it is one that we make.
func endpoint(e teib.TeibEntry, name string) (route.Endpoint, bool) {
	peer := decodeUnion(e.Peer.Un, e.Peer.Af == ip_types.ADDRESS_IP6)
	outer, ok := route.EndpointBehind(route.Path{Interface: name, NextHop: peer})
	ok = ok && e.NhTableID == 0 && e.Nh.Af == ip_types.ADDRESS_IP4 &&
		decodeUnion(e.Nh.Un, false) == outer
	return route.Endpoint{Interface: name, Outer: outer}, ok
}

// readTEIBEndpoint returns nil where there is no entry for a node.
func readTEIBEndpoint(ctx context.Context, l *session, want route.Endpoint) (route.Object, error) {
	on, _, err := l.findLink(ctx, want.Interface)
	if err != nil {
		return nil, err
	}
	all, err := readTEIB(ctx, l.conn)
	for _, e := range all {
		found, ok := endpoint(e, want.Interface)
		if ok && found == want && uint32(e.SwIfIndex) == on {
			return found, nil
		}
	}
	return nil, wrap(err, "read tunnels")
}

// teibEndpoints lists the entries of interfaces that have our mark.
func (l *session) teibEndpoints(ctx context.Context,
	links []*interfaces.SwInterfaceDetails) (out []route.Object, err error) {
	ours := map[interface_types.InterfaceIndex]string{}
	for _, d := range links {
		if m := markOf(d); m.name != "" && text(d.InterfaceDevType) == ipipDevice {
			ours[d.SwIfIndex] = m.name
		}
	}
	if len(ours) == 0 || len(l.conn.missing(ipipNeeds)) > 0 {
		return nil, nil
	}
	all, err := readTEIB(ctx, l.conn)
	for _, e := range all {
		if found, ok := endpoint(e, ours[e.SwIfIndex]); ok && found.Interface != "" {
			out = append(out, found)
		}
	}
	return out, wrap(err, "read tunnels")
}

// othersTunnels are the addresses to which other programs have IPIP tunnels from the address of
// ours. With an entry for one of them VPP would take what arrives by that tunnel for ours, and once
// either goes, nothing would arrive by the other (src/vnet/ipip/ipip.c, ipip_teib_entry_added).
func (l *session) othersTunnels(ctx context.Context, ours uint32) (map[netip.Addr]bool, error) {
	if !l.links.Load().othersIPIP {
		return nil, nil
	}
	var source ip_types.Address
	var others []ipip.IpipTunnel
	err := dump(ctx, l.conn, []request{&ipip.IpipTunnelDump{SwIfIndex: noInterface}},
		func(_ int, d *ipip.IpipTunnelDetails) {
			if uint32(d.Tunnel.SwIfIndex) == ours {
				source = d.Tunnel.Src
			} else if d.Tunnel.TableID == 0 {
				others = append(others, d.Tunnel)
			}
		})
	if err != nil {
		return nil, wrap(err, "read tunnels")
	}
	to := map[netip.Addr]bool{}
	for _, t := range others {
		if t.Src == source {
			to[decodeUnion(t.Dst.Un, false)] = true
		}
	}
	return to, nil
}

// applyTEIB changes endpoints, all in one write. They need not be looked up: an entry of a node
// that is there is as we make it.
func (l *session) applyTEIB(ctx context.Context, ops []endpointOp) {
	type link struct {
		index  uint32
		others map[netip.Addr]bool // where its entries would be in the way
		err    error
	}
	links := map[string]link{} // each is looked up once
	puts := slices.ContainsFunc(ops, func(op endpointOp) bool { return op.put })
	var reqs []request
	var asked []endpointOp // whom each request is for
	for _, op := range ops {
		on, known := links[op.end.Interface]
		if !known {
			on.index, on.err = l.ipipIndex(ctx, op.end.Interface)
			if on.err == nil && puts {
				on.others, on.err = l.othersTunnels(ctx, on.index)
			}
			links[op.end.Interface] = on
		}
		switch {
		case errors.Is(on.err, route.ErrNoLink) && !op.put:
			op.done(nil) // it went with the interface
		case on.err != nil:
			op.done(on.err)
		case op.put && on.others[op.end.Outer]:
			op.done(declined("another program has an IPIP tunnel to that address"))
		default:
			asked = append(asked, op)
			reqs = append(reqs, endpointRequest(on.index, op.end, op.put))
		}
	}
	for i, a := range change(ctx, l.conn, reqs) {
		op := asked[i]
		gone := errors.Is(a.err, noSuchInterface) // a moment ago, by another program
		a.err = l.onLink(op.end.Interface, a.err)
		if op.put && errors.Is(a.err, entryExists) ||
			!op.put && (gone || errors.Is(a.err, noSuchEntry)) {
			a.err = nil
		}
		op.done(a.err)
	}
}
