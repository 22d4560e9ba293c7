package interop

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// recorder is a peer that writes down what is said to it, and tells each session the same.
type recorder struct {
	address netip.Addr

	mu      sync.Mutex // guards the following
	heard   facts      // of the newest session
	settled bool       // and it has come to End-of-RIB
}

// facts are what a peer says on the wire, piece by piece in hexadecimal, under names.
type facts map[string]string

// recorder makes a machine with one, which says these bodies of UPDATEs. It is gone after the test.
func (l *lab) recorder(
	t *testing.T, name, address string, as uint32, says ...string,
) *recorder {
	t.Helper()
	r := &recorder{address: pfx(address).Addr()}
	afi, endOfRIB := testcluster.AFI(r.address), []byte{0, 0, 0, 0}
	if r.address.Is6() {
		endOfRIB = []byte{0, 0, 0, 6, 0x80, 15, 3, 0, 2, 1}
	}
	var greeting []byte
	for _, body := range append(says, string(endOfRIB)) {
		greeting = testcluster.AppendMessage(greeting, testcluster.MsgUpdate, []byte(body))
	}
	// What BIRD offers, ADD-PATH aside: its identifiers would be compared.
	capabilities := append(testcluster.Unicast(r.address), 2, 0, 64, 6, 0, 120, 0, afi, 1, 0)
	open := testcluster.OpenMessage(as, 240, testcluster.RouterID(r.address), capabilities...)
	s, err := testcluster.Listen(l.host(t, name, address).NS, r.address, open, greeting, r.record)
	check(t, err)
	t.Cleanup(s.Close)
	return r
}

// recorded waits until a session has come to its End-of-RIB and prefixes were announced in it,
// returns what it has heard and forgets it.
func (r *recorder) recorded(t *testing.T, announced ...string) (heard facts) {
	t.Helper()
	await(t, fmt.Sprintf("%s has heard all", r.address), func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, p := range announced {
			if r.heard[p+" attributes"] == "" || !r.settled {
				return fmt.Errorf("%s is missing; End-of-RIB %v, heard %v", p, r.settled, r.heard)
			}
		}
		heard, r.heard, r.settled = r.heard, nil, false
		return nil
	})
	return heard
}

// record notes a message.
func (r *recorder) record(kind byte, body []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case kind == testcluster.MsgOpen:
		r.heard, r.settled = facts{}, false
		r.heard.open(body)
	case kind == testcluster.MsgUpdate && r.heard != nil:
		r.settled = r.heard.update(body) || r.settled
	}
}

// open notes an OPEN (RFC 4271 §4.2, RFC 5492).
func (f facts) open(b []byte) {
	f["version"] = hex.EncodeToString(b[:1])
	f["AS"] = hex.EncodeToString(b[1:3])
	f["hold time"] = hex.EncodeToString(b[3:5])
	f["router ID"] = hex.EncodeToString(b[5:9])
	parameters := 0
	for rest := b[10:]; len(rest) > 0; rest = rest[2+int(rest[1]):] {
		parameters++
		for caps := rest[2 : 2+int(rest[1])]; len(caps) > 0; caps = caps[2+int(caps[1]):] {
			f[fmt.Sprintf("capability %d", caps[0])] = "has " +
				hex.EncodeToString(caps[2:2+int(caps[1])])
		}
	}
	f["parameters"] = fmt.Sprint(parameters)
}

// update notes an UPDATE (RFC 4271 §4.3, RFC 4760); it reports End-of-RIB (RFC 4724 §2).
func (f facts) update(b []byte) (end bool) {
	withdrawn := int(binary.BigEndian.Uint16(b))
	rest := b[2+withdrawn:]
	attributes := rest[2 : 2+int(binary.BigEndian.Uint16(rest))]
	v4 := prefixesOf(rest[2+len(attributes):], 4)
	if len(b) == 4 {
		f["End-of-RIB"] = hex.EncodeToString(b)
		return true
	}
	var kept []string
	var v6 []netip.Prefix
	for rest := attributes; len(rest) > 0; {
		head, length := 3, int(rest[2])
		if rest[0]&0x10 != 0 { // extended length
			head, length = 4, int(binary.BigEndian.Uint16(rest[2:]))
		}
		value := rest[head : head+length]
		text := fmt.Sprintf("%x:%d:%x", rest[0], rest[1], value)
		switch rest[1] {
		case 14: // MP_REACH_NLRI: AFI, SAFI, next hop, a reserved byte, prefixes
			hop := value[4 : 4+int(value[3])]
			v6 = prefixesOf(value[4+len(hop)+1:], 16)
			text = fmt.Sprintf("%x:14:next hop %x", rest[0], hop)
		case 15:
			if length == 3 && len(attributes) <= 7 {
				f["End-of-RIB"] = hex.EncodeToString(b)
				return true
			}
			f["withdrawn"] += hex.EncodeToString(value) + " "
		}
		kept = append(kept, text)
		rest = rest[head+length:]
	}
	for _, p := range slices.Concat(v4, v6) {
		f[p.String()+" attributes"] = strings.Join(kept, " ")
		f[p.String()+" in one UPDATE with others"] = fmt.Sprint(len(v4)+len(v6) > 1)
	}
	if withdrawn > 0 {
		f["withdrawn"] += hex.EncodeToString(b[2:2+withdrawn]) + " "
	}
	return false
}

func prefixesOf(b []byte, size int) (out []netip.Prefix) {
	for len(b) > 0 {
		n := (int(b[0]) + 7) / 8
		a := make([]byte, size)
		copy(a, b[1:1+n])
		addr, _ := netip.AddrFromSlice(a)
		out = append(out, netip.PrefixFrom(addr, int(b[0])))
		b = b[1+n:]
	}
	return out
}

// differences lists what two speakers say differently.
func differences(ours, birds facts) (out []string) {
	all := maps.Clone(ours)
	maps.Copy(all, birds)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		o, b := ours[name], birds[name]
		if o == "" {
			o = "nothing"
		}
		if b == "" {
			b = "nothing"
		}
		if o != b {
			out = append(out, fmt.Sprintf("%s: %s, BIRD %s", name, o, b))
		}
	}
	return out
}

// TestWireAsBIRD has the same node with the same data speak by our agent and by BIRD as calico-node
// configures it, to the same peers, and compares what each says, byte by byte. docs/calico.md lists
// what is different.
func TestWireAsBIRD(t *testing.T) {
	t.Parallel()
	l := newLab(t, "wire")
	us := l.agentNode(t, "us", "10.0.0.2/24", "fd00::2/64")
	check(t, l.Data.AddNode(t.Context(), "inner", pfx("10.0.0.1/24"), pfx("fd00::1/64")))
	const (
		learnedInside = "\x00\x00\x00\x15" + "\x40\x01\x01\x00" + "\x40\x02\x00" +
			"\x40\x03\x04\x0a\x00\x00\x01" + "\x40\x05\x04\x00\x00\x00\x64" + "\x1a\x0a\x01\xc8\x00"
		learnedOutside = "\x00\x00\x00\x22" + origin + asPath + nextHop +
			"\x80\x04\x04\x00\x00\x00\x07" + "\xc0\x08\x04\xfd\xe8\x00\x4d" + "\x1a\x0a\x01\xd2\x00"
	)
	inner := l.recorder(t, "inner", "10.0.0.1/24", asNumber, learnedInside)
	inner6 := l.recorder(t, "inner6", "fd00::1/64", asNumber)
	outer := l.recorder(t, "outer", "10.0.0.3/24", 65003, learnedOutside)
	l.apply(t, testcluster.Peer("outer", "10.0.0.3", 65003, ""))
	blocks := []string{"10.1.0.0/26", "10.1.0.64/26", "10.1.7.0/26"}
	blocks6 := []string{"fd01::/122", "fd01::40/122"}
	for _, b := range slices.Concat(blocks, blocks6) {
		check(t, l.Data.ClaimBlock(t.Context(), "us", pfx(b)))
	}
	listen := func() [3]facts {
		t.Helper()
		return [3]facts{
			inner.recorded(t, append(blocks, "10.1.210.0/26")...),
			outer.recorded(t, append(blocks, "10.1.200.0/26")...), inner6.recorded(t, blocks6...),
		}
	}
	us.start(t)
	ours := listen()
	check(t, us.agent.Stop())

	for _, b := range []netlab.BirdConfig{
		testcluster.BirdConfig(addr("10.0.0.2")), testcluster.BirdConfig(addr("fd00::2")),
	} {
		b.RouterID = addr("10.0.0.2")
		node := &birdNode{host: us.host, config: b}
		if b.Address.Is4() {
			node.config.Blocks = prefixes(blocks...)
			node.config.Peers = []netlab.BirdPeer{
				netlab.MeshPeer(b.Address, addr("10.0.0.1"), asNumber),
				{Name: "Global_10_0_0_3", Address: addr("10.0.0.3"), AS: 65003},
			}
		} else {
			node.config.Blocks = prefixes(blocks6...)
			node.config.Peers = []netlab.BirdPeer{
				netlab.MeshPeer(b.Address, addr("fd00::1"), asNumber),
			}
		}
		node.start(t)
	}
	birds := listen()
	for i := range birds { // learned routes go on when they come
		for _, learned := range []string{"10.1.200.0/26", "10.1.210.0/26"} {
			delete(ours[i], learned+" in one UPDATE with others")
			delete(birds[i], learned+" in one UPDATE with others")
		}
	}
	for i, want := range [][]string{wireInside, wireOutside, wireInside6} {
		if err := same("differences", differences(ours[i], birds[i]), want); err != nil {
			t.Error(err)
		}
	}
}

// What docs/calico.md lists.
var (
	wireInside = []string{
		"capability 64: has 007800010100, BIRD has 807800010180",
		"capability 70: nothing, BIRD has ",
		"capability 71: nothing, BIRD has ",
		"hold time: 005a, BIRD 00f0",
	}
	wireOutside = wireInside
	wireInside6 = []string{
		"capability 64: has 007800020100, BIRD has 807800020180",
		"capability 70: nothing, BIRD has ",
		"capability 71: nothing, BIRD has ",
		"hold time: 005a, BIRD 00f0",
	}
)
