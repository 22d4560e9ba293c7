package recorder

import (
	"net/netip"
	"testing"
	"time"

	"vpp-route-agent/internal/durable"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// A checkpoint of many keys is taken once an hour at most, or when a third of the ring is written.
func TestCheckpointsOfManyKeysAreHourly(t *testing.T) {
	const size = 8 << 20
	block := durable.EndBlock(append(durable.StartBlock(nil, blockRecords),
		make([]byte, enough)...))
	for name, tc := range map[string]struct {
		keys   int
		part   int // of the ring is written, one part in
		within time.Duration
		begun  int // segments
	}{
		"few keys, an eighth":              {manyKeys, parts, time.Minute, 2},
		"many keys, an eighth":             {manyKeys + 1, parts, 59 * time.Minute, 1},
		"many keys, an eighth, in an hour": {manyKeys + 1, parts, time.Hour, 2},
		"many keys, a third":               {manyKeys + 1, mostParts, time.Minute, 2},
		"many keys, less than an eighth":   {manyKeys + 1, 2 * parts, 2 * time.Hour, 1},
	} {
		w := newRing(Config{Dir: t.TempDir(), Size: size}, time.Now(), create)
		defer w.close()
		now := time.Now()
		if err := w.write(block, now); err != nil {
			t.Fatal(err)
		}
		w.complete(1, tc.keys, now)
		for w.bytes <= int64(size/tc.part) {
			if err := w.write(block, now); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.write(block, now.Add(tc.within)); err != nil {
			t.Fatal(err)
		}
		if len(w.segments) != tc.begun {
			t.Errorf("%s: %d segments", name, len(w.segments))
		}
	}
}

// docs/recorder.md says how large a checkpoint is.
func TestSizeOfACheckpoint(t *testing.T) {
	const n = 20_000
	for name, tc := range map[string]struct {
		key       func(i int) route.Key
		alternate bool // the nodes
		bytes     int
	}{
		"IPv4":                   {host, false, 28},
		"IPv4, nodes in any row": {host, true, 48},
		"IPv6": {func(i int) route.Key {
			a := netip.MustParseAddr("fd00::").As16()
			a[5], a[6], a[7] = byte(i>>16), byte(i>>8), byte(i)
			return route.Key{Prefix: netip.PrefixFrom(netip.AddrFrom16(a), 64)}
		}, false, 52},
	} {
		r := newRecorder(t, t.TempDir(), 64<<20)
		at := r.At(time.Now())
		var sets [20][2][]route.Path // of 20 nodes
		for i := range sets {
			hop := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
			sets[i][0] = []route.Path{{NextHop: hop, Weight: 1}}
			sets[i][1] = []route.Path{{NextHop: hop, Interface: "memif0/0", Weight: 1}}
		}
		for i := range n {
			set, k := sets[i/(n/len(sets))], tc.key(i)
			if tc.alternate {
				set = sets[i%len(sets)]
			}
			r.Stands([]fib.CandidateChange{{Key: k, Origin: route.BGP, Paths: set[0],
				Preference: 100, At: at}}, fib.Decision{Key: k, Programs: true, Paths: set[1],
				Origin: route.BGP, At: at})
		}
		if per := len(r.queue.b) / n; per > tc.bytes || per < tc.bytes-4 {
			t.Errorf("%s: %d bytes for each prefix", name, per)
		}
	}
}
