package vpptest

import (
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/arp"
)

// proxyARP is whose addresses are answered for, and where. As in VPP 25.10 an interface stays
// marked when it is deleted.
type proxyARP struct {
	ranges map[arp.ProxyArp]bool
	links  map[uint32]bool
}

func newProxyARP() proxyARP {
	return proxyARP{ranges: map[arp.ProxyArp]bool{}, links: map[uint32]bool{}}
}

func (s *Server) changeProxyARP(m *arp.ProxyArpAddDel) int32 {
	there := s.proxies.ranges[m.Proxy]
	switch {
	case s.tables[tableKey{m.Proxy.TableID, false}] == nil:
		return int32(api.NO_SUCH_FIB)
	case m.IsAdd:
		s.proxies.ranges[m.Proxy] = true
	case !there:
		return int32(api.NO_SUCH_ENTRY)
	default:
		delete(s.proxies.ranges, m.Proxy)
	}
	return 0
}

func (s *Server) enableProxyARP(m *arp.ProxyArpIntfcEnableDisable) int32 {
	index := uint32(m.SwIfIndex)
	if s.links[index] == nil {
		return int32(api.INVALID_SW_IF_INDEX)
	}
	if delete(s.proxies.links, index); m.Enable {
		s.proxies.links[index] = true
	}
	return 0
}

func (s *Server) dumpProxyARP(a answer) {
	for r := range s.proxies.ranges {
		a.send(&arp.ProxyArpDetails{Proxy: r})
	}
}

func (s *Server) dumpProxyARPLinks(a answer) {
	for index := range s.proxies.links {
		a.send(&arp.ProxyArpIntfcDetails{SwIfIndex: index})
	}
}
