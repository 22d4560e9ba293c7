package calicotest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vpp-route-agent/internal/calico"
)

// CalicoNode answers CalicoNodeStatus as the calico-node of a node does (node/pkg/status): a new
// object at once, and again each updatePeriodSeconds; a spec that has changed it does not notice; a
// status that has not, it does not write again.
type CalicoNode struct {
	Node   string
	Client *clientv3.Client
	// Tables are those of BIRD in one address family; ErrNoBird: it has no control socket.
	Tables func(ctx context.Context, ipv6 bool) ([]NodePeer, []NodeRoute, error)
}

// ErrNoBird says that the BIRD of an address family does not run.
var ErrNoBird = errors.New("no control socket")

// NodePeer and NodeRoute are what calico-node writes of a session and a route of BIRD.
type (
	NodePeer struct {
		PeerIP string `json:"peerIP,omitempty"`
		Type   string `json:"type,omitempty"`
		State  string `json:"state,omitempty"`
		Since  string `json:"since,omitempty"`
	}
	NodeRoute struct {
		Type        string           `json:"type,omitempty"`
		Destination string           `json:"destination,omitempty"`
		Gateway     string           `json:"gateway,omitempty"`
		Interface   string           `json:"interface,omitempty"`
		LearnedFrom NodeRouteLearned `json:"learnedFrom"`
	}
	NodeRouteLearned struct {
		SourceType string `json:"sourceType,omitempty"`
		PeerIP     string `json:"peerIP,omitempty"`
	}
)

// nodeStatus is the part of a CalicoNodeStatus that calico-node fills.
type nodeStatus struct {
	LastUpdated *time.Time `json:"lastUpdated"`
	Agent       struct{}   `json:"agent"`
	BGP         nodeBGP    `json:"bgp"`
	Routes      nodeRoutes `json:"routes"`
}

type nodeBGP struct {
	EstablishedV4    int        `json:"numberEstablishedV4"`
	NotEstablishedV4 int        `json:"numberNotEstablishedV4"`
	EstablishedV6    int        `json:"numberEstablishedV6"`
	NotEstablishedV6 int        `json:"numberNotEstablishedV6"`
	PeersV4          []NodePeer `json:"peersV4,omitempty"`
	PeersV6          []NodePeer `json:"peersV6,omitempty"`
}

type nodeRoutes struct {
	RoutesV4 []NodeRoute `json:"routesV4,omitempty"`
	RoutesV6 []NodeRoute `json:"routesV6,omitempty"`
}

// nodeReport is one object that is being answered.
type nodeReport struct {
	*CalicoNode
	key      string
	value    []byte
	revision int64 // etcd's, of value
	status   nodeStatus
	classes  []string
}

// Run answers until ctx ends. An error that is not of one object ends it, too.
func (n *CalicoNode) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var reporting sync.WaitGroup
	defer reporting.Wait()
	defer cancel()
	now, err := n.Client.Get(ctx, calico.NodeStatusPrefix, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	ends := map[string]context.CancelFunc{}
	take := func(key string, value []byte, revision int64) {
		if ends[key] != nil {
			return // also where its spec is another one now
		}
		r, period, ok := n.read(key, value, revision)
		if !ok {
			return
		}
		ctx, end := context.WithCancel(ctx)
		ends[key] = end
		reporting.Go(func() { r.run(ctx, period) })
	}
	for _, kv := range now.Kvs {
		take(string(kv.Key), kv.Value, kv.ModRevision)
	}
	for resp := range n.Client.Watch(ctx, calico.NodeStatusPrefix, clientv3.WithPrefix(),
		clientv3.WithRev(now.Header.Revision+1)) {
		if err := resp.Err(); err != nil {
			return err
		}
		for _, ev := range resp.Events {
			key := string(ev.Kv.Key)
			if ev.Type == clientv3.EventTypePut {
				take(key, ev.Kv.Value, ev.Kv.ModRevision)
			} else if ends[key] != nil {
				ends[key]()
				delete(ends, key)
			}
		}
	}
	return nil
}

func (n *CalicoNode) read(key string, value []byte, revision int64) (*nodeReport, time.Duration,
	bool) {
	var object struct {
		Metadata struct{ Name, UID, CreationTimestamp string }
		Spec     struct {
			Node                string
			Classes             []string
			UpdatePeriodSeconds *int
		}
		Status json.RawMessage // most objects are other nodes'
	}
	err := json.Unmarshal(value, &object)
	m := object.Metadata
	// libcalico refuses an update of what has none of these.
	whole := strings.HasSuffix(key, "/"+m.Name) && m.UID != "" && m.CreationTimestamp != ""
	period := object.Spec.UpdatePeriodSeconds
	if err != nil || !whole || object.Spec.Node != n.Node || period == nil {
		return nil, 0, false
	}
	var status nodeStatus
	if len(object.Status) > 0 && json.Unmarshal(object.Status, &status) != nil {
		return nil, 0, false
	}
	return &nodeReport{
		CalicoNode: n, key: key, value: value, revision: revision, status: status,
		classes: object.Spec.Classes,
	}, time.Duration(*period) * time.Second, true
}

func (r *nodeReport) run(ctx context.Context, period time.Duration) {
	for {
		_ = r.report(ctx) // calico-node logs it
		if period == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(period):
		}
	}
}

// report writes all or nothing.
func (r *nodeReport) report(ctx context.Context) error {
	status := r.status
	for _, ipv6 := range []bool{false, true} {
		peers, routes, err := r.Tables(ctx, ipv6)
		isMissing := errors.Is(err, ErrNoBird)
		if err != nil && !isMissing {
			return err
		}
		if slices.Contains(r.classes, "BGP") {
			if status.BGP.set(ipv6, peers); isMissing { // of both families
				status.BGP = nodeBGP{}
			}
		}
		if slices.Contains(r.classes, "Routes") {
			if status.Routes.set(ipv6, routes); isMissing {
				status.Routes = nodeRoutes{}
			}
		}
	}
	if reflect.DeepEqual(status, r.status) {
		return nil
	}
	at := time.Now().UTC().Truncate(time.Second)
	status.LastUpdated = &at
	var fields map[string]any
	if err := json.Unmarshal(r.value, &fields); err != nil {
		return err
	}
	fields["status"] = status
	value, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	resp, err := r.Client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(r.key), "=",
		r.revision)).Then(clientv3.OpPut(r.key, string(value))).Commit() // without a lease
	if err != nil || !resp.Succeeded {
		return fmt.Errorf("%s was changed or deleted meanwhile, or: %w", r.key, err)
	}
	r.value, r.revision, r.status = value, resp.Header.Revision, status
	return nil
}

func (b *nodeBGP) set(ipv6 bool, peers []NodePeer) {
	up := 0
	for _, p := range peers {
		if p.State == "Established" {
			up++
		}
	}
	if ipv6 {
		b.PeersV6, b.EstablishedV6, b.NotEstablishedV6 = peers, up, len(peers)-up
	} else {
		b.PeersV4, b.EstablishedV4, b.NotEstablishedV4 = peers, up, len(peers)-up
	}
}

func (b *nodeRoutes) set(ipv6 bool, routes []NodeRoute) {
	if ipv6 {
		b.RoutesV6 = routes
	} else {
		b.RoutesV4 = routes
	}
}
