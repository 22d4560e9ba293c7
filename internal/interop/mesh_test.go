package interop

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testlog"
)

// meshLab is the agent in a mesh with two stock nodes. Which end dials is decided by the addresses
// as strings: "10.0.0.10" < "10.0.0.2" < "10.0.0.9", so that nine dials us and we dial ten.
type meshLab struct {
	*lab
	us        *agentNode
	nine, ten *birdNode

	ourPod, borrower, ninePod, tenPod *netlab.Namespace
	started                           time.Time   // when the sessions were up
	since                             []time.Time // when each of their ends says that it came up
}

func TestMesh(t *testing.T) {
	t.Parallel()
	m := newMeshLab(t)
	t.Run("sessions come up", m.sessions)
	if t.Failed() {
		return // everything else waits for them
	}
	t.Run("exactly one end dials", m.oneEndDials)
	t.Run("BIRD's blocks arrive in the kernel", m.blocksArrive)
	t.Run("our block and a borrowed address arrive in BIRD", m.oursArrive)
	t.Run("packets arrive", m.packets)
	t.Run("our block comes and goes", m.ourBlockComesAndGoes)
	t.Run("BIRD's block comes and goes", m.birdsBlockComesAndGoes)
	t.Run("a block moves to us, BIRD is late", m.blockMovesToUs)
	t.Run("a block moves away, BIRD is early", m.blockMovesAway)
	t.Run("no session flaps", m.steady)
	t.Run("BIRD is killed and restarts", m.birdRestarts)
	t.Run("the agent is killed and restarts", m.agentIsKilled)
	t.Run("the agent is stopped and restarts", m.agentIsStopped)
}

func newMeshLab(t *testing.T) *meshLab {
	m := &meshLab{lab: newLab(t, "mesh")}
	m.us = m.agentNode(t, "us", "10.0.0.2/24")
	m.nine = m.birdNode(t, "nine", "10.0.0.9/24", "10.0.0.2", "10.0.0.10")
	m.ten = m.birdNode(t, "ten", "10.0.0.10/24", "10.0.0.2", "10.0.0.9")
	check(t, m.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	m.nine.setBlocks(t, "10.1.0.64/26", "10.1.1.0/26")
	m.ten.setBlocks(t, "10.1.0.128/26")

	m.ourPod = m.us.workload(t, "pod", "10.1.0.1")
	m.borrower = m.us.workload(t, "borrower", "10.1.0.66")
	m.ninePod = m.nine.workload(t, "pod9", "10.1.0.65")
	m.tenPod = m.ten.workload(t, "pod10", "10.1.0.129")
	m.attach(t, "us", "pod", "10.1.0.1")
	m.attach(t, "us", "borrower", "10.1.0.66") // from a block of nine

	m.nine.start(t)
	m.ten.start(t)
	m.us.start(t)
	return m
}

// attach tells Calico's data of a workload.
func (l *lab) attach(t *testing.T, node, name, address string) {
	t.Helper()
	w, err := l.Data.Attach(t.Context(), node, name, address)
	check(t, err)
	if w.Address != addr(address) {
		t.Fatalf("%s got %s", name, w.Address)
	}
}

func (m *meshLab) sessions(t *testing.T) {
	m.us.awaitPeers(t, "10.0.0.9", "10.0.0.10")
	m.nine.awaitEstablished(t)
	m.ten.awaitEstablished(t)
	m.started, m.since = time.Now(), m.upSince(t)
}

// upSince asks both ends of both our sessions.
func (m *meshLab) upSince(t *testing.T) (all []time.Time) {
	for _, peer := range []string{"10.0.0.9", "10.0.0.10"} {
		s, err := m.us.session(t.Context(), addr(peer))
		check(t, err)
		all = append(all, *s.Since)
	}
	for _, b := range []*birdNode{m.nine, m.ten} {
		text, err := b.since(t.Context(), mesh("10.0.0.2"))
		check(t, err)
		since, err := time.Parse(time.TimeOnly, text)
		check(t, err)
		all = append(all, since)
	}
	return all
}

func (m *meshLab) oneEndDials(t *testing.T) {
	for _, c := range []struct {
		from *host
		to   string
		want string
	}{
		{m.us.host, "10.0.0.9", "accepted"}, {m.nine.host, "10.0.0.2", "dialled"},
		{m.us.host, "10.0.0.10", "dialled"}, {m.ten.host, "10.0.0.2", "accepted"},
	} {
		got, err := c.from.connections(t.Context(), addr(c.to), "179")
		check(t, err)
		if !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s has connections with %s: %v, want one, %s", c.from.name, c.to, got, c.want)
		}
	}
}

// ourFIB is what our kernel holds as long as nothing is moved.
func ourFIB(more ...string) []string {
	return append(more, "10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.9",
		"10.1.0.128/26 via 10.0.0.10", "10.1.1.0/26 via 10.0.0.9")
}

// ours is what a BIRD node learns from us as long as nothing is moved.
func ours(more ...string) []string {
	return append(more, iBGP("10.1.0.0/26", "10.0.0.2"), iBGP("10.1.0.66/32", "10.0.0.2"))
}

func (m *meshLab) blocksArrive(t *testing.T) {
	m.us.awaitFIB(t, "-4", ourFIB()...)
}

func (m *meshLab) oursArrive(t *testing.T) {
	m.nine.awaitRIB(t, mesh("10.0.0.2"), ours()...)
	m.ten.awaitRIB(t, mesh("10.0.0.2"), ours()...)
	m.ten.awaitKernel(t, "-4",
		// Calico's normal priority, which our LOCAL_PREF stands for
		kernelRoute{"10.1.0.0/26 via 10.0.0.2", 1024},
		kernelRoute{"10.1.0.128/26 blackhole", 0},
		kernelRoute{"10.1.0.64/26 via 10.0.0.9", 1024},
		kernelRoute{"10.1.0.66/32 via 10.0.0.2", 1024},
		kernelRoute{"10.1.1.0/26 via 10.0.0.9", 1024})
}

func (m *meshLab) packets(t *testing.T) {
	for _, c := range []struct {
		from *netlab.Namespace
		to   []string
	}{
		{m.ourPod, []string{"10.1.0.65", "10.1.0.129"}},
		{m.borrower, []string{"10.1.0.65", "10.1.0.129"}},
		{m.ninePod, []string{"10.1.0.1", "10.1.0.66", "10.1.0.129"}},
		{m.tenPod, []string{"10.1.0.1", "10.1.0.66", "10.1.0.65"}},
	} {
		for _, to := range c.to {
			ping(t, c.from, to)
		}
	}
}

func (m *meshLab) ourBlockComesAndGoes(t *testing.T) {
	check(t, m.Data.ClaimBlock(t.Context(), "us", pfx("10.1.2.0/26")))
	for _, b := range []*birdNode{m.nine, m.ten} {
		b.awaitRIB(t, mesh("10.0.0.2"), ours(iBGP("10.1.2.0/26", "10.0.0.2"))...)
	}
	m.us.awaitFIB(t, "-4", ourFIB("10.1.2.0/26 blackhole")...)
	_, err := m.Data.ReleaseBlock(t.Context(), pfx("10.1.2.0/26"))
	check(t, err)
	for _, b := range []*birdNode{m.nine, m.ten} {
		b.awaitRIB(t, mesh("10.0.0.2"), ours()...)
	}
	m.us.awaitFIB(t, "-4", ourFIB()...)
}

func (m *meshLab) birdsBlockComesAndGoes(t *testing.T) {
	m.ten.config.Blocks = prefixes("10.1.0.128/26", "10.1.3.0/26")
	m.ten.reconfigure(t)
	m.us.awaitFIB(t, "-4", ourFIB("10.1.3.0/26 via 10.0.0.10")...)
	m.ten.config.Blocks = prefixes("10.1.0.128/26")
	m.ten.reconfigure(t)
	m.us.awaitFIB(t, "-4", ourFIB()...)
}

// blockMovesToUs has nine's confd notice last: for a while two nodes announce the block.
func (m *meshLab) blockMovesToUs(t *testing.T) {
	_, err := m.Data.ReleaseBlock(t.Context(), pfx("10.1.1.0/26"))
	check(t, err)
	m.us.awaitFIB(t, "-4", ourFIB()...) // BIRD still says so, and is believed
	check(t, m.Data.ClaimBlock(t.Context(), "us", pfx("10.1.1.0/26")))
	moved := []string{
		"10.1.0.0/26 blackhole", "10.1.1.0/26 blackhole", "10.1.0.64/26 via 10.0.0.9",
		"10.1.0.128/26 via 10.0.0.10",
	}
	m.us.awaitFIB(t, "-4", moved...)
	for _, b := range []*birdNode{m.nine, m.ten} {
		b.awaitRIB(t, mesh("10.0.0.2"), ours(iBGP("10.1.1.0/26", "10.0.0.2"))...)
	}
	m.nine.config.Blocks = prefixes("10.1.0.64/26")
	m.nine.reconfigure(t)
	m.ten.awaitRIB(t, mesh("10.0.0.9"), iBGP("10.1.0.64/26", "10.0.0.9"))
	m.ten.awaitKernel(t, "-4",
		kernelRoute{"10.1.0.0/26 via 10.0.0.2", 1024},
		kernelRoute{"10.1.0.128/26 blackhole", 0},
		kernelRoute{"10.1.0.64/26 via 10.0.0.9", 1024},
		kernelRoute{"10.1.0.66/32 via 10.0.0.2", 1024},
		kernelRoute{"10.1.1.0/26 via 10.0.0.2", 1024})
	m.us.awaitFIB(t, "-4", moved...)
	m.attach(t, "us", "moved", "10.1.1.1")
	m.us.workload(t, "moved", "10.1.1.1")
	ping(t, m.ninePod, "10.1.1.1")
	ping(t, m.tenPod, "10.1.1.1")
	_, err = m.Data.Release(t.Context(), "moved")
	check(t, err)
	check(t, m.us.NS.DeleteLink("calimoved"))
}

// blockMovesAway has nine announce the block before our own data says that it is no longer ours:
// our drop route must not stay in the way.
func (m *meshLab) blockMovesAway(t *testing.T) {
	m.nine.config.Blocks = prefixes("10.1.0.64/26", "10.1.1.0/26")
	m.nine.reconfigure(t)
	await(t, "nine's announcement has come", func(ctx context.Context) error {
		rib, err := m.us.rib(ctx, "ipv4")
		if n := len(rib["10.1.1.0/26"]); err == nil && n != 2 {
			err = fmt.Errorf("%d paths", n)
		}
		return err
	})
	_, err := m.Data.ReleaseBlock(t.Context(), pfx("10.1.1.0/26"))
	check(t, err)
	check(t, m.Data.ClaimBlock(t.Context(), "nine", pfx("10.1.1.0/26")))
	m.us.awaitFIB(t, "-4", ourFIB()...)
	for _, b := range []*birdNode{m.nine, m.ten} {
		b.awaitRIB(t, mesh("10.0.0.2"), ours()...)
	}
	m.nine.workload(t, "moved2", "10.1.1.2")
	ping(t, m.ourPod, "10.1.1.2")
	check(t, m.nine.NS.DeleteLink("calimoved2"))
}

// steady looks again when the sessions are 16 s old. BIRD computes its times of day from ages in
// whole seconds, so they may differ by one; a session that flapped would be seconds younger.
func (m *meshLab) steady(t *testing.T) {
	time.Sleep(time.Until(m.started.Add(16 * time.Second)))
	for i, now := range m.upSince(t) {
		younger := now.Sub(m.since[i])
		if younger < -12*time.Hour { // midnight
			younger += 24 * time.Hour
		}
		if younger.Abs() > time.Second {
			t.Errorf("session %d: up since %s, it was up since %s", i, now, m.since[i])
		}
	}
}

// birdRestarts kills BIRD and starts it again with one block less. It is started in recovery, and
// its kernel goes on forwarding.
func (m *meshLab) birdRestarts(t *testing.T) {
	const gone = "10.1.3.0/26"
	m.ten.config.Blocks = prefixes("10.1.0.128/26", gone)
	m.ten.reconfigure(t)
	m.us.awaitFIB(t, "-4", ourFIB(gone+" via 10.0.0.10")...)
	watch := m.us.watchRoutes(t)
	control, through := flow(t, m.ourPod, "10.1.0.65"), flow(t, m.ourPod, "10.1.0.129")

	check(t, m.ten.Kill())
	await(t, "we notice that ten is away", func(ctx context.Context) error {
		if s, err := m.us.session(ctx, addr("10.0.0.10")); err == nil {
			return fmt.Errorf("the session is up since %s", s.Since)
		}
		return nil
	})
	m.us.awaitFIB(t, "-4", ourFIB(gone+" via 10.0.0.10")...)
	m.ten.config.Blocks = prefixes("10.1.0.128/26")
	check(t, os.WriteFile(m.ten.ConfigPath(), []byte(m.ten.config.String()), 0o600))
	check(t, m.ten.Restart(t.Context()))
	m.us.awaitPeers(t, "10.0.0.9", "10.0.0.10")
	m.us.awaitFIB(t, "-4", ourFIB()...)
	m.ten.awaitRIB(t, mesh("10.0.0.2"), ours()...)

	if err := same("changes in our kernel", watch.stop(t, agentProtocol, ""),
		[]string{"Deleted " + gone + " via 10.0.0.10"}); err != nil {
		t.Error(err)
	}
	noneLost(t, control, through)
}

// noneLost stops the flows. The control flow is one that the fault cannot touch: what it lost, a
// busy machine has lost.
func noneLost(t *testing.T, control *netlab.Flow, flows ...*netlab.Flow) {
	t.Helper()
	noneLostThrough(t, nil, netip.Addr{}, control, flows...)
}

// noneLostThrough is noneLost for flows that a BIRD may switch from one path to another meanwhile:
// its kernel has no route for about 0.1 ms then, of which nobody else is the cause. The watch is of
// its namespace, and to what the flows need a route to there.
func noneLostThrough(
	t *testing.T, watch *netlab.GapWatch, to netip.Addr, control *netlab.Flow,
	flows ...*netlab.Flow,
) {
	t.Helper()
	c := control.Stop()
	t.Logf("control: %s", c)
	var reports []netlab.Report
	for _, f := range flows {
		reports = append(reports, f.Stop())
	}
	var gaps []netlab.Gap
	if watch != nil {
		gaps = watch.Stop()
	}
	for _, r := range reports {
		t.Log(r)
		if lost := r.Lost - r.LostInGaps(gaps, to, flowInterval); lost > c.Lost {
			t.Errorf("lost %d packets, the control flow %d: %+v", lost, c.Lost, r.Outages)
		}
	}
}

// watchGaps notes when the BIRD of n leaves its kernel without a route.
func watchGaps(t *testing.T, n *birdNode) *netlab.GapWatch {
	t.Helper()
	w, err := n.NS.WatchGaps(testlog.New(t))
	check(t, err)
	return w
}

// agentIsKilled has nine lose a block while the agent is away.
func (m *meshLab) agentIsKilled(t *testing.T) {
	m.restartAgent(t, (*netlab.Process).Kill, func() {
		_, err := m.Data.ReleaseBlock(t.Context(), pfx("10.1.1.0/26"))
		check(t, err)
		m.nine.config.Blocks = prefixes("10.1.0.64/26")
		m.nine.reconfigure(t)
		m.ten.awaitRIB(t, mesh("10.0.0.9"), iBGP("10.1.0.64/26", "10.0.0.9"))
		kernel, err := m.us.kernel(t.Context(), "-4", agentProtocol)
		check(t, err)
		want := ourFIB()
		slices.Sort(want)
		check(t, same("our kernel while the agent is away", stripMetric(kernel), want))
	}, "10.1.1.0/26")
}

// agentIsStopped is what an upgrade does. Nothing changes meanwhile.
func (m *meshLab) agentIsStopped(t *testing.T) {
	m.restartAgent(t, (*netlab.Process).Stop, func() {})
}

// restartAgent ends the agent and starts it again. Of our kernel's routes only those in gone may be
// touched, by being removed, and of BIRD's none that leads to us: whichever node sees us first or
// last.
func (m *meshLab) restartAgent(
	t *testing.T, end func(*netlab.Process) error, meanwhile func(), gone ...string,
) {
	us, nine, ten := m.us.watchRoutes(t), m.nine.watchRoutes(t), m.ten.watchRoutes(t)
	control := flow(t, m.ninePod, "10.1.0.129")
	fromTen := flow(t, m.tenPod, "10.1.0.1")
	fromNine := flow(t, m.ninePod, "10.1.0.66")
	check(t, end(m.us.agent.Process))
	await(t, "BIRD notices", func(ctx context.Context) error {
		if since, err := m.ten.since(ctx, mesh("10.0.0.2")); err == nil {
			return fmt.Errorf("the session is up since %s", since)
		}
		return nil
	})
	m.ten.awaitRIB(t, mesh("10.0.0.2"), ours()...)
	meanwhile()

	m.us.start(t)
	m.us.awaitPeers(t, "10.0.0.9", "10.0.0.10")
	m.us.awaitFIB(t, "-4", "10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.9",
		"10.1.0.128/26 via 10.0.0.10")
	await(t, "the agent is ready", func(ctx context.Context) error {
		s, err := m.us.agent.Status(ctx)
		switch {
		case err != nil:
			return err
		case !s.Ready:
			return fmt.Errorf("%v", s.Conditions)
		case s.FIB.OpsPut != 0 || s.FIB.OpsDeleted != uint64(len(gone)):
			t.Errorf("the new agent has written %d routes and deleted %d, want 0 and %d",
				s.FIB.OpsPut, s.FIB.OpsDeleted, len(gone))
		}
		return nil
	})
	for _, b := range []*birdNode{m.nine, m.ten} {
		b.awaitRestarted(t, mesh("10.0.0.2"))
		b.awaitRIB(t, mesh("10.0.0.2"), ours()...)
	}
	for i := range gone {
		gone[i] = "Deleted " + gone[i] + " via 10.0.0.9"
	}
	if err := same("changes in our kernel", us.stop(t, agentProtocol, ""), gone); err != nil {
		t.Error(err)
	}
	for _, bird := range []*routeMonitor{nine, ten} {
		if changes := bird.stop(t, "bird", "via 10.0.0.2"); len(changes) > 0 {
			t.Errorf("changes in the kernel of %s:%s", bird.h.name, lines(changes))
		}
	}
	noneLost(t, control, fromTen, fromNine)
}
