package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"vpp-route-agent/internal/kubernetes/kubetest"
)

// agentProcess is the binary's `run`, as a process of its own.
type agentProcess struct {
	cmd    *exec.Cmd
	log    string     // file
	exited chan error // size 1
}

var variable = regexp.MustCompile("^[A-Z_]+=")

var agentCommand = verbs(map[string]command{
	"start":    agentStart,
	"stop":     agentStop,
	"kill":     agentKill,
	"abort":    agentAbort,
	"freeze":   agentSignal(syscall.SIGSTOP), // agent kill ends it, too
	"continue": agentSignal(syscall.SIGCONT),
	"hup":      agentSignal(syscall.SIGHUP), // it reads its settings again
	"ended":    agentEnded,
	"log":      agentLog,
})

// agent start [NAME=VALUE…] [FLAG…]: run the agent as node edge-5, with these variables in its
// environment. The flags come after those that every script needs.
func agentStart(sc *script, flags []string) (string, error) {
	variables := flags[:0:0]
	for len(flags) > 0 && variable.MatchString(flags[0]) {
		variables, flags = append(variables, flags[0]), flags[1:]
	}
	if sc.agent != nil {
		return "", usage("the agent runs already")
	}
	sc.starts++
	logPath := sc.path(fmt.Sprintf("agent-%d.log", sc.starts))
	binary, err := exec.LookPath("vpp-route-agent") // testscript.Main put it there
	if err != nil {
		return "", err
	}
	args, err := sc.datastoreFlags()
	if err != nil {
		return "", err
	}
	args = append([]string{"run"}, append(args, "--admin-socket", sc.path("agent.sock"),
		"--state-dir", sc.path("state"),
		"--gobgp-listen", "off", "--metrics-listen", sc.net+".5:9179")...)
	if !slices.Contains(flags, "--log-format") { // of which the script is about logging
		args = append(args, "--log-level", "debug")
	}
	if !slices.Contains(flags, "--dataplane") {
		args = append(args, "--vpp-socket", sc.path("vpp.sock"), "--vpp-stats-socket",
			sc.path("stats.sock"))
	}
	sc.agent, err = sc.fork(exec.Command(binary, append(args, flags...)...), variables, logPath)
	return "", err
}

// fork starts an agent, which logs to a file and dies with the suite.
func (sc *script) fork(cmd *exec.Cmd, variables []string, logPath string) (*agentProcess, error) {
	log, err := os.Create(logPath)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Dir, cmd.Stdout, cmd.Stderr = sc.env.WorkDir, log, log
	cmd.Env = slices.Concat(sc.env.Vars, variables,
		[]string{"GORACE=exitcode=0 " + raceOptions}) // see races
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := sc.children.start(cmd); err != nil {
		return nil, err
	}
	a := &agentProcess{cmd: cmd, log: logPath, exited: make(chan error, 1)}
	go func() { a.exited <- cmd.Wait() }()
	return a, nil
}

// datastoreFlags say where the agent finds Calico's data.
func (sc *script) datastoreFlags() ([]string, error) {
	inEtcd := []string{"--etcd-endpoints", "http://" + sc.net + ".1:2379"}
	if sc.beside != nil {
		file, err := sc.beside.WriteKubeconfig(sc.env.WorkDir, sc.beside.URL(),
			"token: "+kubetest.Token)
		return append(inEtcd, "--kubeconfig", file), err
	}
	if !sc.kubernetes {
		return inEtcd, nil
	}
	e, err := sc.datastore()
	if err != nil {
		return nil, err
	}
	file, err := e.api.WriteKubeconfig(sc.env.WorkDir, "https://"+sc.net+".1:2379",
		"token: "+kubetest.Token)
	return []string{"--datastore-type", "kubernetes", "--kubeconfig", file}, err
}

func agentSignal(sig syscall.Signal) command {
	return func(sc *script, _ []string) (string, error) {
		return "", sc.agent.cmd.Process.Signal(sig)
	}
}

// agent stop: SIGTERM. The agent must end by itself, with status 0.
func agentStop(sc *script, _ []string) (string, error) {
	a := sc.agent
	if a == nil {
		return "", usage("the agent does not run")
	}
	sc.agent = nil
	a.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-a.exited:
		if err != nil {
			return "", fmt.Errorf("agent: %w\n%s", err, a.lastWords())
		}
		return "", a.races()
	case <-time.After(patience):
		a.kill()
		return "", fmt.Errorf("agent still runs %s after SIGTERM\n%s", patience, a.lastWords())
	}
}

// agent kill: SIGKILL.
func agentKill(sc *script, _ []string) (string, error) {
	if sc.agent == nil {
		return "", usage("the agent does not run")
	}
	a := sc.agent
	a.kill()
	sc.agent = nil
	return "", a.races()
}

// agent ended STATUS: the agent has ended by itself, with this status.
func agentEnded(sc *script, args []string) (string, error) {
	a := sc.agent
	if len(args) != 1 || a == nil {
		return "", usage("agent ended STATUS, while it runs")
	}
	select {
	case <-a.exited:
	case <-time.After(patience):
		return "", fmt.Errorf("the agent still runs:\n%s", a.lastWords())
	}
	sc.agent = nil
	if got := strconv.Itoa(a.cmd.ProcessState.ExitCode()); got != args[0] {
		return "", fmt.Errorf("the agent ended with status %s:\n%s", got, a.lastWords())
	}
	return "", a.races()
}

// ended returns an error if the process ended by itself.
func (a *agentProcess) ended() error {
	if a == nil || len(a.exited) == 0 {
		return nil
	}
	return fmt.Errorf("the agent has ended:\n%s", a.lastWords())
}

func (a *agentProcess) kill() {
	a.cmd.Process.Kill()
	<-a.exited
}

// races returns the race detector's reports, when the test runs with it: the agent is this test's
// binary.
func (a *agentProcess) races() error {
	raw, err := os.ReadFile(a.log)
	for report := range strings.SplitSeq(string(raw), "==================\n") {
		if strings.HasPrefix(report, "WARNING: DATA RACE") {
			err = errors.Join(err, fmt.Errorf("agent:\n%s", indent(report)))
		}
	}
	return err
}

func (a *agentProcess) lastWords() string {
	raw, _ := os.ReadFile(a.log)
	return indent(string(raw[max(0, len(raw)-4000):]))
}

// agent log REGEXP [TIMES]: what the running or last started agent logged has such a line, or so
// many.
func agentLog(sc *script, args []string) (string, error) {
	if sc.starts == 0 || len(args) == 0 || len(args) > 2 {
		return "", usage("agent log REGEXP [TIMES], after agent start")
	}
	re, err := regexp.Compile(args[0])
	if err != nil {
		return "", usage("%v", err)
	}
	raw, err := os.ReadFile(sc.path(fmt.Sprintf("agent-%d.log", sc.starts)))
	if err != nil {
		return "", err
	}
	found := 0
	for line := range strings.Lines(string(raw)) {
		if re.MatchString(line) {
			found++
		}
	}
	if len(args) == 1 && found > 0 || len(args) == 2 && strconv.Itoa(found) == args[1] {
		return "", nil
	}
	return "", fmt.Errorf("%d lines match %q in the log:\n%s", found, args[0], indent(string(raw)))
}

// shows REGEXP SUBCOMMAND [ARG…]: the subcommand, asked of the running agent, succeeds and prints
// what the expression matches. $NET stands in what is printed, and ^ and $ match at lines.
func shows(sc *script, args []string) (string, error) {
	if len(args) < 2 {
		return "", usage("shows REGEXP SUBCOMMAND [ARG…]")
	}
	re, err := regexp.Compile("(?m)" + args[0])
	if err != nil {
		return "", usage("%v", err)
	}
	out, err := sc.ask("agent.sock", args[1:]...)
	if err != nil {
		return "", err
	}
	if !re.MatchString(out) {
		return "", fmt.Errorf("%s does not show %q:\n%s", strings.Join(args[1:], " "), args[0],
			indent(out))
	}
	return out, nil
}

// ask runs a subcommand that talks to the agent behind a socket. It does so in this process, since
// starting one for each question was most of the work of the scripts.
func (sc *script) ask(socket string, args ...string) (string, error) {
	ctx, cancel := brief()
	defer cancel()
	var out strings.Builder
	root := newCommand()
	args = append(args, "--admin-socket", sc.path(socket))
	switch args[0] {
	case "history", "trace", "dump", "mrt", "replay": // they ask the disk
		args = append(args[:len(args)-2], "--state-dir", sc.path("state"))
	}
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(io.Discard)
	if err := root.ExecuteContext(ctx); err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return strings.ReplaceAll(out.String(), sc.net+".", "$NET."), nil
}

// http PATH STATUS REGEXP: a GET of the metrics port.
func httpGet(sc *script, args []string) (string, error) {
	if len(args) != 3 {
		return "", usage("http PATH STATUS REGEXP")
	}
	return fetch(sc, sc.net+".5:9179"+args[0], args[1], args[2])
}

func fetch(sc *script, url, status, pattern string) (string, error) {
	re, err := regexp.Compile("(?m)" + pattern)
	if err != nil {
		return "", usage("%v", err)
	}
	ctx, cancel := brief()
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+url, nil)
	if err != nil {
		return "", usage("%v", err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	text := strings.ReplaceAll(string(body), sc.net+".", "$NET.")
	if strconv.Itoa(resp.StatusCode) != status || !re.MatchString(text) {
		return "", fmt.Errorf("GET %s: %s, want %s and %q:\n%s", url, resp.Status, status,
			pattern, indent(text))
	}
	return text, nil
}

// file PATH REGEXP: a file that the agent writes is there and matches.
func fileHas(sc *script, args []string) (string, error) {
	if len(args) != 2 {
		return "", usage("file PATH REGEXP")
	}
	re, err := regexp.Compile(args[1])
	if err != nil {
		return "", usage("%v", err)
	}
	raw, err := os.ReadFile(sc.path(args[0]))
	if err == nil && !re.Match(raw) {
		err = fmt.Errorf("%s does not match %q:\n%s", args[0], args[1], indent(string(raw)))
	}
	return "", err
}

// fieldsOfStatus ("fields FILE [PAGE]"): every field that the table of docs/status.md, or of
// another page, names is in the JSON of FILE, which has at least one element in each list; a field
// that the table says may be absent need not be.
func fieldsOfStatus(ts *testscript.TestScript, neg bool, args []string) {
	page := "status.md"
	if len(args) == 2 {
		page = args[1]
	}
	if neg || len(args) == 0 || len(args) > 2 {
		ts.Fatalf("usage: fields FILE [PAGE]")
	}
	doc, err := os.ReadFile(sourceDir + "/../../docs/" + page)
	ts.Check(err)
	var status any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &status))
	fields := documented(string(doc))
	if len(fields) < 30 {
		ts.Fatalf("the table of docs/%s names only %d fields: %v", page, len(fields), fields)
	}
	for _, f := range fields {
		if !f.optional && !has(status, strings.Split(f.path, ".")) {
			ts.Logf("docs/%s names %s, which is not there", page, f.path)
			err = errors.New("fields are missing")
		}
	}
	ts.Check(err)
}

var remarked = regexp.MustCompile("`([a-zA-Z]+)`( \\([^)]*\\))?")

type field struct {
	path     string // "bgp.peers[].address"
	optional bool
}

var quoted = regexp.MustCompile("`(\\.?[A-Za-z][A-Za-z.\\[\\]]*)`")

// documented reads the table. In its first column "`a[].b`, `.c`" are a[].b and a[].c; where that
// column is a list alone, the fields of its elements are in the third, each with values or remarks
// in parentheses.
func documented(doc string) []field {
	var all []field
	for line := range strings.Lines(doc) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			continue
		}
		optional := strings.Contains(cells[3], "absent") ||
			strings.Contains(cells[3], "why it is not connected")
		prefix := ""
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			path := m[1]
			if rest, ok := strings.CutPrefix(path, "."); ok {
				path = prefix + rest
			} else {
				prefix = path[:strings.LastIndex(path, ".")+1]
			}
			if !strings.HasSuffix(path, "[]") {
				all = append(all, field{path, optional})
				continue
			}
			for _, m := range remarked.FindAllStringSubmatch(cells[3], -1) {
				absent := optional || strings.Contains(m[2], "absent")
				all = append(all, field{path + "." + m[1], absent})
			}
		}
	}
	return all
}

// has reports whether v has the field at path; of a list every element must.
func has(v any, path []string) bool {
	if len(path) == 0 {
		return true
	}
	name, list := strings.CutSuffix(path[0], "[]")
	object, ok := v.(map[string]any)
	if !ok {
		return false
	}
	v, ok = object[name]
	if !list {
		return ok && has(v, path[1:])
	}
	elements, ok := v.([]any)
	if !ok || len(elements) == 0 {
		return false
	}
	for _, e := range elements {
		if !has(e, path[1:]) {
			return false
		}
	}
	return true
}

// gobgpCLI builds the gobgp command of the GoBGP that is in go.mod.
var gobgpCLI = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "tool", "-n", "github.com/osrg/gobgp/v3/cmd/gobgp")
	cmd.Dir = sourceDir
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go tool -n gobgp: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
})

// runGoBGP ("gobgp ARG…") runs the stock CLI against the agent's gRPC.
func runGoBGP(ts *testscript.TestScript, neg bool, args []string) {
	path, err := gobgpCLI()
	ts.Check(err)
	sc := scriptOf(ts)
	for range 5 { // the CLI gives a busy machine one second
		err = ts.Exec(path, append([]string{"-u", sc.net + ".5", "-p", "50051"}, args...)...)
		if err == nil || !strings.Contains(ts.ReadFile("stdout"), "deadline exceeded") {
			break
		}
	}
	if neg == (err == nil) {
		ts.Fatalf("gobgp: %v", err)
	}
}

// forker starts processes from one OS thread. A child with a parent death signal dies when the
// thread that forked it ends, not only when the process does; this thread lasts as long as the
// suite.
type forker struct {
	jobs chan func()
	done chan struct{}
}

func newForker() *forker {
	f := &forker{jobs: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(f.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for job := range f.jobs {
			job()
		}
	}()
	return f
}

func (f *forker) start(cmd *exec.Cmd) error {
	result := make(chan error)
	f.jobs <- func() { result <- cmd.Start() }
	return <-result
}

func (f *forker) close() {
	close(f.jobs)
	<-f.done
}
