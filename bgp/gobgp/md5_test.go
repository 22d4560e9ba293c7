package gobgp

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"golang.org/x/sys/unix"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/testlog"
)

func TestPasswordThatIsTooLong(t *testing.T) {
	l := newLab(t)
	secrets := func(c *Config) {
		c.Passwords = passwords(map[string]string{
			"bgp/mesh": strings.Repeat("x", 80), "bgp/long": strings.Repeat("x", 81),
		})
	}
	a, b, c := l.node(64512, secrets), l.node(64512, secrets), l.node(64512, secrets)
	connect(a, b, withPassword)
	connect(a, c, func(p *bgp.Peer) { p.Password = &calico.SecretKeyRef{Name: "bgp", Key: "long"} })
	set(t, a, b, c)
	up(t, a, b)
	s := a.state(c)
	if s.LastError != "password bgp/long has 81 bytes, a TCP MD5 key has at most 80" {
		t.Errorf("state %+v", s)
	}
}

// A peer whose key the kernel refuses must not get in without one, which GoBGP would allow.
func TestRefusedKeyKeepsThePeerOut(t *testing.T) {
	l := newLab(t)
	secret := func(c *Config) { c.Passwords = passwords(map[string]string{"bgp/mesh": "s3cret"}) }
	a, b, c := l.node(64512, secret), l.node(64512, secret), l.node(64512, secret)
	connect(a, b, withPassword)
	connect(a, c)
	room := fillKeys(t, a)
	err := a.Set(t.Context(), a.plan)
	if !errors.Is(err, syscall.ENOMEM) || !strings.Contains(err.Error(), "net.core.optmem_max") {
		t.Errorf("Set: %v", err)
	}
	set(t, b, c)
	up(t, a, c) // a peer without a key is not concerned
	a.wantNeighbors(c.addr.String())
	s := a.state(b)
	if s.Established || !strings.Contains(s.LastError, "net.core.optmem_max limits") {
		t.Errorf("state %+v", s)
	}
	room()
	up(t, a, b) // without another Set
}

// fillKeys gives the listener of n as many TCP MD5 keys as the kernel lets it have. The function
// that it returns takes one away.
func fillKeys(t *testing.T, n *node) (room func()) {
	t.Helper()
	fd := listenerOf(t, n)
	key := func(i int, text string) error {
		k := unix.TCPMD5Sig{Keylen: uint16(len(text))}
		k.Addr.Family = unix.AF_INET
		copy(k.Addr.Data[2:], []byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		copy(k.Key[:], text)
		return unix.SetsockoptTCPMD5Sig(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG, &k)
	}
	for i := range 1 << 20 {
		switch err := key(i, "full"); {
		case errors.Is(err, unix.ENOMEM) && i > 0:
			t.Logf("the listener has %d keys", i)
			return func() {
				if err := key(0, ""); err != nil {
					t.Error(err)
				}
			}
		case err != nil:
			t.Fatal(err)
		}
	}
	t.Fatal("there is no end to the keys")
	return nil
}

// listenerOf finds the socket on which GoBGP waits for n's peers among the descriptors of this
// process.
func listenerOf(t *testing.T, n *node) int {
	t.Helper()
	for fd := range 1 << 16 {
		local, err := unix.Getsockname(fd)
		if err != nil {
			continue
		}
		a, ok := local.(*unix.SockaddrInet4)
		listens, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
		if ok && listens == 1 && a.Addr == n.addr.As4() && a.Port == int(n.port) {
			return fd
		}
	}
	t.Fatalf("nobody listens on %s", n.addr)
	return -1
}

// A connection from a peer's address that was set up while the listener had no key for it, since
// the peer was taken out and in again, must not become the peer's.
func TestConnectionFromBeforeTheKey(t *testing.T) {
	const peer = "127.0.0.95"
	deleting, release := make(chan struct{}), make(chan struct{})
	n := newLab(t).node(64512, func(c *Config) {
		c.Passwords = passwords(map[string]string{"bgp/mesh": "s3cret"})
		block := sync.OnceFunc(func() { close(deleting); <-release })
		c.Log = slog.New(slog.NewTextHandler(testlog.Writer(t), &slog.HandlerOptions{
			Level: slog.LevelDebug,
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Value.String() == "gobgp: delete a peer configuration" {
					block() // GoBGP's own goroutine, which has taken the key off the listener
				}
				return a
			},
		}))
	})
	n.farPeer(peer, 64512)
	withPassword(&n.plan.Peers[0])
	set(t, n)
	conf := confOf(n.plan.Peers[0], "s3cret")

	calls := make(chan error, 2)
	go func() {
		calls <- n.applied.server.DeletePeer(t.Context(), &api.DeletePeerRequest{Address: peer})
	}()
	<-deleting
	var intruders []*bare
	for range 20 { // GoBGP takes turns between them and the call that follows
		b := dialBare(t, n, peer, "9.9.9.95")
		b.open(64512)
		b.send(packet.NewBGPKeepAliveMessage())
		intruders = append(intruders, b)
	}
	go func() {
		calls <- n.applied.server.AddPeer(t.Context(), &api.AddPeerRequest{Peer: conf.api()})
	}()
	time.Sleep(100 * time.Millisecond) // it waits for GoBGP's goroutine by then
	close(release)
	for range 2 {
		if err := <-calls; err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range intruders {
		b.conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		if m, err := b.read(); err == nil {
			t.Fatalf("a connection without a key was sent a message of type %d", m.Header.Type)
		}
	}
}

// Taking a peer with a password out never has it configured without one.
func TestPeerIsTakenOutWithItsKey(t *testing.T) {
	var added atomic.Int32
	n := newLab(t).node(64512, func(c *Config) {
		c.Passwords = passwords(map[string]string{"bgp/mesh": "s3cret"})
		c.Log = slog.New(slog.NewTextHandler(testlog.Writer(t), &slog.HandlerOptions{
			Level: slog.LevelDebug,
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Value.String() == "gobgp: add a peer configuration" {
					added.Add(1)
				}
				return a
			},
		}))
	})
	n.farPeer("127.0.0.96", 64512)
	withPassword(&n.plan.Peers[0])
	set(t, n)
	n.plan.Peers = nil
	set(t, n)
	if got := added.Load(); got != 1 {
		t.Errorf("the peer was configured %d times", got)
	}
	n.farPeer("127.0.0.96", 64512) // and the listener has no key for it any more
	set(t, n)
	dialFar(t, n, "127.0.0.96", 64512, 90, true)
	n.wantState("127.0.0.96", "Established")
}
