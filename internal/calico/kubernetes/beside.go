package kubernetes

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/kubernetes"
)

// besidePatience is how long snapshots wait for the first Services: without them addresses that
// were announced before a restart would be withdrawn, and announced again a moment later.
const besidePatience = 5 * time.Second

// Beside adds the Services of a Kubernetes API to snapshots whose other data come from elsewhere,
// while a range of their addresses is configured. All methods but Run are safe for concurrent use.
type Beside struct {
	client     *kubernetes.Client
	cfg        Config
	kept       *calico.Snapshot
	in         <-chan *calico.Snapshot
	out        chan *calico.Snapshot
	log        *slog.Logger
	clusterIPs atomic.Bool
	look       chan struct{} // of size one: clusterIPs changed

	// owned by Run's goroutine
	base, services *calico.Snapshot // the newest; nil: none yet
	patience       <-chan time.Time
	waited         bool
	aggregates     bool // what from began with

	end func() // of from

	mu    sync.Mutex // guards what follows
	from  *Source    // nil: no Services are read
	known bool       // Services are
}

// NewBeside makes no request. cfg needs no Group. kept is the last good snapshot, whose Services
// count while the API is away; nil: there is none.
func NewBeside(client *kubernetes.Client, cfg Config, kept *calico.Snapshot,
	in <-chan *calico.Snapshot, log *slog.Logger) *Beside {
	cfg.Group = GroupV1 // nothing of it is read
	b := &Beside{client: client, cfg: cfg, kept: kept, in: in, log: log,
		out: make(chan *calico.Snapshot, 1), look: make(chan struct{}, 1)}
	b.clusterIPs.Store(cfg.ClusterIPs)
	return b
}

// Snapshots is as Source's.
func (b *Beside) Snapshots() <-chan *calico.Snapshot { return b.out }

// SetClusterIPs is as Source's.
func (b *Beside) SetClusterIPs(on bool) {
	if b.clusterIPs.Swap(on) != on {
		select {
		case b.look <- struct{}{}:
		default:
		}
	}
}

// Error says why the Services that are known may be out of date; "": they are not, or none are.
func (b *Beside) Error() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.from == nil || !b.known {
		return ""
	}
	return b.from.Status().Error
}

// Run passes snapshots on until ctx ends and returns nil. Call it once.
func (b *Beside) Run(ctx context.Context) error {
	defer b.stop()
	for {
		var services <-chan *calico.Snapshot
		if b.from != nil {
			services = b.from.Snapshots()
		}
		var received time.Time
		select {
		case <-ctx.Done():
			return nil
		case b.base = <-b.in:
			received = b.base.Received
		case b.services = <-services:
			received = b.services.Received
		case <-b.look:
		case <-b.patience:
			b.waited = true
		}
		if b.base == nil {
			continue
		}
		if out := b.joined(ctx); out != nil {
			out.Received = received
			calico.Deliver(b.out, out)
		}
	}
}

// joined returns what is to be published; nil: it waits for the first Services.
func (b *Beside) joined(ctx context.Context) *calico.Snapshot {
	out := *b.base
	conf := out.BGPConfigurations["default"]
	if !b.clusterIPs.Load() && !conf.NamesServices() {
		b.stop()
		b.kept, b.services, b.patience, b.waited = nil, nil, nil, false
		return &out
	}
	if b.from == nil || b.aggregates != conf.Aggregates() {
		b.start(ctx, conf)
	}
	from := b.services
	if from == nil && !b.waited {
		return nil
	}
	if from == nil {
		from = b.kept
	}
	b.mu.Lock()
	b.known = from != nil && from.Services != nil
	b.mu.Unlock()
	if !b.known {
		return b.without(&out)
	}
	out.Services, out.Endpoints = from.Services, from.Endpoints
	out.Versions = maps.Clone(from.Versions)
	if from != b.kept { // whose problems are of all data
		out.Problems = slices.Concat(out.Problems, from.Problems)
	}
	slices.SortStableFunc(out.Problems, func(x, y calico.Problem) int {
		return cmp.Compare(x.Key, y.Key)
	})
	return &out
}

// without says in s why no Services are known.
func (b *Beside) without(s *calico.Snapshot) *calico.Snapshot {
	if why := b.from.Status().Error; why != "" {
		s.Problems = append(slices.Clone(s.Problems), calico.Problem{
			Key: "the Kubernetes API", Err: why, Harmless: true,
		})
	}
	return s
}

// start reads Services, whose endpoints count by conf. What was read before counts until there are
// others.
func (b *Beside) start(ctx context.Context, conf calico.BGPConfiguration) {
	b.stop()
	cfg := b.cfg
	if b.services != nil {
		cfg.Versions = b.services.Versions
	}
	from, err := New(b.client, cfg, b.log)
	if err != nil {
		panic("kubernetes: " + err.Error()) // NewBeside's caller has given a node
	}
	from.data.readOnlyServices(conf)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = from.Run(ctx) })
	b.end = func() { cancel(); running.Wait() }
	b.mu.Lock()
	defer b.mu.Unlock()
	b.from, b.aggregates = from, conf.Aggregates()
	if b.patience == nil {
		b.patience = time.After(besidePatience)
	}
}

func (b *Beside) stop() {
	if b.from == nil {
		return
	}
	b.end()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.from = nil
}
