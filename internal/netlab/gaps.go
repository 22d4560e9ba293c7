package netlab

import (
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// longestGap is far above the 0.1 ms that a replacement takes, and far below what it takes to be told by BGP of one thing after another.
const longestGap = 5 * time.Millisecond

// gapSlack is how long a packet may be on its way to a gap, or what tells us of that on its way to us.
const gapSlack = 10 * time.Millisecond

// Gap is a time in which the kernel of a node with BIRD had no route for a prefix. BIRD 1.6 replaces one by taking it away and putting the new one, some
// 0.1 ms later (sysdep/linux/netlink.c, krt_replace_rte), also where nothing but an attribute of BGP's changed.
type Gap struct {
	Prefix   netip.Prefix
	From, To time.Time
}

// GapWatch notes gaps until it is stopped.
type GapWatch struct {
	done chan struct{}
	wg   sync.WaitGroup
	gaps []Gap
}

// WatchGaps notes the gaps of BIRD's routes in the namespace. One that lasts longer than 5 ms is no replacement and none of them.
func (n *Namespace) WatchGaps(log *slog.Logger) (*GapWatch, error) {
	w := &GapWatch{done: make(chan struct{})}
	updates, fd := make(chan netlink.RouteUpdate), n.FD()
	err := netlink.RouteSubscribeWithOptions(updates, w.done, netlink.RouteSubscribeOptions{
		Namespace: &fd, ReceiveBufferSize: 8 << 20, ReceiveBufferForceSize: true,
		ErrorCallback: func(err error) {
			select {
			case <-w.done:
			default: // no gap is noted from here on
				log.Warn("the routes of BIRD's kernel are not watched any more", "namespace", n.Name(), "err", err)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("netlab: watch the routes of %s: %w", n.Name(), err)
	}
	w.wg.Go(func() { w.note(updates) })
	return w, nil
}

func (w *GapWatch) note(updates <-chan netlink.RouteUpdate) {
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
				w.gaps = append(w.gaps, Gap{prefix, from, now})
			}
		}
	}
}

// Stop ends the watch and returns what it saw.
func (w *GapWatch) Stop() []Gap {
	close(w.done)
	w.wg.Wait()
	return w.gaps
}

// LostInGaps returns how many packets of a flow, whose way through that kernel leads to an address, were lost in its gaps: of each no more than were sent
// while it lasted, one in each interval, and one.
func (r Report) LostInGaps(gaps []Gap, to netip.Addr, interval time.Duration) (lost int) {
	for _, g := range gaps {
		if !g.Prefix.Contains(to) {
			continue
		}
		most := 1 + int((g.To.Sub(g.From)+interval-1)/interval)
		for _, o := range r.Outages {
			if o.First.After(g.From.Add(-gapSlack)) && o.Last.Before(g.To.Add(gapSlack)) {
				n := min(o.Lost, most)
				lost, most = lost+n, most-n
			}
		}
	}
	return min(lost, r.Lost)
}
