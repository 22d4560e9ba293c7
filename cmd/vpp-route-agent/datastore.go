package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/etcd"
	"vpp-route-agent/internal/calico/kubernetes"
	"vpp-route-agent/internal/calico/lastgood"
	api "vpp-route-agent/internal/kubernetes"
	"vpp-route-agent/internal/reflectors"
	"vpp-route-agent/ipam"
)

// Values of --datastore-type, as in calico-node.
const (
	etcdv3       = "etcdv3"
	inKubernetes = "kubernetes"
)

// findDatastore decides where --datastore-type does not say it: as calico-node does, but that
// without any of both it is the etcd of this host.
func (c *config) findDatastore(env environment, given map[string]bool) error {
	hasEndpoints := given["etcd-endpoints"] || c.etcdLegacy != (legacyEndpoint{})
	for _, name := range calicoEnv("ETCD_DISCOVERY_SRV") {
		if domain, _ := env(name); domain != "" && !hasEndpoints && !c.inKubernetes() {
			return fmt.Errorf("%s is not supported: name etcd's endpoints in ETCD_ENDPOINTS", name)
		}
	}
	if c.datastoreType != "" {
		return nil
	}
	inPod, _ := env("KUBERNETES_SERVICE_HOST")
	switch {
	case hasEndpoints:
		c.datastoreType = etcdv3
	case inPod != "" || c.kube.Kubeconfig != "" || c.kube.Server != "":
		c.datastoreType = inKubernetes
	default:
		c.datastoreType = etcdv3
	}
	return nil
}

// inKubernetes reports whether Calico's data are in the Kubernetes API.
func (c config) inKubernetes() bool { return c.datastoreType == inKubernetes }

// needEtcd refuses what there is in etcd alone.
func (c config) needEtcd(what string) error {
	if !c.inKubernetes() {
		return nil
	}
	return fmt.Errorf("%s needs etcd, and Calico's data are in Kubernetes: --datastore-type, "+
		"--etcd-endpoints", what)
}

// forReflectors decides where the commands about reflectors find agents and controllers. That it is
// Kubernetes has to be said: a kubeconfig may be there for Nodes, or for kubectl.
func (c *config) forReflectors() {
	if c.texts["--datastore-type"] != inKubernetes {
		c.datastoreType = etcdv3
	}
	if c.kube.Kubeconfig == noNodes {
		c.kube.Kubeconfig = ""
	}
}

// kubernetesStore is where agents and controllers meet in the Kubernetes datastore; nil: it is
// etcd.
func (c config) kubernetesStore() (*reflectors.KubernetesConfig, error) {
	if !c.inKubernetes() {
		return nil, nil
	}
	client, err := api.NewClientFor(c.kube)
	if err != nil {
		return nil, fmt.Errorf("--datastore-type kubernetes, --kubeconfig: %w", err)
	}
	return &reflectors.KubernetesConfig{Client: client, Group: c.apiGroup,
		Namespace: cmp.Or(c.reflectorsIn, api.PodNamespace(), defaultReflectorNamespace)}, nil
}

// checkDatastore refuses what does not go with the datastore, and sets what follows from it.
func (c *config) checkDatastore(given map[string]bool) error {
	if (c.kube.CertFile == "") != (c.kube.KeyFile == "") {
		return errors.New("--k8s-cert-file and --k8s-key-file must be given together")
	}
	if !c.inKubernetes() {
		if c.usePodCIDR {
			return errors.New("--use-pod-cidr needs --datastore-type kubernetes: etcd has no " +
				"podCIDRs")
		}
		return nil
	}
	switch {
	case given["host-address"] && slices.Contains(c.hostAddress, ipam.Published):
		return c.needEtcd("--host-address peerip")
	case given["uplink-publish"] && c.uplinkPublish != "off":
		return c.needEtcd("--uplink-publish " + c.uplinkPublish)
	case slices.Contains(c.external, "etcd"):
		return c.needEtcd("--external etcd")
	case given["hosts-prefix"]:
		return c.needEtcd("--hosts-prefix")
	case given["blocks-prefix"]:
		return c.needEtcd("--blocks-prefix")
	}
	c.hostAddress, c.uplinkPublish = []ipam.AddressSource{ipam.NodeObject}, "off"
	return nil
}

// source delivers snapshots of Calico's data.
type source interface {
	Snapshots() <-chan *calico.Snapshot
	Run(context.Context) error
	status() agent.DatastoreStatus
	// reload takes what it needs of changed settings.
	reload(config)
}

// owners is a source that reads single blocks besides, as etcd's does.
type owners interface {
	Owners(context.Context, []netip.Prefix) ([]calico.Ownership, error)
}

// newSource returns the source of a node. kept is the last good snapshot; nil: there is none.
func newSource(cfg config, node string, kept *calico.Snapshot, log *slog.Logger) (source, error) {
	conf := kubernetes.Config{
		Node: node, Needs: cfg.needs(), Group: cfg.apiGroup, UsePodCIDR: cfg.usePodCIDR,
		NodeRef: cfg.nodeRef, ClusterIPs: cfg.clusterIPs.IsValid(),
	}
	if kept != nil {
		conf.Versions = kept.Versions
	}
	if !cfg.inKubernetes() {
		s, err := etcd.New(cfg.etcd(), node, cfg.needs(), log)
		if err != nil || !cfg.learnBGP || !cfg.hasKubernetes() {
			return etcdSource{s}, err
		}
		client, err := api.NewClientFor(cfg.kube)
		switch {
		case err != nil && cfg.kube.Kubeconfig == "" && cfg.kube.Server == "":
			log.Warn("Services are not read, since this pod has no access to the Kubernetes API",
				"err", err)
			return etcdSource{s}, nil
		case err != nil:
			return nil, fmt.Errorf("--kubeconfig: %w", err)
		}
		return besideEtcd{etcdSource{s},
			kubernetes.NewBeside(client, conf, kept, s.Snapshots(), log)}, nil
	}
	client, err := api.NewClientFor(cfg.kube)
	if err != nil {
		return nil, fmt.Errorf("--datastore-type kubernetes, --kubeconfig: %w", err)
	}
	s, err := kubernetes.New(client, conf, log)
	return kubernetesSource{s}, err
}

type etcdSource struct{ *etcd.Source }

func (e etcdSource) status() agent.DatastoreStatus {
	s := e.Status()
	return agent.DatastoreStatus{
		Type: etcdv3, Endpoints: s.Endpoints, Connected: s.Connected, Synced: s.Synced,
		Revision: s.Revision, Error: s.Error, Relists: max(s.Lists-1, 0),
		LastContact: timeOrNil(s.LastContact),
	}
}

func (etcdSource) reload(config) {}

// besideEtcd has Services from the Kubernetes API, all else from etcd.
type besideEtcd struct {
	etcdSource
	services *kubernetes.Beside
}

func (b besideEtcd) Snapshots() <-chan *calico.Snapshot { return b.services.Snapshots() }

func (b besideEtcd) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return b.etcdSource.Run(ctx) })
	group.Go(func() error { return b.services.Run(ctx) })
	return group.Wait()
}

func (b besideEtcd) status() agent.DatastoreStatus {
	s := b.etcdSource.status()
	if why := b.services.Error(); why != "" && s.Connected {
		s.Connected, s.Error = false, "Services of the Kubernetes API: "+why
	}
	return s
}

func (b besideEtcd) reload(to config) { b.services.SetClusterIPs(to.clusterIPs.IsValid()) }

type kubernetesSource struct{ *kubernetes.Source }

func (k kubernetesSource) reload(to config) { k.SetClusterIPs(to.clusterIPs.IsValid()) }

func (k kubernetesSource) status() agent.DatastoreStatus {
	s := k.Status()
	return agent.DatastoreStatus{
		Type: inKubernetes, Endpoints: []string{s.Server}, Connected: s.Connected,
		Synced: s.Synced, Revision: int64(s.Version), Error: s.Error, Relists: max(s.Lists-1, 0),
		LastContact: timeOrNil(s.LastContact),
	}
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// hasKubernetes reports whether there is a Kubernetes API besides etcd.
func (c config) hasKubernetes() bool {
	return api.InPod() || c.kube.Kubeconfig != "" || c.kube.Server != ""
}

// where names the datastore for people.
func (c config) where() string {
	if c.inKubernetes() {
		return "the Kubernetes API"
	}
	return "etcd at " + shownEndpoints(strings.Join(c.etcdEndpoints, ","))
}

// readPatience bounds how long readDatastore waits.
const readPatience = 15 * time.Second

// readDatastore reads Calico's data once, as the agent of a node would.
func readDatastore(ctx context.Context, cfg config, node string) (s *calico.Snapshot, err error) {
	err = withDatastore(ctx, cfg, node, func(_ context.Context, _ source,
		got *calico.Snapshot) error {
		s = got
		return nil
	})
	return s, err
}

// withDatastore hands over what the agent of a node would read, and the source, which can be asked
// for more.
func withDatastore(ctx context.Context, cfg config, node string,
	use func(context.Context, source, *calico.Snapshot) error) error {
	source, err := newSource(cfg, node, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return usageError{err}
	}
	defer sayWhenSlow(func() string {
		return fmt.Sprintf("%s, for %s at most", cfg.where(), readPatience)
	})()
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	ended := make(chan error, 1)
	go func() { ended <- source.Run(ctx) }()
	defer func() {
		cancel()
		<-ended
	}()
	select {
	case s := <-source.Snapshots():
		return use(ctx, source, s)
	case <-ctx.Done():
	}
	return fmt.Errorf("%s (%s): %s", cfg.where(), cfg.settingsOfWhere(),
		source.status().Error)
}

// settingsOfWhere are those that say where the datastore is.
func (c config) settingsOfWhere() string {
	if c.inKubernetes() {
		return "--kubeconfig, --k8s-api-endpoint, --config"
	}
	return "--etcd-endpoints, --config"
}

// keptSnapshot is what an earlier run kept on disk: the Kubernetes API may answer with older data.
// nil: nothing.
func keptSnapshot(cfg config, log *slog.Logger) *calico.Snapshot {
	if !cfg.inKubernetes() && !cfg.hasKubernetes() {
		return nil
	}
	s, err := lastgood.Read(cfg.stateDir, cfg.nodeName, cfg.needs())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		log.Warn("it is not known how new the data of an earlier run were", "err", err)
		return nil
	}
	return s
}

// datastore is a source and, while that is away, the copy that an earlier run kept on disk.
type datastore struct {
	source source
	kept   *lastgood.Keeper
}

func (d datastore) Snapshots() <-chan *calico.Snapshot { return d.kept.Snapshots() }

func (d datastore) Status() agent.DatastoreStatus {
	out, k := d.source.status(), d.kept.Status()
	out.Stale, out.Kept, out.KeptBehind = k.Stale, "ok", k.Behind
	if k.Problem != "" {
		out.Kept = "degraded: " + k.Problem
	}
	if k.Stale {
		out.AsOf = &k.AsOf
	}
	return out
}
