package gobgp

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/osrg/gobgp/v3/pkg/log"
)

// levelTrace is where GoBGP's own debug messages go: it formats every path for them.
const levelTrace = slog.LevelDebug - 4

// logger is GoBGP's logger on top of slog. GoBGP calls it under its locks, so it must not call back
// or block. Fatal and Panic do not end the process: the few callers in v3.37 (a gRPC address that
// cannot be bound, an invalid policy set, an unknown message) go on. The first such message ends
// Run.
type logger struct {
	log   *slog.Logger
	fatal chan<- error // of size 1
}

func (l *logger) Panic(msg string, f log.Fields) { l.Fatal(msg, f) }

func (l *logger) Fatal(msg string, f log.Fields) {
	l.write(slog.LevelError, msg, f)
	var text strings.Builder
	text.WriteString(msg)
	for _, k := range []string{"Err", "Error", "Data"} {
		if v, ok := f[k]; ok {
			fmt.Fprintf(&text, ": %v", v)
		}
	}
	select {
	case l.fatal <- fmt.Errorf("gobgp: %s", text.String()):
	default:
	}
}

func (l *logger) Error(msg string, f log.Fields) { l.logAt(slog.LevelError, msg, f) }

func (l *logger) Warn(msg string, f log.Fields) { l.logAt(slog.LevelWarn, msg, f) }

func (l *logger) logAt(level slog.Level, msg string, f log.Fields) {
	if routine(msg) {
		level = slog.LevelDebug
	}
	l.write(level, msg, f)
}

// Info is our debug level: GoBGP logs each step of its work with it. The Speaker itself logs what
// operators need.
func (l *logger) Info(msg string, f log.Fields) { l.write(slog.LevelDebug, msg, f) }

func (l *logger) Debug(msg string, f log.Fields) { l.write(levelTrace, msg, f) }

// SetLevel is what the gobgp CLI asks for; the level is the agent's.
func (l *logger) SetLevel(log.LogLevel) {}

// GetLevel spares GoBGP the formatting of what nobody reads.
func (l *logger) GetLevel() log.LogLevel {
	if l.log.Enabled(context.Background(), levelTrace) {
		return log.DebugLevel
	}
	return log.InfoLevel
}

// routine reports warnings of GoBGP that are normal: a withdrawal of what policy had
// rejected, a dial that crossed another.
func routine(msg string) bool {
	switch msg {
	case "No matching path for withdraw found, may be path was not installed into table",
		"Closed an accepted connection",
		"active conn is closed to avoid being blocked",
		"failed to close existing tcp connection",
		"Can't find the neighbor":
		return true
	}
	return false
}

func (l *logger) write(level slog.Level, msg string, f log.Fields) {
	ctx := context.Background()
	if !l.log.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, len(f))
	for k, v := range f {
		switch k {
		case "Key":
			k = "peer"
			if f["Topic"] != "Peer" {
				k = "key"
			}
		case log.FieldFacility:
			continue
		case "Err", "Error", "error":
			k = "err"
		default:
			k = strings.ToLower(k)
		}
		attrs = append(attrs, slog.Any(k, v))
	}
	l.log.LogAttrs(ctx, level, "gobgp: "+strings.ToLower(msg[:1])+msg[1:], attrs...)
}
