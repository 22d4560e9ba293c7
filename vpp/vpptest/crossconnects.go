package vpptest

import (
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/l3xc"
)

// l3Key is an interface, which need not exist any more, and a family.
type l3Key struct {
	index uint32
	six   bool
}

// crossConnects are by the interface that frames and packets come in by. As in VPP 25.10 they stay
// when it is deleted.
type crossConnects struct {
	l2 map[uint32]uint32
	l3 map[l3Key]l3xc.L3xc
}

func newCrossConnects() crossConnects {
	return crossConnects{l2: map[uint32]uint32{}, l3: map[l3Key]l3xc.L3xc{}}
}

func (s *Server) setL2CrossConnect(m *l2.SwInterfaceSetL2Xconnect) int32 {
	from, to := uint32(m.RxSwIfIndex), uint32(m.TxSwIfIndex)
	if s.links[from] == nil || m.Enable && s.links[to] == nil {
		return int32(api.INVALID_SW_IF_INDEX)
	}
	if delete(s.crossed.l2, from); m.Enable {
		s.crossed.l2[from] = to
	}
	return 0
}

func (s *Server) dumpL2CrossConnects(a answer) {
	for from, to := range s.crossed.l2 {
		a.send(&l2.L2XconnectDetails{RxSwIfIndex: interface_types.InterfaceIndex(from),
			TxSwIfIndex: interface_types.InterfaceIndex(to)})
	}
}

func (s *Server) updateL3CrossConnect(x l3xc.L3xc) int32 {
	index := uint32(x.SwIfIndex)
	if s.links[index] == nil {
		return int32(api.INVALID_SW_IF_INDEX)
	}
	if len(x.Paths) == 0 {
		return int32(api.INVALID_VALUE)
	}
	k := l3Key{index, x.IsIP6}
	if _, there := s.crossed.l3[k]; there {
		panic("vpptest: a real VPP goes on forwarding by the paths before the update")
	}
	s.crossed.l3[k] = x
	return 0
}

func (s *Server) deleteL3CrossConnect(m *l3xc.L3xcDel) int32 {
	k := l3Key{uint32(m.SwIfIndex), m.IsIP6}
	_, there := s.crossed.l3[k]
	delete(s.crossed.l3, k)
	switch {
	case s.links[k.index] == nil:
		return int32(api.INVALID_SW_IF_INDEX)
	case !there:
		return int32(api.INVALID_VALUE)
	}
	return 0
}

func (s *Server) dumpL3CrossConnects(a answer, m *l3xc.L3xcDump) {
	for k, x := range s.crossed.l3 {
		if k.index == uint32(m.SwIfIndex) {
			x.IsIP6 = false // VPP 25.10 does not fill it in
			a.send(&l3xc.L3xcDetails{L3xc: x})
		}
	}
}
