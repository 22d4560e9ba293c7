package vpp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/route"
)

// VPP's statistics segment, version 2 (src/vlib/stats/shared.h): a file that VPP hands out and
// writes to, without waiting for readers. Addresses in it are VPP's own. GoVPP's client reads what
// they lead to as it finds it, and would take the agent along with what VPP has just freed; here
// all of it is checked.

// The names of counters.
const (
	receivedByLink = "/if/rx"         // by the interface's index
	sentByLink     = "/if/tx"         // likewise
	byRoute        = "/net/route/to"  // by the stats_index of a route
	byAdjacency    = "/net/adjacency" // by the index of an adjacency; all 0 while VPP has them off
)

const (
	segmentVersion  = 2
	segmentHeader   = 40  // version, base, epoch, whether it is being changed, directory
	directoryEntry  = 144 // type, data, name
	combinedCounter = 3   // the type of counters of packets and bytes, by thread
	counterSize     = 16

	// A reading is in vain where VPP has moved counters meanwhile, which it does as routes come.
	segmentTries = 50
	segmentPause = 10 * time.Millisecond
)

// errMoved says that the segment is not as a reader needs it at the moment.
var errMoved = errors.New("VPP changed its statistics while they were read")

// segment holds the counters by name and thread, where VPP keeps them.
type segment map[string][][]byte

// of sums up what the threads have counted at an index.
func (s segment) of(name string, index uint32) (sum route.Counts) {
	for _, thread := range s[name] {
		if at := int(index) * counterSize; at+counterSize <= len(thread) {
			sum.Add(route.Counts{Packets: binary.NativeEndian.Uint64(thread[at:]),
				Bytes: binary.NativeEndian.Uint64(thread[at+8:])})
		}
	}
	return sum
}

// indexes is how many of name's indexes there are.
func (s segment) indexes(name string) (n uint32) {
	for _, thread := range s[name] {
		n = max(n, uint32(len(thread)/counterSize))
	}
	return n
}

// readSegment returns what take reads of counters in one reading; where VPP has interfered it calls
// take again. The segment may have counters of a million routes, so take reads them where they are,
// soon, and must not keep its argument. The segment is mapped anew, as VPP may have restarted. A
// frozen VPP, or one that changes its segment all the time, blocks it for Config.ReplyTimeout.
func readSegment[T any](ctx context.Context, v *VPP, take func(segment) T,
	names ...string) (taken T, err error) {
	ctx, cancel := context.WithTimeout(ctx, v.cfg.ReplyTimeout)
	defer cancel()
	mapped, err := mapSegment(ctx, v.cfg.StatsSocket)
	if err != nil {
		return taken, err
	}
	defer unix.Munmap(mapped)
	taken, err = tryCounters(ctx, func() (T, error) { return readCounters(mapped, take, names) })
	if err != nil {
		err = fmt.Errorf("%s: %w", v.cfg.StatsSocket, err)
	}
	return taken, err
}

// tryCounters reads until VPP does not interfere.
func tryCounters[T any](ctx context.Context, read func() (T, error)) (taken T, err error) {
	for range segmentTries {
		if taken, err = read(); !errors.Is(err, errMoved) {
			return taken, err
		}
		select {
		case <-time.After(segmentPause):
		case <-ctx.Done():
			return taken, errors.Join(err, ctx.Err())
		}
	}
	return taken, err
}

// mapSegment asks VPP for the segment. A frozen VPP does not answer.
func mapSegment(ctx context.Context, socket string) ([]byte, error) {
	if _, err := os.Stat(socket); err != nil {
		return nil, err
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unixpacket", socket)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })()
	rights := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := nc.(*net.UnixConn).ReadMsgUnix(make([]byte, 16), rights)
	if err != nil && n == 0 { // VPP sends no byte beside the file, which net takes for the end
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("%s does not answer: %w", socket, err)
	}
	fd, err := descriptor(rights[:n])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", socket, err)
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, fmt.Errorf("%s: %w", socket, err)
	}
	mapped, err := unix.Mmap(fd, 0, int(stat.Size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%s: map it: %w", socket, err)
	}
	return mapped, nil
}

// descriptor returns the one that came with a message.
func descriptor(rights []byte) (int, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return 0, errors.Join(errors.New("no file came"), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return 0, errors.Join(errors.New("no file came"), err)
	}
	return fds[0], nil
}

// readCounters returns what take reads of counters in the segment; nothing of a reading that VPP
// has interfered with. Where the segment's file is cut short, a page that is gone is an error.
func readCounters[T any](mapped []byte, take func(segment) T, names []string) (taken T, err error) {
	var nothing T
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch p := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }: // a fault
			taken, err = nothing,
				errors.New("the statistics segment became shorter while it was read")
		default:
			panic(p)
		}
	}()
	if len(mapped) < segmentHeader {
		return nothing, errors.New("the statistics segment is too short")
	}
	m := memory{mapped, binary.NativeEndian.Uint64(mapped[8:])}
	if v := binary.NativeEndian.Uint64(mapped); v != segmentVersion {
		return nothing, fmt.Errorf("the statistics segment has version %d, not %d", v,
			segmentVersion)
	}
	epoch, ok := m.epoch()
	if !ok {
		return nothing, errMoved
	}
	found, ok := m.find(names)
	if !ok {
		return nothing, errMoved
	}
	taken = take(found)
	if now, ok := m.epoch(); !ok || now != epoch {
		return nothing, errMoved
	}
	for _, name := range names {
		if found[name] == nil {
			return nothing, errors.New("VPP has no " + name)
		}
	}
	return taken, nil
}

// memory is the segment at the address that it has in VPP.
type memory struct {
	mapped []byte
	base   uint64
}

// epoch is another one after each change; ok is false during one. VPP sets the epoch before it says
// that the change is over, so they are read the other way round.
func (m memory) epoch() (epoch uint64, ok bool) {
	ok = m.load(24) == 0
	return m.load(16), ok
}

// load reads what VPP writes to tell readers.
func (m memory) load(at int) uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&m.mapped[at])))
}

// find returns counters by name. ok is false where what leads to them cannot be right.
func (m memory) find(names []string) (found segment, ok bool) {
	directory, ok := m.vector(binary.NativeEndian.Uint64(m.mapped[32:]), directoryEntry)
	if !ok {
		return nil, false
	}
	found, room := segment{}, len(m.mapped) // vectors do not overlap
	for entry := range slices.Chunk(directory, directoryEntry) {
		name, _, _ := strings.Cut(string(entry[16:]), "\x00")
		if binary.NativeEndian.Uint32(entry) != combinedCounter || !slices.Contains(names, name) {
			continue
		}
		threads, ok := m.vector(binary.NativeEndian.Uint64(entry[8:]), 8)
		if !ok {
			return nil, false
		}
		found[name] = [][]byte{}
		for thread := range slices.Chunk(threads, 8) {
			counters, ok := m.vector(binary.NativeEndian.Uint64(thread), counterSize)
			if room -= len(counters); !ok || room < 0 {
				return nil, false
			}
			found[name] = append(found[name], counters)
		}
	}
	return found, true
}

// vector returns the elements of one of VPP's vectors, whose length stands before them. ok is false
// where it cannot be one.
func (m memory) vector(address uint64, size int) (elements []byte, ok bool) {
	at := address - m.base // of an address below it, very large
	if at < 8 || at > uint64(len(m.mapped)) {
		return nil, false
	}
	length := uint64(binary.NativeEndian.Uint32(m.mapped[at-8:])) * uint64(size)
	if length > uint64(len(m.mapped))-at {
		return nil, false
	}
	return m.mapped[at : at+length], true
}
