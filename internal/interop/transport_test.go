package interop

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"vpp-route-agent/internal/testcluster"
)

// transportCase is a router (BIRD 2 unless it says otherwise) with one peculiarity of its session,
// and the BGPPeer for it.
type transportCase struct {
	name    string
	address string
	as      uint32
	port    int    // of the router; 0: 179
	from    string // our end; "": 10.0.0.2
	ourAS   uint32 // 0: 64512
	session string // in BIRD 2's language, in the protocol
	path    string // what BIRD does to the AS path
	spec    string // of the BGPPeer
	// our block as the router has it: the AS path. "" is not asked: our next hop, the node's
	// address, is out of its reach
	sees string
}

var transportCases = []transportCase{
	{
		name: "gtsm", address: "10.0.0.11", as: 65011, session: "ttl security on; hold time 9;",
		spec: "ttlSecurity: 1", sees: "64512",
	},
	{
		name: "port", address: "10.0.0.12", as: 4200000012, port: 1790,
		session: "passive on;", sees: "64512",
	},
	{
		name: "local-as", address: "10.0.0.13", as: 65013, ourAS: 65055,
		spec: "localASNumber: 65055", sees: "65055",
	},
	{name: "own-as", address: "10.0.0.14", as: 65014,
		path: "bgp_path.prepend(64512); bgp_path.prepend(65014);",
		spec: "numAllowedLocalASNumbers: 1", sees: "64512"},
	{
		name: "other-source", address: "172.20.0.1", as: 65015, from: "172.20.0.2",
		spec: "sourceAddress: None", sees: "64512",
	},
	{name: "multihop", address: "10.254.0.1", as: 65016, session: "multihop;", sees: "64512"},
	{
		name: "times", address: "10.0.0.17", as: 65017, session: "hold time 9;",
		spec: "maxRestartTime: 77s, keepaliveTime: 2s", sees: "64512",
	},
}

// birdText is the router's side. Its network is 10.98.<last byte>.0/24.
func (c transportCase) birdText() string {
	from, port := cmp.Or(c.from, "10.0.0.2"), ""
	if c.port != 0 {
		port = fmt.Sprintf(" port %d", c.port)
	}
	ourAS := cmp.Or(c.ourAS, asNumber)
	return fmt.Sprintf(`
protocol kernel { ipv4 { import none; export all; }; }
protocol direct { ipv4; }
protocol static { ipv4; route %s blackhole; }
protocol bgp Us {
  local %s%s as %d;
  neighbor %s as %d;
  connect delay time 1; connect retry time 2; error wait time 1, 2;
  %s
  ipv4 { import all; export filter { if source != RTS_STATIC then reject; %s accept; }; };
}
`, c.network(), c.address, port, c.as, from, ourAS, c.session, c.path)
}

func (c transportCase) network() string { return c.within() + ".0/24" }

// target is an address in the network.
func (c transportCase) target() string { return c.within() + ".7" }

func (c transportCase) within() string {
	return fmt.Sprintf("10.98.%d", addr(c.address).As4()[3]+addr(c.address).As4()[1])
}

// peerIP is the address and, where it is not BGP's, the port.
func (c transportCase) peerIP() string {
	if c.port != 0 {
		return fmt.Sprintf("%s:%d", c.address, c.port)
	}
	return c.address
}

// TestTransport has a session of every kind at once.
func TestTransport(t *testing.T) {
	t.Parallel()
	l := newLab(t, "transport")
	us := l.agentNode(t, "us", "10.0.0.2/24")
	check(t, us.NS.AddAddress("eth0", pfx("172.20.0.2/24")))
	// the way to the peer that is a hop away
	check(t, us.NS.AddRoute(pfx("10.254.0.1/32"), addr("10.0.0.16"), "eth0"))
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	pod := us.pod(t, "pod", "10.1.0.1")
	l.apply(t, testcluster.Resource("BGPConfiguration", "default", "bindMode: NodeIP"))
	routers := map[string]*birdNode{}
	var peers []string
	fib := []string{"10.1.0.0/26 blackhole"}
	for _, c := range transportCases {
		on, hop := c.address+"/24", c.address
		if c.name == "multihop" {
			on, hop = "10.0.0.16/24", "10.0.0.16"
		}
		r := l.bird2Router(t, c.name, on, c.birdText())
		if c.name == "multihop" {
			check(t, r.NS.AddAddress("lo", pfx("10.254.0.1/32")))
		}
		check(t, r.NS.AddAddress("lo", pfx(c.target()+"/32")))
		routers[c.name] = r
		l.apply(t, testcluster.Peer(c.name, c.peerIP(), c.as, c.spec))
		peers = append(peers, c.address)
		fib = append(fib, c.network()+" via "+hop)
	}
	// One that keeps no secret of its distance: its packets come with a TTL of 1.
	near := transportCase{name: "no-gtsm", address: "10.0.0.18", as: 65018}
	l.bird2Router(t, near.name, near.address+"/24", near.birdText())
	l.apply(t, testcluster.Peer(near.name, near.address, near.as, "ttlSecurity: 1"))
	us.start(t)

	us.awaitUp(t, peers...)
	for _, c := range transportCases {
		if c.sees == "" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			await(t, "our block arrives", func(ctx context.Context) error {
				routes, err := routers[c.name].Routes(ctx, "for 10.1.0.0/26 protocol Us")
				if err == nil && (len(routes) != 1 || routes[0].ASPath != c.sees) {
					err = fmt.Errorf("%+v", routes)
				}
				return err
			})
			ping(t, routers[c.name].NS, "10.1.0.1")
		})
	}
	t.Run("what the routers announce is programmed", func(t *testing.T) {
		us.awaitOnlyKernel(t, "-4", fib...)
	})
	t.Run("packets arrive", func(t *testing.T) {
		for _, c := range transportCases {
			ping(t, pod, c.target())
		}
	})
	t.Run("TTL", func(t *testing.T) {
		await(t, "our kernel drops packets that have come too far",
			func(ctx context.Context) error {
				out, err := us.NS.Run(ctx, "nstat", "-asz", "TcpExtTCPMinTTLDrop")
				if err == nil && !regexp.MustCompile(`TCPMinTTLDrop +[1-9]`).Match(out) {
					err = fmt.Errorf("%s", out)
				}
				return err
			})
		if s, err := us.session(t.Context(), addr(near.address)); err == nil {
			t.Errorf("a session without TTL security came up: %+v", s)
		}
	})
	t.Run("bindMode NodeIP", func(t *testing.T) {
		out, err := us.NS.Run(t.Context(), "ss", "-Hltn", "sport", "=", ":179")
		check(t, err)
		f := strings.Fields(string(out))
		if len(f) < 4 || f[3] != "10.0.0.2:179" || strings.Count(string(out), "\n") != 1 {
			t.Errorf("we listen on:\n%s", out)
		}
	})
	t.Run("capabilities", func(t *testing.T) {
		shown, err := routers["times"].Command(t.Context(), "show protocols all Us")
		check(t, err)
		text := strings.Join(shown, "\n")
		_, text, _ = strings.Cut(text, "Neighbor capabilities")
		text, _, _ = strings.Cut(text, "Session:")
		for _, want := range []string{"Multiprotocol\n        AF announced: ipv4\n",
			"Route refresh",
			"Graceful restart\n        Restart time: 77\n        AF supported: ipv4",
			"4-octet AS numbers", "ADD-PATH\n        RX: ipv4\n        TX: ipv4\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("BIRD sees no %q in:\n%s", want, text)
			}
		}
	})
	t.Run("our AS is not allowed any more", func(t *testing.T) {
		since := us.sessionsOf(t, peers[0], peers[1])
		own := transportCases[3]
		l.apply(t, testcluster.Peer(own.name, own.peerIP(), own.as, ""))
		us.awaitOnlyKernel(t, "-4", slices.DeleteFunc(slices.Clone(fib), func(r string) bool {
			return strings.HasPrefix(r, own.network())
		})...)
		us.sameSessions(t, since)
	})
}

// awaitOnlyKernel is awaitFIB where the agent's own account says something else: a next hop behind
// the kernel's gateway, or a route that cannot be programmed.
func (n *agentNode) awaitOnlyKernel(t *testing.T, family string, want ...string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	await(t, fmt.Sprintf("%s has exactly %d routes", n.name, len(want)),
		func(ctx context.Context) error {
			got, err := n.kernel(ctx, family, agentProtocol)
			if err != nil {
				return err
			}
			return same("kernel of "+n.name, stripMetric(got), want)
		})
}

// awaitUp waits until the sessions with these peers are up; there may be others.
func (n *agentNode) awaitUp(t *testing.T, peers ...string) {
	t.Helper()
	for _, p := range peers {
		await(t, n.name+" has a session with "+p, func(ctx context.Context) error {
			_, err := n.session(ctx, addr(p))
			return err
		})
	}
}
