package vpptest

import (
	"fmt"
	"math"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/memif"
)

// memifDevice is what VPP calls the device of a memif.
const memifDevice = "memif"

const (
	systemCall4     = -14
	unexpectedState = -74
	entryExists     = -116
)

// memifSocket is the socket that a number stands for, of masters or of slaves
// (src/plugins/memif/memif.c).
type memifSocket struct {
	path    string
	masters bool
	// memifs at it. After a master could not listen it is -1: nobody ever listens then.
	memifs int
}

// memifLink is what a memif is besides an interface.
type memifLink struct {
	id, socket uint32
	master     bool
	secret     string
}

func newMemifSockets() map[uint32]*memifSocket {
	return map[uint32]*memifSocket{0: {path: "/run/vpp/memif.sock"}}
}

// AddMemifSocket gives a path a number, as another client would.
func (s *Server) AddMemifSocket(id uint32, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memifSockets[id] = &memifSocket{path: path}
}

// MemifSockets returns the paths by number.
func (s *Server) MemifSockets() map[uint32]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	paths := map[uint32]string{}
	for id, socket := range s.memifSockets {
		paths[id] = socket.path
	}
	return paths
}

func (s *Server) changeMemifSocket(m *memif.MemifSocketFilenameAddDelV2) int32 {
	is, path := s.memifSockets[m.SocketID], text(m.SocketFilename)
	switch {
	case m.SocketID == 0, m.SocketID == math.MaxUint32:
		return int32(api.INVALID_ARGUMENT)
	case !m.IsAdd && is == nil, m.IsAdd && path == "":
		return int32(api.INVALID_ARGUMENT)
	case !m.IsAdd && is.memifs > 0:
		return unexpectedState
	case !m.IsAdd:
		delete(s.memifSockets, m.SocketID)
	case is != nil && is.path != path:
		return entryExists
	case is == nil:
		s.memifSockets[m.SocketID] = &memifSocket{path: path}
	}
	return 0
}

func (s *Server) createMemif(m *memif.MemifCreateV2) (uint32, int32) {
	is, master := s.memifSockets[m.SocketID], m.Role == memif.MEMIF_ROLE_API_MASTER
	name := fmt.Sprintf("memif%d/%d", m.SocketID, m.ID)
	switch {
	case !isPowerOf2(m.RingSize), is == nil:
		return math.MaxUint32, int32(api.INVALID_ARGUMENT)
	case is.memifs > 0 && is.masters != master, s.hasLink(name):
		return math.MaxUint32, int32(api.SUBIF_ALREADY_EXISTS)
	}
	if is.memifs == 0 {
		if is.masters = master; master && !s.canListen(is) {
			is.memifs--
			return math.MaxUint32, systemCall4
		}
	}
	is.memifs++
	return s.addLink(&link{name: name, device: memifDevice, mac: m.HwAddr,
		memif: memifLink{m.ID, m.SocketID, master, text(m.Secret)}}), 0
}

// canListen: a folder called "missing" is not there, and of two listeners the first has the path.
func (s *Server) canListen(at *memifSocket) bool {
	for _, other := range s.memifSockets {
		if other != at && other.path == at.path && other.masters && other.memifs > 0 {
			return false
		}
	}
	return !strings.Contains(at.path, "/missing/")
}

func (s *Server) leaveMemifSocket(l *link) {
	if l.device == memifDevice {
		s.memifSockets[l.memif.socket].memifs--
	}
}

// isConnected reports whether a memif and one at the same socket are up, as both must be.
func (s *Server) isConnected(l *link) bool {
	for _, other := range s.links {
		if s.arePeers(l, other) && other.up {
			return l.up
		}
	}
	return false
}

func (s *Server) arePeers(a, b *link) bool {
	return a.device == memifDevice && b.device == memifDevice &&
		a.memif.master != b.memif.master && a.memif.id == b.memif.id &&
		a.memif.secret == b.memif.secret &&
		s.memifSockets[a.memif.socket].path == s.memifSockets[b.memif.socket].path
}

// announcePeers: the other end of a memif goes up and down with it.
func (s *Server) announcePeers(l *link) {
	for i, other := range s.links {
		if s.arePeers(l, other) {
			s.announce(i, false)
		}
	}
}

func (s *Server) dumpMemifSockets(a answer) {
	for id, is := range s.memifSockets {
		a.send(&memif.MemifSocketFilenameDetails{SocketID: id, SocketFilename: is.path})
	}
}

func (s *Server) dumpMemifs(a answer) {
	for i, l := range s.links {
		if l.device != memifDevice {
			continue
		}
		d := &memif.MemifDetails{SwIfIndex: interface_types.InterfaceIndex(i), HwAddr: l.mac,
			ID: l.memif.id, SocketID: l.memif.socket, Flags: s.flags(l), IfName: l.name}
		if !l.memif.master {
			d.Role = memif.MEMIF_ROLE_API_SLAVE
		}
		a.send(d)
	}
}

// isPowerOf2 holds for 0, for which VPP has a default.
func isPowerOf2(n uint32) bool { return n&(n-1) == 0 }

func text(s string) string { return strings.TrimRight(s, "\x00") }
