package main

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/repeats"
)

func runCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "run", Short: "Run the daemon until SIGTERM",
		Long: `Run the daemon until SIGTERM or SIGINT. On exit the routes stay in the FIB and BGP
peers get no CEASE, so that peers with graceful restart keep forwarding to this node while it
restarts (RFC 4724).

SIGHUP has the settings read again. Those that can change while sessions are up take effect at
once; the log names the others that changed, which wait for the next start.

Settings come from flags, environment variables (those of calico-node, and VPP_ROUTE_AGENT_<FLAG>
for each flag), a YAML file and defaults, in this order.`,
		Example: `  vpp-route-agent run --etcd-endpoints https://10.0.0.5:2379
  NODENAME=edge-7 vpp-route-agent run --dataplane kernel
  vpp-route-agent run --config /etc/vpp-route-agent/agent.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// One that comes while the settings are read may be about what was read already.
			hangups := make(chan os.Signal, 1)
			signal.Notify(hangups, syscall.SIGHUP)
			cfg, err := settingsOf(cmd)
			if errors.Is(err, errInterrupted) {
				return nil // as it would end later
			}
			if err != nil {
				return usageError{err}
			}
			outliveReader()
			log := newLogger(os.Stderr, cfg)
			defer log.end()
			reload := func() (config, error) { return settingsOf(cmd) }
			err = run(cmd.Context(), cfg, hangups, reload, log)
			if errors.Is(err, agent.ErrNewProcess) {
				log.end()
				return handOver(cmd.Context(), errors.Is(err, agent.ErrNothingKept), log.Logger)
			}
			return err
		},
	}
	addFlags(c.Flags())
	return c
}

// outliveReader keeps the process alive when whoever reads its log has ended: Go ends one that
// writes to a broken pipe on standard output or error.
func outliveReader() { signal.Ignore(syscall.SIGPIPE) }

// logger is the process's log.
type logger struct {
	*slog.Logger
	level *slog.LevelVar // may change while the process runs
	tail  *logTail
	end   func() // writes what was counted
}

func newLogger(w io.Writer, cfg config) logger {
	level, tail := new(slog.LevelVar), new(logTail)
	_ = level.UnmarshalText([]byte(cfg.logLevel)) // one of four words that it knows
	opt := &slog.HandlerOptions{Level: level, ReplaceAttr: withoutEmpty}
	w = io.MultiWriter(tail, w)
	var h slog.Handler = slog.NewTextHandler(w, opt)
	if cfg.logFormat == "json" {
		h = slog.NewJSONHandler(w, opt)
	}
	repeated := repeats.New(h)
	return logger{slog.New(repeated).With("node", cfg.nodeName), level, tail, repeated.End}
}

// withoutEmpty leaves out an attribute without a value, which says nothing.
func withoutEmpty(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Equal(slog.StringValue("")) {
		return slog.Attr{}
	}
	return a
}
