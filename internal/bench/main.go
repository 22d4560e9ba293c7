// Command bench measures how fast the agent is against what bounds it, on this machine: the ceiling
// of VPP's API, what GoBGP can take in by itself, BIRD with the Linux kernel. Absolute rates depend
// on the machine and on who else uses it, so each budget is a ratio of two things measured in turn
// in the same run.
//
// It owns everything that only measuring needs: a small BGP speaker, a raw writer on VPP's API
// socket, a bare GoBGP, a relay that counts requests. It runs the agent's own binary wherever a
// whole node is measured. All traffic stays in namespaces of its own, and nothing is left behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/plot"
	"vpp-route-agent/internal/testcluster"
)

func main() {
	testcluster.Main("bench", measure, testcluster.Roles{
		passRole: servePass, echoRole: serveEcho, vpptestRole: serveVPPTest,
	})
}

// benchmarks are in the order of the table.
var benchmarks = []struct {
	name string
	run  func(*bench) error
}{
	{"program", inLab("program", needs{heap: "1G"}, program)},
	{"scale", inLab("scale", needs{heap: "1G"}, scale)},
	{"counters", inLab("counters", needs{heap: "1G"}, counters)},
	{"external", inLab("external", needs{heap: "1G"}, externalCalls)},
	{"tunnels", inLab("tunnels", needs{heap: "1G"}, tunnels)},
	{"pause", inLab("pause", needs{}, pause)},
	{"cli", inLab("cli", needs{heap: "1G"}, vppCommandLine)},
	{"replace", inLab("replace", needs{heap: "1G"}, replaceNextHop)},
	{"end-to-end", inLab("e2e", needs{nodes: 1, heap: "1G"}, endToEnd)},
	{"latency", inLab("latency", needs{nodes: 1, heap: "1G"}, latency)},
	{"recorder", inLab("recorder", needs{nodes: 1, heap: "1G"}, flightRecorder)},
	{"million", inLab("million", needs{nodes: 1, heap: "3G"}, million)},
	{"equal", equalSets},
	{"kernel", inLab("kernel", needs{nodes: 1}, birdAndKernel)},
	{"mesh", inLab("mesh", needs{nodes: 1000, short: 300, heap: "512M"}, mesh)},
	{"reflector", inLab("reflector", needs{nodes: 1000, short: 100}, routeReflector)},
	{"question", inLab("question", needs{nodes: 1000, short: 300}, question(13))},
	{"question-large", inLab("qlarge", needs{nodes: 5000, short: 300}, question(100))},
	{"restart", restart},
	{"etcd-load", readLoad},
	{"kubernetes", kubernetesSource},
	{"kubernetes-load", kubernetesLoad},
	{"services", inLab("services", needs{nodes: 1}, services)},
}

// errNotHere says that this machine cannot run a benchmark; the others go on.
var errNotHere = errors.New("not run")

// bench is what the benchmarks share.
type bench struct {
	ctx      context.Context
	log      *slog.Logger
	programs testcluster.Programs // without VPP vpptest stands in
	short    bool
	self     string
	build    string // where packages are unpacked
	profile  string // where the agent's CPU profiles go; "": nowhere
	results  []result
	charts   map[string]plot.Chart // by the name of the file without its ending
	out      io.Writer
}

// pick returns n, or in a short run the smaller number.
func (b *bench) pick(n, short int) int {
	if b.short {
		return short
	}
	return n
}

// quiet is a budget on elapsed times. On a machine that does something else besides they say
// nothing, so a short run, which is for such machines, prints them without one. It holds the agent
// to processor time, to memory, to counts, and to what is far from its bound.
func (b *bench) quiet(x budget) budget {
	if b.short {
		return noBudget
	}
	return x
}

func measure(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	short := flags.Bool("short", false, "smaller numbers: what CI runs")
	pattern := flags.String("run", ".",
		"only benchmarks whose name matches this regular `expression`")
	list := flags.Bool("list", false, "print the names of the benchmarks and end")
	agent := flags.String("agent", "",
		"`path` of the agent's binary; empty: build it from the sources here")
	file := flags.String("o", "out/bench.json", "`file` for the results as JSON")
	markdown := flags.String("markdown", "",
		"`file` for the table of docs/performance.md; empty: none")
	plots := flags.String("plot", "",
		"`folder` for drawings, SVG, of what was measured; empty: none")
	build := flags.String("build", "build",
		"`folder` where Debian's BIRD is unpacked if none is installed")
	profile := flags.String("profile", "",
		"`folder` for CPU profiles of the agent while it takes in the routes of end-to-end; "+
			"costs some speed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := regexp.Compile(*pattern)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if *list {
		for _, x := range benchmarks {
			fmt.Fprintln(out, x.name)
		}
		return nil
	}
	b := &bench{
		ctx: ctx,
		log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{
			Level: slog.LevelWarn,
		})),
		short: *short, programs: testcluster.Programs{Agent: *agent}, build: *build,
		profile: *profile, charts: map[string]plot.Chart{}, out: out,
	}
	cleanUp, err := b.prepare()
	defer cleanUp()
	if err != nil {
		return err
	}
	ran := 0
	for _, x := range benchmarks {
		if !chosen.MatchString(x.name) || ctx.Err() != nil {
			continue
		}
		ran++
		began := time.Now()
		fmt.Fprintf(os.Stderr, "%s ...", x.name)
		err := x.run(b)
		fmt.Fprintf(os.Stderr, " %.0f s\n", time.Since(began).Seconds())
		switch {
		case errors.Is(err, errNotHere):
			fmt.Fprintf(out, "%s: %v\n", x.name, err)
		case err != nil && ctx.Err() != nil:
		case err != nil:
			b.results = append(b.results, result{Name: x.name, Note: err.Error()})
		}
	}
	if ran == 0 {
		return fmt.Errorf("no benchmark matches %q", *pattern)
	}
	if err := b.report(*file); err != nil {
		return err
	}
	if *markdown != "" {
		if err := os.WriteFile(*markdown, []byte(markdownTable(b.results)), 0o644); err != nil {
			return err
		}
	}
	if *plots != "" {
		if err := plot.Write(*plots, b.charts); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return b.verdict()
}

// prepare finds or makes the programs that are measured. What it returns first is to be called in
// any case.
func (b *bench) prepare() (cleanUp func(), err error) {
	cleanUp = func() {}
	if err := setCollector(); err != nil {
		return cleanUp, err
	}
	if b.self, err = os.Executable(); err != nil {
		return cleanUp, err
	}
	if b.programs.Agent == "" {
		dir, err := os.MkdirTemp("", "bench")
		if err != nil {
			return cleanUp, err
		}
		cleanUp = func() { os.RemoveAll(dir) }
		b.programs.Agent = filepath.Join(dir, "vpp-route-agent")
		if err := testcluster.Build(b.ctx, dir, testcluster.AgentPackage); err != nil {
			return cleanUp, err
		}
	} else if b.programs.Agent, err = filepath.Abs(b.programs.Agent); err != nil {
		return cleanUp, err
	} else if _, err := os.Stat(b.programs.Agent); err != nil {
		return cleanUp, err
	}
	switch programs, err := netlab.FindVPP(); {
	case err == nil:
		b.programs.VPP = &programs
	case !errors.Is(err, netlab.ErrNoVPP):
		return cleanUp, err
	}
	fmt.Fprintf(b.out, "%d CPUs, %s, GOGC=%s, data plane: %s\n",
		runtime.NumCPU(), runtime.Version(), gogc(), b.planeName())
	return cleanUp, nil
}

// setCollector has all Go programs here run with one setting of the collector, the bare GoBGP as
// the agent: they inherit our environment. It is the agent's own default unless GOGC says
// otherwise.
func setCollector() error {
	if _, ok := os.LookupEnv("GOGC"); ok {
		return nil
	}
	debug.SetGCPercent(agent.CollectorPercent) // of this process
	return os.Setenv("GOGC", strconv.Itoa(agent.CollectorPercent))
}

func gogc() string { return os.Getenv("GOGC") }

func (b *bench) planeName() string {
	if b.programs.VPP == nil {
		return "vpptest (no VPP found)"
	}
	return "VPP"
}
