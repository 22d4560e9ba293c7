package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/netlab"
)

const (
	// longestGap is far above the tenth of a millisecond that a replacement takes: BIRD may lose its processor in the middle of it.
	longestGap = 100 * time.Millisecond
	// gapSlack is how long a packet may be on its way to the route, or the kernel's message about it on its way to us.
	gapSlack = 10 * time.Millisecond
)

// gap is a time in which the kernel of BIRD's node had no route. BIRD 1.6 replaces one by taking it away and putting the new one, some 0.1 ms later
// (sysdep/linux/netlink.c, krt_replace_rte), also where nothing but an attribute of BGP's changed. What is lost in between is lost with stock calico-node alone, too.
type gap struct{ from, to time.Time }

// gapWatch notes the gaps of a node with BIRD until it is stopped.
type gapWatch struct {
	done chan struct{}
	wg   sync.WaitGroup
	gaps []gap
}

func watchGaps(ns *netlab.Namespace) (*gapWatch, error) {
	w := &gapWatch{done: make(chan struct{})}
	updates, fd := make(chan netlink.RouteUpdate), ns.FD()
	if err := netlink.RouteSubscribeWithOptions(updates, w.done, netlink.RouteSubscribeOptions{Namespace: &fd}); err != nil {
		return nil, fmt.Errorf("watch the routes of %s: %w", ns.Name(), err)
	}
	w.wg.Go(func() { w.note(updates) })
	return w, nil
}

func (w *gapWatch) note(updates <-chan netlink.RouteUpdate) {
	gone := map[string]time.Time{}
	for u := range updates {
		if u.Protocol != unix.RTPROT_BIRD || u.Dst == nil {
			continue
		}
		prefix, now := u.Dst.String(), time.Now()
		if u.Type == unix.RTM_DELROUTE {
			gone[prefix] = now
		} else if from, ok := gone[prefix]; ok {
			delete(gone, prefix)
			if now.Sub(from) <= longestGap {
				w.gaps = append(w.gaps, gap{from, now})
			}
		}
	}
}

// stop ends the watch and returns what it saw.
func (w *gapWatch) stop() []gap {
	close(w.done)
	w.wg.Wait()
	return w.gaps
}

// lostInGaps returns how many packets were lost that went while BIRD replaced a route.
func lostInGaps(reports []netlab.Report, gaps []gap) (lost int) {
	for _, report := range reports {
		for _, o := range report.Outages {
			for _, g := range gaps {
				if o.First.After(g.from.Add(-gapSlack)) && o.Last.Before(g.to.Add(gapSlack)) {
					lost += o.Lost
					break
				}
			}
		}
	}
	return lost
}
