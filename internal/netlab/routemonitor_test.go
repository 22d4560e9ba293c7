package netlab

import (
	"slices"
	"syscall"
	"testing"
	"time"
)

func TestRouteMonitorThatIsBehind(t *testing.T) {
	l := newLab(t)
	ns := must[*Namespace](t)(l.Namespace("node"))
	m, err := l.WatchRoutes(t.Context(), ns, "monitor")
	check(t, err)
	route := func(verb, prefix, protocol string) {
		_, err := ns.Run(t.Context(), "ip", "route", verb, "blackhole", prefix, "proto", protocol)
		check(t, err)
	}
	check(t, m.process.Signal(syscall.SIGSTOP))
	route("add", "10.1.0.0/26", "bird")
	route("add", "10.2.0.0/26", "static")
	route("delete", "10.1.0.0/26", "bird")
	time.AfterFunc(300*time.Millisecond, func() { m.process.Signal(syscall.SIGCONT) })
	changes, err := m.Changes(t.Context(), "bird")
	check(t, err)
	want := []string{
		"blackhole 10.1.0.0/26 proto bird", "Deleted blackhole 10.1.0.0/26 proto bird",
	}
	if !slices.Equal(changes, want) {
		t.Errorf("got %q, want %q", changes, want)
	}
	check(t, m.Stop())
}
