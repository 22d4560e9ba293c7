package main

import (
	"fmt"
	"log/slog"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/systemd"
)

// serviceOf is the agent as the service manager sees it.
func serviceOf(a *agent.Agent, log *slog.Logger) systemd.Service {
	return systemd.Service{
		Turned: a.Turned, Status: func() string { return serviceStatus(a.Status()) },
		TakenOver: agent.ErrNewProcess, Log: log,
	}
}

// serviceStatus says in one line what `status` says in many.
func serviceStatus(s agent.Status) string {
	for _, c := range s.Conditions {
		if !c.OK {
			return fmt.Sprintf("not ready: %s: %s", c.Name, c.Message)
		}
	}
	up, programmed, desired := 0, 0, 0
	for _, p := range s.BGP.Peers {
		if p.Established {
			up++
		}
	}
	for _, r := range s.FIB.Routes {
		programmed, desired = programmed+r.Programmed, desired+r.Desired
	}
	if isOff(s) {
		return fmt.Sprintf("ready: no BGP, %d of %d routes programmed", programmed, desired)
	}
	return fmt.Sprintf("ready: %d of %d BGP sessions up, %d of %d routes programmed",
		up, len(s.BGP.Peers), programmed, desired)
}
