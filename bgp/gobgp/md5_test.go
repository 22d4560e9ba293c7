package gobgp

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
)

func TestPasswordThatIsTooLong(t *testing.T) {
	l := newLab(t)
	secrets := func(c *Config) {
		c.Passwords = passwords(map[string]string{"bgp/mesh": strings.Repeat("x", 80), "bgp/long": strings.Repeat("x", 81)})
	}
	a, b, c := l.node(64512, secrets), l.node(64512, secrets), l.node(64512, secrets)
	connect(a, b, withPassword)
	connect(a, c, func(p *bgp.Peer) { p.Password = &calico.SecretKeyRef{Name: "bgp", Key: "long"} })
	set(t, a, b, c)
	up(t, a, b)
	if s := a.state(c); s.LastError != "password bgp/long has 81 bytes, a TCP MD5 key has at most 80" {
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
	if s := a.state(b); s.Established || !strings.Contains(s.LastError, "net.core.optmem_max limits") {
		t.Errorf("state %+v", s)
	}
	room()
	up(t, a, b) // without another Set
}

// fillKeys gives the listener of n as many TCP MD5 keys as the kernel lets it have. The function that it returns takes one away.
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

// listenerOf finds the socket on which GoBGP waits for n's peers among the descriptors of this process.
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
