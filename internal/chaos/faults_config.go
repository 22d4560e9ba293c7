package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

var configFaults = []fault{
	{name: "config-changes", kind: kernelNodes, fresh: true, allowed: "0", what: "BGPPeer, BGPFilter, IPPool and BGPConfiguration made, changed and deleted: no session goes but that of the BGPPeer", run: changeConfiguration},
	{name: "vpp-config-changes", kind: vppNodes, fresh: true, long: true, allowed: "0", what: "BGPPeer, BGPFilter, IPPool and BGPConfiguration made, changed and deleted: no session goes but that of the BGPPeer", run: changeConfiguration},
}

// secondPool is one beside that of the workloads, secondBlock of it.
const secondPool = `
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: second}
spec: {cidr: 10.2.0.0/16, blockSize: 26, ipipMode: Never, natOutgoing: false, disableBGPExport: %t}
`

var secondBlock = netip.MustParsePrefix("10.2.0.0/26")

// communities has the second block carry one.
const communities = `
apiVersion: projectcalico.org/v3
kind: BGPConfiguration
metadata: {name: default}
spec:
  nodeToNodeMeshEnabled: true
  asNumber: 64512
  nodeMeshMaxRestartTime: 120s
  prefixAdvertisements: [{cidr: 10.2.0.0/16, communities: ["64512:300"]}]
`

// changeConfiguration makes one change after the other, each followed until it shows, and looks at the sessions after each.
func changeConfiguration(ctx context.Context, t *trial) error {
	if err := t.addRack(ctx); err != nil {
		return err
	}
	node1, node2 := t.nodes[0], t.nodes[1]
	steps := []struct {
		what   string
		change func() error
		resets bool // the session with the router
		shows  func(context.Context) error
	}{
		{"a BGPPeer is made", func() error { return t.joinRack(ctx, node1) }, true, nil},
		{"a BGPFilter rejects two destinations and a block", func() error {
			return t.filterRack(ctx, map[netip.Prefix]bool{destination(1): true, destination(2): true}, netip.MustParsePrefix("10.1.2.0/24"))
		}, false, nil},
		{"it rejects another", func() error {
			return t.filterRack(ctx, map[netip.Prefix]bool{destination(3): true}, netip.Prefix{})
		}, false, nil},
		{"an IPPool is made and a block of it claimed", func() error {
			if _, err := t.etcd.data.Apply(ctx, fmt.Appendf(nil, secondPool, false)); err != nil {
				return err
			}
			return t.claim(ctx, node2, secondBlock)
		}, false, nil},
		{"BGPConfiguration has a community for it", func() error {
			_, err := t.etcd.data.Apply(ctx, []byte(communities))
			return err
		}, false, t.carriesCommunity},
		{"the IPPool is not exported any more", func() error {
			t.unexported[secondBlock] = true
			_, err := t.etcd.data.Apply(ctx, fmt.Appendf(nil, secondPool, true))
			return err
		}, false, nil},
		{"the IPPool is deleted", func() error {
			if err := t.release(ctx, secondBlock); err != nil {
				return err
			}
			return t.etcd.data.Delete(ctx, "IPPool", "second")
		}, false, nil},
		{"BGPConfiguration is as before", func() error {
			_, err := t.etcd.data.Apply(ctx, []byte(calicoData))
			return err
		}, false, nil},
		{"the BGPPeer is deleted", func() error { return t.leaveRack(ctx, node1) }, true, nil},
	}
	for _, s := range steps {
		before, err := t.sessions(ctx)
		if err != nil {
			return err
		}
		if err := s.change(); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
		if s.shows != nil {
			if err := await(ctx, recovery, s.what, s.shows); err != nil {
				return err
			}
		}
		if err := t.converged(ctx, recovery); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
		err = t.kept(ctx, before, map[session]bool{{node1.name, t.rack.address}: s.resets})
		t.must(err == nil, "%s: %v", s.what, err)
	}
	t.note("%d changes", len(steps))
	return nil
}

// carriesCommunity sees that the router has the second block with its community.
func (t *trial) carriesCommunity(ctx context.Context) error {
	out, err := t.rack.frr.Command(ctx, "show bgp ipv4 unicast "+secondBlock.String())
	if err != nil {
		return err
	}
	if !strings.Contains(out, "64512:300") {
		return errors.New("the router has it without")
	}
	return nil
}
