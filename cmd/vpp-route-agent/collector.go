package main

import (
	"os"
	"runtime/debug"

	"vpp-route-agent/internal/agent"
)

// setCollector lets the heap grow further between two collections than Go's default: most of what
// is allocated while routes come in is GoBGP's messages, which die at once. Whoever sets GOGC or
// GOMEMLIMIT knows better.
func setCollector() {
	_, percent := os.LookupEnv("GOGC")
	_, limit := os.LookupEnv("GOMEMLIMIT")
	if !percent && !limit {
		debug.SetGCPercent(agent.CollectorPercent)
	}
}
