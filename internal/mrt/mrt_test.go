package mrt

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/bgp"
)

var (
	peer4 = netip.MustParseAddr("10.0.0.1")
	at    = time.Unix(0x65000000, 123_456_789)
	both  = bgp.SessionFamily{On: true, PathIDs: true}
	plain = bgp.SessionFamily{On: true}
)

func session4() bgp.Session {
	return bgp.Session{Peer: peer4, Local: netip.MustParseAddr("10.0.0.2"), PeerAS: 65001,
		LocalAS: 4_200_000_000, FourOctetAS: true, IPv4: plain}
}

func session6() bgp.Session {
	return bgp.Session{Peer: netip.MustParseAddr("fd00::1"),
		Local: netip.MustParseAddr("fd00::2"), PeerAS: 64512, LocalAS: 64512, FourOctetAS: true,
		IPv6: plain}
}

// message is one of a kind.
func message(kind byte, body string) (header, rest []byte) {
	h := append(bytes.Repeat([]byte{0xff}, 16), 0, byte(19+len(body)), kind)
	return h, []byte(body)
}

// Each field is where RFC 6396 and RFC 8050 have it.
func TestBytes(t *testing.T) {
	const (
		time4, micro = "65000000", "0001e240"
		as4          = "0000fde9" + "fa56ea00"
		ends4        = "0000" + "0001" + "0a000001" + "0a000002"
		endOfRIB     = "ffffffffffffffffffffffffffffffff" + "0017" + "02" + "00000000"
		fd00         = "fd0000000000000000000000000000"
	)
	update := func(change func(*bgp.Session)) []byte {
		s := session4()
		change(&s)
		header, body := message(2, "\x00\x00\x00\x00")
		return NewWriter(s).Message(nil, at, header, body)
	}
	header, notification := message(3, "\x06\x02")
	for name, c := range map[string]struct {
		got  []byte
		want string
	}{
		"MESSAGE_AS4": {update(func(*bgp.Session) {}),
			time4 + "0011" + "0004" + "0000002f" + micro + as4 + ends4 + endOfRIB},
		"MESSAGE of a peer with AS numbers of two bytes": {
			update(func(s *bgp.Session) { s.FourOctetAS = false }),
			time4 + "0011" + "0001" + "0000002b" + micro + "fde9" + "5ba0" + ends4 + endOfRIB},
		"MESSAGE_AS4_ADDPATH": {update(func(s *bgp.Session) { s.IPv4 = both }),
			time4 + "0011" + "0009" + "0000002f" + micro + as4 + ends4 + endOfRIB},
		"MESSAGE_ADDPATH": {
			update(func(s *bgp.Session) { s.IPv4, s.FourOctetAS = both, false }),
			time4 + "0011" + "0008" + "0000002b" + micro + "fde9" + "5ba0" + ends4 + endOfRIB},
		"a local address that is not known": {
			update(func(s *bgp.Session) { s.Local = netip.Addr{} }),
			time4 + "0011" + "0004" + "0000002f" + micro + as4 + "0000" + "0001" + "0a000001" +
				"00000000" + endOfRIB},
		"a NOTIFICATION has no path identifiers": {
			NewWriter(bgp.Session{Peer: peer4, Local: peer4, FourOctetAS: true, IPv4: both}).
				Message(nil, at, header, notification),
			time4 + "0011" + "0004" + "0000002d" + micro + "0000000000000000" + "0000" + "0001" +
				"0a000001" + "0a000001" + "ffffffffffffffffffffffffffffffff" + "0015" + "03" +
				"0602"},
		"STATE_CHANGE_AS4": {NewWriter(session4()).StateChange(nil, at, OpenConfirm, Established),
			time4 + "0011" + "0005" + "0000001c" + micro + as4 + ends4 + "0005" + "0006"},
		"STATE_CHANGE_AS4 by IPv6": {NewWriter(session6()).StateChange(nil, at, Established, Idle),
			time4 + "0011" + "0005" + "00000034" + micro + "0000fc00" + "0000fc00" + "0000" +
				"0002" + fd00 + "01" + fd00 + "02" + "0006" + "0001"},
		"without microseconds": {
			WithoutMicroseconds(NewWriter(session4()).StateChange(nil, at, Established, Idle)),
			time4 + "0010" + "0005" + "00000018" + as4 + ends4 + "0006" + "0001"},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s is\n%s instead of\n%s", name, got, c.want)
		}
	}
}

// Where one family has path identifiers and the other none, the subtype is that of the family which
// a message is about.
func TestPathIDsOfOneFamily(t *testing.T) {
	attr := "\x40\x01\x01\x00"
	for _, c := range []struct {
		body  string
		about bool // IPv6
	}{
		{"\x00\x00\x00\x00", false},
		{"\x00\x02\x08\x0a\x00\x00", false},
		{"\x00\x00\x00\x04" + attr + "\x08\x0a", false},
		{"\x00\x00\x00\x0a" + attr + "\x80\x0e\x03\x00\x02\x01", true},
		{"\x00\x00\x00\x0b" + attr + "\x90\x0f\x00\x03\x00\x02\x01", true},
		{"\x00\x00\x00\x0a" + attr + "\x80\x0f\x03\x00\x01\x01", false},
		{"\x00\x00\x00\x0a" + attr + "\x80\x0f\x03\x00\x02\x01" + "\x08\x0a", false},
		{"\x00\x00\x00\x06" + attr + "\x80\x0f", false},
		{"\x00\x00\x00\x03\x80\x0f\x09", false},
		{"\x00\x00\x00\x03\x90\x0f\x09", false},
		{"\x00\x00\x00\x09\x80", false},
		{"\x00\x09", false},
		{"", false},
	} {
		header, body := message(2, c.body)
		for _, six := range []bool{false, true} {
			s := session4()
			s.IPv4, s.IPv6 = both, plain
			if six {
				s.IPv4, s.IPv6 = plain, both
			}
			got := NewWriter(s).Message(nil, at, header, body)[7]
			if want := map[bool]byte{true: 9, false: 4}[c.about == six]; got != want {
				t.Errorf("%x, identifiers of IPv6 %t: subtype %d instead of %d", c.body, six, got,
					want)
			}
		}
	}
	s := session4()
	s.IPv4 = both
	header, body := message(2, "\x00\x00\x00\x00")
	if got := NewWriter(s).Message(nil, at, header, body)[7]; got != 9 {
		t.Errorf("the only family has identifiers: subtype %d", got)
	}
}

// written are records of each kind.
func written() (all []byte, want []Record) {
	header, body := message(2, "\x00\x00\x00\x00")
	four, six := NewWriter(session4()), NewWriter(session6())
	whole := at.Truncate(time.Microsecond)
	for _, r := range []Record{
		{At: whole, Peer: peer4, From: OpenConfirm, To: Established,
			Bytes: four.StateChange(nil, at, OpenConfirm, Established)},
		{At: whole, Peer: peer4, Bytes: four.Message(nil, at, header, body)},
		{At: whole, Peer: session6().Peer, Bytes: six.Message(nil, at, header, body)},
	} {
		all, want = append(all, r.Bytes...), append(want, r)
	}
	return all, want
}

func read(b []byte) (all []Record, err error) {
	err = Read(bytes.NewReader(b), func(r Record) error {
		all = append(all, r)
		return nil
	})
	return all, err
}

// What is cut off anywhere is read up to there; what is not as it was written is named.
func TestRead(t *testing.T) {
	all, want := written()
	end := 0
	for n := range len(all) + 1 {
		if end < len(want) && n == len(bytes.Join(parts(want[:end+1]), nil)) {
			end++
		}
		got, err := read(all[:n])
		if err != nil || !reflect.DeepEqual(got, slices.Clip(want[:end:end])) && end > 0 ||
			len(got) != end {
			t.Fatalf("cut at byte %d: %d records instead of %d, %v", n, len(got), end, err)
		}
	}
	for i, bad := range map[int]byte{
		4: 1, 7: 99, 8: 1, 11: 0, 12: 0xff, 27: 9, // of the first
		len(want[0].Bytes) + 36: 0, // of the message
		len(want[0].Bytes) + 53: 1,
	} {
		b := slices.Clone(all)
		b[i] = bad
		if got, err := read(b); !errors.Is(err, ErrDamaged) {
			t.Errorf("byte %d as %d: %d records, %v", i, bad, len(got), err)
		} else if i > len(want[0].Bytes) &&
			!strings.Contains(err.Error(), "at byte 40") {
			t.Errorf("byte %d: %v", i, err)
		}
	}
	enough := errors.New("enough")
	if err := Read(bytes.NewReader(all), func(Record) error { return enough }); err != enough {
		t.Errorf("the reader's error became %v", err)
	}
}

func parts(all []Record) (out [][]byte) {
	for _, r := range all {
		out = append(out, r.Bytes)
	}
	return out
}

func FuzzRead(f *testing.F) {
	all, _ := written()
	f.Add(all)
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = Read(bytes.NewReader(b), func(r Record) error {
			WithoutMicroseconds(r.Bytes)
			return nil
		})
	})
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x0a\x40\x01\x01\x00\x80\x0e\x03\x00\x02\x01"))
	s := session4()
	s.IPv4, s.IPv6 = both, plain
	w := NewWriter(s)
	f.Fuzz(func(t *testing.T, body []byte) {
		header, _ := message(2, "")
		w.Message(nil, at, header, body)
	})
}
