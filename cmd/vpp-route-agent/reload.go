package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/fib"
)

// reloader applies changed settings while the agent runs.
type reloader struct {
	cfg    config // as read last
	load   func() (config, error)
	source source
	agent  *agent.Agent
	engine *fib.Engine
	// external is nil where that is off.
	external *externalParts
	log      *slog.Logger
}

// run reloads upon each of hangups until ctx ends.
func (r *reloader) run(ctx context.Context, hangups <-chan os.Signal) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangups:
			r.reload()
		}
	}
}

// reload keeps everything as it is when the settings cannot be read.
func (r *reloader) reload() {
	to, err := r.load()
	if errors.Is(err, errInterrupted) {
		return
	}
	if err != nil {
		r.log.Error("settings are not reloaded; the old ones stay in force", "err", err)
		return
	}
	var changed, waiting []string
	for _, s := range settings {
		name := s.name()
		switch {
		case to.texts[name] == r.cfg.texts[name]:
		case s.live:
			changed = append(changed, name)
		default:
			waiting = append(waiting, name)
		}
	}
	r.log.Info("settings reloaded", "changed", changed)
	if len(waiting) > 0 {
		r.log.Warn("settings that changed take effect at the next start", "settings", waiting)
	}
	r.engine.Tune(to.tuning())
	r.source.reload(to)
	r.agent.Set(to.agent())
	r.external.reload(to)
	r.cfg = to
}
