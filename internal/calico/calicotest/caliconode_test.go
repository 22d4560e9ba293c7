package calicotest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"vpp-route-agent/internal/calico"
)

// The rules of calico-node's reporter in etcd: a new object is answered once; a spec that has
// changed is not noticed; without one of the two sockets of BIRD nothing is written, or half.
func TestCalicoNodeAnswers(t *testing.T) {
	t.Attr("part", "etcd 3.6.16, embedded server")
	e, err := StartEtcd(EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var missing atomic.Int32 // 4, 6 or 0
	asked := atomic.Int32{}
	n := CalicoNode{Node: "edge-7", Client: e.Client(), Tables: func(_ context.Context, ipv6 bool) (
		[]NodePeer, []NodeRoute, error) {
		family, address := int32(4), "10.0.0.2"
		if ipv6 {
			family, address = 6, "fd00::2"
		}
		asked.Add(1)
		if missing.Load() == family {
			return nil, nil, ErrNoBird
		}
		return []NodePeer{{PeerIP: address, Type: "NodeMesh", State: "Established"}}, nil, nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- n.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	object := func(name, node string, period int) (string, string) {
		return calico.NodeStatusPrefix + name, fmt.Sprintf(`{"metadata":{"name":%q,"uid":"u",
"creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"node":%q,"classes":["BGP"],
"updatePeriodSeconds":%d}}`, name, node, period)
	}
	put := func(name, node string, period int) {
		t.Helper()
		key, value := object(name, node, period)
		if err := e.Cluster().PutRaw(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	families := func(name string) string {
		value, err := e.Cluster().GetRaw(t.Context(), calico.NodeStatusPrefix+name)
		if err != nil {
			t.Fatal(err)
		}
		s, err := calico.DecodeNodeStatus([]byte(value))
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, p := range s.Peers {
			all = append(all, p.Address.String())
		}
		return strings.Join(all, " ")
	}
	wants := func(name, want string) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); families(name) != want; {
			if time.Sleep(10 * time.Millisecond); time.Now().After(end) {
				t.Fatalf("%s has %q, want %q", name, families(name), want)
			}
		}
	}
	put("other", "edge-8", 0)
	put("q-1", "edge-7", 0)
	wants("q-1", "10.0.0.2 fd00::2")
	before := asked.Load()
	put("q-1", "edge-7", 1) // a spec that has changed, with the status gone
	missing.Store(4)
	put("q-2", "edge-7", 0)
	wants("q-2", "fd00::2")
	missing.Store(6)
	put("q-3", "edge-7", 1)
	for asked.Load() < before+6 { // it has asked for q-3, twice
		time.Sleep(10 * time.Millisecond)
	}
	for _, name := range []string{"q-1", "q-3", "other"} {
		if got := families(name); got != "" {
			t.Errorf("%s has %q", name, got)
		}
	}
	missing.Store(0)
	wants("q-3", "10.0.0.2 fd00::2") // by its period
}
