package netlab

import (
	"testing"
	"time"
)

// TestPairs counts each direction for itself: one host forgets its way to another, which still
// reaches it.
func TestPairs(t *testing.T) {
	l := newLab(t)
	a, router, b := line(t, l)
	p, err := StartPairs(PairsConfig{
		Hosts: []Host{{a, addr("10.0.1.2")}, {b, addr("10.0.2.2")}, {router, addr("10.0.1.1")}},
		Port:  4789, Interval: time.Millisecond, Timeout: 3 * time.Second,
	})
	check(t, err)
	sendSome := func() {
		before := p.Reports()
		waitFor(t, "packets from each host", func() bool {
			for i, r := range p.Reports() {
				if r.Sent < before[i].Sent+20 {
					return false
				}
			}
			return true
		})
	}
	sendSome()
	_, err = a.Run(t.Context(), "ip", "route", "add", "unreachable", "10.0.2.2")
	check(t, err)
	sendSome()
	_, err = a.Run(t.Context(), "ip", "route", "del", "unreachable", "10.0.2.2")
	check(t, err)
	sendSome()
	reports := p.Stop()
	if len(reports) != 6 {
		t.Fatalf("there are %d reports of 3 hosts", len(reports))
	}
	for _, r := range reports {
		broken := r.From == 0 && r.To == 1
		if r.Sent < 10 || r.Pending != 0 || r.Duplicates != 0 || r.Sent != r.Received+r.Lost ||
			broken != (r.Lost > 0) || broken && len(r.Outages) != 1 {
			t.Errorf("from %d to %d: %+v", r.From, r.To, r)
		}
	}
}

// Who reads late is on a busy machine: when a packet came in, the kernel says.
func TestPairsOfALateReader(t *testing.T) {
	l := newLab(t)
	a, _, b := line(t, l)
	const timeout = 2 * time.Second
	p, err := StartPairs(PairsConfig{
		Hosts: []Host{{a, addr("10.0.1.2")}, {b, addr("10.0.2.2")}}, Port: 4789, Timeout: timeout,
	})
	check(t, err)
	waitFor(t, "packets", func() bool { return p.Reports()[0].Received > 0 })
	late := p.hosts[1]
	late.mu.Lock()
	time.Sleep(timeout + timeout/2)
	late.mu.Unlock()
	if r := p.Stop()[0]; r.Lost > 0 {
		t.Errorf("to the late reader %s", r)
	}
}
