package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// nothingKeptEnv tells the new process of agent.ErrNothingKept. It is no setting.
const nothingKeptEnv = "_VPP_ROUTE_AGENT_NOTHING_KEPT"

// handOver lets a new process of the same program take this one's place and PID. Its sockets end
// with this one: peers see connections that close without CEASE. /proc/self/exe is this program
// even after its file was replaced or removed. If ctx has ended, the agent was told to stop, and
// stops.
func handOver(ctx context.Context, nothingKept bool, log *slog.Logger) error {
	// One of these that comes from here on ends the process, this or the new one, until that
	// listens.
	signal.Reset(os.Interrupt, syscall.SIGTERM)
	signal.Ignore(syscall.SIGHUP) // also in the new process, until it has settings to reload
	if ctx.Err() != nil {
		log.Info("stopped instead of a new process taking over; " +
			"routes stay in the FIB and peers got no CEASE")
		return nil
	}
	log.Info("a new process takes over")
	os.Unsetenv(nothingKeptEnv)
	if nothingKept {
		os.Setenv(nothingKeptEnv, "true")
	}
	return fmt.Errorf("start anew: %w", syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
}
