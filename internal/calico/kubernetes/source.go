// Package kubernetes reads Calico's data from the Kubernetes API and publishes snapshots.
// internal/kubernetes lists and watches; internal/calico/kube says what objects stand for. It
// writes nothing.
package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/kube"
	"vpp-route-agent/internal/kubernetes"
)

// Config says what is read.
type Config struct {
	Node  string
	Needs calico.Needs
	// Group is the API group of Calico's data, GroupV1 or GroupV3; "": the one that there is.
	Group string
	// UsePodCIDR: the podCIDRs of Nodes are their blocks (USE_POD_CIDR of calico-node).
	UsePodCIDR bool
	// Versions are those of the last good snapshot.
	Versions map[string]calico.Version
}

// The API groups of Calico's data. An aggregated API server has GroupV3 as well; what is in etcd
// then is of GroupV1.
const (
	GroupV1 = "crd.projectcalico.org/v1"
	GroupV3 = "projectcalico.org/v3"
)

// Source delivers snapshots of the Calico data that one node needs. Run does the work; Snapshots
// and Status are safe for concurrent use, before and during Run.
type Source struct {
	*kubernetes.Follower
	data *data
	log  *slog.Logger
	out  chan *calico.Snapshot
	// named are the problems that were logged; owned by Run's goroutine
	named calico.NamedProblems
}

// New returns the source of a node. It makes no request.
func New(client *kubernetes.Client, cfg Config, log *slog.Logger) (*Source, error) {
	if cfg.Node == "" {
		return nil, errors.New("no node name is given")
	}
	s := &Source{
		data: &data{Config: cfg, store: calico.NewStoreFor(cfg.Node, cfg.Needs)},
		log:  log.With("component", "kubernetes"), out: make(chan *calico.Snapshot, 1),
	}
	kept := map[string]kubernetes.Kept{}
	for kind, v := range cfg.Versions {
		kept[kind] = kubernetes.Kept(v)
	}
	s.Follower = kubernetes.NewFollower(client, s.data, kept, s.publish, log)
	return s, nil
}

// Snapshots delivers the newest snapshot: the first after every kind was listed, then one after
// each burst of changes. A slow reader gets only the newest. There is one reader. The channel is
// never closed.
func (s *Source) Snapshots() <-chan *calico.Snapshot { return s.out }

// Run reads until ctx ends and returns nil. It waits for an absent API server. After a loss it
// keeps its data and catches up. Call it once.
func (s *Source) Run(ctx context.Context) error {
	if s.data.Group == "" {
		s.Retry(ctx, s.findGroup)
	}
	if ctx.Err() != nil {
		return nil
	}
	return s.Follower.Run(ctx)
}

var errNoCalico = errors.New("the Kubernetes API has neither " + GroupV1 + " nor " + GroupV3 +
	": Calico's resources are not installed")

func (s *Source) findGroup(ctx context.Context, client *kubernetes.Client) error {
	has, err := client.Groups(ctx, GroupV1, GroupV3)
	switch {
	case err != nil:
		return err
	case has[GroupV1]:
		s.data.Group = GroupV1
	case has[GroupV3]:
		s.data.Group = GroupV3
	default:
		return errNoCalico
	}
	return nil
}

// publish replaces an unread snapshot by the current one.
func (s *Source) publish(p kubernetes.Published) {
	snap := s.data.store.Snapshot(int64(p.Version))
	snap.Lists, snap.Received = p.Lists, p.Received
	snap.Versions = make(map[string]calico.Version, len(p.Kept))
	for kind, v := range p.Kept {
		snap.Versions[kind] = calico.Version(v)
	}
	calico.Deliver(s.out, snap)
	s.named.Log(snap.Problems, s.log)
}

// data is the store as a Follower sees it.
type data struct {
	Config
	store *calico.Store
}

// Resources begins with a kind that has one small object.
func (d *data) Resources() []kubernetes.Resource {
	all := []kubernetes.Resource{d.crd("clusterinformations"), core("nodes"), d.crd("ippools"),
		d.crd("felixconfigurations")}
	if !d.Needs.NoBGP {
		for _, plural := range []string{"bgpconfigurations", "bgpfilters", "bgppeers"} {
			all = append(all, d.crd(plural))
		}
		pods := core("pods")
		pods.Fields = "spec.nodeName=" + d.Node
		all = append(all, pods)
	}
	if d.UsePodCIDR {
		return all
	}
	blocks := d.crd("ipamblocks")
	all = append(all, d.crd("blockaffinities"))
	if d.Needs.AllBlocks() {
		return append(all, blocks)
	}
	for _, cidr := range d.store.WantedBlocks() {
		blocks.Name = kube.BlockName(cidr)
		all = append(all, blocks)
	}
	return all
}

func core(plural string) kubernetes.Resource {
	return kubernetes.Resource{Version: "v1", Plural: plural}
}

func (d *data) crd(plural string) kubernetes.Resource {
	group, version, _ := strings.Cut(d.Group, "/")
	return kubernetes.Resource{Group: group, Version: version, Plural: plural, Optional: true}
}

func (d *data) Put(r kubernetes.Resource, object []byte) {
	if o, err := kube.Read(r.Plural, object); err != nil {
		d.store.Set(kube.Place(r.Plural, ""), calico.Item{Err: err})
	} else {
		o.Put(d.store, d.UsePodCIDR)
	}
}

func (d *data) Delete(r kubernetes.Resource, object []byte) {
	if o, err := kube.Read(r.Plural, object); err == nil {
		o.Delete(d.store)
	}
}

func (d *data) BeginList() { d.store.BeginList() }

func (d *data) EndList(r kubernetes.Resource) { d.store.EndList(kube.Place(r.Plural, r.Name)) }

func (d *data) Changed() bool { return d.store.Changed() }
