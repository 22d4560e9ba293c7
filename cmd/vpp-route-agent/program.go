package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"vpp-route-agent/bgp"
	"vpp-route-agent/bgp/gobgp"
	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/calico/lastgood"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/recorder"
	"vpp-route-agent/internal/reflectors"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/internal/statuspage"
	"vpp-route-agent/internal/systemd"
	"vpp-route-agent/internal/uplink"
	"vpp-route-agent/vpp"
)

// program is the daemon. Stages make its parts, and none runs before all are made: when a stage
// fails, close releases what the parts made so far hold, and nothing needs to be stopped.
type program struct {
	cfg     config
	inForce *inForce
	log     *slog.Logger
	conf    agent.Config
	parts   []func(context.Context) error
	held    []func()

	source   source         // of Calico's data
	engine   *fib.Engine    // with --dataplane none it only resolves next hops
	external *externalParts // nil: off
	admin    net.Listener
	health   net.Listener // nil: off
	queries  net.Listener // nil: off
	agent    *agent.Agent // made last
}

// run makes the parts and runs them until ctx ends or one of them fails. load reads the settings
// again upon each of hangups.
func run(ctx context.Context, cfg config, hangups <-chan os.Signal, load func() (config, error),
	log logger) error {
	setCollector()
	inForce := newInForce(cfg)
	p := &program{cfg: cfg, inForce: inForce, log: log.Logger, conf: agent.Config{
		Node: cfg.nodeName, Version: version, Dataplane: cfg.dataplane, Settings: cfg.agent(),
		DrainFile: filepath.Join(cfg.stateDir, "drain.json"), MetricsRoutes: cfg.metricsRoutes,
		Log: log.Logger, LogLevel: log.level, LogTail: log.tail.text,
		Configuration: inForce.shown, NothingKept: os.Getenv(nothingKeptEnv) != "",
	}}
	defer p.close()
	// Nothing may fail after addSpeaker: GoBGP listens as soon as it is made, and cannot be closed.
	for _, stage := range []func() error{
		p.addDatastore, p.addListeners, p.lockStateDir, p.addRecorder, p.addDataplane, p.addUplink,
		p.addExternal, p.addReport, p.addSpeaker,
	} {
		if err := stage(); err != nil {
			return err
		}
	}
	p.addAgent(hangups, load)

	group, ctx := errgroup.WithContext(ctx)
	for _, part := range p.parts {
		group.Go(func() error { return part(ctx) })
	}
	log.Info("started", "version", version, "dataplane", cfg.dataplane, "learn", cfg.learn())
	err := group.Wait()
	if errors.Is(err, agent.ErrNewProcess) || errors.Is(err, agent.ErrDrained) {
		return err
	}
	log.Info("stopped; routes stay in the FIB and peers got no CEASE")
	return err
}

func (p *program) add(run func(context.Context) error) { p.parts = append(p.parts, run) }

func (p *program) hold(release func()) { p.held = append(p.held, release) }

func (p *program) close() {
	for _, release := range slices.Backward(p.held) {
		release()
	}
}

func (p *program) addDatastore() error {
	source, err := newSource(p.cfg, p.cfg.nodeName, keptSnapshot(p.cfg, p.log), p.log)
	if err != nil {
		return usageError{err}
	}
	keeper := lastgood.New(p.cfg.stateDir, p.cfg.nodeName, p.cfg.needs(), source.Snapshots(), p.log)
	p.source, p.conf.Datastore = source, datastore{source, keeper}
	if o, ok := source.(owners); ok {
		p.conf.Owners = o.Owners
	}
	if p.cfg.learnIPAM {
		p.conf.EtcdRoutes = p.cfg.hostAddress
	}
	p.add(source.Run)
	p.add(keeper.Run)
	return nil
}

func (p *program) addListeners() (err error) {
	if p.cfg.tlsCertFile != "" { // also where no listener needs it now
		if _, err := p.cfg.serverTLS(); err != nil {
			return usageError{err}
		}
	}
	if p.admin, err = agent.Listen("admin socket", p.cfg.adminSocket, p.log); err != nil {
		return err
	}
	p.hold(func() { p.admin.Close() })
	if p.cfg.queryListen != "" {
		if p.queries, err = p.cfg.listenQueries(); err != nil {
			return err
		}
		p.hold(func() { p.queries.Close() })
	}
	if p.cfg.metricsListen == "" {
		return nil
	}
	if p.health, err = p.cfg.listenHealth(); err != nil {
		return err
	}
	p.hold(func() { p.health.Close() })
	return nil
}

func (p *program) lockStateDir() error {
	unlock, err := lockStateDir(p.cfg.stateDir)
	switch {
	case errors.Is(err, errLocked):
		return err
	case err != nil:
		p.log.Warn("the state directory cannot be made or opened: a restart will remember nothing",
			"err", err)
		p.conf.StateDirError = err
	default:
		p.hold(unlock)
	}
	return nil
}

func (p *program) addRecorder() error {
	if p.cfg.recorderSize == 0 {
		return nil
	}
	p.conf.Recorder = recorder.New(recorder.Config{Dir: recorderDir(p.cfg.stateDir),
		Size: p.cfg.recorderSize, Updates: p.cfg.updatesSize, Node: p.cfg.nodeName,
		Version: version, Log: p.log})
	p.add(p.conf.Recorder.Run)
	return nil
}

func recorderDir(stateDir string) string { return filepath.Join(stateDir, "recorder") }

func (p *program) addDataplane() error {
	dp, release, err := newDataplane(p.cfg, p.log)
	if err != nil {
		return err
	}
	p.hold(release)
	config := fib.Config{
		Dataplane: dp, Journal: p.cfg.journal(), ListRoutes: p.cfg.dataplane != "vpp",
		Earlier: uplink.Earlier(p.cfg.stateDir, p.log), Log: p.log, Tuning: p.cfg.tuning(),
		Distances: p.cfg.distances(),
		Attempts:  p.cfg.attempts(),
	}
	if p.conf.Recorder != nil {
		config.Recorder = p.conf.Recorder
	}
	p.engine = fib.New(config)
	if p.conf.Recorder != nil {
		p.conf.Recorder.Checkpoints(p.engine.Checkpoint)
	}
	p.conf.Resolver, p.conf.DataplaneStats = p.engine, statsOf(dp)
	if p.cfg.dataplane != "none" {
		p.conf.FIB, p.conf.Forwarded, p.conf.Resolve = p.engine, dp.Forwarded, dp.Resolve
		p.conf.Lookup = dp.Lookup
		if v, ok := dp.(*vpp.VPP); ok {
			p.conf.Counter = v
		}
	}
	p.add(dp.Run)
	p.add(p.engine.Run)
	return nil
}

func (p *program) addUplink() error {
	if p.cfg.uplink == "" {
		return nil
	}
	up, err := newUplink(p.cfg, p.engine, func(all fib.Source) {
		p.agent.Want(route.Uplink, all)
	}, p.log)
	if err != nil {
		return usageError{err}
	}
	p.conf.Uplink = up.status
	p.add(up.Run)
	return nil
}

func (p *program) addExternal() (err error) {
	if len(p.cfg.external) == 0 {
		return nil
	}
	var linux *fib.Engine
	if p.cfg.dataplane == "vpp" {
		engine, k, err := newLinux(p.cfg, p.log)
		if err != nil {
			return err
		}
		p.hold(k.Close)
		p.add(k.Run)
		p.add(engine.Run)
		linux, p.conf.Linux = engine, engine
	}
	if p.external, err = newExternal(p.cfg, p.engine, linux, p.log); err != nil {
		return usageError{err}
	}
	if err := p.external.listen(); err != nil {
		return err
	}
	p.hold(p.external.close)
	p.conf.Sources = append(p.conf.Sources, route.External)
	p.conf.External = p.external.shown()
	p.add(p.external.Run)
	return nil
}

func (p *program) addReport() error {
	if !p.cfg.publishStatus {
		return nil
	}
	store, err := p.cfg.kubernetesStore()
	if err != nil {
		return usageError{err}
	}
	publisher, err := reflectors.NewPublisher(reflectors.PublisherConfig{
		Etcd: p.cfg.etcd(), Datastore: store, Node: p.cfg.nodeName,
		NodeRef: cmp.Or(p.cfg.nodeRef, p.cfg.nodeName), Log: p.log,
		Answer: func(ctx context.Context, q reflector.Question) (reflector.Answer, error) {
			return p.agent.Answer(ctx, q)
		},
	})
	if err != nil {
		return usageError{err}
	}
	p.conf.Report = publisher.Report
	p.conf.Reported = func() agent.ReportStatus {
		s := publisher.Status()
		return agent.ReportStatus{Key: publisher.Place(), Published: s.Written, Problem: s.Problem,
			TooManyQuestions: s.TooMany}
	}
	p.add(publisher.Run)
	return nil
}

func (p *program) addSpeaker() error {
	if !p.cfg.learnBGP {
		return nil
	}
	passwords, err := newPasswords(p.cfg, p.log)
	if err != nil {
		return err
	}
	grpcTLS, err := p.cfg.tlsFor(p.cfg.gobgpListen)
	if err != nil {
		return usageError{err}
	}
	var sink gobgp.Sink
	if p.conf.FIB != nil {
		sink = agent.Learner{FIB: p.conf.FIB}
	}
	var tap func(bgp.Session) bgp.Tap
	if p.conf.Recorder != nil && p.cfg.updatesSize > 0 {
		tap = p.conf.Recorder.Tap
	}
	speaker, err := gobgp.New(gobgp.Config{
		Log: p.log, Tap: tap, Sink: sink, Passwords: passwords.Lookup, LimitRetry: p.cfg.limitRetry,
		GRPC: p.cfg.gobgpListen, GRPCTLS: grpcTLS, GRPCWrite: p.cfg.gobgpWrite,
		Crashes: filepath.Join(p.cfg.stateDir, "bgp-crashes.json"),
	})
	if err != nil {
		return fmt.Errorf("--gobgp-listen: %w", err)
	}
	p.conf.Speaker = speaker
	p.add(passwords.Run)
	p.add(speaker.Run)
	return nil
}

func (p *program) addAgent(hangups <-chan os.Signal, load func() (config, error)) {
	a := agent.New(p.conf)
	p.agent = a
	if p.external != nil {
		p.external.agent = a
	}
	r := reloader{cfg: p.cfg, inForce: p.inForce, load: load, source: p.source, agent: a,
		engine: p.engine, external: p.external, log: p.log}
	p.add(a.Run)
	p.add(func(ctx context.Context) error { return r.run(ctx, hangups) })
	p.add(func(ctx context.Context) error { return systemd.Run(ctx, serviceOf(a, p.log)) })
	p.serve(p.admin, a.AdminHandler())
	if p.queries != nil {
		p.serve(p.queries, a.QueryHandler())
	}
	if p.health != nil {
		p.serve(p.health, p.addPage(a.HealthHandler()))
	}
}

func (p *program) serve(l net.Listener, h http.Handler) {
	p.add(func(ctx context.Context) error { return agent.Serve(ctx, l, h, p.log) })
}

// addPage puts the status page before what else its listener serves.
func (p *program) addPage(rest http.Handler) http.Handler {
	if !p.cfg.statusPage {
		return rest
	}
	if why := p.cfg.pageRefused(); why != "" {
		return statuspage.Refuse(why, rest)
	}
	page := statuspage.New(statuspage.Config{Agent: p.agent, Named: p.cfg.named})
	p.add(page.Run)
	return page.Handler(rest)
}

var errLocked = errors.New("another agent uses the state directory")

// lockStateDir makes the directory and keeps other agents out of it: two would write one journal
// and own one FIB source. errLocked says that there is another, perhaps not for long. Any other
// error is that of a directory that cannot be made or written, which needs no lock: the agent goes
// on without.
func lockStateDir(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	f.Chmod(0o600) // whoever can open it can lock it; before it was open to all
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		f.Close()
		return nil, fmt.Errorf("%w %s; give this one its own --state-dir", errLocked, dir)
	}
	return func() { f.Close() }, nil
}
