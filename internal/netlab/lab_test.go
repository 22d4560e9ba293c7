package netlab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"vpp-route-agent/internal/testlog"
)

// newLab makes a lab that is closed, without a trace, when the test ends.
func newLab(t *testing.T) *Lab { return newLabNamed(t, "test") }

func newLabNamed(t *testing.T, name string) *Lab {
	t.Helper()
	if err := Available(); err != nil {
		t.Skip(err)
	}
	l, err := New(name, testlog.New(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		for _, trace := range Traces(l.prefix) {
			t.Errorf("left behind: %s", trace)
		}
	})
	return l
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr  { return netip.MustParseAddr(s) }

// line is three namespaces in a row: a — router — b, with a and b in subnets of their own, dual
// stack.
func line(t *testing.T, l *Lab) (a, router, b *Namespace) {
	t.Helper()
	ns := must[*Namespace](t)
	a, router, b = ns(l.Namespace("a")), ns(l.Namespace("router")), ns(l.Namespace("b"))
	check(t, router.Forward())
	check(t, l.Veth(
		End{Namespace: a, Device: "eth0", Addresses: []netip.Prefix{pfx("10.0.1.2/24"),
			pfx("fd00:1::2/64")}},
		End{Namespace: router, Device: "to-a", Addresses: []netip.Prefix{pfx("10.0.1.1/24"),
			pfx("fd00:1::1/64")}}))
	check(t, l.Veth(
		End{Namespace: b, Device: "eth0", Addresses: []netip.Prefix{pfx("10.0.2.2/24"),
			pfx("fd00:2::2/64")}},
		End{Namespace: router, Device: "to-b", Addresses: []netip.Prefix{pfx("10.0.2.1/24"),
			pfx("fd00:2::1/64")}}))
	for ns, v := range map[*Namespace]string{a: "1", b: "2"} {
		check(t, ns.AddRoute(pfx("0.0.0.0/0"), addr("10.0."+v+".1"), ""))
		check(t, ns.AddRoute(pfx("::/0"), addr("fd00:"+v+"::1"), ""))
	}
	return a, router, b
}

// answers returns the round trip of the first ping that is answered, within 30 s.
func answers(t *testing.T, from *Namespace, to string) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	rtt, err := from.Ping(ctx, addr(to))
	if err != nil {
		t.Fatalf("no answer from %s to %s: %v", to, from.Short(), err)
	}
	return rtt
}

func TestPingCrossesARouter(t *testing.T) {
	l := newLab(t)
	a, _, _ := line(t, l)
	for _, to := range []string{"10.0.2.2", "fd00:2::2"} {
		t.Logf("%s answered after %s", to, answers(t, a, to))
	}
}

func TestPingWithoutAnswerEndsWithTheContext(t *testing.T) {
	l := newLab(t)
	a, _, _ := line(t, l)
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	if _, err := a.Ping(ctx, addr("10.0.9.9")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's deadline", err)
	}
}

func TestSegmentJoinsItsEnds(t *testing.T) {
	l := newLab(t)
	ns := must[*Namespace](t)
	a, b, c := ns(l.Namespace("a")), ns(l.Namespace("b")), ns(l.Namespace("c"))
	segment, err := l.Segment("lan",
		End{Namespace: a, Device: "eth0", Addresses: []netip.Prefix{pfx("10.0.0.1/24"),
			pfx("fd00::1/64")}},
		End{Namespace: b, Device: "eth0", Addresses: []netip.Prefix{pfx("10.0.0.2/24"),
			pfx("fd00::2/64")}})
	check(t, err)
	check(t, l.Attach(segment, End{Namespace: c, Device: "eth0",
		Addresses: []netip.Prefix{pfx("10.0.0.3/24"), pfx("fd00::3/64")}}))
	for _, to := range []string{"10.0.0.2", "10.0.0.3", "fd00::2", "fd00::3"} {
		answers(t, a, to)
	}
}

func TestFlowCountsWhatIsLost(t *testing.T) {
	l := newLab(t)
	a, router, _ := line(t, l)
	for to, forwarding := range map[string]string{"10.0.2.2": "net.ipv4.ip_forward",
		"fd00:2::2": "net.ipv6.conf.all.forwarding"} {
		t.Run(to, func(t *testing.T) {
			flow, err := a.StartFlow(FlowConfig{To: addr(to), Interval: 2 * time.Millisecond})
			check(t, err)
			sendSome := func() {
				before := flow.Report().Sent
				waitFor(t, "packets", func() bool { return flow.Report().Sent >= before+20 })
			}
			sendSome()
			// None is under way when the router stops but those that are sent from here on.
			var down time.Time
			waitFor(t, "answers to all", func() bool {
				down = time.Now()
				return flow.Report().Pending == 0
			})
			check(t, router.Sysctl(forwarding, "0"))
			sendSome()
			check(t, router.Sysctl(forwarding, "1"))
			up := time.Now()
			sendSome()
			r := flow.Stop()
			t.Log(r, r.Outages)
			if r.Sent != r.Received+r.Lost || r.Pending != 0 || r.Duplicates != 0 {
				t.Errorf("counts do not add up: %+v", r)
			}
			if r.Received == 0 || r.Lost == 0 || len(r.Outages) != 1 {
				t.Fatalf("want one outage between answers, got %+v", r)
			}
			o := r.Outages[0]
			if o.First.Before(down) || o.Last.After(up) || o.Lost != r.Lost {
				t.Errorf("outage %+v, router was off from %s to %s", o, down, up)
			}
		})
	}
}

func TestProcessRunsInItsNamespaceAndIsKilledWithItsGroup(t *testing.T) {
	l := newLab(t)
	a, _, _ := line(t, l)
	p, err := l.Start(Spec{Name: "sh", Namespace: a, Path: "sh",
		Args: []string{"-c", "trap '' TERM; cat /proc/net/dev; sleep 1000 & sleep 1000"}})
	check(t, err)
	waitFor(t, "its output", func() bool {
		log, err := os.ReadFile(p.LogPath())
		return err == nil && strings.Contains(string(log), "eth0")
	})
	// the shell and its child carry the marker
	waitFor(t, "its child", func() bool { return len(marked(l.prefix)) > 1 })
	check(t, p.Signal(syscall.SIGCONT))
	check(t, p.Kill())
	<-p.Done()
	if p.Err() == nil {
		t.Error("a killed process ended without an error")
	}
	waitFor(t, "the end of its processes", func() bool { return len(marked(l.prefix)) == 0 })
}

// Who has got the PID of a process that ended is not killed for it. What is left of the group is.
func TestKillSparesWhoHasThePIDNow(t *testing.T) {
	l := newLab(t)
	start := must[*Process](t)
	other := start(l.Start(Spec{Name: "other", Path: "sleep", Args: []string{"60"}}))
	ended := start(l.Start(Spec{Name: "ended", Path: "true"}))
	<-ended.Done()
	reused := *ended
	reused.cmd = &exec.Cmd{Process: &os.Process{Pid: other.PID()}}
	check(t, errors.Join(reused.Kill(), reused.Stop()))
	select {
	case <-other.Done():
		t.Fatalf("it was killed: %v", other.Err())
	case <-time.After(100 * time.Millisecond):
	}
	left := start(l.Start(Spec{Name: "left", Path: "sh", Args: []string{"-c", "sleep 60 &"}}))
	<-left.Done()
	check(t, left.Kill())
	waitFor(t, "the end of what it left", func() bool {
		return slices.Equal(marked(l.prefix), []int{other.PID()})
	})
}

func TestRunReturnsOutputOrReason(t *testing.T) {
	l := newLab(t)
	a, _, _ := line(t, l)
	out, err := a.Run(t.Context(), "sh", "-c", "cat /proc/net/dev")
	if err != nil || !strings.Contains(string(out), "eth0") {
		t.Errorf("got %q, %v", out, err)
	}
	if _, err := a.Run(t.Context(), "sh", "-c", "echo because >&2; exit 3"); err == nil ||
		!strings.Contains(err.Error(), "because") {
		t.Errorf("got %v, want the reason", err)
	}
}

func TestIPNetnsExecFindsTheNamespace(t *testing.T) {
	l := newLab(t)
	a, _, _ := line(t, l)
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("no ip command here")
	}
	out, err := exec.Command("ip", "netns", "exec", a.Name(), "ip", "-o", "-4", "addr", "show",
		"eth0").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "10.0.1.2/24") {
		t.Errorf("got %s, %v", out, err)
	}
}

func TestFailedNamespaceLeavesNothing(t *testing.T) {
	l := newLab(t)
	must[*Namespace](t)(l.Namespace("a"))
	if _, err := l.Namespace("a"); err == nil {
		t.Error("two namespaces with one name")
	}
}

// TestNextRunRemovesWhatAKilledOneLeft runs itself as a child that makes a lab and is killed.
func TestNextRunRemovesWhatAKilledOneLeft(t *testing.T) {
	if os.Getenv("NETLAB_CHILD") != "" {
		makeLabAndHang()
	}
	newLab(t) // skips without root
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), "NETLAB_CHILD=1")
	check(t, child.Start())
	prefix := fmt.Sprintf("vra-child-%d", child.Process.Pid)
	waitFor(t, "its processes", func() bool { return len(marked(prefix)) > 0 })
	check(t, child.Process.Kill())
	child.Wait()
	if len(Traces(prefix)) == 0 {
		t.Fatal("the killed child left nothing: this test tests nothing")
	}
	newLab(t)
	for _, trace := range Traces(prefix) {
		t.Errorf("left behind: %s", trace)
	}
}

func makeLabAndHang() {
	l, err := New("child", slog.Default())
	if err != nil {
		panic(err)
	}
	n, err := l.Namespace("a")
	if err != nil {
		panic(err)
	}
	if _, err := l.Start(Spec{Name: "setsid", Namespace: n, Path: "setsid",
		Args: []string{"-f", "sleep", "1000"}}); err != nil {
		panic(err)
	}
	select {}
}

func TestOrphanedKnowsOnlyOurDeadNames(t *testing.T) {
	for name, want := range map[string]bool{
		fmt.Sprintf("vra-demo-%d-node1", os.Getpid()): false, // alive
		"vra-demo-4194304-node1":                      true,  // above the largest pid there can be
		"vra-demo-4194304.2":                          true,
		"vra-demo-x-node1":                            false,
		"cni-vra-demo-4194304":                        false,
		"blue":                                        false,
	} {
		if _, got := orphaned(name); got != want {
			t.Errorf("%s: orphaned %v, want %v", name, got, want)
		}
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not seen in 30 s", what)
		}
	}
}

func TestFillChecksums(t *testing.T) {
	l := newLab(t)
	a, _, _ := line(t, l)
	check(t, a.FillChecksums("eth0"))
	if err := a.FillChecksums("eth9"); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("a device that is not there: %v", err)
	}
	// The feature is read back by the same ioctl with ETHTOOL_GTXCSUM.
	on, err := a.ethtool("eth0", getTxChecksum, 1)
	if err != nil || on != 0 {
		t.Errorf("offload is %d, %v", on, err)
	}
}
