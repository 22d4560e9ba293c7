package vpp

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"

	"vpp-route-agent/internal/route"
)

// fuzzPatience is far beyond what any call takes that is cut off.
const fuzzPatience = 20 * time.Second

// fuzzCalls are all that the package asks of VPP; each is given a connection whose other end says
// what the fuzzer wants.
var fuzzCalls = []func(ctx context.Context, v *VPP, l *session){
	func(_ context.Context, v *VPP, l *session) { l.conn.ping(context.Background()) },
	func(ctx context.Context, v *VPP, l *session) { v.Routes(ctx) },
	func(ctx context.Context, v *VPP, l *session) {
		v.Lookup(ctx, fuzzKey)
	},
	func(ctx context.Context, v *VPP, l *session) {
		v.Resolve(ctx, 0, netip.MustParseAddr("10.1.1.1"))
	},
	func(ctx context.Context, v *VPP, l *session) {
		table := route.Table{TableID: route.TableID{ID: 7}, Name: "red"}
		v.PutObject(ctx, table)
		v.DeleteObject(ctx, table.Key())
	},
	func(ctx context.Context, v *VPP, l *session) { l.readFacts(ctx, true) },
	func(ctx context.Context, v *VPP, l *session) {
		l.useOwnSource(ctx, "vpp-route-agent", 0x88, 1)
	},
	func(ctx context.Context, v *VPP, l *session) { v.prepare(ctx, l.conn) },
	func(ctx context.Context, v *VPP, l *session) {
		calls := make([]int, 3)
		ops := make([]route.Op, len(calls))
		for i := range ops {
			ops[i].Route = route.Route{Key: route.Key{Table: uint32(i / 2),
				Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i)}), 16)},
				Kind: route.Drop}
		}
		err := v.Apply(ctx, ops, func(i int, _ error) { calls[i]++ })
		for _, n := range calls {
			if n > 1 || n == 0 && err == nil {
				panic("an op has two results, or none")
			}
		}
	},
	func(ctx context.Context, v *VPP, l *session) {
		calls := make([]int, 2)
		ended := make(chan struct{})
		if !v.Start([]route.Op{{Delete: true, Route: route.Route{Key: fuzzKey}},
			{Route: route.Route{Key: fuzzKey, Kind: route.Drop}}},
			func(i int, _ error) { calls[i]++ }, func(error) { close(ended) }) {
			return
		}
		select {
		case <-ended:
		case <-ctx.Done():
		}
		if calls[0] > 1 || calls[1] > calls[0] {
			panic("an op has two results, or one before its turn")
		}
	},
}

var fuzzKey = route.Key{Prefix: netip.MustParsePrefix("10.0.0.0/8")}

// FuzzReplies lets the other end of a connection say anything: no call may panic or hang.
func FuzzReplies(f *testing.F) {
	for i := range fuzzCalls {
		f.Add(byte(i), []byte{})
		f.Add(byte(i), answers(anything()...))
		f.Add(byte(i), answers(anything()...)[:200])
		f.Add(byte(i), answers(&ip.IPRouteAddDelV2Reply{})) // also before the request
	}
	f.Fuzz(func(t *testing.T, which byte, said []byte) {
		near, far := net.Pipe()
		c := newConn(near, fuzzPatience)
		c.know(fuzzIDs())
		go c.read(newReader(c))
		defer c.close()

		talked := make(chan struct{})
		go func() {
			defer close(talked)
			go io.Copy(io.Discard, far)
			far.SetWriteDeadline(time.Now().Add(fuzzPatience))
			far.Write(said)
			far.Close()
		}()
		v := New(Config{Window: 2})
		l := &session{conn: c, gone: &deletions{}, changed: make(chan struct{}, 1),
			own: source{id: 22, priority: 0x88}}
		l.remember(nil)
		l.links.Store(twoLinks)
		v.session = l
		ctx, cancel := context.WithTimeout(t.Context(), fuzzPatience)
		defer cancel()
		fuzzCalls[int(which)%len(fuzzCalls)](ctx, v, l)
		if ctx.Err() != nil {
			t.Error("the call did not end with the stream")
		}
		c.close()
		<-talked
	})
}

// fuzzIDs numbers the messages that we know, always in the same way.
func fuzzIDs() map[string]uint16 {
	ids := map[string]uint16{}
	for i, m := range needed {
		ids[messageName(m)] = uint16(i + 1)
	}
	return ids
}

// anything is something of everything.
func anything() []api.Message {
	r, _ := encodeRoute(route.Route{
		Key: route.Key{Prefix: netip.MustParsePrefix("10.0.0.0/8")},
		Paths: []route.Path{{NextHop: netip.MustParseAddr("10.1.1.1"), Interface: "loop0",
			Weight: 3}},
	}, 22, nil, twoLinks.index)
	return []api.Message{
		&ip.IPTableDetails{Table: ip.IPTable{TableID: 7, Name: "vpp-route-agent"}},
		&interfaces.SwInterfaceDetails{SwIfIndex: 3, InterfaceName: "x"},
		&ip.IPRouteV2Details{Route: r}, &ip.IPRouteLookupV2Reply{Route: r},
		&ip.IPRouteAddDelV2Reply{}, &memclnt.ControlPingReply{},
	}
}

// answers are all, as if to the first calls.
func answers(all ...api.Message) []byte {
	var out []byte
	for call := range uint32(3) {
		for seq := range uint32(2) {
			for _, m := range all {
				msg, _ := codec.EncodeMsg(m, fuzzIDs()[messageName(m)])
				binary.BigEndian.PutUint32(msg[2:], (call+1)<<seqBits|seq)
				out = append(binary.BigEndian.AppendUint32(append(out, make([]byte, 8)...),
					uint32(len(msg))), 0, 0, 0, 0)
				out = append(out, msg...)
			}
		}
	}
	return out
}

// FuzzGreeting lets the other end answer the greeting with anything.
func FuzzGreeting(f *testing.F) {
	reply := &memclnt.SockclntCreateReply{Index: 5, Count: 2,
		MessageTable: []memclnt.MessageTableEntry{{Index: 23, Name: "control_ping_51077d14"},
			{Index: 24, Name: "control_ping_reply_f6b0b25d"}}}
	msg, err := codec.EncodeMsg(reply, 16)
	if err != nil {
		f.Fatal(err)
	}
	frame := append(binary.BigEndian.AppendUint32(make([]byte, 8), uint32(len(msg))),
		append(make([]byte, 4), msg...)...)
	f.Add(frame)
	f.Add(frame[:len(frame)-1])
	f.Add(frame[:20])
	f.Fuzz(func(t *testing.T, said []byte) {
		near, far := net.Pipe()
		defer near.Close()
		go func() {
			go io.Copy(io.Discard, far)
			far.SetWriteDeadline(time.Now().Add(fuzzPatience))
			far.Write(said)
			far.Close()
		}()
		c := newConn(near, fuzzPatience)
		if err := c.handshake(newReader(c), "fuzz"); err == nil && c.pingID == 0 &&
			c.pingReplyID == 0 && len(c.ids) < 2 {
			t.Error("no ping, but no error")
		}
	})
}
