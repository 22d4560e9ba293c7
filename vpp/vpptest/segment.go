package vpptest

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"vpp-route-agent/internal/route"
)

// counts are what VPP has in its statistics segment. Packets are counted by Forward and Receive.
type counts struct {
	nextRoute       uint32 // the stats_index of the next entry
	countsByHop     bool
	adjacencies     map[adjacency]uint32
	adjacencyCounts []route.Counts
}

// adjacency is a next hop on an interface, for packets of a family.
type adjacency struct {
	on  uint32
	hop string
	six bool // the packets
}

const packetSize = 100 // of what Forward sends, in bytes

// StatsSocket returns the path of the socket that hands out the statistics segment, once
// ServeStats has made it.
func (s *Server) StatsSocket() string {
	return filepath.Join(filepath.Dir(s.path), "stats.sock")
}

// ServeStats has the statistics segment handed out, as it is when a client connects.
func (s *Server) ServeStats() error {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: s.StatsSocket(),
		Net: "unixpacket"})
	if err != nil {
		return fmt.Errorf("vpptest: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats = l
	s.wg.Go(func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			s.handSegment(c)
			c.Close()
		}
	})
	return nil
}

// handSegment sends a file with the segment; a client that went is none of its concern.
func (s *Server) handSegment(c *net.UnixConn) {
	f, err := os.CreateTemp(filepath.Dir(s.path), "segment")
	if err != nil {
		return
	}
	defer f.Close()
	os.Remove(f.Name())
	s.mu.Lock()
	written := s.segment()
	s.mu.Unlock()
	if _, err := f.Write(written); err == nil {
		_, _, _ = c.WriteMsgUnix([]byte{0}, syscall.UnixRights(int(f.Fd())), nil)
	}
}

const (
	segmentBase    = 0x1_3000_0000 // where the segment is mapped in VPP
	segmentHeader  = 48
	directoryEntry = 144
	combined       = 3 // the type of counters of packets and bytes
)

// segment is the segment in its version 2 (src/vlib/stats/shared.h). Vectors have their length in
// front.
func (s *Server) segment() []byte {
	vectors := []struct {
		name   string
		counts []route.Counts
	}{
		{"/if/rx", s.linkCounts(func(l *link) route.Counts { return l.received })},
		{"/if/tx", s.linkCounts(func(l *link) route.Counts { return l.sent })},
		{"/net/route/to", s.routeCounts()},
		{"/net/adjacency", s.adjacencyCounts},
	}
	out := make([]byte, segmentHeader)
	vector := func(n int, body []byte) (at uint64) {
		out = binary.LittleEndian.AppendUint64(out, uint64(n))
		at = segmentBase + uint64(len(out))
		out = append(out, body...)
		return at
	}
	var directory []byte
	for _, v := range vectors {
		var body []byte
		for _, c := range v.counts {
			body = binary.LittleEndian.AppendUint64(body, c.Packets)
			body = binary.LittleEndian.AppendUint64(body, c.Bytes)
		}
		thread := vector(len(v.counts), body)
		threads := vector(1, binary.LittleEndian.AppendUint64(nil, thread))
		entry := make([]byte, directoryEntry)
		binary.LittleEndian.PutUint32(entry, combined)
		binary.LittleEndian.PutUint64(entry[8:], threads)
		copy(entry[16:], v.name)
		directory = append(directory, entry...)
	}
	at := vector(len(vectors), directory)
	binary.LittleEndian.PutUint64(out, 2)
	binary.LittleEndian.PutUint64(out[8:], segmentBase)
	binary.LittleEndian.PutUint64(out[16:], 1) // the epoch
	binary.LittleEndian.PutUint64(out[32:], at)
	return append(out, make([]byte, 8)...)
}

func (s *Server) linkCounts(of func(*link) route.Counts) []route.Counts {
	all := make([]route.Counts, s.nextLink)
	for i, l := range s.links {
		all[i] = of(l)
	}
	return all
}

func (s *Server) routeCounts() []route.Counts {
	all := make([]route.Counts, s.nextRoute)
	for _, t := range s.tables {
		for _, e := range t.entries {
			if e.counted {
				all[e.statsIndex] = e.forwarded
			}
		}
	}
	return all
}

// statsIndex is where an entry is counted, as long as it is there.
func (s *Server) statsIndex(e *entry) uint32 {
	if !e.counted {
		e.counted, e.statsIndex = true, s.nextRoute
		s.nextRoute++
	}
	return e.statsIndex
}

// Forward counts packets that match the entry of k, one after another by each of its paths.
func (s *Server) Forward(k route.Key, packets int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.tables[keyOf(k)].entries[k.Prefix]
	if e == nil {
		return
	}
	_, paths := e.best(s.sources)
	s.statsIndex(e)
	for n := range packets {
		one := route.Counts{Packets: 1, Bytes: packetSize}
		e.forwarded.Add(one)
		p := paths[n%len(paths)]
		l := s.links[p.SwIfIndex]
		if l == nil || p.SwIfIndex == noInterface {
			continue
		}
		l.sent.Add(one)
		i := s.adjacency(adjacency{p.SwIfIndex,
			address(p.Nh.Address, p.Proto == protoIP6).String(), k.Prefix.Addr().Is6()})
		if s.countsByHop {
			s.adjacencyCounts[i].Add(one)
		}
	}
}

// Receive counts packets that come in by the VXLAN tunnel to a node.
func (s *Server) Receive(node netip.Addr, packets int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		if l.vxlan != nil && l.vxlan.far == node {
			l.received.Add(route.Counts{Packets: uint64(packets),
				Bytes: uint64(packets) * packetSize})
		}
	}
}

func (s *Server) adjacency(a adjacency) uint32 {
	if s.adjacencies == nil {
		s.adjacencies = map[adjacency]uint32{}
	}
	i, ok := s.adjacencies[a]
	if !ok {
		i = uint32(len(s.adjacencyCounts))
		s.adjacencies[a], s.adjacencyCounts = i, append(s.adjacencyCounts, route.Counts{})
	}
	return i
}

// CountByHop turns the counters of adjacencies on or off.
func (s *Server) CountByHop(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.countsByHop = on
}

// showHopCounters is what VPP 25.10 prints for `show adj summary`.
func (s *Server) showHopCounters() string {
	state := "disabled"
	if s.countsByHop {
		state = "enabled"
	}
	return fmt.Sprintf("Number of adjacencies: %d\nPer-adjacency counters: %s\n",
		len(s.adjacencies), state)
}

// showAdjacencies is what it prints for `show adj nbr`.
func (s *Server) showAdjacencies() string {
	var lines []string
	for a, i := range s.adjacencies {
		l := s.links[a.on]
		if l == nil {
			continue
		}
		of := "ipv4"
		if a.six {
			of = "ipv6"
		}
		lines = append(lines, fmt.Sprintf("[@%d]  %s via %s %s: mtu:%d next:3 flags:[] "+
			"4500\n  stacked-on entry:9:\n    [@2]: ipv4 via 192.0.2.99 other: mtu:9000\n",
			i, of, a.hop, l.name, l.mtu))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}
