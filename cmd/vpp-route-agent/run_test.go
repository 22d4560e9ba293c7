package main

import (
	"context"
	"log/slog"
	"os"
	"testing"
)

// SIGTERM may come while the parts of the agent end to make way for a new process.
func TestNoProcessTakesOverFromOneToldToStop(t *testing.T) {
	const again = "VPP_ROUTE_AGENT_TEST_TAKEN_OVER"
	if os.Getenv(again) != "" {
		t.Fatal("a new process took over: this one")
	}
	t.Setenv(again, "1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := handOver(ctx, slog.New(slog.NewTextHandler(t.Output(), nil))); err != nil {
		t.Error(err)
	}
}
