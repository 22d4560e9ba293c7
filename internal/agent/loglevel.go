package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
)

// logOverride is the log level that an operator has asked for, for a while; none without until.
type logOverride struct {
	level slog.Level
	until time.Time
	taken bool // Run has acted on it
}

// LogLevelStatus is what `log-level -o json` prints.
type LogLevelStatus struct {
	Level string     `json:"level"`
	Until *time.Time `json:"until,omitempty"` // absent where nothing overrides the settings
}

// MaxLogOverride bounds for how long the level may be another: debug fills disks.
const MaxLogOverride = 24 * time.Hour

// stepLogLevel takes an override of the log level, and ends it when its time is over.
func (a *Agent) stepLogLevel(now time.Time) {
	a.mu.Lock()
	if !a.logs.until.IsZero() && !now.Before(a.logs.until) {
		a.logs = logOverride{}
	}
	o := a.logs
	a.logs.taken = true
	a.mu.Unlock()
	switch {
	case o.taken || a.cfg.LogLevel == nil:
	case o.until.IsZero():
		a.cfg.Log.Info("the log level is as configured again")
		a.cfg.LogLevel.Set(a.startLevel)
		a.setLogLevel(a.snapshot)
	default:
		a.cfg.LogLevel.Set(min(a.cfg.LogLevel.Level(), slog.LevelInfo)) // that this is logged
		a.cfg.Log.Info("the log level is another for a while", "level", o.level,
			"until", o.until.UTC().Format(time.RFC3339))
		a.cfg.LogLevel.Set(o.level)
	}
}

// serveLog has the last lines of the log.
func (a *Agent) serveLog(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if a.cfg.LogTail != nil {
		_, _ = w.Write(a.cfg.LogTail()) // fails only if the client is gone
	}
}

// overridden reports whether an operator's level counts.
func (a *Agent) overridden() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.logs.until.IsZero()
}

// setLogLevel follows the settings and Calico's resources.
func (a *Agent) setLogLevel(s *calico.Snapshot) {
	own := a.cfg.OwnLogLevel
	switch {
	case a.cfg.LogLevel == nil, a.overridden():
		return
	case own != nil:
		a.cfg.LogLevel.Set(*own)
		return
	case s == nil:
		return
	}
	if old, now := a.cfg.LogLevel.Level(), bgp.LogLevel(a.cfg.Node, s); now != old {
		a.cfg.LogLevel.Set(min(old, now)) // so that the change itself is logged
		a.cfg.Log.Info("the log level follows Calico's logSeverityScreen", "level", now)
		a.cfg.LogLevel.Set(now)
	}
}

// SetLogLevel has the log at another level for a while; 0: as configured again, at once.
func (a *Agent) SetLogLevel(level slog.Level, during time.Duration) (LogLevelStatus, error) {
	switch {
	case a.cfg.LogLevel == nil:
		return LogLevelStatus{}, errors.New("the log has no level")
	case during < 0 || during > MaxLogOverride:
		return LogLevelStatus{}, badRequest{fmt.Errorf("%s is not in 0…%s", during,
			MaxLogOverride)}
	}
	o := logOverride{level: level}
	if during > 0 {
		o.until = time.Now().Add(during)
	}
	a.mu.Lock()
	a.logs = o
	a.mu.Unlock()
	a.wakeUp()
	out := a.logLevel()
	if during > 0 {
		out.Level = levelName(level)
	}
	return out, nil
}

func (a *Agent) logLevel() LogLevelStatus {
	var out LogLevelStatus
	if a.cfg.LogLevel != nil {
		out.Level = levelName(a.cfg.LogLevel.Level())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if until := a.logs.until; !until.IsZero() {
		out.Until = &until // a copy: it is read after the lock is released
	}
	return out
}

func levelName(l slog.Level) string { return strings.ToLower(l.String()) }

func (a *Agent) serveLogLevel(r *http.Request) (any, error) {
	var level slog.Level
	during, err := time.ParseDuration(r.URL.Query().Get("for"))
	if err != nil {
		return nil, badRequest{fmt.Errorf("for: %w", err)}
	}
	if text := r.URL.Query().Get("level"); during != 0 {
		if err := level.UnmarshalText([]byte(text)); err != nil {
			return nil, badRequest{err}
		}
	}
	return a.SetLogLevel(level, during)
}
