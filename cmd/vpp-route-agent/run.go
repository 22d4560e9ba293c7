package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"vpp-route-agent/bgp"
	"vpp-route-agent/bgp/gobgp"
	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/etcd"
	"vpp-route-agent/internal/calico/lastgood"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/kernel"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/internal/systemd"
	"vpp-route-agent/internal/uplink"
	"vpp-route-agent/vpp"
)

func runCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "run", Short: "Run the daemon until SIGTERM",
		Long: `Run the daemon until SIGTERM or SIGINT. On exit the routes stay in the FIB and BGP peers get no
CEASE, so that peers with graceful restart keep forwarding to this node while it restarts (RFC 4724).

SIGHUP has the settings read again. Those that can change while sessions are up take effect at once;
the log names the others that changed, which wait for the next start.

Settings come from flags, environment variables (those of calico-node, and VPP_ROUTE_AGENT_<FLAG> for each flag), a YAML file and
defaults, in this order.`,
		Example: `  vpp-route-agent run --etcd-endpoints https://10.0.0.5:2379 --etcd-ca-cert-file /etc/calico/ca.pem
  NODENAME=edge-7 vpp-route-agent run --dataplane kernel
  vpp-route-agent run --config /etc/vpp-route-agent/agent.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd.Flags(), os.LookupEnv)
			if err != nil {
				return usageError{err}
			}
			log, level := newLogger(os.Stderr, cfg)
			reload := func() (config, error) { return loadConfig(cmd.Flags(), os.LookupEnv) }
			err = run(cmd.Context(), cfg, reload, log, level)
			if errors.Is(err, agent.ErrNewProcess) {
				return handOver(cmd.Context(), log)
			}
			return err
		},
	}
	addFlags(c.Flags())
	return c
}

// newLogger returns the logger and its level, which may change while it runs.
func newLogger(w io.Writer, cfg config) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	_ = level.UnmarshalText([]byte(cfg.logLevel)) // one of four words that it knows
	opt := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewTextHandler(w, opt)
	if cfg.logFormat == "json" {
		h = slog.NewJSONHandler(w, opt)
	}
	return slog.New(h).With("node", cfg.nodeName), level
}

// dataplane is what run needs of one beside what the engine needs.
type dataplane interface {
	fib.Dataplane
	uplink.Port
	Forwarded() (packets uint64, err error)
	Run(ctx context.Context) error
}

// run puts the parts together and runs them until ctx ends or one of them fails. load reads the
// settings again upon SIGHUP.
func run(ctx context.Context, cfg config, load func() (config, error), log *slog.Logger, level *slog.LevelVar) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	setCollector()
	source, err := etcd.NewFor(cfg.etcd(), cfg.nodeName, cfg.needs(), log)
	if err != nil {
		return usageError{err}
	}
	admin, err := agent.ListenAdmin(cfg.adminSocket, log)
	if err != nil {
		return err
	}
	defer admin.Close()
	var health net.Listener
	if cfg.metricsListen != "" {
		if health, err = cfg.listenHealth(); err != nil {
			return err
		}
		defer health.Close()
	}
	unlock, err := lockStateDir(cfg.stateDir)
	if err != nil {
		return err
	}
	defer unlock()
	keeper := lastgood.New(cfg.stateDir, cfg.nodeName, cfg.needs(), source.Snapshots(), log)
	dp, err := newDataplane(cfg, log)
	if err != nil {
		return err
	}
	ways := fib.New(fib.Config{
		Dataplane: dp, Journal: cfg.journal(), Log: log, Tuning: cfg.tuning(),
	})
	engine := ways
	if cfg.dataplane == "none" {
		engine = nil
	}
	conf := agent.Config{
		Node: cfg.nodeName, Version: version, Dataplane: cfg.dataplane, Settings: cfg.agent(),
		DrainFile: filepath.Join(cfg.stateDir, "drain.json"), Datastore: datastore{source, keeper}, FIB: engine, Ways: ways,
		DataplaneStats: statsOf(dp), Log: log, LogLevel: level,
	}
	if engine != nil {
		conf.Forwarded = dp.Forwarded
	}
	group, ctx := errgroup.WithContext(ctx)
	if cfg.learnBGP {
		var sink gobgp.Sink // nil without a data plane
		if engine != nil {
			sink = agent.Learner{FIB: engine}
		}
		passwords, err := newPasswords(cfg, os.LookupEnv, log)
		if err != nil {
			return err
		}
		grpcTLS, err := cfg.tlsFor(cfg.gobgpListen)
		if err != nil {
			return usageError{err}
		}
		speaker, err := gobgp.New(gobgp.Config{
			Log: log, Sink: sink, Passwords: passwords.Lookup, GRPC: cfg.gobgpListen, GRPCTLS: grpcTLS, GRPCWrite: cfg.gobgpWrite, LimitRetry: cfg.limitRetry,
			Crashes: filepath.Join(cfg.stateDir, "bgp-crashes.json"),
		})
		if err != nil {
			return err
		}
		conf.Speaker = speaker
		group.Go(func() error { return passwords.Run(ctx) })
		group.Go(func() error { return speaker.Run(ctx) })
	}
	if cfg.learnIPAM {
		conf.EtcdRoutes = cfg.hostAddress
	}
	if cfg.uplink != "" {
		up, err := newUplink(cfg, dp, log)
		if err != nil {
			return usageError{err}
		}
		conf.Uplink = up.status
		group.Go(func() error { return up.Run(ctx) })
	}
	a := agent.New(conf)
	group.Go(func() error { return dp.Run(ctx) })
	group.Go(func() error { return ways.Run(ctx) })
	group.Go(func() error { return agent.Serve(ctx, admin, a.AdminHandler()) })
	if health != nil {
		group.Go(func() error { return agent.Serve(ctx, health, a.HealthHandler()) })
	}
	group.Go(func() error { return source.Run(ctx) })
	group.Go(func() error { return keeper.Run(ctx) })
	group.Go(func() error { return a.Run(ctx) })
	group.Go(func() error { return systemd.Run(ctx, serviceOf(a, log)) })
	r := reloader{cfg: cfg, load: load, agent: a, engine: ways, log: log}
	group.Go(func() error { return r.run(ctx, hangups) })
	log.Info("started", "version", version, "dataplane", cfg.dataplane, "learn", cfg.learn())
	err = group.Wait()
	if errors.Is(err, agent.ErrNewProcess) || errors.Is(err, agent.ErrDrained) {
		return err
	}
	log.Info("stopped; routes stay in the FIB and peers got no CEASE", "err", err)
	return err
}

// handOver lets a new process of the same program take this one's place and process number. Its sockets end with this one: peers see
// connections that close without CEASE. /proc/self/exe is this program also when its file was replaced or removed. One that is told to stop,
// which is ctx's end, stops.
func handOver(ctx context.Context, log *slog.Logger) error {
	// One of these that comes from here on ends the process, this or the new one, until that
	// listens.
	signal.Reset(os.Interrupt, syscall.SIGTERM)
	signal.Ignore(syscall.SIGHUP) // until then also in the new process: there is nothing to reload yet
	if ctx.Err() != nil {
		log.Info("stopped instead of a new process taking over; routes stay in the FIB and peers got no CEASE")
		return nil
	}
	log.Info("a new process takes over")
	return fmt.Errorf("start anew: %w", syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
}

// lockStateDir makes the folder and keeps other agents out of it: two of them would write one journal and own one FIB source. Where the
// folder cannot be made or written there is nothing to protect: the journal and the last good snapshot then say that they are degraded, and why.
func lockStateDir(dir string) (unlock func(), err error) {
	_ = os.MkdirAll(dir, 0o755)
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return func() {}, nil
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		f.Close()
		return nil, usageError{fmt.Errorf("another agent uses the state directory %s; give this one its own --state-dir", dir)}
	}
	return func() { f.Close() }, nil
}

// serviceOf is the agent as the service manager sees it.
func serviceOf(a *agent.Agent, log *slog.Logger) systemd.Service {
	return systemd.Service{
		Turned: a.Turned, Status: func() string { return serviceStatus(a.Status()) }, TakenOver: agent.ErrNewProcess, Log: log,
	}
}

// serviceStatus says in one line what `status` says in many.
func serviceStatus(s agent.Status) string {
	for _, c := range s.Conditions {
		if !c.OK {
			return fmt.Sprintf("not ready: %s: %s", c.Name, c.Message)
		}
	}
	up, programmed, desired := 0, 0, 0
	for _, p := range s.BGP.Peers {
		if p.Established {
			up++
		}
	}
	for _, r := range s.FIB.Routes {
		programmed, desired = programmed+r.Programmed, desired+r.Desired
	}
	if isOff(s) {
		return fmt.Sprintf("ready: no BGP, %d of %d routes programmed", programmed, desired)
	}
	return fmt.Sprintf("ready: %d of %d BGP sessions up, %d of %d routes programmed", up, len(s.BGP.Peers), programmed, desired)
}

// lookedAt is the kernel of a node without data plane, which tells where next hops lead out.
// Nothing in it is ours, and its engine gets no routes, so that nothing is written.
type lookedAt struct{ dataplane }

func (lookedAt) Routes(context.Context) ([]route.Route, error) { return nil, nil }

func newDataplane(cfg config, log *slog.Logger) (dataplane, error) {
	switch cfg.dataplane {
	case "none":
		d, err := kernel.New(kernel.Config{Log: log})
		return lookedAt{d}, err
	case "kernel":
		return kernel.New(kernel.Config{Table: cfg.kernelTable, Protocol: cfg.kernelProtocol, Metric: cfg.kernelMetric, ElevatedMetric: cfg.kernelElevated, Log: log})
	}
	return vpp.New(vpp.Config{
		Socket: cfg.vppSocket, StatsSocket: cfg.vppStatsSocket, Source: cfg.fibSource, Priority: cfg.fibPriority, Log: log,
	}), nil
}

// statsOf returns what reads the counters of dp, nil if it has none.
func statsOf(dp dataplane) func() agent.DataplaneStats {
	v, ok := dp.(*vpp.VPP)
	if !ok {
		return nil
	}
	return func() agent.DataplaneStats {
		s := v.Stats()
		return agent.DataplaneStats{Connections: s.Connections, Refused: s.Refused}
	}
}

// journal is where the engine remembers what it programmed. The kernel's routes carry our protocol number and are quickly listed:
// they need none.
func (c config) journal() string {
	if c.dataplane != "vpp" {
		return ""
	}
	return filepath.Join(c.stateDir, "fib.journal")
}

func (c config) etcd() etcd.Config {
	return etcd.Config{
		Endpoints: c.etcdEndpoints, Username: c.etcdUsername, Password: c.etcdPassword,
		CACertFile: c.etcdCAFile, CertFile: c.etcdCertFile, KeyFile: c.etcdKeyFile,
	}
}

// needs are the keys to read: what hosts publish matters only to who takes routes from etcd.
func (c config) needs() calico.Needs {
	n := calico.Needs{NoBGP: !c.learnBGP}
	if c.blocksPrefix != calico.DefaultBlocks {
		n.Blocks = c.blocksPrefix
	}
	if c.learnIPAM {
		n.Hosts = c.hostsPrefix
	}
	return n
}

// agent are the settings that the agent takes while it runs.
func (c config) agent() agent.Settings {
	s := agent.Settings{BGP: c.bgpOptions(), Deferral: c.deferral, WithdrawWithoutDataplane: c.withdraw}
	if c.ownLogLevel {
		s.OwnLogLevel = new(slog.Level)
		_ = s.OwnLogLevel.UnmarshalText([]byte(c.logLevel)) // one of four words that it knows
	}
	return s
}

func (c config) tuning() fib.Tuning {
	return fib.Tuning{
		SpotChecks: c.spotChecks, RepairDrift: c.drift == "repair",
		GuardShare: c.guardShare, GuardMinimum: c.guardMinimum,
	}
}

func (c config) bgpOptions() bgp.Options {
	o := bgp.Options{RouterID: c.routerID, PrefixLimits: c.prefixLimits, ClusterIPs: c.clusterIPs}
	for _, a := range c.nextHops {
		if a.Is4() {
			o.NextHop4 = a
		} else {
			o.NextHop6 = a
		}
	}
	return o
}

// datastore is etcd, with what an earlier run kept on disk while that is away. It tells the state of both in the agent's words.
type datastore struct {
	etcd *etcd.Source
	kept *lastgood.Keeper
}

func (d datastore) Snapshots() <-chan *calico.Snapshot { return d.kept.Snapshots() }

func (d datastore) Status() agent.DatastoreStatus {
	s, k := d.etcd.Status(), d.kept.Status()
	out := agent.DatastoreStatus{
		Endpoints: s.Endpoints, Connected: s.Connected, Synced: s.Synced, Revision: s.Revision, Error: s.Error, Relists: max(s.Lists-1, 0),
		Stale: k.Stale, Kept: "ok", KeptBehind: k.Behind,
	}
	if k.Problem != "" {
		out.Kept = "degraded: " + k.Problem
	}
	if k.Stale {
		out.AsOf = &k.AsOf
	}
	if !s.LastContact.IsZero() {
		out.LastContact = &s.LastContact
	}
	return out
}
