package netlab

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// longestGap is far above the 0.1 ms of a replacement, and below the time between two BGP changes.
// Where the add comes next after the delete, with no other change of BIRD's between them, BIRD may
// have had to wait for a processor in the midst of it: up to 110 ms have been seen.
const (
	longestGap         = 30 * time.Millisecond
	longestReplacement = 250 * time.Millisecond
)

// gapSlack bounds the time of a packet towards a gap, and of the kernel's event towards us, who may
// have to wait for a processor.
const gapSlack = 30 * time.Millisecond

// Gap is a time without a route for a prefix in the kernel of a node with BIRD. BIRD 1.6 replaces a
// route by a delete and, about 0.1 ms later, an add (sysdep/linux/netlink.c, krt_replace_rte), even
// if only a BGP attribute changed.
type Gap struct {
	Prefix   netip.Prefix
	From, To time.Time
}

// GapWatch records gaps until it is stopped.
type GapWatch struct {
	ns   *Namespace
	mark int           // metric of a route that tells how far it has read
	read chan struct{} // closed when it has read the mark, or reads no more
	done chan struct{}
	wg   sync.WaitGroup
	gaps []Gap
}

// WatchGaps records the gaps of BIRD's routes in the namespace. One that is too long is not a
// replacement and is ignored.
func (n *Namespace) WatchGaps(log *slog.Logger) (*GapWatch, error) {
	w := &GapWatch{ns: n, mark: 1 + rand.IntN(math.MaxInt32), read: make(chan struct{}),
		done: make(chan struct{})}
	updates, fd := make(chan netlink.RouteUpdate), n.FD()
	err := netlink.RouteSubscribeWithOptions(updates, w.done, netlink.RouteSubscribeOptions{
		Namespace: &fd, ReceiveBufferSize: 8 << 20, ReceiveBufferForceSize: true,
		ErrorCallback: func(err error) {
			select {
			case <-w.done:
			default: // no gap is noted from here on
				log.Warn("the routes of BIRD's kernel are not watched any more", "namespace",
					n.Name(), "err", err)
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
	read := sync.OnceFunc(func() { close(w.read) })
	defer read()
	gone := map[netip.Prefix]time.Time{}
	var last netip.Prefix // deleted by the last change; zero: that was no delete
	for u := range updates {
		if u.Type == unix.RTM_DELROUTE && u.Priority == w.mark {
			read()
		}
		if u.Protocol != unix.RTPROT_BIRD || u.Dst == nil {
			continue
		}
		addr, _ := netip.AddrFromSlice(u.Dst.IP)
		bits, _ := u.Dst.Mask.Size()
		prefix, now := netip.PrefixFrom(addr.Unmap(), bits), time.Now()
		if u.Type == unix.RTM_DELROUTE {
			gone[prefix], last = now, prefix
			continue
		}
		longest := longestGap
		if last == prefix {
			longest = longestReplacement
		}
		last = netip.Prefix{}
		if from, ok := gone[prefix]; ok {
			delete(gone, prefix)
			if now.Sub(from) <= longest {
				w.gaps = append(w.gaps, Gap{prefix, from, now})
			}
		}
	}
}

// Stop ends the watch when it has read all that has happened, and returns the gaps.
func (w *GapWatch) Stop() []Gap {
	mark := &netlink.Route{Dst: ipNet(netip.MustParsePrefix("198.19.255.255/32")), // RFC 2544
		Type: unix.RTN_BLACKHOLE, Priority: w.mark}
	h := w.ns.Handle()
	if errors.Join(h.RouteAdd(mark), h.RouteDel(mark)) == nil {
		select {
		case <-w.read:
		case <-time.After(30 * time.Second):
		}
	}
	close(w.done)
	w.wg.Wait()
	return w.gaps
}

// LostInGaps returns how many packets of a flow to an address were lost in that kernel's gaps: of
// each gap at most the packets sent meanwhile, one per interval, and one. Gaps between which no
// packet need have been sent count as one.
func (r Report) LostInGaps(gaps []Gap, to netip.Addr, interval time.Duration) (lost int) {
	var met []Gap
	for _, g := range gaps {
		last := len(met) - 1
		switch {
		case !g.Prefix.Contains(to):
		case last >= 0 && met[last].Prefix == g.Prefix && g.From.Sub(met[last].To) <= interval:
			met[last].To = g.To
		default:
			met = append(met, g)
		}
	}
	for _, g := range met {
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
