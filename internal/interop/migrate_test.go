package interop

import (
	"context"
	"fmt"
	"testing"
	"time"

	"vpp-route-agent/internal/netlab"
)

// TestMigration moves a running machine from us to a node with BIRD and back, as a live migration
// does: for a while both ends have its address, and the target's /32 is elevated. Packets are
// counted from a third node and from another workload of ours.
func TestMigration(t *testing.T) {
	t.Parallel()
	l := newLab(t, "migration")
	us, third := l.agentNode(t, "us", "10.0.0.2/24"), l.agentNode(t, "third", "10.0.0.30/24")
	nine := l.birdNode(t, "nine", "10.0.0.9/24", "10.0.0.2", "10.0.0.30")
	for node, block := range map[string]string{"us": "10.1.0.0/26", "third": "10.1.0.128/26"} {
		check(t, l.Data.ClaimBlock(t.Context(), node, pfx(block)))
	}
	nine.setBlocks(t, "10.1.0.64/26")
	const guest = "10.1.0.5"
	us.pod(t, "guest", guest)
	pod, watcher := us.workload(t, "pod", "10.1.0.1"), third.workload(t, "watcher", "10.1.0.129")
	l.attach(t, "us", "pod", "10.1.0.1")
	l.attach(t, "third", "watcher", "10.1.0.129")
	nearby := nine.workload(t, "nearby", "10.1.0.65")
	nine.start(t)
	us.start(t)
	third.start(t)
	us.awaitPeers(t, "10.0.0.9", "10.0.0.30")
	third.awaitPeers(t, "10.0.0.2", "10.0.0.9")
	nine.awaitEstablished(t)
	atHome := []string{
		"10.1.0.0/26 via 10.0.0.2", "10.1.0.64/26 via 10.0.0.9", "10.1.0.128/26 blackhole",
	}
	away := append(atHome[:3:3], guest+"/32 via 10.0.0.9")
	third.awaitFIB(t, "-4", atHome...)
	everybody := func(t *testing.T) {
		t.Helper()
		for _, from := range []*netlab.Namespace{watcher, pod, nearby} {
			ping(t, from, guest)
		}
	}
	everybody(t)

	watch := third.watchRoutes(t)
	control := flow(t, watcher, "10.1.0.65")
	far := flow(t, watcher, guest)
	near := flow(t, pod, guest)
	// felix is what Felix does on a node: the workload's route by its metric.
	felix := func(h *host, verb, device string, metric int) {
		t.Helper()
		_, err := h.NS.Run(t.Context(), "ip", "route", verb, guest+"/32", "dev", device, "scope",
			"link", "metric", fmt.Sprint(metric))
		check(t, err)
	}
	preference := func(want string) {
		t.Helper()
		await(t, "third hears of it with LOCAL_PREF "+want, func(ctx context.Context) error {
			rib, err := third.rib(ctx, "ipv4")
			if err == nil && len(rib[guest+"/32"]) != 1 {
				err = fmt.Errorf("%d paths", len(rib[guest+"/32"]))
			}
			if err != nil {
				return err
			}
			return rib[guest+"/32"][0].has("5", want)
		})
	}
	t.Run("it moves away", func(t *testing.T) {
		nine.workload(t, "guest2", guest) // running on both nodes
		felix(nine.host, "add", "caliguest2", 512)
		preference("2147483135")
		third.awaitFIB(t, "-4", away...)
		// the end: here it is gone, and there it becomes normal
		felix(us.host, "delete", "caliguest", 1024)
		_, err := l.Data.Release(t.Context(), "guest")
		check(t, err)
		check(t, us.NS.DeleteLink("caliguest"))
		felix(nine.host, "delete", "caliguest2", 512)
		preference("2147482623")
		third.awaitFIB(t, "-4", away...)
		us.awaitFIB(t, "-4", "10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.9",
			"10.1.0.128/26 via 10.0.0.30", guest+"/32 via 10.0.0.9")
		nine.awaitRIB(t, mesh("10.0.0.2"), iBGP("10.1.0.0/26", "10.0.0.2"))
		nine.awaitRIB(t, mesh("10.0.0.30"), iBGP("10.1.0.128/26", "10.0.0.30"))
		everybody(t)
	})
	t.Run("it moves back", func(t *testing.T) {
		us.pod(t, "guest3", guest)
		felix(nine.host, "delete", "caliguest2", 1024)
		third.awaitFIB(t, "-4", atHome...)
		us.awaitFIB(t, "-4", "10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.9",
			"10.1.0.128/26 via 10.0.0.30")
		nine.awaitRIB(t, mesh("10.0.0.2"), iBGP("10.1.0.0/26", "10.0.0.2"))
		everybody(t)
		time.Sleep(time.Second)
	})
	noneLost(t, control, far, near)
	// Normal and elevated are entries of their own, and BIRD may tell of one before the other. From
	// the first to the last there is always one, and nothing else happened: no gap, no trace.
	came, gone := guest+" via 10.0.0.9", "Deleted "+guest+" via 10.0.0.9"
	events := watch.stop(t, agentProtocol, "")
	entries := 0
	for i, e := range events {
		switch e {
		case came:
			entries++
		case gone:
			entries--
		default:
			t.Errorf("the kernel of third: %s", e)
		}
		if last := i == len(events)-1; (entries == 0) != last || len(events) > 6 {
			t.Fatalf("changes in the kernel of third: %q", events)
		}
	}
	if len(events) == 0 {
		t.Error("the kernel of third saw nothing")
	}
}
