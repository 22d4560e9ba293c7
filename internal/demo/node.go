package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// node is one machine of the cluster.
type node struct {
	*testcluster.Node
	// what others use as next hop: its address, but where VPP has one of its own and publishes that
	nextHop netip.Addr
	// tunnelled: next hops are asked of the agent, after it has compared its routes with the data
	// plane's: VPP's own are those of tunnels.
	tunnelled bool
	speaker   speaker
	changes   *netlab.RouteMonitor // of the kernel; nil where VPP forwards
	version   string               // of VPP
	links     int                  // made so far, for names
}

func (d *demo) startAll(ctx context.Context) error {
	for _, n := range d.nodes {
		if err := n.speaker.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// forwarder says what the node forwards with.
func (n *node) forwarder() string {
	if n.VPP != nil {
		return "VPP " + n.version
	}
	return "Linux kernel"
}

// command shows a person what is programmed, with programs as a speaker's.
func (n *node) command() string {
	if n.VPP != nil {
		return "vppctl show ip fib"
	}
	return "ip route show proto " + n.speaker.Protocol()
}

func (n *node) programs() map[string][]string {
	all := n.speaker.programs()
	if n.VPP != nil {
		all["vppctl"] = []string{n.Cluster.VPP.Vppctl, "-s", n.VPP.CLISocket()}
		all["vpp-pid"] = []string{"echo", strconv.Itoa(n.VPP.PID())}
	}
	return all
}

// learned are the routes that the speaker has programmed, asked of the data plane itself.
func (n *node) learned(ctx context.Context) (testcluster.FIB, error) {
	if n.tunnelled {
		return n.agent().Audited(ctx)
	}
	return n.Learned(ctx, n.speaker.Protocol())
}

// via holds when what the speaker has programmed for p leads to hop.
func (n *node) via(ctx context.Context, p netip.Prefix, hop netip.Addr) error {
	if n.tunnelled {
		return n.sendsTo(ctx, p, hop)
	}
	r, ok, err := n.Lookup(ctx, n.speaker.Protocol(), p)
	return held(ok && r.NextHop() == hop, err)
}

// where says in which data plane a route is, and by what it is known whose it is.
func (n *node) where(r testcluster.Route) string {
	if n.VPP != nil {
		return fmt.Sprintf("VPP, source %s, %s", testcluster.FIBSource, cmp.Or(r.Kind, r.Device))
	}
	return fmt.Sprintf("kernel, proto %s, %s",
		n.speaker.Protocol(), cmp.Or(r.Kind, "dev "+r.Device))
}

// workload is a pod of the story.
type workload struct {
	*testcluster.Workload
	node *node
	port testcluster.Port // the current link to the node
}

func (w *workload) host() netip.Prefix { return netip.PrefixFrom(w.Address, w.Address.BitLen()) }

// plug links w to n. The workload itself keeps sending through an earlier link until use.
func (n *node) plug(ctx context.Context, w *workload) (p testcluster.Port, err error) {
	n.links++
	inside := "eth0"
	if w.port.Inside == inside {
		inside = "eth1"
	}
	p, err = n.Link(w.Workload, inside, fmt.Sprintf("cali%s%d", w.Name, n.links))
	if err != nil {
		return p, err
	}
	return p, n.Deliver(ctx, p)
}

// use makes the workload send through p from now on.
func (w *workload) use(ctx context.Context, n *node, p testcluster.Port) error {
	w.node, w.port = n, p
	return w.Use(ctx, p)
}

// await asks until holds has no objection.
func await(ctx context.Context, patience time.Duration, holds func(context.Context) error) error {
	return netlab.AwaitEvery(ctx, patience, pollInterval, "it does not hold", holds)
}

// pollInterval bounds from below what the measured times can resolve.
const pollInterval = 2 * time.Millisecond

var errNotYet = errors.New("it is otherwise")

// held turns what was asked into an objection.
func held(ok bool, err error) error {
	if err == nil && !ok {
		return errNotYet
	}
	return err
}

func allBut[T comparable](all []T, one T) []T {
	return slices.DeleteFunc(slices.Clone(all), func(x T) bool { return x == one })
}

// vppVersion is what VPP says of itself, for people: "25.10".
func vppVersion(ctx context.Context, v *netlab.VPP) (string, error) {
	text, err := v.Command(ctx, "show version") // "vpp v25.10-release built by …"
	if words := strings.Fields(text); len(words) > 1 {
		text, _, _ = strings.Cut(strings.TrimPrefix(words[1], "v"), "-")
	}
	return text, err
}
