package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

var discard = slog.New(slog.DiscardHandler)

// lab is what a benchmark runs in: a namespace with the node that is measured, and one with its
// peers.
type lab struct {
	*testcluster.Cluster
	b         *bench
	node, far *netlab.Namespace
	nodes     int      // besides, in Calico's data
	plane     *plane   // nil: none
	first     *speaker // the first peer's session, if there is one
}

// nodeAddress is the least of all addresses as a string: towards Calico's nodes the one with the
// greater address dials, and here that is always the peer.
var nodeAddress = netip.MustParseAddr("10.0.0.1")

// peerAddress is the address of the i-th peer, from 0.
func peerAddress(i int) netip.Addr { return addrAt(10<<24 | uint32(i/200)<<8 | uint32(i%200+2)) }

// hops are two next hops that the peers announce.
var hops = [2]netip.Addr{peerAddress(0), peerAddress(1)}

// needs is what a benchmark runs beside the node.
type needs struct {
	nodes int    // in Calico's data in an etcd, besides the node; 0: there is no etcd
	short int    // the same in a short run; 0: as many
	heap  string // main heap of a VPP; "": there is none
}

// inLab makes a benchmark that runs in a lab of its own, which has an address for each node, and
// two at least.
func inLab(name string, n needs, run func(*lab) error) func(*bench) error {
	return func(b *bench) (err error) {
		nodes := b.pick(n.nodes, cmp.Or(n.short, n.nodes))
		l, err := b.labOf(name, func(l *lab) error { return l.build(max(nodes, 2)) })
		if err != nil {
			return err
		}
		defer l.close(&err)
		if nodes > 0 {
			err = l.startEtcd(nodes)
		}
		if err == nil && n.heap != "" {
			l.plane, err = l.startPlane(n.heap, "unix { poll-sleep-usec 0 }")
		}
		if err == nil {
			err = run(l)
		}
		return err
	}
}

// labOf makes the node's namespace, and has build do the rest.
func (b *bench) labOf(name string, build func(*lab) error) (*lab, error) {
	inner, err := netlab.New("bench"+name, b.log)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotHere, err)
	}
	l := &lab{Cluster: testcluster.In(inner, b.programs), b: b}
	l.node, err = l.Namespace("node")
	if err == nil {
		err = build(l)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *lab) build(peers int) (err error) {
	addresses := make([]netip.Addr, peers)
	for i := range addresses {
		addresses[i] = peerAddress(i)
	}
	l.far, err = l.Crowd(l.node, "far", netip.PrefixFrom(nodeAddress, 16), addresses)
	return err
}

// close removes everything; errors are joined to err.
func (l *lab) close(err *error) {
	if l.first != nil {
		l.first.close()
	}
	if *err != nil && l.b.ctx.Err() == nil { // logs are gone afterwards
		fmt.Fprint(os.Stderr, testcluster.Tails(l.Lab, 20))
	}
	*err = errors.Join(*err, l.Close())
}

// startEtcd runs an etcd with a Calico cluster of the node and that many peers in full mesh.
func (l *lab) startEtcd(peers int) error {
	l.nodes = peers
	if err := l.StartEtcd(l.b.ctx, l.node, nodeAddress); err != nil {
		return err
	}
	if err := l.Data.AddPool(l.b.ctx, "pods", netip.MustParsePrefix("30.0.0.0/8"), 26); err != nil {
		return err
	}
	if err := l.Data.AddNode(l.b.ctx, "node", netip.PrefixFrom(nodeAddress, 16)); err != nil {
		return err
	}
	for i := range peers {
		err := l.Data.AddNode(l.b.ctx, fmt.Sprintf("peer-%d", i),
			netip.PrefixFrom(peerAddress(i), 16))
		if err != nil {
			return err
		}
	}
	return nil
}

// apply writes Calico's resources.
func (l *lab) apply(yaml string) error { return l.Apply(l.b.ctx, yaml) }

// peer brings the i-th peer's session with the node up.
func (l *lab) peer(ctx context.Context, i int) (*speaker, error) {
	return connect(ctx, l.far, peerAddress(i), nodeAddress, nil)
}

// crowd are the sessions of many peers.
type crowd []*speaker

// meet brings the sessions of n peers up. The i-th begins with first(i), and heard(i, …) has its
// UPDATEs.
func (l *lab) meet(
	n int, first func(i int) []byte, heard func(i int, update []byte),
) (crowd, error) {
	ctx, cancel := context.WithTimeout(l.b.ctx, 3*time.Minute)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(300) // each dials in a thread of its own
	all := make(crowd, n)
	for i := range all {
		group.Go(func() (err error) {
			all[i], err = connect(ctx, l.far, peerAddress(i), nodeAddress, func(update []byte) {
				heard(i, update)
			})
			if err != nil {
				return err
			}
			return all[i].send(first(i))
		})
	}
	return all, group.Wait()
}

// alive returns why a session has ended.
func (c crowd) alive() error {
	var errs []error
	for i, s := range c {
		s.mu.Lock()
		if s.err != nil {
			errs = append(errs, fmt.Errorf("session of %s: %w", peerAddress(i), s.err))
		}
		s.mu.Unlock()
	}
	return errors.Join(errs...)
}

func (c crowd) close() {
	for _, s := range c {
		if s != nil {
			s.close()
		}
	}
}
