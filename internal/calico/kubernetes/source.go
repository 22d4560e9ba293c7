// Package kubernetes reads Calico's data from the Kubernetes API and publishes snapshots.
// internal/kubernetes lists and watches; internal/calico/kube says what objects stand for. It
// writes nothing.
package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

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
	// NodeRef is what Kubernetes calls the node (CALICO_K8S_NODE_REF of calico-node); "": Node.
	NodeRef string
	// ClusterIPs: a range of cluster addresses is to be announced, whatever BGPConfiguration says
	// (CALICO_ADVERTISE_CLUSTER_IPS of calico-node).
	ClusterIPs bool
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
	client *kubernetes.Client
	data   *data
	log    *slog.Logger
	out    chan *calico.Snapshot
	// named are the problems that were logged; owned by Run's goroutine
	named calico.NamedProblems
}

// New returns the source of a node. It makes no request.
func New(client *kubernetes.Client, cfg Config, log *slog.Logger) (*Source, error) {
	if cfg.Node == "" {
		return nil, errors.New("no node name is given")
	}
	s := &Source{
		client: client, data: &data{Config: cfg, store: calico.NewStoreFor(cfg.Node, cfg.Needs)},
		log: log.With("component", "kubernetes"), out: make(chan *calico.Snapshot, 1),
	}
	kept := map[string]kubernetes.Kept{}
	s.data.clusterIPs.Store(cfg.ClusterIPs)
	for kind, v := range cfg.Versions {
		kept[kind] = kubernetes.Kept(v)
	}
	s.Follower = kubernetes.NewFollower(client, s.data, kept, s.publish, log)
	return s, nil
}

// SetClusterIPs changes Config.ClusterIPs. It is safe for concurrent use.
func (s *Source) SetClusterIPs(on bool) {
	if s.data.clusterIPs.Swap(on) != on {
		s.Look()
	}
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

func (s *Source) findGroup(ctx context.Context, client *kubernetes.Client) (err error) {
	s.data.Group, err = FindGroup(ctx, client)
	return err
}

// FindGroup asks which group Calico's data have, where both are there GroupV1.
func FindGroup(ctx context.Context, client *kubernetes.Client) (string, error) {
	has, err := client.Groups(ctx, GroupV1, GroupV3)
	switch {
	case err != nil:
		return "", err
	case has[GroupV1]:
		return GroupV1, nil
	case has[GroupV3]:
		return GroupV3, nil
	}
	return "", errNoCalico
}

// publish replaces an unread snapshot by the current one.
func (s *Source) publish(p kubernetes.Published) {
	snap := s.data.store.Snapshot(int64(p.Version))
	snap.Lists, snap.Received = p.Lists, p.Received
	snap.Versions = make(map[string]calico.Version, len(p.Kept))
	for kind, v := range p.Kept {
		snap.Versions[kind] = calico.Version(v)
	}
	switch {
	case !s.data.readsServices() || slices.ContainsFunc(services(), p.Lacks):
		snap.Services, snap.Endpoints = nil, nil
	case snap.Services == nil:
		snap.Services = map[string]calico.Service{}
	}
	calico.Deliver(s.out, snap)
	s.named.Log(snap.Problems, s.log)
}

// data is the store as a Follower sees it.
type data struct {
	Config
	store      *calico.Store
	clusterIPs atomic.Bool
	beside     bool // nothing but Services and their endpoints is read
}

// readOnlyServices leaves out Calico's data, of which conf is what counts for Services. It must be
// called before Run.
func (d *data) readOnlyServices(conf calico.BGPConfiguration) {
	d.beside = true
	d.store.Set(kube.Place("bgpconfigurations", "default"), calico.Item{
		Key: calico.Key{Kind: calico.KindBGPConfiguration, Name: "default"}, Value: conf,
	})
}

// Resources begins with a kind that has one small object.
func (d *data) Resources() []kubernetes.Resource {
	if d.beside {
		return services()
	}
	all := []kubernetes.Resource{d.crd("clusterinformations"), core("nodes"), d.crd("ippools"),
		d.crd("felixconfigurations")}
	if !d.Needs.NoBGP {
		for _, plural := range []string{"bgpconfigurations", "bgpfilters", "bgppeers"} {
			all = append(all, d.crd(plural))
		}
		pods := core("pods")
		pods.Fields = "spec.nodeName=" + d.Node
		all = append(all, pods, migrations)
	}
	if d.readsServices() {
		all = append(all, services()...)
	}
	if d.UsePodCIDR {
		return all
	}
	blocks := d.crd("ipamblocks")
	all = append(all, d.crd("blockaffinities"))
	if d.store.AllBlocks() {
		return append(all, blocks)
	}
	for _, cidr := range d.store.WantedBlocks() {
		blocks.Name = kube.BlockName(cidr)
		all = append(all, blocks)
	}
	return all
}

// readsServices reports whether there is a range of service addresses to be announced. Services and
// their endpoints are most of what changes in a cluster, so that they are not read without need.
func (d *data) readsServices() bool {
	if d.beside || d.Needs.NoBGP {
		return d.beside
	}
	conf, _ := d.store.Value(calico.Key{Kind: calico.KindBGPConfiguration,
		Name: "default"}).(calico.BGPConfiguration)
	return d.clusterIPs.Load() || conf.NamesServices()
}

// services are Services and their EndpointSlices.
func services() []kubernetes.Resource {
	all := core("services")
	all.Separate = true
	return []kubernetes.Resource{all, {Group: "discovery.k8s.io", Version: "v1",
		Plural: "endpointslices", Optional: true, Separate: true}}
}

// migrations are KubeVirt's, of machines that run in Pods.
var migrations = kubernetes.Resource{Group: "kubevirt.io", Version: "v1",
	Plural: "virtualmachineinstancemigrations", Optional: true, Separate: true}

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
		o.Put(d.store, kube.Options{UsePodCIDR: d.UsePodCIDR, NodeRef: d.NodeRef})
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
