package gobgp

import (
	"fmt"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// sessionBudget is how long 12 sessions may take from a start.
func sessionBudget() time.Duration {
	if raceEnabled { // which makes everything slower
		return 3 * time.Second
	}
	return time.Second
}

// Sessions come up at once when the speaker starts and when it is back after a restart, half of
// them dialled by it and half by the peers.
func TestSessionsComeUpAtOnce(t *testing.T) {
	const peers = 12
	l := newLabAlone(t)
	var others []*node
	for range peers / 2 {
		others = append(others, l.node(64512))
	}
	here := l.next
	n := l.node(64512)
	for range peers / 2 {
		others = append(others, l.node(64512))
	}
	for _, o := range others {
		connect(n, o) // the lower address dials
	}
	start := time.Now()
	set(t, append(others, n)...)
	n.logArrivals(t, "start", start, others)

	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	l.next = here
	again := l.unset(64512)
	again.plan = n.plan
	start = time.Now()
	set(t, again)
	again.logArrivals(t, "restart", start, others)
}

// logArrivals waits for the sessions and prints how long each took, and whose that time was.
func (n *node) logArrivals(t *testing.T, what string, start time.Time, others []*node) {
	t.Helper()
	took := map[*node]time.Duration{}
	for len(took) < len(others) {
		for _, o := range others {
			if _, ok := took[o]; !ok && n.state(o).Established {
				took[o] = time.Since(start)
			}
		}
		if time.Since(start) > 10*time.Second {
			t.Fatalf("%s: %d of %d sessions are up", what, len(took), len(others))
		}
		time.Sleep(time.Millisecond)
	}
	for _, o := range others {
		whose := "ours: we dial"
		if o.addr.Less(n.addr) {
			whose = "the peer's: it dials"
		}
		t.Logf("%s: %s is up after %s, %s", what, o.addr, took[o].Round(time.Millisecond), whose)
		if most := sessionBudget(); took[o] > most {
			t.Errorf("%s: %s is up after %s, budget %s", what, o.addr, took[o], most)
		}
	}
}

// A peer that does not answer is dialled less and less often.
func TestDialPauses(t *testing.T) {
	_, l := newLabAlone(t).activeNode("127.0.0.98")
	start := time.Now()
	var dials []time.Duration
	for len(dials) < 6 {
		acceptBare(t, l, "").conn.Close()
		dials = append(dials, time.Since(start))
	}
	t.Logf("dialled after %v", dials)
	if dials[0] > sessionBudget()/2 {
		t.Errorf("first dialled after %s", dials[0])
	}
	// Each pause is twice the one before less up to a quarter. We may be late.
	least, most := 75*time.Millisecond/2, 100*time.Millisecond
	for i := 1; i < len(dials); i, least, most = i+1, least*3/2, 2*most {
		pause := dials[i] - dials[i-1]
		if pause < least || pause > most+sessionBudget()/2 {
			t.Errorf("pause %d is %s, should be %s to %s", i, pause, least, most)
		}
	}
}

// A peer whose sessions end at once, each of which begins with our whole table, gets them less and
// less often. None of its connections is refused.
func TestShortSessionsBackOff(t *testing.T) {
	n := newLabAlone(t).node(64512)
	n.farPeer("127.0.0.99", 64512)
	set(t, n)
	start := time.Now()
	var sessions []string
	for time.Since(start) < 4*time.Second {
		b := dialBare(t, n, "127.0.0.99", "9.9.9.99")
		b.open(64512)
		b.expect("OPEN", "KEEPALIVE")
		b.send(packet.NewBGPKeepAliveMessage())
		n.wantState("127.0.0.99", "Established")
		sessions = append(sessions, fmt.Sprintf("%.1f", time.Since(start).Seconds()))
		b.conn.Close()
	}
	t.Logf("sessions after %v s", sessions)
	// 12 where no pause is longer than jitter has it at least
	if c := len(sessions); c < 4 || c > 12 {
		t.Errorf("%d sessions", c)
	}
}
