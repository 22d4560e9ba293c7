package main

import (
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/netlab"
)

const (
	// longestGap is far above the 0.1 ms that a replacement takes, and far below what it takes to be told by BGP of one thing after another.
	longestGap = 5 * time.Millisecond
	// gapSlack is how long a packet may be on its way to the route, or the kernel's message about it on its way to us.
	gapSlack = 10 * time.Millisecond
)

// gap is a time in which the kernel of BIRD's node had no route for a prefix. BIRD 1.6 replaces one by taking it away and putting the new one, some
// 0.1 ms later (sysdep/linux/netlink.c, krt_replace_rte), also where nothing but an attribute of BGP's changed. What is lost in between would be
// lost with stock calico-node, too.
type gap struct {
	prefix   netip.Prefix
	from, to time.Time
}

// gapWatch notes the gaps of a node with BIRD until it is stopped.
type gapWatch struct {
	done chan struct{}
	wg   sync.WaitGroup
	gaps []gap
}

func watchGaps(ns *netlab.Namespace, log *slog.Logger) (*gapWatch, error) {
	w := &gapWatch{done: make(chan struct{})}
	updates, fd := make(chan netlink.RouteUpdate), ns.FD()
	err := netlink.RouteSubscribeWithOptions(updates, w.done, netlink.RouteSubscribeOptions{
		Namespace: &fd, ReceiveBufferSize: 8 << 20, ReceiveBufferForceSize: true,
		ErrorCallback: func(err error) {
			select {
			case <-w.done:
			default: // what is lost in a gap is not excused from here on
				log.Warn("the routes of BIRD's kernel are not watched any more", "err", err)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch the routes of %s: %w", ns.Name(), err)
	}
	w.wg.Go(func() { w.note(updates) })
	return w, nil
}

func (w *gapWatch) note(updates <-chan netlink.RouteUpdate) {
	gone := map[netip.Prefix]time.Time{}
	for u := range updates {
		if u.Protocol != unix.RTPROT_BIRD || u.Dst == nil {
			continue
		}
		addr, _ := netip.AddrFromSlice(u.Dst.IP)
		bits, _ := u.Dst.Mask.Size()
		prefix, now := netip.PrefixFrom(addr.Unmap(), bits), time.Now()
		if u.Type == unix.RTM_DELROUTE {
			gone[prefix] = now
		} else if from, ok := gone[prefix]; ok {
			delete(gone, prefix)
			if now.Sub(from) <= longestGap {
				w.gaps = append(w.gaps, gap{prefix, from, now})
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

// lostInGaps returns how many packets of a flow, whose way through BIRD's kernel leads to an address, were lost in gaps: of each gap no more
// than were sent while it lasted, and one.
func lostInGaps(report netlab.Report, to netip.Addr, gaps []gap) (lost int) {
	for _, g := range gaps {
		if !g.prefix.Contains(to) {
			continue
		}
		most := 1 + int((g.to.Sub(g.from)+packetInterval-1)/packetInterval)
		for _, o := range report.Outages {
			if o.First.After(g.from.Add(-gapSlack)) && o.Last.Before(g.to.Add(gapSlack)) {
				n := min(o.Lost, most)
				lost, most = lost+n, most-n
			}
		}
	}
	return min(lost, report.Lost)
}
