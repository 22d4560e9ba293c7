package interop

import (
	"testing"
	"time"

	"vpp-route-agent/internal/testcluster"
)

// TestRestartTimeOfZero: BIRD drops the routes of an agent that dies, as it was told to, and does
// not keep them for 120 s.
func TestRestartTimeOfZero(t *testing.T) {
	t.Parallel()
	l := newLab(t, "zero")
	l.apply(t, testcluster.Resource("BGPConfiguration", "default", "nodeMeshMaxRestartTime: 0s"))
	us := l.agentNode(t, "us", "10.0.0.2/24")
	nine := l.birdNode(t, "nine", "10.0.0.9/24", "10.0.0.2")
	nine.setBlocks(t, "10.1.0.64/26")
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	nine.start(t)
	us.start(t)
	nine.awaitRIB(t, mesh("10.0.0.2"), iBGP("10.1.0.0/26", "10.0.0.2"))
	check(t, us.agent.Kill())
	killed := time.Now()
	nine.awaitRIB(t, mesh("10.0.0.2"))
	if took := time.Since(killed); took > time.Minute {
		t.Errorf("the routes stayed for %s", took)
	}
}
