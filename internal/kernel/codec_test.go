package kernel

import (
	"encoding/hex"
	"net/netip"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func drawAddr(t *rapid.T, label string, four bool) netip.Addr {
	n := 16
	if four {
		n = 4
	}
	a, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, label))
	return a
}

func drawEntry(t *rapid.T) entry {
	four := rapid.Bool().Draw(t, "IPv4")
	addr := drawAddr(t, "prefix", four)
	e := entry{
		table:  rapid.Uint32Range(1, 1<<31).Draw(t, "table"),
		prefix: netip.PrefixFrom(addr, rapid.IntRange(0, addr.BitLen()).Draw(t, "bits")).Masked(),
		kind: rapid.SampledFrom([]uint8{unix.RTN_UNICAST, unix.RTN_BLACKHOLE,
			unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT}).Draw(t, "kind"),
		protocol: rapid.Byte().Draw(t, "protocol"),
		metric:   rapid.Uint32().Draw(t, "metric"),
		scope:    rapid.Byte().Draw(t, "scope"),
	}
	if e.kind != unix.RTN_UNICAST {
		return e
	}
	for range rapid.IntRange(1, 5).Draw(t, "legs") {
		l := leg{
			index:  rapid.Uint32Range(1, 1<<31-1).Draw(t, "index"),
			weight: rapid.Uint8Range(1, 255).Draw(t, "weight"),
			flags:  rapid.SampledFrom([]uint8{0, unix.RTNH_F_ONLINK}).Draw(t, "flags"),
		}
		switch rapid.IntRange(0, 2).Draw(t, "gateway") {
		case 1:
			l.gateway = drawAddr(t, "gateway", four)
		case 2:
			l.gateway = drawAddr(t, "gateway", false)
		}
		e.legs = append(e.legs, l)
	}
	if len(e.legs) == 1 {
		e.legs[0].weight = 1
	}
	return e
}

// TestDecodeReadsWhatPutWrites: the kernel dumps routes in the form in which it takes them.
func TestDecodeReadsWhatPutWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b batch
		var want []entry
		for range rapid.IntRange(1, 4).Draw(t, "entries") {
			e := drawEntry(t)
			want = append(want, e)
			b.put(e)
		}
		b.number(7)
		var got []entry
		for m := range messages(b.bytes) {
			if m.kind != unix.RTM_NEWROUTE || m.seq != 7+uint32(len(got)) {
				t.Fatalf("message %+v", m)
			}
			e, ok, err := decode(m.body)
			if !ok || err != nil {
				t.Fatalf("%v, %v: %s", ok, err, hex.EncodeToString(m.body))
			}
			got = append(got, e)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
	})
}

func TestDecodePassesOver(t *testing.T) {
	for name, change := range map[string]func(body []byte){
		"another family":        func(b []byte) { b[0] = unix.AF_MPLS },
		"a route by source":     func(b []byte) { b[2] = 8 },
		"a type of service":     func(b []byte) { b[3] = 0x10 },
		"a cached copy of IPv6": func(b []byte) { b[9] |= unix.RTM_F_CLONED >> 8 },
	} {
		var b batch
		b.put(entry{table: 254, prefix: pfx("198.18.0.0/24"), kind: unix.RTN_BLACKHOLE})
		body := b.bytes[unix.NLMSG_HDRLEN:]
		if _, ok, err := decode(body); !ok || err != nil {
			t.Fatalf("unchanged: %v, %v", ok, err)
		}
		change(body)
		if _, ok, err := decode(body); ok || err != nil {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
}

// FuzzMessages feeds whole datagrams to everything that reads them.
func FuzzMessages(f *testing.F) {
	for _, e := range []entry{
		{table: 254, prefix: pfx("0.0.0.0/0"), kind: unix.RTN_UNICAST,
			legs: []leg{{gateway: addr("10.0.0.1"), index: 2, weight: 1}}},
		{table: 70000, prefix: pfx("198.18.0.0/24"), kind: unix.RTN_UNICAST, metric: 1050,
			protocol: 179, legs: []leg{
				{gateway: addr("10.0.0.1"), index: 2, weight: 3},
				{gateway: addr("fe80::1"), index: 3, weight: 255, flags: unix.RTNH_F_ONLINK}}},
		{table: 254, prefix: pfx("2001:db8::/48"), kind: unix.RTN_PROHIBIT},
	} {
		var b batch
		b.put(e)
		b.delete(e)
		b.list(selection{unix.AF_INET, 7, 179, 0})
		f.Add(b.bytes)
	}
	// NLMSG_ERROR with capped request and attributes
	refused, err := hex.DecodeString("3c000000020000030100000000000000" +
		"eaffffff" + "2c000000180005060100000000000000" + // EINVAL, the request's header
		"17000100496e76616c696420676174657761792100000000") // the text
	if err != nil {
		f.Fatal(err)
	}
	f.Add(refused)
	f.Fuzz(func(t *testing.T, datagram []byte) {
		w := &watch{clashing: func(e entry) bool {
			return true
		}, clash: map[clashKey]struct{}{}, links: make(chan struct{}, 1),
			routes: make(chan struct{}, 1)}
		for m := range messages(datagram) {
			e, ok, err := decode(m.body)
			if ok && (err != nil || !e.prefix.IsValid() || e.prefix != e.prefix.Masked()) {
				t.Errorf("%+v, %v", e, err)
			}
			if err := refusal(m); err != nil && err.Error() == "" {
				t.Error("an error without words")
			}
			w.note(m)
		}
	})
}
