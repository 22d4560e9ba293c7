package agent

import (
	"path/filepath"
	"testing"
	"time"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

func drops(prefixes ...string) (all []route.Route) {
	for _, p := range prefixes {
		all = append(all, route.Route{Key: key(p), Kind: route.Drop})
	}
	return all
}

// withExternal has another source than Calico's data, and no BGP.
func withExternal(c *Config) { c.Sources, c.Speaker = []route.Origin{route.External}, nil }

// What another source wants is programmed and swept without any data of Calico's, which in turn do
// not wait for it.
func TestASourceNeedsNoneOfCalicosData(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "journal")
	inBubble(t, func(t *testing.T, n *node) {
		n.stop()
		n.start(t, journal, withExternal)
		n.dataplane.facts <- live
		revision := n.agent.Want(route.External,
			fib.Source{Routes: drops("10.9.1.0/24", "10.9.2.0/24")})
		n.expectAll(t, time.Second, "put 10.9.1.0/24 drop", "put 10.9.2.0/24 drop")
		if s := n.engine.Settled(10); revision == 0 || s.Revision < revision {
			t.Errorf("revision %d is not settled: %+v", revision, s)
		}
		n.snapshots <- cluster()
		n.expectAll(t, time.Minute, "put 10.1.0.0/26 drop")

		n.stop()
		n.dataplane.facts <- live
		n.start(t, journal, withExternal)
		n.agent.Want(route.External, fib.Source{Routes: drops("10.9.1.0/24")})
		n.expectAll(t, time.Minute)
		n.agent.Want(route.External, fib.Source{Routes: drops("10.9.1.0/24"), Complete: true})
		n.expectAll(t, time.Second, "delete 10.9.2.0/24")

		n.stop()
		n.dataplane.facts <- live
		n.start(t, journal, withExternal)
		c := cluster()
		delete(c.Affinities, pfx("10.1.0.0/26"))
		delete(c.Blocks, pfx("10.1.0.0/26"))
		n.snapshots <- c
		n.expectAll(t, time.Minute, "delete 10.1.0.0/26")
		n.agent.Want(route.External, fib.Source{Complete: true})
		n.expectAll(t, time.Second, "delete 10.9.1.0/24")
	})
}

// What has no known owner waits for the last source.
func TestWhatNobodyIsKnownToOwnWaitsForAllSources(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.routes[key("10.9.9.0/24")] = drops("10.9.9.0/24")[0]
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		n.expectAll(t, time.Minute, "put 10.1.0.0/26 drop")
		n.agent.Want(route.External, fib.Source{Complete: true})
		n.expectAll(t, time.Second, "delete 10.9.9.0/24")
	}, withExternal)
}
