package main

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"sync"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/fib"
)

// reloader applies changed settings while the agent runs.
type reloader struct {
	cfg     config // as read last
	inForce *inForce
	load    func() (config, error)
	source  source
	agent   *agent.Agent
	engine  *fib.Engine
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
	r.inForce.reload(to)
	r.cfg = to
}

// inForce are the settings that the agent works by: after a reload some are as at the start.
type inForce struct {
	mu    sync.Mutex
	texts map[string]string
}

func newInForce(cfg config) *inForce { return &inForce{texts: cfg.texts} }

func (f *inForce) reload(to config) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.texts = maps.Clone(f.texts)
	for _, s := range settings {
		if s.live {
			f.texts[s.name()] = to.texts[s.name()]
		}
	}
}

// shown is without secrets: of one it says whether it is set.
func (f *inForce) shown() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return shownSettings(f.texts)
}

func shownSettings(texts map[string]string) map[string]string {
	out := map[string]string{}
	for _, s := range settings {
		text := texts[s.name()]
		switch {
		case s.secret && text != "":
			text = "set, and not shown"
		case s.endpoints:
			text = shownEndpoints(text)
		default:
			text = withoutPasswords(text)
		}
		out[s.name()] = text
	}
	return out
}
