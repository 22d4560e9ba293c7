package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/tools/txtar"

	"vpp-route-agent/internal/kubernetes/kubetest"
)

// The scripts run the real binary against an etcd, a VPP API server (vpptest) and GoBGP peers, on
// loopback and without root. testdata/script/README.md has their words.

const (
	bgpPort  = 1790             // of all speakers, each on its own address
	patience = 60 * time.Second // for "*"; longer than the longest back-off, 30 s
)

// raceOptions are for the programs of the scripts, several hundred in all: at its end each would
// wait a whole second for a race.
const raceOptions = "atexit_sleep_ms=100"

func TestMain(m *testing.M) {
	programs := map[string]func(){"vpp-route-agent": main, "bgp-peer": servePeer}
	if programs[filepath.Base(os.Args[0])] == nil && inLoopbackNamespace() {
		if err := enterLoopbackNamespace(); err != nil {
			fmt.Fprintln(os.Stderr, "script test:", err)
			os.Exit(1)
		}
	}
	setParallel("10")
	testscript.Main(m, programs)
}

func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts found (%v): a suite that runs nothing must not pass", err)
	}
	runScripts(t, files, false)
}

// eitherDatastore are scripts that run with Calico's data in the Kubernetes API, too: those that
// are about the data. Of what is behind a snapshot no part knows where that came from.
var eitherDatastore = []string{"agent-restart", "borrowed", "local-workload", "mainline",
	"no-node", "selectors"}

func TestScriptsInKubernetes(t *testing.T) {
	t.Attr("part", "Kubernetes API, a stand-in")
	var files []string
	for _, name := range eitherDatastore {
		files = append(files, "testdata/script/"+name+".txtar")
	}
	runScripts(t, files, true)
}

func runScripts(t *testing.T, files []string, inKubernetes bool) {
	block := claimLoopbackBlock(t)
	children := newForker()
	t.Cleanup(children.close)
	testscript.Run(t, testscript.Params{
		Files:               files,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		// testscript's own folder stays when -run chooses some of the scripts
		WorkdirRoot: t.TempDir(),
		Setup: func(env *testscript.Env) error {
			return setUp(env, block.next(), children, inKubernetes)
		},
		Condition: func(cond string) (bool, error) {
			if cond == "namespace" {
				return inLoopbackNamespace(), nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: scriptCommands(),
	})
}

// loopbackBlock hands out 127.x.y.0/24 of one 127.x.0.0/16.
type loopbackBlock struct {
	x  int
	mu sync.Mutex
	y  int // last one handed out
}

// claimLoopbackBlock holds a listener in a block for as long as the test runs, so that two runs on
// one machine take two blocks.
func claimLoopbackBlock(t *testing.T) *loopbackBlock {
	for x := 16; x < 255; x++ {
		l, err := net.Listen("tcp4", fmt.Sprintf("127.%d.0.1:%d", x, bgpPort))
		if err == nil {
			t.Cleanup(func() { l.Close() })
			return &loopbackBlock{x: x}
		}
	}
	t.Fatal("every block of loopback addresses is taken")
	return nil
}

func (b *loopbackBlock) next() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.y++
	return fmt.Sprintf("127.%d.%d", b.x, b.y)
}

// script is what one script runs the agent against. Only the script's goroutine uses it.
type script struct {
	env      *testscript.Env
	net      string
	children *forker
	// kubernetes: the agent reads the Kubernetes API instead of etcd.
	kubernetes bool
	beside     *kubetest.Server // nil: there is none besides etcd
	saved      kubetest.Saved
	etcd       *etcdLab
	vpp        *vppLab
	agent      *agentProcess // nil: none runs
	starts     int
	peers      map[string]*peer
	service    *serviceManager // nil: none
	caller     *caller         // nil: none
	situation  situation
	raw        map[string]*rawPeer
	others     map[string]*otherNode // by name
}

type scriptKey struct{}

func setUp(env *testscript.Env, network string, children *forker, inKubernetes bool) error {
	sc := &script{env: env, net: network, children: children, peers: map[string]*peer{},
		kubernetes: inKubernetes, raw: map[string]*rawPeer{},
		others: map[string]*otherNode{}}
	env.Values[scriptKey{}] = sc
	for name, value := range map[string]string{
		"NET": network, "PORT": strconv.Itoa(bgpPort), "SOCK": sc.path("agent.sock"),
		"NODENAME": "edge-5", "GORACE": raceOptions,
	} {
		env.Setenv(name, value)
	}
	env.Defer(sc.close)
	return nil
}

func (sc *script) path(name string) string { return filepath.Join(sc.env.WorkDir, name) }

func (sc *script) close() {
	var races error
	if sc.caller != nil {
		sc.caller.stop()
	}
	if sc.agent != nil {
		sc.agent.kill()
		races = sc.agent.races()
	}
	for _, o := range sc.others {
		races = errors.Join(races, o.close())
	}
	for _, p := range sc.peers {
		p.kill()
	}
	for _, p := range sc.raw {
		p.close()
	}
	if sc.vpp != nil {
		sc.vpp.server.Close()
	}
	if sc.etcd != nil {
		sc.etcd.close()
	}
	if sc.beside != nil {
		sc.beside.Close()
	}
	if sc.service != nil {
		sc.service.conn.Close()
	}
	// a disk of the script's own, which is only mounted in a namespace
	_ = syscall.Unmount(sc.path("state"), syscall.MNT_DETACH)
	if races != nil {
		sc.env.T().Fatal(races)
	}
}

// command is one word of the scripts' language. What it returns is printed, and is the script's
// stdout.
type command func(sc *script, args []string) (string, error)

var commands = map[string]command{
	"agent": agentCommand, "shows": shows, "http": httpGet, "file": fileHas,
	"bgp": bgpCommand, "etcd": etcdCommand, "lab": labWrites, "vpp": vppCommand,
	"service": serviceCommand, "metrics": metricsNamed, "documented": metricsDocumented,
	"calls": callsCommand, "reflectors": reflectorsOf, "kubernetes": kubernetesCommand,
	"situation": situationCommand, "says": saysCommand, "raw": rawCommand,
	"other": otherCommand, "asks": asksCommand, "query": queryCommand,
	"nowhere": nowhereCommand, "certificates": certificatesCommand,
}

// errUsage is a mistake in the script: trying again does not help.
var errUsage = errors.New("wrong use")

func usage(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errUsage, fmt.Sprintf(format, args...))
}

// verbs dispatches on the first argument.
func verbs(of map[string]command) command {
	return func(sc *script, args []string) (string, error) {
		if len(args) == 0 || of[args[0]] == nil {
			return "", usage("want one of %s", strings.Join(slices.Sorted(maps.Keys(of)), ", "))
		}
		return of[args[0]](sc, args[1:])
	}
}

func scriptCommands() map[string]func(*testscript.TestScript, bool, []string) {
	all := map[string]func(*testscript.TestScript, bool, []string){
		"*":        untilItHolds,
		"released": released,
		"gobgp":    runGoBGP,
		"fields":   fieldsOfStatus,
		"sample":   samplesOf,
	}
	for name, c := range commands {
		all[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			finish(ts, neg, func(sc *script) (string, error) { return c(sc, args) })
		}
	}
	return all
}

func scriptOf(ts *testscript.TestScript) *script { return ts.Value(scriptKey{}).(*script) }

// finish runs f once and ends the script if it did not go as the script says.
func finish(ts *testscript.TestScript, neg bool, f func(*script) (string, error)) {
	out, err := f(scriptOf(ts))
	fmt.Fprint(ts.Stdout(), out)
	var differ *differs
	switch {
	case errors.Is(err, errUsage):
		ts.Fatalf("%v", err)
	case !neg && *update && errors.As(err, &differ):
		scriptOf(ts).update(ts, differ)
	case neg && err == nil:
		ts.Fatalf("did not fail")
	case !neg && err != nil:
		ts.Fatalf("%v", err)
	}
}

// untilItHolds is "*".
func untilItHolds(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) > 0 && args[0] == "!" {
		neg, args = !neg, args[1:]
	}
	if len(args) == 0 || commands[args[0]] == nil {
		ts.Fatalf("%v", usage("* takes one of %s",
			strings.Join(slices.Sorted(maps.Keys(commands)), ", ")))
	}
	start, pause := time.Now(), 40*time.Millisecond
	finish(ts, neg, func(sc *script) (string, error) {
		for {
			out, err := commands[args[0]](sc, args[1:])
			if (err == nil) != neg || errors.Is(err, errUsage) || time.Since(start) > patience {
				return out, err
			}
			if err := sc.agent.ended(); err != nil {
				ts.Fatalf("%v", err)
			}
			time.Sleep(pause)
			pause = min(pause*3/2, 400*time.Millisecond)
		}
	})
	ts.Logf("held after %s", time.Since(start).Round(10*time.Millisecond))
}

// keepsLease is logged by a process whose end does not wait longer for the datastore.
var keepsLease = regexp.MustCompile(`until (our|their) [Ll]ease ends".*(does not answer|` +
	`no answer within|deadline exceeded)`)

// released LOG COMMAND [ARG…]: a process that has ended has given its lease back, so the command
// holds at once; or the log, a file, says that the datastore did not answer within the second which
// the end takes, and the command holds after the lease.
func released(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("%v", usage("released LOG COMMAND [ARG…]"))
	}
	log, args := args[0], args[1:]
	if keepsLease.MatchString(ts.ReadFile(log)) {
		untilItHolds(ts, false, args)
		return
	}
	if args[0] == "!" {
		neg, args = true, args[1:]
	}
	finish(ts, neg, func(sc *script) (string, error) { return commands[args[0]](sc, args[1:]) })
}

// differs is the error of a table that is not as the file says.
type differs struct {
	file, got, want string
	accepted        func() // with -update, when what was seen is taken for right; may be nil
}

func (d *differs) Error() string {
	return fmt.Sprintf("%s differs.\ngot:\n%s\nwant:\n%s", d.file, indent(d.got), indent(d.want))
}

func indent(s string) string {
	return "\t" + strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\n\t")
}

// compare compares a table with a file of the script, in which $NET stands for the script's
// network.
func (sc *script) compare(rows []string, file string) (string, error) {
	got := ""
	for _, row := range rows {
		got += strings.ReplaceAll(row, sc.net+".", "$NET.") + "\n"
	}
	want, err := os.ReadFile(sc.path(file))
	if err != nil && !*update {
		return "", usage("%v", err)
	}
	if got != string(want) {
		return "", &differs{file: file, got: got, want: string(want)}
	}
	return got, nil
}

// update has the script's file say what was seen, for a person to read the difference.
func (sc *script) update(ts *testscript.TestScript, d *differs) {
	path := filepath.Join(sourceDir, "testdata", "script", ts.Name()+".txtar")
	archive, err := txtar.ParseFile(path)
	if err != nil {
		ts.Fatalf("%v", err)
	}
	i := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == d.file })
	if i < 0 {
		archive.Files = append(archive.Files, txtar.File{Name: d.file})
		i = len(archive.Files) - 1
	}
	archive.Files[i].Data = []byte(d.got)
	if d.accepted != nil {
		d.accepted()
	}
	if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
		ts.Fatalf("%v", err)
	}
	ts.Logf("%s is rewritten", d.file)
}

// sourceDir is where the tests were started; scripts change their own directory only.
var sourceDir, _ = os.Getwd()

// read returns a file of the script with $NET, $PORT and the like replaced.
func (sc *script) read(file string) (string, error) {
	raw, err := os.ReadFile(sc.path(file))
	if err != nil {
		return "", usage("%v", err)
	}
	return os.Expand(string(raw), sc.env.Getenv), nil
}

// brief bounds one action of a command.
func brief() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}
