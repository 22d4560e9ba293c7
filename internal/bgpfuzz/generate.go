package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"vpp-route-agent/internal/testcluster"
)

// generate makes scenario number i of a seed: the same always.
func generate(seed uint64, i int) scenario {
	d := dice{rand.New(rand.NewPCG(seed, uint64(i)))}
	w := &writer{dice: d}
	total := 0
	for _, p := range plots {
		total += p.weight
	}
	n := d.IntN(total)
	for _, p := range plots {
		if n -= p.weight; n < 0 {
			p.write(w)
			name := fmt.Sprintf("seed %d, number %d, %s", seed, i, p.name)
			return scenario{name: name, generated: true, steps: w.steps}
		}
	}
	panic("bgpfuzz: weights do not add up")
}

// plots are the kinds of scenario, and how often each comes.
var plots = []struct {
	name   string
	weight int
	write  func(*writer)
}{
	{"updates", 50, (*writer).updates},
	{"stuffed updates", 6, (*writer).stuffed},
	{"before OPEN", 8, (*writer).beforeOpen},
	{"OPEN", 12, (*writer).opens},
	{"other messages in Established", 6, (*writer).others},
	{"two connections", 6, (*writer).two},
	{"reset during a dump", 4, (*writer).cutDump},
	{"refreshes", 3, (*writer).refreshes},
	{"slow reader", 3, (*writer).slow},
	{"return under another identifier", 3, (*writer).another},
	{"we are dialled", 3, (*writer).dialled},
	{"silence", 2, (*writer).silence},
	{"flood", 2, (*writer).flood},
	{"piece by piece", 3, (*writer).pieces},
	{"HTTP and gRPC", 4, (*writer).web},
}

// writer writes the steps of one scenario.
type writer struct {
	dice
	steps []step
}

func (w *writer) add(s step)                      { w.steps = append(w.steps, s) }
func (w *writer) does(on string, v verb)          { w.add(step{on: on, verb: v}) }
func (w *writer) to(on string, v verb, to string) { w.add(step{on: on, verb: v, to: to}) }
func (w *writer) send(on string, b []byte)        { w.repeat(on, 1, b) }
func (w *writer) await(on string, kind byte)      { w.add(step{on: on, verb: await, kind: kind}) }
func (w *writer) wait(on string, d time.Duration) { w.add(step{on: on, verb: pause, pause: d}) }
func (w *writer) repeat(on string, n int, b []byte) {
	w.add(step{on: on, verb: send, times: n, bytes: b})
}

// end is how a connection goes.
func (w *writer) end(on string) {
	switch w.IntN(5) {
	case 0:
		w.does(on, reset)
	case 1:
		w.does(on, shut)
	case 2:
		code := []byte{byte(w.IntN(8)), byte(w.IntN(12))}
		w.send(on, testcluster.Message(testcluster.MsgNotification,
			append(code, w.bytes(w.size(100))...)))
	default:
		w.does(on, closing)
	}
}

// capability is one that GoBGP has a decoder for, or another.
func (w *writer) capability(s session) tlv {
	switch w.IntN(15) {
	case 0:
		return tlv{kind: 1, value: multiprotocol(pick(w.dice, families))}
	case 1:
		return tlv{kind: 2}
	case 2: // extended next hop, RFC 8950 §4
		return tlv{kind: 5, value: []byte{0, 1, 0, 1, 0, 2}}
	case 3: // extended messages, RFC 8654
		return tlv{kind: 6}
	case 4: // role, RFC 9234
		return tlv{kind: 9, value: []byte{byte(w.IntN(6))}}
	case 5, 6:
		return w.gracefulRestart(s)
	case 7:
		return tlv{kind: 65, value: u32(w.uint32())}
	case 8:
		return tlv{kind: 69, value: append(s.family().append(nil), byte(1+w.IntN(3)))}
	case 9: // enhanced refresh, RFC 7313
		return tlv{kind: 70}
	case 10: // long-lived graceful restart, RFC 9494
		value := append(s.family().append(nil), byte(w.IntN(2)<<7), 0, 0, byte(w.IntN(9)))
		return tlv{kind: 71, value: value}
	case 11: // FQDN, draft-walton-bgp-hostname-capability
		host, domain := w.bytes(w.IntN(20)), w.bytes(w.IntN(20))
		value := append([]byte{byte(len(host))}, host...)
		return tlv{kind: 73, value: append(append(value, byte(len(domain))), domain...)}
	case 12: // software version
		text := w.bytes(w.IntN(70))
		return tlv{kind: 75, value: append([]byte{byte(len(text))}, text...)}
	case 13:
		return tlv{kind: 128}
	}
	return tlv{kind: byte(w.Uint32()), value: w.bytes(w.size(60))}
}

// multiprotocol is a family as in that capability (RFC 4760 §8) and ROUTE-REFRESH (RFC 2918 §3).
func multiprotocol(f family) []byte { return []byte{byte(f.afi >> 8), byte(f.afi), 0, f.safi} }

func (w *writer) gracefulRestart(s session) tlv {
	// The time is short: routes that are rightly kept for it are in the way of what is compared.
	value := []byte{byte(w.IntN(4)) << 6, byte(1 + w.IntN(3))}
	return tlv{kind: 64, value: append(s.family().append(value), byte(w.IntN(2)<<7))}
}

// openOf is an OPEN that brings the session up.
func (w *writer) openOf(s session) open {
	f := s.family()
	as := uint32(localAS)
	if s.external {
		as = foreignAS
	}
	o := open{version: 4, as: uint16(as), hold: 90, id: ownID}
	o.capabilities = append(o.capabilities, tlv{kind: 1, value: multiprotocol(f)})
	if !s.twoByte {
		o.capabilities = append(o.capabilities, tlv{kind: 65, value: u32(as)})
	}
	if s.addPath {
		o.capabilities = append(o.capabilities, tlv{kind: 69, value: append(f.append(nil), 3)})
	}
	return o
}

// attacker names one by chance, and what its session is.
func (w *writer) attacker(number int) (string, session) {
	kind := pick(w.dice, kinds)
	s := session{external: kind[0] == 'e', six: kind[1] == '6', addPath: w.in(4), twoByte: w.in(5)}
	return fmt.Sprintf("%s.%d", kind, number), s
}

// establish brings a session up that may have further capabilities.
func (w *writer) establish(on, who string, s session) {
	w.to(on, dial, who)
	o := w.openOf(s)
	for range w.size(3) {
		if c := w.capability(s); c.kind != 65 && c.kind != 69 {
			o.capabilities = append(o.capabilities, c)
		}
	}
	w.handshake(on, o)
}

func (w *writer) handshake(on string, o open) {
	w.send(on, o.encode())
	w.await(on, testcluster.MsgKeepalive)
	w.send(on, keepalive)
}

// flawed is an UPDATE that has mostly something wrong with it.
func (w *writer) flawed(s session) []byte {
	u := w.dice.update(s)
	if !w.in(4) {
		for range 1 + w.size(2) {
			w.mangle(&u, s)
		}
	}
	m := u.encode()
	if w.in(25) {
		m = w.damage(m)
	}
	return m
}

func (w *writer) updates() {
	who, s := w.attacker(1)
	w.establish("a", who, s)
	for range 1 + w.IntN(25) {
		w.send("a", w.flawed(s))
	}
	w.wait("a", 100*time.Millisecond)
	w.end("a")
}

// stuffed sends what is nearly too long, over and over for the same prefixes.
func (w *writer) stuffed() {
	who, s := w.attacker(1)
	w.establish("a", who, s)
	base := update{attributes: s.mandatory(), nlri: w.prefixes(false, s.addPath, 1+w.IntN(3))}
	if s.six {
		base.nlri = nil
		base.attributes = append(base.attributes, w.reach(unicast6, s.addPath))
	}
	for range 1 + w.IntN(8) {
		u := base
		u.attributes = slices.Clone(base.attributes)
		if !w.in(4) {
			u = w.stuff(u)
		}
		w.send("a", u.encode())
	}
	w.wait("a", 100*time.Millisecond)
	w.end("a")
}

func (w *writer) beforeOpen() {
	who, s := w.attacker(1)
	w.to("a", dial, who)
	for range 1 + w.IntN(3) {
		switch w.IntN(8) {
		case 0:
			w.send("a", testcluster.Message(byte(w.Uint32()), w.bytes(w.size(60))))
		case 1:
			w.send("a", w.bytes(1+w.size(100)))
		case 2:
			w.send("a", w.damage(w.openOf(s).encode()))
		case 3:
			w.send("a", keepalive)
		case 4:
			w.send("a", w.flawed(s))
		case 5:
			w.send("a", testcluster.Message(testcluster.MsgRefresh, []byte{0, 1, 0, 1}))
		case 6:
			w.send("a", testcluster.Message(testcluster.MsgNotification, w.bytes(w.size(20))))
		case 7:
			w.send("a", w.openOf(s).encode()[:w.IntN(30)])
		}
	}
	w.wait("a", 50*time.Millisecond)
	w.end("a")
}

func (w *writer) opens() {
	who, s := w.attacker(1)
	w.to("a", dial, who)
	o := w.openOf(s)
	for range w.size(6) {
		o.capabilities = append(o.capabilities, w.capability(s))
	}
	for range w.IntN(3) {
		w.mangleOpen(&o)
	}
	m := o.encode()
	if w.in(6) {
		m = w.damage(m)
	}
	w.send("a", m)
	w.await("a", testcluster.MsgKeepalive)
	w.send("a", keepalive)
	if w.in(2) {
		w.send("a", w.flawed(s))
	}
	w.wait("a", 50*time.Millisecond)
	w.end("a")
}

func (w *writer) mangleOpen(o *open) {
	switch w.IntN(9) {
	case 0:
		o.version = byte(w.IntN(6))
	case 1:
		o.hold = pick(w.dice, []uint16{0, 1, 2, 3, 65535})
	case 2:
		o.as = uint16(w.uint32())
	case 3:
		o.id = netip.AddrFrom4([4]byte(u32(w.uint32())))
	case 4:
		o.skew = pick(w.dice, []int{-1, 1, 2, 100})
	case 5:
		p := tlv{kind: byte(w.IntN(5)), value: w.bytes(w.size(20)), skew: w.IntN(3) - 1}
		o.parameters = append(o.parameters, p)
	default:
		c := &o.capabilities[w.IntN(len(o.capabilities))]
		switch w.IntN(3) {
		case 0:
			c.value = w.garble(c.value)
		case 1:
			c.value = c.value[:w.IntN(len(c.value)+1)]
		case 2:
			c.skew = pick(w.dice, []int{-1, 1, 2, 100})
		}
	}
}

func (w *writer) others() {
	who, s := w.attacker(1)
	w.establish("a", who, s)
	for range 1 + w.IntN(5) {
		switch w.IntN(6) {
		case 0:
			w.send("a", w.openOf(s).encode())
		case 1: // with reserved bytes and families of all kinds, RFC 7313 §3.2 and §4.1
			body := multiprotocol(pick(w.dice, families))
			body[2] = byte(w.IntN(4))
			w.send("a", testcluster.Message(testcluster.MsgRefresh, body))
		case 2:
			// ORF, RFC 5291
			w.send("a", testcluster.Message(testcluster.MsgRefresh, w.bytes(w.size(50))))
		case 3:
			w.send("a", testcluster.Message(byte(w.IntN(9)), w.bytes(w.size(30))))
		case 4:
			w.send("a", w.damage(keepalive))
		case 5:
			w.send("a", w.dice.update(s).encode())
		}
	}
	w.wait("a", 50*time.Millisecond)
	w.end("a")
}

// two has the same attacker connect twice, in each state of the first connection.
func (w *writer) two() {
	who, s := w.attacker(1)
	w.to("a", dial, who)
	stages := []func(on string){
		func(on string) { w.send(on, w.openOf(s).encode()) },
		func(on string) { w.await(on, testcluster.MsgKeepalive); w.send(on, keepalive) },
		func(on string) { w.send(on, w.flawed(s)) },
	}
	after := w.IntN(len(stages) + 1)
	for _, stage := range stages[:after] {
		stage("a")
	}
	w.to("b", connect, who)
	for _, stage := range stages[:w.IntN(len(stages)+1)] {
		stage("b")
	}
	for _, stage := range stages[after:] {
		stage("a")
	}
	w.wait("a", 50*time.Millisecond)
	w.end(pick(w.dice, []string{"a", "b"}))
	w.wait("a", 50*time.Millisecond)
}

func (w *writer) cutDump() {
	who, s := w.attacker(1)
	w.to("a", dial, who)
	o := w.openOf(s)
	if w.in(2) {
		o.capabilities = append(o.capabilities, w.gracefulRestart(s))
	}
	if w.in(2) {
		w.does("a", mute)
		w.send("a", o.encode())
		w.wait("a", 20*time.Millisecond)
		w.send("a", keepalive)
	} else {
		w.handshake("a", o)
	}
	for range w.IntN(4) {
		w.send("a", w.dice.update(s).encode())
	}
	w.wait("a", time.Duration(w.IntN(60))*time.Millisecond)
	w.end("a")
}

func (w *writer) refreshes() {
	who, s := w.attacker(1)
	w.establish("a", who, s)
	if w.in(2) {
		w.does("a", mute)
	}
	body := multiprotocol(s.family())
	body[2] = byte(w.IntN(3))
	w.repeat("a", 1+w.IntN(2000), testcluster.Message(testcluster.MsgRefresh, body))
	w.wait("a", time.Duration(w.IntN(300))*time.Millisecond)
	w.end("a")
}

// slow reads nothing while others make the reflector send it routes.
func (w *writer) slow() {
	who, s := w.attacker(1)
	other, t := w.attacker(2)
	w.establish("a", who, s)
	w.does("a", mute)
	w.establish("b", other, t)
	for range 1 + w.IntN(30) {
		u := w.dice.update(t)
		w.send("b", u.encode())
	}
	w.wait("a", time.Duration(500+w.IntN(1500))*time.Millisecond)
	w.end("a")
	w.end("b")
}

// another breaks with graceful restart and comes back with another identifier, even someone else's.
func (w *writer) another() {
	who, s := w.attacker(1)
	o := w.openOf(s)
	o.capabilities = append(o.capabilities, w.gracefulRestart(s))
	w.to("a", dial, who)
	w.handshake("a", o)
	for range 1 + w.IntN(4) {
		w.send("a", w.dice.update(s).encode())
	}
	w.wait("a", 50*time.Millisecond)
	w.does("a", reset)
	o.id = pick(w.dice, []netip.Addr{reflectorID, honestID, netip.MustParseAddr("192.0.2.1")})
	o.capabilities[len(o.capabilities)-1] = w.gracefulRestart(s)
	w.to("b", dial, who)
	w.handshake("b", o)
	if w.in(2) {
		w.send("b", w.dice.update(s).encode())
	}
	if w.in(2) {
		// End-of-RIB for IPv4
		w.send("b", testcluster.Message(testcluster.MsgUpdate, make([]byte, 4)))
	}
	w.wait("b", 50*time.Millisecond)
	w.end("b")
}

// dialled lets the reflector connect.
func (w *writer) dialled() {
	who, s := w.attacker(1)
	w.to("a", accept, who)
	switch w.IntN(3) {
	case 0:
		w.send("a", w.damage(w.openOf(s).encode()))
	case 1:
		w.handshake("a", w.openOf(s))
		w.send("a", w.flawed(s))
	case 2: // both ends at once, RFC 4271 §6.8
		w.to("b", connect, who)
		w.send(pick(w.dice, []string{"a", "b"}), w.openOf(s).encode())
		w.send(pick(w.dice, []string{"a", "b"}), w.openOf(s).encode())
	}
	w.wait("a", 100*time.Millisecond)
	w.end("a")
}

// silence lets the hold timer expire, in OpenConfirm or in Established.
func (w *writer) silence() {
	who, s := w.attacker(1)
	w.to("a", dial, who)
	o := w.openOf(s)
	o.hold = uint16(3 + w.IntN(2)) // 3 s is the least, RFC 4271 §4.2
	if w.in(2) {
		o.capabilities = append(o.capabilities, w.gracefulRestart(s))
	}
	w.send("a", o.encode())
	if !w.in(4) {
		w.await("a", testcluster.MsgKeepalive)
		w.send("a", keepalive)
		w.send("a", w.dice.update(s).encode())
	}
	w.wait("a", time.Duration(o.hold)*time.Second+500*time.Millisecond)
	w.end("a")
}

// flood announces many prefixes, with a few attributes each, and withdraws some of them.
func (w *writer) flood() {
	who, s := w.attacker(1)
	w.establish("a", who, s)
	for range 1 + w.IntN(100) {
		u := update{attributes: s.mandatory()}
		if s.six {
			nlri := w.prefixes(true, s.addPath, 100)
			value := append(unicast6.append(nil), w.nextHop(unicast6)...)
			u.attributes = append(u.attributes,
				attribute{flags: optional, kind: 14, value: slices.Concat(value, []byte{0}, nlri)})
		} else {
			u.nlri = w.prefixes(false, s.addPath, 100)
			u.withdrawn = w.prefixes(false, s.addPath, 20)
		}
		u.attributes = append(u.attributes, attribute{
			flags: optional, kind: 4, value: u32(w.Uint32()),
		})
		w.send("a", u.encode())
	}
	w.wait("a", time.Duration(w.IntN(200))*time.Millisecond)
	w.end("a")
}

// pieces sends messages cut where no message ends, with pauses between.
func (w *writer) pieces() {
	who, s := w.attacker(1)
	w.to("a", dial, who)
	all := slices.Concat(w.openOf(s).encode(), keepalive)
	for range 1 + w.IntN(4) {
		all = append(all, w.flawed(s)...)
	}
	for len(all) > 0 {
		n := min(len(all), 1+w.IntN(1+w.IntN(len(all))))
		w.send("a", all[:n])
		w.wait("a", time.Duration(w.IntN(30))*time.Millisecond)
		all = all[n:]
	}
	w.end("a")
}

// web has something wrong in a request, or never ends it.
func (w *writer) web() {
	requests := []string{
		"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n", "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /v1/routes?prefix=10.66.0.0/99 HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /v1/audit HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
		"GET /readyz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n",
		grpcPreface, grpcPreface + watchEvent(),
	}
	to, clients := pick(w.dice, services), 1+w.IntN(6)
	if w.in(5) {
		clients = 100
	}
	for i := range clients {
		on := fmt.Sprintf("c%d", i+1)
		w.to(on, connect, to)
		if w.in(3) {
			w.does(on, mute)
		}
		request := []byte(pick(w.dice, requests))
		if to == "grpc" && !w.in(4) {
			request = []byte(grpcPreface + watchEvent())
		}
		switch w.IntN(4) {
		case 0:
			request = w.garble(request)
		case 1:
			request = request[:w.IntN(len(request))]
		case 2:
			request = append(request, bytes.Repeat(request, w.IntN(40))...)
		}
		w.send(on, request)
	}
	w.wait("c1", time.Duration(w.IntN(500))*time.Millisecond)
}

// grpcPreface opens an HTTP/2 connection with empty SETTINGS (RFC 9113 §3.4).
const grpcPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// watchEvent calls WatchEvent for all best paths (RFC 9113 §6.1 and §6.2, RFC 7541 §6.2.2).
func watchEvent() string {
	var headers []byte
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", "/apipb.GobgpApi/WatchEvent"},
		{":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		headers = append(headers, 0)
		for _, text := range field {
			headers = append(append(headers, byte(len(text))), text...)
		}
	}
	// WatchEventRequest{table: {filters: [{type: BEST, init: true}]}} behind gRPC's five bytes.
	body := []byte{0, 0, 0, 0, 6, 0x12, 4, 0x0a, 2, 0x10, 1}
	return string(frame(1, 4, headers)) + string(frame(0, 1, body))
}

// frame is an HTTP/2 frame on stream 1.
func frame(kind, flags byte, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	return append(append(b, flags, 0, 0, 0, 1), payload...)
}
