package interop

import (
	"context"
	"errors"
	"testing"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// TestClusterIDOfBIRDChanges: BIRD starts the sessions with its clients anew when its cluster ID
// changes. What `reflectors adopt` says of the cost rests on that.
func TestClusterIDOfBIRDChanges(t *testing.T) {
	t.Parallel()
	l := newLab(t, "clusterid")
	l.apply(t, testcluster.NoMesh+testcluster.Peer("r1", "10.0.0.101", asNumber, ""))
	us := l.agentNode(t, "us", "10.0.0.2/24")
	r := l.birdRouter(t, "r1", "10.0.0.101/24")
	r.config.Cluster = addr("0.0.0.0") // BIRD reads it as its router ID
	r.config.Peers = []netlab.BirdPeer{
		{Name: "Us", Address: addr("10.0.0.2"), AS: asNumber, Client: true},
	}
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	r.setBlocks(t, "10.1.0.64/26")
	us.pod(t, "pod", "10.1.0.1")
	far := r.workload(t, "far", "10.1.0.65")
	r.start(t)
	us.start(t)
	us.awaitPeers(t, "10.0.0.101")
	r.awaitEstablished(t)
	us.awaitFIB(t, "-4", "10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.101")
	ping(t, far, "10.1.0.1")

	before := us.sessionsOf(t, "10.0.0.101")["10.0.0.101"]
	flow := flow(t, far, "10.1.0.1")
	r.config.Cluster = addr("224.0.0.1")
	r.reconfigure(t)
	began := time.Now()
	await(t, "another session", func(ctx context.Context) error {
		s, err := us.session(ctx, addr("10.0.0.101"))
		if err == nil && (!s.Established || s.Since.Equal(before)) {
			err = errors.New("it is the one from before, or none")
		}
		return err
	})
	took := time.Since(began)
	r.awaitEstablished(t)
	us.awaitFIB(t, "-4", "10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.101")
	report := flow.Stop()
	t.Logf("the session was back after %s; of the workloads' packets: %s",
		took.Round(100*time.Millisecond), report)
	if report.Lost == 0 {
		t.Errorf("nothing was lost: %s", report)
	}
}
