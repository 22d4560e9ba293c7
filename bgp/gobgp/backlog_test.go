package gobgp

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// changes are UPDATEs of one prefix each, n of them, over and over the same few, and each is a
// change; after the last one each prefix has the next hop 192.0.2.2.
func changes(t *testing.T, n, prefixes int, more ...packet.PathAttributeInterface) []byte {
	t.Helper()
	var b bytes.Buffer
	for i := range n {
		hop := fmt.Sprintf("192.0.2.%d", 3+i/prefixes%2)
		if i >= n-prefixes {
			hop = "192.0.2.2"
		}
		m, err := packet.NewBGPUpdateMessage(nil, append(pathAttributes(hop, 100), more...),
			[]*packet.IPAddrPrefix{ipv4(0, fmt.Sprintf("10.80.%d.0/26", i%prefixes))}).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		b.Write(m)
	}
	return b.Bytes()
}

// write sends what the node takes until it has taken nothing for so long, and returns what is left.
func (f *far) write(b []byte, patience time.Duration) (rest []byte) {
	f.t.Helper()
	const piece = 64 << 10
	f.out.Lock()
	defer f.out.Unlock()
	for len(b) > 0 {
		f.conn.SetWriteDeadline(time.Now().Add(patience))
		n, err := f.conn.Write(b[:min(piece, len(b))])
		b = b[n:]
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			f.t.Fatalf("with %d bytes to go: %v", len(b), err)
		}
	}
	f.conn.SetWriteDeadline(time.Time{})
	return b
}

// flood is how many changes with ballast, 4 KB each, are more than the sockets hold: a receiver
// that does not read is not given more room by Linux. Small ones would be so many that a busy
// machine takes minutes for them.
const flood = 7_500

// Nobody looks into an attribute that is unknown.
var ballast = packet.NewPathAttributeUnknown(
	packet.BGP_ATTR_FLAG_OPTIONAL|packet.BGP_ATTR_FLAG_TRANSITIVE, 99, make([]byte, 3900))

// While our side cannot take what a peer sends, TCP holds the peer back. Its session lives on, past
// the hold time, since it is we who do not read; and nothing is lost.
func TestPeerIsHeldBack(t *testing.T) {
	all := changes(t, flood, 100, ballast)
	l := newLab(t)
	n := l.unset(64512)
	n.farPeer("127.0.0.90", 64512)
	n.farPeer("127.0.0.91", 64512)
	set(t, n)
	const hold = 6
	f := dialFar(t, n, "127.0.0.90", 64512, hold, false)
	other := dialFar(t, n, "127.0.0.91", 64512, 90, true)
	eventually(t, "sessions", true, func() bool {
		return n.farState("127.0.0.90").Established && n.farState("127.0.0.91").Established
	})
	since := n.farState("127.0.0.90").Since

	var rest []byte
	n.locked(func() {
		rest = f.write(all, (hold+3)*time.Second)
		if len(rest) == 0 {
			t.Errorf("%d messages were taken while nobody had use for them", flood)
		}
		// The server itself is not held back: it takes what another peer sends.
		other.announce("10.91.0.0/26", "192.0.2.91")
		eventually(t, "paths of another peer", 1, func() int {
			return n.farState("127.0.0.91").Received
		})
	})
	// The socket takes more only when a third of what it holds is gone, for which a busy machine
	// takes its time.
	if rest = f.write(rest, time.Minute); len(rest) > 0 {
		t.Fatalf("%d bytes are still not taken", len(rest))
	}
	f.wg.Go(f.keepalives) // what follows may last longer than the hold time
	for i := range 100 {
		n.wantHops(fmt.Sprintf("10.80.%d.0/26", i), "192.0.2.2")
	}
	n.wantHops("10.91.0.0/26", "192.0.2.91")
	if s := n.farState("127.0.0.90"); !s.Established || s.Since != since {
		t.Errorf("its session did not last: %+v", s)
	}
}

// A session that is held back can be ended at once by either side, and GoBGP goes on.
func TestHeldBackSessionEnds(t *testing.T) {
	all := changes(t, flood, 100, ballast)
	for name, end := range map[string]func(*node, *far){
		"taken out of the configuration": func(n *node, _ *far) {
			err := n.applied.server.DeletePeer(n.t.Context(), &api.DeletePeerRequest{
				Address: "127.0.0.92",
			})
			if err != nil {
				n.t.Error(err)
			}
		},
		"the peer breaks off": func(_ *node, f *far) { f.close() },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			n := l.unset(64512)
			n.farPeer("127.0.0.92", 64512)
			n.farPeer("127.0.0.93", 64512)
			set(t, n)
			other := dialFar(t, n, "127.0.0.93", 64512, 90, true)
			f := dialFar(t, n, "127.0.0.92", 64512, 90, false)
			eventually(t, "session", true, func() bool {
				return n.farState("127.0.0.92").Established
			})
			n.locked(func() {
				if rest := f.write(all, 3*time.Second); len(rest) == 0 {
					t.Error("it was not held back")
				}
				end(n, f)
				other.announce("10.93.0.0/26", "192.0.2.93")
				eventually(t, "paths of another peer", 1, func() int {
					return n.farState("127.0.0.93").Received
				})
			})
			n.wantHops("10.93.0.0/26", "192.0.2.93")
			eventually(t, "all prefixes that are left", 1, n.size)
		})
	}
}

// A peer that does not read has no more wait for it than the last change of each prefix, and what
// is in the sockets. When it reads again, it hears what holds by then; one that comes anew instead
// hears it, too.
func TestLittleWaitsForPeerThatDoesNotRead(t *testing.T) {
	const flood = 5_000 // the sockets hold about a thousand
	all := changes(t, flood, 100, ballast)
	for _, anew := range []bool{false, true} {
		t.Run(fmt.Sprintf("comes anew %t", anew), func(t *testing.T) {
			l := newLab(t)
			n, f := l.reflecting([]string{"127.0.0.95", "127.0.0.94"})
			reader := dialFar(t, n, "127.0.0.95", 64512, 90, true)
			f.announce("10.94.0.0/26", "192.0.2.94")
			eventually(t, "a route", 1, func() int { return len(reader.received()) })

			reader.mu.Lock() // its receiver takes one UPDATE more
			read := sync.OnceFunc(reader.mu.Unlock)
			defer read()
			rest := f.write(all, 30*time.Second)
			for i := range 50 {
				f.withdraw(fmt.Sprintf("10.80.%d.0/26", i))
			}
			f.announce("10.95.0.0/26", "192.0.2.95")
			eventually(t, "what is left", 52, n.size)
			read()
			if len(rest) > 0 {
				t.Fatalf("%d bytes were not taken: it held the other peer back", len(rest))
			}
			if anew {
				reader.close()
				eventually(t, "session", false, func() bool {
					return n.farState("127.0.0.95").Established
				})
				reader = dialFar(t, n, "127.0.0.95", 64512, 90, true)
			}
			eventually(t, "the last route", true, func() bool {
				return slices.Contains(reader.received(), pfx("10.95.0.0/26"))
			})
			eventually(t, "prefixes", 52, func() int { return len(reader.received()) })
			for p, text := range reader.routes() {
				if strings.HasPrefix(p.String(), "10.80.") &&
					!strings.Contains(text, "hop 192.0.2.2 ") {
					t.Errorf("%s: %s", p, text)
				}
			}
			if got := reader.count(); got > flood/2 {
				t.Errorf("%d UPDATEs had waited", got)
			} else {
				t.Logf("%d UPDATEs of %d changes", got, flood)
			}
		})
	}
}

// A peer that neither sends nor reads loses its session and routes two seconds after the hold time
// at the latest, however much is queued for it, and whatever it has said of a restart. Removing it
// then delays nobody.
func TestHoldTimerOfAPeerThatDoesNotRead(t *testing.T) {
	l := newLab(t)
	n, f := l.reflecting([]string{"127.0.0.95", "127.0.0.94"})
	silent := dialFar(t, n, "127.0.0.95", 64512, 9, false, gracefulCap(false))
	silent.announce("10.95.0.0/26", "192.0.2.95")
	n.wantHops("10.95.0.0/26", "192.0.2.95")

	silent.mu.Lock() // its receiver takes one UPDATE more
	defer silent.mu.Unlock()
	if rest := f.write(changes(t, flood, 100, ballast), patience); len(rest) > 0 {
		t.Fatalf("%d bytes were not taken", len(rest))
	}
	eventually(t, "established", false, func() bool {
		return n.farState("127.0.0.95").Established
	})
	n.wantHops("10.95.0.0/26")
	n.wantDown("127.0.0.95", "hold timer expired")
	n.plan.Peers = n.plan.Peers[1:]
	set(t, n)
	f.announce("10.96.0.0/26", "192.0.2.96")
	n.wantHops("10.96.0.0/26", "192.0.2.96")
}
