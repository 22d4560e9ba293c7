package vpptest

import (
	"net/netip"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/ip"
)

// RefuseRoutes has judge see each route that a client of the v2 messages puts, before it is put:
// what is not 0 is the return value with which VPP refuses it. Nil ends that. It replaces Refuse.
func (s *Server) RefuseRoutes(judge func(netip.Prefix) int32) {
	if judge == nil {
		s.Refuse(nil)
		return
	}
	s.Refuse(func(m api.Message) int32 {
		change, ok := m.(*ip.IPRouteAddDelV2)
		if !ok || !change.IsAdd {
			return 0
		}
		p, err := netip.ParsePrefix(change.Route.Prefix.String())
		if err != nil {
			return 0
		}
		return judge(p)
	})
}
