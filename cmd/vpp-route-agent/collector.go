package main

import (
	"os"
	"runtime/debug"

	"vpp-route-agent/internal/agent"
)

// setCollector lets the heap grow further between two collections than Go's default: most of what
// is allocated while routes come in are GoBGP's messages, which are garbage at once. An operator
// overrides it by GOGC or GOMEMLIMIT.
func setCollector() {
	_, percent := os.LookupEnv("GOGC")
	_, limit := os.LookupEnv("GOMEMLIMIT")
	if !percent && !limit {
		debug.SetGCPercent(agent.CollectorPercent)
	}
}
