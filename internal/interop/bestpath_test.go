package interop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// feeder is a router that sends the same to us and to a node with calico-node's BIRD.
type feeder struct {
	name, address string
	as            uint32
}

var feeders = []feeder{
	{"one", "10.0.0.11", 65001},
	{"two", "10.0.0.12", 65002},
	{"three", "10.0.0.13", asNumber},
	{"four", "10.0.0.14", 65001},
	{"five", "10.0.0.15", asNumber},
}

// bestPathCase is a prefix with what each feeder that announces it does to its attributes, in BIRD
// 2's language. Both kernels must then hold the same next hops.
type bestPathCase struct {
	name string
	from map[string]string // by feeder
	want string            // next hops in the kernel of BIRD's node
	// and in ours, one of these, where they differ; docs/best-path.md says why
	ours []string
}

const (
	elsewhere = "bgp_next_hop = 10.77.0.1;" // behind a gateway
	nowhere   = "bgp_next_hop = 10.66.0.1;"
)

var bestPathCases = []bestPathCase{
	{
		name: "equal eBGP paths of different ASes share",
		from: map[string]string{"one": "", "two": ""}, want: "10.0.0.11 10.0.0.12",
	},
	{
		name: "equal iBGP paths share", from: map[string]string{"three": "", "five": ""},
		want: "10.0.0.13 10.0.0.15",
	},
	{
		name: "eBGP beats iBGP",
		from: map[string]string{"one": "", "three": "bgp_path.prepend(65009);"}, want: "10.0.0.11",
	},
	{
		name: "a shorter AS path beats eBGP", from: map[string]string{"one": "", "three": ""},
		want: "10.0.0.13",
	},
	{name: "the higher LOCAL_PREF beats a shorter AS path", want: "10.0.0.13",
		from: map[string]string{"one": "",
			"three": "bgp_local_pref = 101; bgp_path.prepend(65009); bgp_path.prepend(65009);",
			"five":  ""}},
	{
		name: "Calico's LOCAL_PREF beats that of other routers",
		from: map[string]string{"one": "", "three": "bgp_local_pref = 2147482623;",
			"five": "bgp_local_pref = 100;"},
		want: "10.0.0.13",
	},
	{
		name: "an elevated one beats the normal one",
		from: map[string]string{"three": "bgp_local_pref = 2147482623;",
			"five": "bgp_local_pref = 2147483135;"},
		want: "10.0.0.15",
	},
	{
		name: "a longer AS path loses",
		from: map[string]string{"one": "bgp_path.prepend(65001);", "two": ""}, want: "10.0.0.12",
	},
	{
		name: "ORIGIN",
		from: map[string]string{"one": "bgp_origin = ORIGIN_INCOMPLETE;", "two": "",
			"four": "bgp_origin = ORIGIN_EGP;"},
		want: "10.0.0.12",
	},
	{
		name: "MED of one AS",
		from: map[string]string{"one": "bgp_med = 20;", "four": "bgp_med = 10;"}, want: "10.0.0.14",
	},
	{
		name: "no MED is the best MED", from: map[string]string{"one": "bgp_med = 1;", "four": ""},
		want: "10.0.0.14",
	},
	{
		name: "MED inside our AS",
		from: map[string]string{"three": "bgp_med = 20;", "five": "bgp_med = 10;"},
		want: "10.0.0.15",
	},
	{
		name: "a next hop behind a gateway is farther",
		from: map[string]string{"three": "", "five": elsewhere}, want: "10.0.0.13",
	},
	{
		name: "but no worse in other ways",
		from: map[string]string{"three": "", "five": elsewhere + "bgp_local_pref = 101;"},
		want: "10.0.0.250",
	},
	{name: "MED of different ASes",
		from: map[string]string{"one": "bgp_med = 20;", "two": "bgp_med = 10;"},
		want: "10.0.0.11 10.0.0.12", ours: []string{"10.0.0.11", "10.0.0.12"}},
	{name: "MED of different ASes inside ours", want: "10.0.0.13 10.0.0.15",
		ours: []string{"10.0.0.13", "10.0.0.15"},
		from: map[string]string{"three": "bgp_med = 20; bgp_path.prepend(65008);",
			"five": "bgp_med = 10; bgp_path.prepend(65009);"}},
	{
		name: "unreachable next hops do not count",
		from: map[string]string{"three": "", "five": nowhere + "bgp_local_pref = 101;"},
		want: "10.0.0.13",
	},
}

func (f feeder) birdText() string {
	filter := ""
	routes := ""
	for i, c := range bestPathCases {
		if change, ok := c.from[f.name]; ok {
			routes += fmt.Sprintf("  route %s blackhole;\n", bestPathPrefix(i))
			filter += fmt.Sprintf("  if net = %s then { %s accept; }\n", bestPathPrefix(i), change)
		}
	}
	text := fmt.Sprintf("protocol static cases { ipv4;\n%s}\nfilter to_nodes {\n%s  reject;\n}\n",
		routes, filter)
	for name, to := range map[string]string{"Us": "10.0.0.2", "Twin": "10.0.0.9"} {
		text += fmt.Sprintf(`protocol bgp %s {
  local %s as %d; neighbor %s as 64512; connect delay time 1; connect retry time 2;
  ipv4 { import none; export filter to_nodes; next hop keep; }; }
`, name, f.address, f.as, to)
	}
	return text
}

// unreachable says that one of the paths has a next hop that nobody knows a way to: it is never
// best here.
func (c bestPathCase) unreachable() bool {
	for _, change := range c.from {
		if strings.Contains(change, nowhere) {
			return true
		}
	}
	return false
}

// bestPathTarget is an address inside the prefix, at whoever announces it.
func bestPathTarget(i int) string { return fmt.Sprintf("10.99.%d.7", i) }

func bestPathPrefix(i int) string { return fmt.Sprintf("10.99.%d.0/24", i) }

// TestBestPathsAsBIRD compares what is forwarded by: what our kernel holds with what that of a node
// with BIRD holds.
func TestBestPathsAsBIRD(t *testing.T) {
	t.Parallel()
	l := newLab(t, "bestpath")
	l.apply(t, testcluster.NoMesh)
	us := l.agentNode(t, "us", "10.0.0.2/24")
	twin := l.birdNode(t, "twin", "10.0.0.9/24")
	for _, n := range []*host{us.host, twin.host} {
		check(t, n.NS.AddRoute(pfx("10.77.0.0/24"), addr("10.0.0.250"), "eth0"))
	}
	var peers []string
	for _, f := range feeders {
		r := l.bird2Router(t, f.name, f.address+"/24", f.birdText())
		for i, c := range bestPathCases {
			if change, ok := c.from[f.name]; ok && !strings.Contains(change, "bgp_next_hop") {
				check(t, r.NS.AddAddress("lo", pfx(bestPathTarget(i)+"/32")))
			}
		}
		l.apply(t, testcluster.Peer(f.name, f.address, f.as, ""))
		twin.config.Peers = append(twin.config.Peers, netlab.BirdPeer{
			Name: f.name, Address: addr(f.address), AS: f.as,
		})
		peers = append(peers, f.address)
	}
	twin.start(t)
	us.start(t)
	us.awaitPeers(t, peers...)
	twin.awaitEstablished(t)
	for i, c := range bestPathCases {
		t.Run(c.name, func(t *testing.T) {
			ours := c.ours
			if ours == nil {
				ours = []string{c.want}
			}
			await(t, "both kernels have it", func(ctx context.Context) error {
				bird, err := twin.via(ctx, "bird", bestPathPrefix(i))
				if err == nil && bird != c.want {
					err = fmt.Errorf("BIRD's node has it via %s, want %s", bird, c.want)
				}
				got, err2 := us.via(ctx, agentProtocol, bestPathPrefix(i))
				if err2 == nil && !slices.Contains(ours, got) {
					err2 = fmt.Errorf("we have it via %s, want one of %q", got, ours)
				}
				return errors.Join(err, err2)
			})
			await(t, "our RIB has all of its paths", func(ctx context.Context) error {
				rib, err := us.rib(ctx, "ipv4")
				n := len(rib[bestPathPrefix(i)])
				if err == nil && n != len(c.from) && !c.unreachable() {
					err = fmt.Errorf("%d paths of %d", n, len(c.from))
				}
				return err
			})
			if c.want != "10.0.0.250" { // who has the gateway's address knows no way there
				for _, n := range []*host{us.host, twin.host} {
					ping(t, n.NS, bestPathTarget(i))
				}
			}
		})
	}
}

// via returns the gateways of a prefix in the kernel, sorted.
func (h *host) via(ctx context.Context, protocol, prefix string) (string, error) {
	all, err := h.kernel(ctx, "-4", protocol)
	if err != nil {
		return "", err
	}
	for _, r := range all {
		if hops, ok := strings.CutPrefix(r.text, prefix+" via "); ok {
			return strings.Join(slices.Sorted(strings.FieldsSeq(hops)), " "), nil
		}
	}
	return "", fmt.Errorf("%s has no %s", h.name, prefix)
}
