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

func forwarded(s segment) route.Counts { return s.of(byRoute, 0) }

func TestReadCounters(t *testing.T) {
	whole := aSegment(t)
	got, err := readCounters(whole, func(s segment) [2]route.Counts {
		return [...]route.Counts{s.of(byRoute, 0), s.of(byRoute, 1<<31)}
	}, allCounters)
	if err != nil || got != [...]route.Counts{{Packets: 3, Bytes: 300}, {}} {
		t.Fatalf("%v, %v", got, err)
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
		// or else readers would go through it as often as somebody has written there
		"with all counters in one place": {func(b []byte) []byte {
			first := strings.Index(string(b), receivedByLink) - 8
			for _, name := range allCounters {
				at := strings.Index(string(b), name+"\x00") - 8
				copy(b[at:at+8], b[first:])
			}
			binary.NativeEndian.PutUint32(b[48:], uint32(len(b)-56)/counterSize)
			return b
		}, errMoved.Error()},
	} {
		_, err := readCounters(tc.change(slices.Clone(whole)), forwarded, allCounters)
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Who needs one counter does not copy those of a million routes.
func TestReadCountersInPlace(t *testing.T) {
	whole := aSegment(t)
	left, err := readCounters(whole, func(s segment) uint64 {
		if s.of(byRoute, 0).Packets != 3 {
			t.Error("not counted")
		}
		clear(whole[segmentHeader:])
		return s.of(byRoute, 0).Packets
	}, allCounters)
	if err != nil || left != 0 {
		t.Errorf("%d packets are left of a segment that is gone, %v", left, err)
	}
}

// Only a page that is gone is the segment's fault.
func TestReadCountersHidesNoPanic(t *testing.T) {
	var nowhere *uint64
	for name, take := range map[string]func(segment) uint64{
		"nil":   func(segment) uint64 { return *nowhere },
		"index": func(s segment) uint64 { return uint64(s[byRoute][len(s[byRoute])][0]) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			_, err := readCounters(aSegment(t), take, allCounters)
			t.Errorf("%s: %v", name, err)
		}()
	}
}

// A reading that VPP interfered with returns nothing.
func TestReadCountersThatAreMoved(t *testing.T) {
	for name, change := range map[string]func([]byte){
		"between two readings of the epoch": func(b []byte) { b[16]++ },
		"still going on":                    func(b []byte) { b[24] = 1 },
	} {
		b := aSegment(t)
		got, err := readCounters(b, func(s segment) uint64 {
			change(b)
			return s.of(byRoute, 0).Packets
		}, allCounters)
		if !errors.Is(err, errMoved) || got != 0 {
			t.Errorf("%s: %d packets, %v", name, got, err)
		}
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
		total, err := readCounters(b[:len(b)-random.IntN(9)], func(s segment) (total int) {
			for _, threads := range s {
				for _, thread := range threads {
					total += len(thread)
				}
			}
			return total
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
	for _, when := range []string{"before", "while take reads", "afterwards"} {
		if _, err := f.WriteAt(whole, 0); err != nil {
			t.Fatal(err)
		}
		cut := func(now string) {
			if now != when {
				return
			}
			if err := f.Truncate(0); err != nil {
				t.Fatal(err)
			}
		}
		cut("before")
		got, err := readCounters(mapped, func(s segment) route.Counts {
			cut("while take reads")
			defer cut("afterwards")
			return forwarded(s)
		}, allCounters)
		if err == nil || !strings.Contains(err.Error(), "became shorter") ||
			got != (route.Counts{}) {
			t.Errorf("%s: %v, %v", when, got, err)
		}
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
	_, err = readSegment(context.Background(), v, forwarded, byRoute)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// A reading is tried again while VPP changes the segment, and only the last one counts.
func TestReadSegmentIsTriedAgain(t *testing.T) {
	b := aSegment(t)
	tries := 0
	got, err := tryCounters(t.Context(), func() (route.Counts, error) {
		if tries++; tries == 3 {
			b[24] = 0
		} else {
			b[24] = 1
		}
		return readCounters(b, forwarded, allCounters)
	})
	if err != nil || tries != 3 || got.Packets != 3 {
		t.Errorf("%d tries, %v, %v", tries, got, err)
	}
	tries = 0
	_, err = tryCounters(t.Context(), func() (int, error) { tries++; return 0, errMoved })
	if !errors.Is(err, errMoved) || tries != segmentTries {
		t.Errorf("%d tries, %v", tries, err)
	}
}
