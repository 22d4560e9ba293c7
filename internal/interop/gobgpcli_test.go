package interop

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

var updateDocs = flag.Bool("update", false, "write docs/gobgp-cli.md anew")

// transcript is a document that shows commands and what they printed.
type transcript struct{ strings.Builder }

// cli runs the stock gobgp command on the node and notes what it printed; fails says that it is
// meant to fail.
func (d *transcript) cli(t *testing.T, n *agentNode, fails bool, command string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// Its errors come on standard output, too.
	out, err := n.NS.Run(ctx, "sh", "-c",
		programs.gobgp+" "+command+" 2>&1 || [ $? = 1 -a "+
			map[bool]string{true: "1", false: "0"}[fails]+" = 1 ]")
	if err != nil {
		t.Errorf("gobgp %s: %v", command, err)
	}
	d.note("gobgp "+command, string(out))
}

func (d *transcript) note(command, output string) {
	fmt.Fprintf(d, "```\n$ %s\n%s\n```\n\n", command, steady(output))
}

// steady replaces what is different in each run: times, counters of messages, and trailing blanks.
func steady(output string) string {
	for pattern, instead := range map[string]string{
		`(?:\d{4}-\d\d-\d\dT)?\d\d:\d\d:\d\dZ?`:    "00:00:05",
		`name: [^,]+,`:                             "name: node-2,",
		`(?m)^   \d+   `:                           "   1   ", // path identifiers
		`(?m)^(    [A-Z][A-Za-z ]+:) +\d+ +\d+ *$`: "$1 · ·",
		`(?m)[ \t]+$`:                              "",
	} {
		output = regexp.MustCompile(pattern).ReplaceAllString(output, instead)
	}
	return strings.Trim(output, "\n")
}

func (d *transcript) say(text string) { d.WriteString(strings.TrimSpace(text) + "\n\n") }

// TestGobgpCLI shows the agent to the command that operators of GoBGP know. What it prints is
// docs/gobgp-cli.md.
func TestGobgpCLI(t *testing.T) {
	t.Parallel()
	l := newLab(t, "gobgpcli")
	us := l.agentNode(t, "us", "10.0.0.2/24")
	nine := l.birdNode(t, "nine", "10.0.0.9/24", "10.0.0.2")
	tor := l.bird2Router(t, "tor", "10.0.0.1/24", `
protocol static { ipv4; route 10.99.0.0/24 blackhole; }
protocol bgp Us {
  local 10.0.0.1 as 65001; neighbor 10.0.0.2 as 64512; connect delay time 1; connect retry time 2;
  ipv4 { import all; export where source = RTS_STATIC; }; }
`)
	routerHas := func() {
		t.Helper()
		tor.awaitRIB(t, "Us", eBGP("10.1.0.0/26", "64512"), eBGP("10.1.0.64/26", "64512"))
	}
	l.apply(t, testcluster.Peer("tor", "10.0.0.1", torAS, ""))
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	nine.setBlocks(t, "10.1.0.64/26")
	nine.start(t)
	us.start(t)
	us.awaitPeers(t, "10.0.0.1", "10.0.0.9")
	us.awaitFIB(t, "-4", "10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.9",
		"10.99.0.0/24 via 10.0.0.1")
	routerHas()

	d := &transcript{}
	d.say("# The gobgp command against a running agent")
	d.say("<!-- Written by TestGobgpCLI in internal/interop (-update). Times and counters of " +
		"messages\nare replaced. -->")
	d.say("The stock `gobgp` command of GoBGP v3 works against 127.0.0.1:50051 of each node; " +
		"`make` builds\none. By default it can only read: whatever it changed would bypass " +
		"Calico's resources. Here\nnode 10.0.0.2 of AS 64512 peers with a node that runs BIRD " +
		"(10.0.0.9) and a top-of-rack router\nwith BIRD 2 (10.0.0.1, AS 65001).")
	d.cli(t, us, false, "global")
	d.cli(t, us, false, "neighbor")
	d.say("What the peer offered, and what was agreed on:")
	d.cli(t, us, false, "neighbor 10.0.0.9")
	d.say("All paths that policy accepts. `*>` is what is announced on; what shares traffic is " +
		"shown\nby `vpp-route-agent routes`. Inside an AS the AS_PATH is empty (RFC 4271 §5.1.2)." +
		" LOCAL_PREF\n2147482623 is 2147483647 − 1024: Calico's nodes announce the [normal\n" +
		"priority](calico.md#bgpconfiguration) that way.")
	d.cli(t, us, false, "global rib")
	d.cli(t, us, false, "global rib 10.1.0.64/26")
	d.say("What a peer has sent, before policy, and what we have sent it. A block goes to " +
		"every\npeer; what was learned by iBGP, to eBGP peers only.")
	d.cli(t, us, false, "neighbor 10.0.0.9 adj-in")
	d.cli(t, us, false, "neighbor 10.0.0.9 adj-out")
	d.cli(t, us, false, "neighbor 10.0.0.1 adj-out")
	d.say("Changes as they come: here the other node gets a block and gives it back.")
	d.note("gobgp monitor global rib", l.monitor(t, us, nine))
	d.say("Changes are refused, unless the agent runs with `--gobgp-write`. Paths that " +
		"are added\nthen are removed again and counted: the RIB is the agent's.")
	d.cli(t, us, true, "global rib add 10.66.0.0/16 nexthop 10.0.0.9")
	d.cli(t, us, true, "neighbor 10.0.0.9 reset")
	routerHas()
	if t.Failed() {
		return
	}

	const path = "../../docs/gobgp-cli.md"
	text := strings.TrimRight(d.String(), "\n") + "\n"
	if *updateDocs {
		check(t, os.WriteFile(path, []byte(text), 0o644))
	}
	written, err := os.ReadFile(path)
	check(t, err)
	if err := same("docs/gobgp-cli.md, against what it prints",
		strings.Split(string(written), "\n"), strings.Split(text, "\n")); err != nil {
		t.Error(err)
	}
}

// monitor returns what `gobgp monitor global rib` prints when nine gets a block and loses it.
func (l *lab) monitor(t *testing.T, us *agentNode, nine *birdNode) string {
	t.Helper()
	p, err := l.Start(netlab.Spec{
		Name: "gobgp-monitor", Namespace: us.NS, Path: programs.gobgp,
		Args: []string{"monitor", "global", "rib"},
	})
	check(t, err)
	shows := func(count int) {
		await(t, fmt.Sprintf("the monitor shows %d changes", count), func(context.Context) error {
			log, err := os.ReadFile(p.LogPath())
			if n := strings.Count(string(log), "10.1.7.0/26"); err == nil && n < count {
				err = fmt.Errorf("%d: %s", n, log)
			}
			return err
		})
	}
	blocks := nine.config.Blocks
	const probe = "10.1.6.0/26" // comes and goes until it is seen, and is left out
	announced := false
	await(t, "the monitor listens", func(context.Context) error {
		if nine.config.Blocks = blocks; !announced {
			nine.config.Blocks = append(slices.Clone(blocks), pfx(probe))
		}
		announced = !announced
		nine.reconfigure(t)
		time.Sleep(200 * time.Millisecond)
		log, err := os.ReadFile(p.LogPath())
		if err == nil && !strings.Contains(string(log), probe) {
			err = errors.New("it has not shown a change")
		}
		return err
	})
	nine.config.Blocks = append(blocks, pfx("10.1.7.0/26"))
	nine.reconfigure(t)
	shows(1)
	nine.config.Blocks = blocks
	nine.reconfigure(t)
	shows(2)
	check(t, p.Stop())
	log, err := os.ReadFile(p.LogPath())
	check(t, err)
	lines := slices.DeleteFunc(strings.SplitAfter(string(log), "\n"), func(line string) bool {
		return strings.Contains(line, probe)
	})
	return strings.Join(lines, "")
}
