package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// serviceManager is the socket on which a service manager hears of its service.
type serviceManager struct {
	conn *net.UnixConn

	mu       sync.Mutex
	notified []string // lines, in the order in which they came
}

var serviceCommand = verbs(map[string]command{
	"listen":   serviceListen,
	"notified": serviceNotified,
})

// service listen: play systemd for agents that start from now on, with a watchdog of three seconds
// that is fed but never bites.
func serviceListen(sc *script, _ []string) (string, error) {
	conn, err := net.ListenUnixgram("unixgram",
		&net.UnixAddr{Name: sc.path("notify.sock"), Net: "unixgram"})
	if err != nil {
		return "", err
	}
	sc.service = &serviceManager{conn: conn}
	go sc.service.read()
	sc.env.Setenv("NOTIFY_SOCKET", sc.path("notify.sock"))
	sc.env.Setenv("WATCHDOG_USEC", "3000000")
	return "", nil
}

// service notified REGEXP: one of the lines that came since the last match of `service notified` is
// like this.
func serviceNotified(sc *script, args []string) (string, error) {
	if sc.service == nil || len(args) != 1 {
		return "", usage("service notified REGEXP, after service listen")
	}
	re, err := regexp.Compile(args[0])
	if err != nil {
		return "", usage("%v", err)
	}
	sc.service.mu.Lock()
	defer sc.service.mu.Unlock()
	i := slices.IndexFunc(sc.service.notified, re.MatchString)
	if i < 0 {
		return "", fmt.Errorf("no line matches %q:\n%s", args[0],
			indent(strings.Join(sc.service.notified, "\n")))
	}
	sc.service.notified = sc.service.notified[i+1:]
	return "", nil
}

// read takes what comes until the socket is closed.
func (m *serviceManager) read() {
	buf := make([]byte, 4096)
	for {
		n, err := m.conn.Read(buf)
		if err != nil {
			return
		}
		m.mu.Lock()
		m.notified = append(m.notified, strings.Split(string(buf[:n]), "\n")...)
		m.mu.Unlock()
	}
}

// agent abort: SIGABRT, as a watchdog sends it. The agent must end by the signal: after status 2 a
// supervisor would not start it again.
func agentAbort(sc *script, _ []string) (string, error) {
	a := sc.agent
	if a == nil {
		return "", usage("the agent does not run")
	}
	sc.agent = nil
	a.cmd.Process.Signal(syscall.SIGABRT)
	select {
	case <-a.exited:
	case <-time.After(patience):
		a.kill()
		return "", fmt.Errorf("agent still runs %s after SIGABRT", patience)
	}
	if how := a.cmd.ProcessState.Sys().(syscall.WaitStatus); !how.Signaled() ||
		how.Signal() != syscall.SIGABRT {
		return "", fmt.Errorf("agent ended with %v", a.cmd.ProcessState)
	}
	return "", nil
}

var metricName = regexp.MustCompile(`\bvpp_route_agent_[a-z0-9_]+`)

// elsewhere are metrics that only agents with other flags have, by the flag.
var elsewhere = map[string]string{
	"vpp_route_agent_etcd_prefixes_unrouted": "--learn ipam",
	"vpp_route_agent_linux_journal_ok":       "--external",
	"vpp_route_agent_uplink_ok":              "--uplink",
	"vpp_route_agent_uplink_published":       "--uplink",
}

var (
	helpLine = regexp.MustCompile(`(?m)^# HELP vpp_route_agent_([a-z_]+) (.*)$`)
	series   = regexp.MustCompile(`\b(vpp_route_agent_[a-z_]+){([^}]*)}`)
	matcher  = regexp.MustCompile(`([a-z_]+) ?= ?\\?"([a-z_]+)\\?"`)
)

// scrape returns the metrics of the running agent and, where one runs, of a reflector controller.
func scrape(sc *script) (text string, err error) {
	text, err = httpGet(sc, []string{"/metrics", "200", "."})
	if err != nil {
		return "", err
	}
	more, err := fetch(sc, sc.net+".9:9180/metrics", "200", ".")
	if errors.Is(err, syscall.ECONNREFUSED) {
		err = nil
	}
	return text + more, err
}

// documented PAGE: the table of this page has each metric that scrape finds, with its help.
func metricsDocumented(sc *script, args []string) (string, error) {
	if len(args) != 1 {
		return "", usage("documented PAGE")
	}
	text, err := scrape(sc)
	if err != nil {
		return "", err
	}
	page, err := os.ReadFile(filepath.Join(sourceDir, "..", "..", args[0]))
	if err != nil {
		return "", usage("%v", err)
	}
	for _, m := range helpLine.FindAllStringSubmatch(text, -1) {
		row := regexp.MustCompile(fmt.Sprintf("(?m)^\\| `%s` \\| .* \\| %s \\|$", m[1],
			regexp.QuoteMeta(m[2])))
		if !row.Match(page) {
			return "", fmt.Errorf("%s does not have %s: %s", args[0], m[1], m[2])
		}
	}
	return "", nil
}

// metrics FILE…: scrape finds each metric of ours that these files of the repository name, with the
// labels that they select it by, but for those of other flags.
func metricsNamed(sc *script, files []string) (string, error) {
	text, err := scrape(sc)
	if err != nil {
		return "", err
	}
	has := map[string]bool{}
	for line := range strings.Lines(text) {
		has[metricName.FindString(line)] = true
	}
	for _, file := range files {
		raw, err := os.ReadFile(filepath.Join(sourceDir, "..", "..", file))
		if err != nil {
			return "", usage("%v", err)
		}
		names := metricName.FindAllString(string(raw), -1)
		if len(names) < 5 {
			return "", usage("%s names only %d metrics", file, len(names))
		}
		for _, name := range names {
			if !has[name] && elsewhere[name] == "" {
				return "", fmt.Errorf("%s names %s, which /metrics does not have", file, name)
			}
		}
		for _, m := range series.FindAllStringSubmatch(string(raw), -1) {
			for _, label := range matcher.FindAllStringSubmatch(m[2], -1) {
				if re := regexp.MustCompile(fmt.Sprintf(`(?m)^%s{.*%s="%s"`, m[1], label[1],
					label[2])); !re.MatchString(text) {
					return "", fmt.Errorf("%s selects %s, and /metrics has none with %s=%q", file,
						m[0], label[1], label[2])
				}
			}
		}
	}
	return "", nil
}
