package gobgp

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	"github.com/osrg/gobgp/v3/pkg/server"

	"vpp-route-agent/bgp"
)

const crashingPeer, otherPeer = "127.0.0.93", "127.0.0.94"

// TestMain lets the test binary be an agent that a panic of GoBGP may end. The tests wait most of
// the time: more of them run beside each other than there are processors.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "crashing-agent" {
		if err := crashingAgent(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := errors.Join(flag.Set("test.parallel", "8"), firstServer()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// firstServer has GoBGP set what all servers of a process have in common. Later ones find it as
// they want it, and write nothing that another test's server reads.
func firstServer() error {
	s := server.NewBgpServer()
	go s.Serve()
	return errors.Join(s.StartBgp(context.Background(), &api.StartBgpRequest{
		Global: global(bgp.Speaker{AS: 64512, RouterID: addr("127.0.0.1")}),
	}), s.StopBgp(context.Background(), &api.StopBgpRequest{}))
}

// crashingAgent is a speaker in whose own goroutine GoBGP panics at each End-of-RIB of one peer. It
// writes what status says of that peer to its output.
func crashingAgent(port, crashes string) error {
	p, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	c := Config{Log: log, Sink: newRecorder(), Crashes: crashes}
	panicWhere("eOR received", crashingPeer, 1<<30)(&c)
	s, err := New(c)
	if err != nil {
		return err
	}
	own := addr("127.0.0.10")
	plan := bgp.Plan{Speaker: bgp.Speaker{
		AS: 64512, RouterID: own, ListenPort: uint16(p), ListenAddresses: []netip.Addr{own},
	}, Policies: bgp.Policies{ClusterID: own}}
	for _, a := range []string{crashingPeer, otherPeer} {
		plan.Peers = append(plan.Peers, bgp.Peer{
			Address: addr(a), RemoteAS: 64512, LocalAS: 64512, LocalAddress: own, Passive: true,
			RestartTime: 120 * time.Second,
		})
	}
	go s.Run(context.Background())
	if err := s.Set(context.Background(), plan); err != nil {
		return err
	}
	for range time.Tick(50 * time.Millisecond) {
		fmt.Println(s.Peers()[0].LastError)
	}
	return nil
}

// A peer whose messages have GoBGP panic where it applies them ends the process. The third time
// within ten minutes the next process leaves it out, says why, and lives.
func TestPeerThatEndsTheProcess(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "crashes.json")
	n := &node{t: t, addr: addr("127.0.0.10"), port: freePort(t)}
	start := func() (agent *exec.Cmd, output, log *strings.Builder) {
		output, log = &strings.Builder{}, &strings.Builder{}
		agent = exec.Command(os.Args[0], "crashing-agent", strconv.Itoa(int(n.port)), file)
		agent.Stdout, agent.Stderr = output, log
		agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
		return agent, output, log
	}
	for i := range crashLimit {
		agent, _, log := start()
		f := dialFar(t, n, crashingPeer, 64512, 90, true, gracefulCap(false))
		f.endOfRIB()
		var exit *exec.ExitError
		if err := agent.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 2 {
			t.Fatalf("end %d: %v", i, err)
		}
		f.close()
		for _, want := range []string{
			"panic: injected", "(*BgpServer).handleFSMMessage", "peer=" + crashingPeer,
		} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("end %d: no %q in\n%s", i, want, log)
			}
		}
	}
	agent, output, log := start()
	other := dialFar(t, n, otherPeer, 64512, 90, true, gracefulCap(false))
	other.endOfRIB()
	b := dialBare(t, n, crashingPeer, "9.9.9.93")
	b.open(64512)
	b.expect("closed")
	eventually(t, "End-of-RIB", true, other.hasAll)
	time.Sleep(time.Second)
	agent.Process.Kill()
	_ = agent.Wait() // killed
	want := "ended the process 3 times within 10m0s, the last time with: injected ("
	if !strings.Contains(output.String(), want) {
		t.Errorf("no %q in\n%s\n%s", want, output, log)
	}
}

func TestCrashes(t *testing.T) {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	peer, start := first("192.0.2.1"), time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	at := func(minutes ...int) (c *crashes) {
		c = readCrashes(filepath.Join(t.TempDir(), "crashes.json"), log, start)
		for _, m := range minutes {
			c.note(peer, "it panicked", start.Add(time.Duration(m)*time.Minute))
		}
		return readCrashes(c.file, log, start) // as the next process has it
	}
	for name, tc := range map[string]struct {
		minutes []int
		now     int
		shut    bool
	}{
		"none":                       {nil, 0, false},
		"two":                        {[]int{0, 1}, 1, false},
		"three":                      {[]int{0, 1, 2}, 2, true},
		"three within ten minutes":   {[]int{0, 5, 10}, 10, true},
		"three within eleven":        {[]int{0, 5, 11}, 11, false},
		"for an hour":                {[]int{0, 1, 2}, 61, true},
		"and no longer":              {[]int{0, 1, 2}, 62, false},
		"a fourth after the hour":    {[]int{0, 1, 2, 65}, 65, false},
		"six, of which four are old": {[]int{0, 1, 2, 3, 70, 71}, 71, false},
		"the clock was set back":     {[]int{100, 101, 102}, 1, false},
	} {
		c := at(tc.minutes...)
		now := start.Add(time.Duration(tc.now) * time.Minute)
		if why := c.shut(peer, now); (why != "") != tc.shut {
			t.Errorf("%s: %q", name, why)
		}
		if why := c.shut(first("192.0.2.2"), now); why != "" {
			t.Errorf("%s: another peer: %q", name, why)
		}
	}

	file := filepath.Join(t.TempDir(), "crashes.json")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c := readCrashes(file, log, start); c.shut(peer, start) != "" {
		t.Error("a file that cannot be read shuts a peer")
	}
}
