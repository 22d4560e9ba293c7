package bgp

import (
	"testing"
	"time"
)

func TestFinished(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, c := range []struct {
		name string
		p    PeerState
		want bool
	}{
		{"not up", PeerState{EndOfRIB: true, Since: ago(time.Hour)}, false},
		{"graceful restart, nothing yet",
			PeerState{Established: true, GR: true, Since: ago(time.Hour)}, false},
		{"End-of-RIB",
			PeerState{Established: true, GR: true, EndOfRIB: true, Since: ago(time.Second)}, true},
		{"itself restarting",
			PeerState{Established: true, GR: true, Restarting: true, Since: ago(time.Second)},
			true},
		{"no graceful restart, just up",
			PeerState{Established: true, Since: ago(2 * time.Second)}, false},
		{"no graceful restart, quiet since up",
			PeerState{Established: true, Since: ago(3 * time.Second)}, true},
		{"no graceful restart, still sending",
			PeerState{Established: true, Since: ago(time.Hour), LastUpdate: ago(2 * time.Second)},
			false},
		{"no graceful restart, quiet again",
			PeerState{Established: true, Since: ago(time.Hour), LastUpdate: ago(3 * time.Second)},
			true},
		{"an update of the session before",
			PeerState{Established: true, Since: ago(5 * time.Second), LastUpdate: ago(time.Hour)},
			true},
	} {
		if got := c.p.Finished(now); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if got, want := c.p.SentAll(now), c.want && !c.p.Restarting; got != want {
			t.Errorf("%s: has sent all: %v, want %v", c.name, got, want)
		}
	}
}
