package vpp

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/route"
	"vpp-route-agent/vpp/vpptest"
)

// aSegment is one in which a route has forwarded three packets.
func aSegment(t *testing.T) []byte {
	t.Helper()
	s, err := vpptest.New()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.ServeStats(); err != nil {
		t.Fatal(err)
	}
	s.AddInterface("loop0", netip.MustParsePrefix("10.0.1.1/24"))
	s.Forward(route.Key{Prefix: netip.MustParsePrefix("10.0.1.0/24")}, 3)
	mapped, err := mapSegment(t.Context(), s.StatsSocket())
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapped)
	return slices.Clone(mapped)
}

var allCounters = []string{receivedByLink, sentByLink, byRoute, byAdjacency}

func nothing(segment) {}

func TestReadCounters(t *testing.T) {
	whole := aSegment(t)
	var first, none route.Counts
	err := readCounters(whole, func(s segment) {
		first, none = s.of(byRoute, 0), s.of(byRoute, 1<<31)
	}, allCounters)
	if err != nil || first != (route.Counts{Packets: 3, Bytes: 300}) || none != (route.Counts{}) {
		t.Fatalf("%v, %v, %v", first, none, err)
	}
	for name, tc := range map[string]struct {
		change func([]byte) []byte
		says   string
	}{
		"short":         {func(b []byte) []byte { return b[:30] }, "too short"},
		"empty":         {func(b []byte) []byte { return nil }, "too short"},
		"of an old VPP": {func(b []byte) []byte { b[0] = 1; return b }, "version 1, not 2"},
		"being changed": {func(b []byte) []byte { b[24] = 1; return b }, errMoved.Error()},
		"without a directory": {func(b []byte) []byte { clear(b[32:40]); return b },
			errMoved.Error()},
		"without routes": {func(b []byte) []byte {
			at := strings.Index(string(b), byRoute)
			b[at] = 'x'
			return b
		}, "VPP has no " + byRoute},
	} {
		err := readCounters(tc.change(slices.Clone(whole)), nothing, allCounters)
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Who needs one counter does not copy those of a million routes.
func TestReadCountersInPlace(t *testing.T) {
	whole := aSegment(t)
	err := readCounters(whole, func(s segment) {
		if s.of(byRoute, 0).Packets != 3 {
			t.Error("not counted")
		}
		clear(whole[segmentHeader:])
		if n := s.of(byRoute, 0).Packets; n != 0 {
			t.Errorf("%d packets are left of a segment that is gone", n)
		}
	}, allCounters)
	if err != nil {
		t.Fatal(err)
	}
}

// VPP writes while the segment is read: whatever a length or an address has become, nothing beyond
// the segment is read or allocated.
func TestReadCountersOfGarbage(t *testing.T) {
	whole := aSegment(t)
	base := binary.NativeEndian.Uint64(whole[8:])
	random := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for range 50_000 {
		b := slices.Clone(whole)
		for range 1 + random.IntN(3) {
			at := random.IntN(len(b)/8) * 8
			values := []uint64{0, 1, 7, base, base - 1, base + 1, base + uint64(len(b)),
				base + uint64(at), 1<<32 - 1, 1<<63 - 1, 1<<64 - 1, random.Uint64()}
			binary.NativeEndian.PutUint64(b[at:], values[random.IntN(len(values))])
		}
		total := 0
		err := readCounters(b[:len(b)-random.IntN(9)], func(s segment) {
			for _, threads := range s {
				for _, thread := range threads {
					total += len(thread)
				}
			}
		}, allCounters)
		if err != nil {
			refused++
		}
		if total > len(b) {
			t.Fatalf("%d bytes out of %d", total, len(b))
		}
	}
	if refused == 0 {
		t.Error("no garbage was found out")
	}
}

// A VPP that dies, or somebody else, may cut the file short that is mapped.
func TestReadCountersOfFileCutShort(t *testing.T) {
	whole := append(aSegment(t), make([]byte, 2*os.Getpagesize())...)
	f, err := os.Create(filepath.Join(t.TempDir(), "segment"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(whole); err != nil {
		t.Fatal(err)
	}
	mapped, err := unix.Mmap(int(f.Fd()), 0, len(whole), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapped)
	if err := readCounters(mapped, nothing, allCounters); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	err = readCounters(mapped, nothing, allCounters)
	if err == nil || !strings.Contains(err.Error(), "became shorter") {
		t.Errorf("%v", err)
	}
}

// A VPP that hands nothing out is given up, also where the caller has no deadline.
func TestReadSegmentHasADeadline(t *testing.T) {
	s, err := vpptest.New()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	silent, err := net.Listen("unixpacket", s.StatsSocket())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	v := New(Config{StatsSocket: s.StatsSocket(), ReplyTimeout: time.Millisecond})
	err = v.readSegment(context.Background(), nothing, byRoute)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// A reading is tried again while VPP changes the segment.
func TestReadSegmentIsTriedAgain(t *testing.T) {
	b := aSegment(t)
	tries := 0
	err := tryCounters(t.Context(), func() error {
		if tries++; tries == 3 {
			b[24] = 0
		} else {
			b[24] = 1
		}
		return readCounters(b, nothing, allCounters)
	})
	if err != nil || tries != 3 {
		t.Errorf("%d tries, %v", tries, err)
	}
	tries = 0
	err = tryCounters(t.Context(), func() error { tries++; return errMoved })
	if !errors.Is(err, errMoved) || tries != segmentTries {
		t.Errorf("%d tries, %v", tries, err)
	}
}
