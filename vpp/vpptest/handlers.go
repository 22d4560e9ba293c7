package vpptest

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/arp"
	"go.fd.io/govpp/binapi/fib"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/ipip"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/l3xc"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/tapv2"
	"go.fd.io/govpp/binapi/teib"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"
	"go.fd.io/govpp/binapi/vpe_types"
	"go.fd.io/govpp/binapi/vxlan"
)

func newMessage(proto api.Message) api.Message {
	return reflect.New(reflect.TypeOf(proto).Elem()).Interface().(api.Message)
}

// handlers by message name. They run with Server.mu held.
var handlers = map[string]func(a answer, m api.Message){
	"control_ping": func(a answer, _ api.Message) {
		a.send(&memclnt.ControlPingReply{VpePID: a.server.pid, ClientIndex: a.client.index})
	},
	"show_version": func(a answer, _ api.Message) {
		a.send(&vpe.ShowVersionReply{Program: "vpe", Version: Version})
	},
	"show_vpe_system_time": func(a answer, _ api.Message) {
		a.send(&vpe.ShowVpeSystemTimeReply{
			VpeSystemTime: vpe_types.Timestamp(float64(time.Now().UnixNano()) / 1e9),
		})
	},
	"cli_inband": func(a answer, m api.Message) {
		a.send(&vlib.CliInbandReply{Reply: a.server.cli(m.(*vlib.CliInband).Cmd)})
	},
	"fib_source_dump": func(a answer, _ api.Message) { a.server.dumpSources(a) },
	"fib_source_add": func(a answer, m api.Message) {
		a.server.addSource(a, m.(*fib.FibSourceAdd).Src)
	},
	"ip_table_dump": func(a answer, _ api.Message) { a.server.dumpTables(a) },
	"ip_table_add_del": func(a answer, m api.Message) {
		v1 := m.(*ip.IPTableAddDel)
		a.server.addDelTable(v1.IsAdd, v1.Table)
		a.send(&ip.IPTableAddDelReply{})
	},
	"ip_table_add_del_v2": func(a answer, m api.Message) {
		v2 := m.(*ip.IPTableAddDelV2)
		a.server.addDelTable(v2.IsAdd, v2.Table)
		a.send(&ip.IPTableAddDelV2Reply{})
	},
	"ip_table_replace_begin": func(a answer, m api.Message) {
		a.server.replaceBegin(a, m.(*ip.IPTableReplaceBegin).Table)
	},
	"ip_table_replace_end": func(a answer, m api.Message) {
		a.server.replaceEnd(a, m.(*ip.IPTableReplaceEnd).Table)
	},
	"ip_table_flush": func(a answer, m api.Message) {
		a.server.flush(a, m.(*ip.IPTableFlush).Table)
	},
	"ip_route_add_del": func(a answer, m api.Message) {
		v1 := m.(*ip.IPRouteAddDel)
		r := ip.IPRouteV2{TableID: v1.Route.TableID, Prefix: v1.Route.Prefix, Paths: v1.Route.Paths}
		a.send(&ip.IPRouteAddDelReply{Retval: a.server.changeRoute(v1.IsAdd, v1.IsMultipath, r)})
	},
	"ip_route_add_del_v2": func(a answer, m api.Message) {
		v2 := m.(*ip.IPRouteAddDelV2)
		a.send(&ip.IPRouteAddDelV2Reply{Retval: a.server.changeRoute(v2.IsAdd, v2.IsMultipath,
			v2.Route)})
	},
	"ip_route_dump": func(a answer, m api.Message) {
		a.server.dumpRoutes(m.(*ip.IPRouteDump).Table, 0, func(r ip.IPRouteV2) {
			a.send(&ip.IPRouteDetails{Route: olderForm(r)})
		})
	},
	"ip_route_v2_dump": func(a answer, m api.Message) {
		v2 := m.(*ip.IPRouteV2Dump)
		a.server.dumpRoutes(v2.Table, v2.Src, func(r ip.IPRouteV2) {
			a.send(&ip.IPRouteV2Details{Route: r})
		})
	},
	"ip_route_lookup": func(a answer, m api.Message) {
		v1 := m.(*ip.IPRouteLookup)
		r, retval := a.server.lookupRoute(v1.TableID, v1.Prefix, v1.Exact != 0)
		a.send(&ip.IPRouteLookupReply{Retval: retval, Route: olderForm(r)})
	},
	"ip_route_lookup_v2": func(a answer, m api.Message) {
		v2 := m.(*ip.IPRouteLookupV2)
		r, retval := a.server.lookupRoute(v2.TableID, v2.Prefix, v2.Exact != 0)
		a.send(&ip.IPRouteLookupV2Reply{Retval: retval, Route: r})
	},
	"sw_interface_dump": func(a answer, m api.Message) {
		a.server.dumpLinks(a, m.(*interfaces.SwInterfaceDump))
	},
	"sw_interface_get_table": func(a answer, m api.Message) {
		a.server.linkTable(a, m.(*interfaces.SwInterfaceGetTable))
	},
	"ip_address_dump": func(a answer, m api.Message) {
		a.server.dumpAddresses(a, m.(*ip.IPAddressDump))
	},
	"sw_interface_set_flags": func(a answer, m api.Message) {
		a.send(&interfaces.SwInterfaceSetFlagsReply{
			Retval: a.server.setFlags(m.(*interfaces.SwInterfaceSetFlags)),
		})
	},
	"sw_interface_add_del_address": func(a answer, m api.Message) {
		a.send(&interfaces.SwInterfaceAddDelAddressReply{
			Retval: a.server.changeAddress(m.(*interfaces.SwInterfaceAddDelAddress)),
		})
	},
	"ip_neighbor_add_del": func(a answer, m api.Message) {
		a.send(&ip_neighbor.IPNeighborAddDelReply{
			Retval: a.server.changeNeighbour(m.(*ip_neighbor.IPNeighborAddDel)),
		})
	},
	"ip_neighbor_dump": func(a answer, m api.Message) {
		a.server.dumpNeighbours(a, m.(*ip_neighbor.IPNeighborDump))
	},
	"create_loopback_instance": func(a answer, m api.Message) {
		i, retval := a.server.createLoopback(m.(*interfaces.CreateLoopbackInstance))
		a.send(&interfaces.CreateLoopbackInstanceReply{Retval: retval,
			SwIfIndex: interface_types.InterfaceIndex(i)})
	},
	"delete_loopback": func(a answer, m api.Message) {
		a.send(&interfaces.DeleteLoopbackReply{
			Retval: a.server.deleteLink(m.(*interfaces.DeleteLoopback).SwIfIndex, loopback),
		})
	},
	"memif_create_v2": func(a answer, m api.Message) {
		i, retval := a.server.createMemif(m.(*memif.MemifCreateV2))
		a.send(&memif.MemifCreateV2Reply{Retval: retval,
			SwIfIndex: interface_types.InterfaceIndex(i)})
	},
	"memif_delete": func(a answer, m api.Message) {
		a.send(&memif.MemifDeleteReply{
			Retval: a.server.deleteLink(m.(*memif.MemifDelete).SwIfIndex, memifDevice),
		})
	},
	"memif_dump": func(a answer, _ api.Message) { a.server.dumpMemifs(a) },
	"memif_socket_filename_add_del_v2": func(a answer, m api.Message) {
		v2 := m.(*memif.MemifSocketFilenameAddDelV2)
		a.send(&memif.MemifSocketFilenameAddDelV2Reply{Retval: a.server.changeMemifSocket(v2),
			SocketID: v2.SocketID})
	},
	"memif_socket_filename_dump": func(a answer, _ api.Message) { a.server.dumpMemifSockets(a) },
	"tap_create_v3": func(a answer, m api.Message) {
		i, retval := a.server.createTAP(m.(*tapv2.TapCreateV3))
		a.send(&tapv2.TapCreateV3Reply{Retval: retval,
			SwIfIndex: interface_types.InterfaceIndex(i)})
	},
	"tap_delete_v2": func(a answer, m api.Message) {
		a.send(&tapv2.TapDeleteV2Reply{
			Retval: a.server.deleteLink(m.(*tapv2.TapDeleteV2).SwIfIndex, virtio),
		})
	},
	"af_packet_create_v3": func(a answer, m api.Message) {
		i, retval := a.server.createAFPacket(m.(*af_packet.AfPacketCreateV3))
		a.send(&af_packet.AfPacketCreateV3Reply{Retval: retval,
			SwIfIndex: interface_types.InterfaceIndex(i)})
	},
	"af_packet_delete": func(a answer, m api.Message) {
		a.send(&af_packet.AfPacketDeleteReply{
			Retval: a.server.deleteAFPacket(m.(*af_packet.AfPacketDelete)),
		})
	},
	"af_packet_dump": func(a answer, _ api.Message) { a.server.dumpAFPackets(a) },
	"sw_interface_set_table": func(a answer, m api.Message) {
		a.send(&interfaces.SwInterfaceSetTableReply{
			Retval: a.server.setTable(m.(*interfaces.SwInterfaceSetTable)),
		})
	},
	"create_subif": func(a answer, m api.Message) {
		i, retval := a.server.createSubInterface(m.(*interfaces.CreateSubif))
		a.send(&interfaces.CreateSubifReply{Retval: retval,
			SwIfIndex: interface_types.InterfaceIndex(i)})
	},
	"delete_subif": func(a answer, m api.Message) {
		a.send(&interfaces.DeleteSubifReply{
			Retval: a.server.deleteLink(m.(*interfaces.DeleteSubif).SwIfIndex, subInterface),
		})
	},
	"sw_interface_tag_add_del": func(a answer, m api.Message) {
		a.send(&interfaces.SwInterfaceTagAddDelReply{
			Retval: a.server.setTag(m.(*interfaces.SwInterfaceTagAddDel)),
		})
	},
	"sw_interface_set_mac_address": func(a answer, m api.Message) {
		a.send(&interfaces.SwInterfaceSetMacAddressReply{
			Retval: a.server.setMAC(m.(*interfaces.SwInterfaceSetMacAddress)),
		})
	},
	"sw_interface_set_mtu": func(a answer, m api.Message) {
		a.send(&interfaces.SwInterfaceSetMtuReply{
			Retval: a.server.setMTU(m.(*interfaces.SwInterfaceSetMtu)),
		})
	},
	"sw_interface_set_l2_xconnect": func(a answer, m api.Message) {
		a.send(&l2.SwInterfaceSetL2XconnectReply{
			Retval: a.server.setL2CrossConnect(m.(*l2.SwInterfaceSetL2Xconnect)),
		})
	},
	"l2_xconnect_dump":   func(a answer, _ api.Message) { a.server.dumpL2CrossConnects(a) },
	"bridge_domain_dump": func(answer, api.Message) {}, // there is none
	"l3xc_update": func(a answer, m api.Message) {
		a.send(&l3xc.L3xcUpdateReply{
			Retval: a.server.updateL3CrossConnect(m.(*l3xc.L3xcUpdate).L3xc),
		})
	},
	"l3xc_del": func(a answer, m api.Message) {
		a.send(&l3xc.L3xcDelReply{Retval: a.server.deleteL3CrossConnect(m.(*l3xc.L3xcDel))})
	},
	"l3xc_dump": func(a answer, m api.Message) {
		a.server.dumpL3CrossConnects(a, m.(*l3xc.L3xcDump))
	},
	"ipip_add_tunnel": func(a answer, m api.Message) {
		i, retval := a.server.createIPIP(m.(*ipip.IpipAddTunnel).Tunnel)
		a.send(&ipip.IpipAddTunnelReply{Retval: retval,
			SwIfIndex: interface_types.InterfaceIndex(i)})
	},
	"ipip_del_tunnel": func(a answer, m api.Message) {
		a.send(&ipip.IpipDelTunnelReply{
			Retval: a.server.deleteIPIP(m.(*ipip.IpipDelTunnel).SwIfIndex)})
	},
	"ipip_tunnel_dump": func(a answer, _ api.Message) {
		for _, t := range a.server.ipipTunnels() {
			a.send(&ipip.IpipTunnelDetails{Tunnel: t})
		}
	},
	"teib_entry_add_del": func(a answer, m api.Message) {
		a.send(&teib.TeibEntryAddDelReply{
			Retval: a.server.changeTEIB(m.(*teib.TeibEntryAddDel))})
	},
	"teib_dump": func(a answer, _ api.Message) {
		for _, e := range a.server.teib {
			a.send(&teib.TeibDetails{Entry: e})
		}
	},
	"show_threads": func(a answer, _ api.Message) {
		a.send(&vlib.ShowThreadsReply{ThreadData: make([]vlib.ThreadData, 1+a.server.workers)})
	},
	"add_node_next": func(a answer, m api.Message) {
		next, retval := a.server.addNodeNext(m.(*vlib.AddNodeNext))
		a.send(&vlib.AddNodeNextReply{Retval: retval, NextIndex: next})
	},
	"vxlan_add_del_tunnel_v3": func(a answer, m api.Message) {
		i, retval := a.server.changeVXLAN(m.(*vxlan.VxlanAddDelTunnelV3))
		a.send(&vxlan.VxlanAddDelTunnelV3Reply{Retval: retval,
			SwIfIndex: interface_types.InterfaceIndex(i)})
	},
	"vxlan_tunnel_v2_dump": func(a answer, m api.Message) {
		a.server.dumpVXLAN(a, m.(*vxlan.VxlanTunnelV2Dump))
	},
	"sw_interface_set_unnumbered": func(a answer, m api.Message) {
		a.send(&interfaces.SwInterfaceSetUnnumberedReply{
			Retval: a.server.setUnnumbered(m.(*interfaces.SwInterfaceSetUnnumbered)),
		})
	},
	"proxy_arp_add_del": func(a answer, m api.Message) {
		a.send(&arp.ProxyArpAddDelReply{Retval: a.server.changeProxyARP(m.(*arp.ProxyArpAddDel))})
	},
	"proxy_arp_dump": func(a answer, _ api.Message) { a.server.dumpProxyARP(a) },
	"proxy_arp_intfc_enable_disable": func(a answer, m api.Message) {
		a.send(&arp.ProxyArpIntfcEnableDisableReply{
			Retval: a.server.enableProxyARP(m.(*arp.ProxyArpIntfcEnableDisable)),
		})
	},
	"proxy_arp_intfc_dump": func(a answer, _ api.Message) { a.server.dumpProxyARPLinks(a) },
	"want_interface_events": func(a answer, m api.Message) {
		a.server.subscribe(a, m.(*interfaces.WantInterfaceEvents))
	},
}

func (s *Server) dumpSources(a answer) {
	for id, src := range s.sources {
		if src.name == "" {
			continue
		}
		a.send(&fib.FibSourceDetails{Src: fib.FibSource{ID: uint8(id), Priority: src.class,
			Name: src.name}})
	}
}

// addSource hands out a new id also for a known name, and 0 when there are none left: the return
// value is always 0.
func (s *Server) addSource(a answer, src fib.FibSource) {
	var id uint8
	if len(s.sources) < 255 {
		id = uint8(len(s.sources))
		s.sources = append(s.sources, newSource(strings.TrimRight(src.Name, "\x00"), src.Priority,
			s.sources))
	}
	a.send(&fib.FibSourceAddReply{ID: id})
}

func (s *Server) dumpTables(a answer) {
	for k, t := range s.tables {
		a.send(&ip.IPTableDetails{Table: ip.IPTable{TableID: k.id, IsIP6: k.six, Name: t.name}})
	}
}

// addDelTable: table 0 is always there. The API holds one lock on a table, however often it is
// added; interfaces and recursive paths hold others, routes none.
func (s *Server) addDelTable(isAdd bool, m ip.IPTable) {
	k := tableKey{m.TableID, m.IsIP6}
	t := s.tables[k]
	switch {
	case k.id == 0:
	case isAdd && t == nil:
		s.tables[k] = newTable(s.tables, strings.TrimRight(m.Name, "\x00"), k.six)
		s.tables[k].locked = true
	case isAdd:
		t.locked = true
	case t != nil:
		if s.hasLinks(k) {
			panic(fmt.Sprintf("vpptest: table %d is deleted with an interface in it: the second "+
				"time a real VPP's multicast table goes as well", k.id))
		}
		t.locked = false
		s.destroyUnlocked(k)
	}
}

// destroyUnlocked ends a table that nothing holds any more.
func (s *Server) destroyUnlocked(k tableKey) {
	t := s.tables[k]
	if t == nil || t.locked || k.id == 0 || len(t.nextHops) > 0 || s.hasLinks(k) {
		return
	}
	if p, ok := t.occupant(); ok {
		panic(fmt.Sprintf("vpptest: table %d ends with %s in it: a real VPP keeps that and shows "+
			"it in the next table", k.id, p))
	}
	if s.importsFrom(k) > 0 {
		panic(fmt.Sprintf("vpptest: table %d ends after a route of another one was put over an "+
			"interface in it: a real VPP crashes", k.id))
	}
	delete(s.tables, k)
}

func (s *Server) hasLinks(k tableKey) bool {
	for _, l := range s.links {
		if l.tables[k.six] == k.id {
			return true
		}
	}
	return false
}

// olderForm leaves out the source.
func olderForm(r ip.IPRouteV2) ip.IPRoute {
	return ip.IPRoute{TableID: r.TableID, StatsIndex: r.StatsIndex, Prefix: r.Prefix,
		NPaths: r.NPaths, Paths: r.Paths}
}

// replaceBegin and replaceEnd know the shared API source only, whoever asks.
func (s *Server) replaceBegin(a answer, table ip.IPTable) {
	t := s.tables[tableKey{table.TableID, table.IsIP6}]
	if t == nil {
		a.send(&ip.IPTableReplaceBeginReply{Retval: int32(api.NO_SUCH_FIB)})
		return
	}
	for _, e := range t.entries {
		_, e.stale = e.bySource[sourceAPI]
	}
	a.send(&ip.IPTableReplaceBeginReply{})
}

func (s *Server) replaceEnd(a answer, table ip.IPTable) {
	t := s.tables[tableKey{table.TableID, table.IsIP6}]
	if t == nil {
		a.send(&ip.IPTableReplaceEndReply{Retval: int32(api.NO_SUCH_FIB)})
		return
	}
	for p, e := range t.entries {
		if e.stale {
			t.remove(p, sourceAPI)
		}
	}
	a.send(&ip.IPTableReplaceEndReply{})
}

// flush empties the API source and takes the interfaces of the table down.
func (s *Server) flush(a answer, table ip.IPTable) {
	t := s.tables[tableKey{table.TableID, table.IsIP6}]
	if t == nil {
		a.send(&ip.IPTableFlushReply{Retval: int32(api.NO_SUCH_FIB)})
		return
	}
	t.removeSource(sourceAPI)
	for i, l := range s.links {
		if l.tables[table.IsIP6] == table.TableID && l.up {
			l.up = false
			s.announce(i, false)
		}
	}
	a.send(&ip.IPTableFlushReply{})
}

func (s *Server) dumpLinks(a answer, m *interfaces.SwInterfaceDump) {
	for _, i := range slices.Sorted(maps.Keys(s.links)) {
		if only := uint32(m.SwIfIndex); only != math.MaxUint32 && only != i && only != 0 {
			continue
		}
		l := s.links[i]
		d := &interfaces.SwInterfaceDetails{
			SwIfIndex: interface_types.InterfaceIndex(i), SupSwIfIndex: i, Flags: s.flags(l),
			Type:          interface_types.IF_API_TYPE_HARDWARE,
			InterfaceName: l.name, InterfaceDevType: l.device, Tag: l.tag, L2Address: l.mac,
			LinkMtu: defaultMTU, Mtu: []uint32{l.mtu, 0, 0, 0},
		}
		if l.parent != 0 {
			d.Type, d.SupSwIfIndex = interface_types.IF_API_TYPE_SUB, l.parent
			d.SubID, d.SubNumberOfTags, d.SubOuterVlanID = l.subID, 1, l.vlan
		}
		a.send(d)
	}
}

func (s *Server) linkTable(a answer, m *interfaces.SwInterfaceGetTable) {
	l := s.links[uint32(m.SwIfIndex)]
	if l == nil {
		a.send(&interfaces.SwInterfaceGetTableReply{Retval: int32(api.INVALID_SW_IF_INDEX)})
		return
	}
	a.send(&interfaces.SwInterfaceGetTableReply{VrfID: l.tables[m.IsIPv6]})
}

func (s *Server) dumpAddresses(a answer, m *ip.IPAddressDump) {
	l := s.links[uint32(m.SwIfIndex)]
	if l == nil {
		return
	}
	for _, p := range l.addresses {
		if p.Addr().Is6() == m.IsIPv6 {
			a.send(&ip.IPAddressDetails{SwIfIndex: m.SwIfIndex,
				Prefix: ip_types.AddressWithPrefix(prefixMessage(p))})
		}
	}
}

func (s *Server) subscribe(a answer, m *interfaces.WantInterfaceEvents) {
	a.client.subscribed, a.client.wantsEvents = m.EnableDisable != 0, m.PID
	a.send(&interfaces.WantInterfaceEventsReply{})
}

// announce sends an event to those who asked. Flags tell the edge: of an interface that comes up
// LINK_UP alone, else nothing.
func (s *Server) announce(i uint32, deleted bool) {
	ev := &interfaces.SwInterfaceEvent{SwIfIndex: interface_types.InterfaceIndex(i),
		Deleted: deleted}
	if l := s.links[i]; l != nil && s.isLinkUp(l) {
		ev.Flags = interface_types.IF_STATUS_API_FLAG_LINK_UP
	}
	for c := range s.clients {
		if c.subscribed {
			ev.PID = c.wantsEvents
			c.send(s.ids[nameOf(ev)], ev, c.index) // the event's pid is the first field of its body
			c.signal()
		}
	}
}
