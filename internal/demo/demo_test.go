package demo_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"vpp-route-agent/internal/demo"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
	"vpp-route-agent/internal/testlog"
)

// binary is the program under test: the demo's agents and etcd are processes of it.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "demo-test-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Chmod(dir, 0o755) // for nobody
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binary = filepath.Join(dir, "vpp-route-agent")
	if err := testcluster.Build(context.Background(), dir, testcluster.AgentPackage,
		"github.com/osrg/gobgp/v3/cmd/gobgp"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func needRoot(t *testing.T) {
	t.Helper()
	if err := netlab.Available(); err != nil {
		t.Skip(err)
	}
}

// needBird gets the package first, so that the demo's own time does not depend on a mirror's.
func needBird(t *testing.T) (buildDir string) {
	t.Helper()
	buildDir, err := filepath.Abs("../../build")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	bird, err := netlab.FindBird(ctx, filepath.Join(buildDir, "packages"))
	if err != nil {
		t.Skip(err)
	}
	t.Attr("part", "BIRD "+bird.Version)
	return buildDir
}

// ran is a demo that has ended.
type ran struct {
	status         int
	stdout, stderr string
	took           time.Duration
}

// run starts the demo, calls while with what it has said so far, and waits for its end. Whatever
// happened, nothing may be left.
func run(t *testing.T, cmd *exec.Cmd, while func(said *testlog.Buffer)) ran {
	t.Helper()
	var stdout, stderr testlog.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 10 * time.Second
	start := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.AfterFunc(3*time.Minute, func() { cmd.Process.Kill() })
	defer deadline.Stop()
	if while != nil {
		while(&stdout)
	}
	err := cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	for _, trace := range netlab.Traces(fmt.Sprintf("vra-demo-%d", cmd.Process.Pid)) {
		t.Errorf("left behind: %s", trace)
	}
	return ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String(), time.Since(start)}
}

func TestDemo(t *testing.T) {
	needRoot(t)
	for _, story := range []struct {
		learn, datastore, encap string
		steps, checks           int // at least
	}{{"bgp", "etcd", "none", 7, 25}, {"ipam", "etcd", "none", 8, 30},
		{"bgp,ipam", "etcd", "none", 5, 20}, {"bgp", "kubernetes", "none", 7, 25},
		{"ipam", "etcd", "ipip", 7, 30}, {"ipam", "etcd", "vxlan", 7, 30}} {
		for _, dataplane := range []string{"kernel", "vpp"} {
			if story.encap != "none" && dataplane == "kernel" {
				continue
			}
			name := fmt.Sprintf("%s %s %s %s", story.learn, story.datastore, story.encap, dataplane)
			t.Run(name, func(t *testing.T) {
				buildDir := t.TempDir()
				if story.learn == "bgp" {
					buildDir = needBird(t)
				}
				if err := demo.Available(dataplane); err != nil {
					t.Skip(err)
				}
				t.Attr("part", map[string]string{"kernel": "Linux", "vpp": "VPP"}[dataplane])
				r := run(t, exec.Command(binary, "demo", "--learn", story.learn, "--dataplane",
					dataplane, "--datastore", story.datastore, "--encap", story.encap,
					"--build-dir", buildDir, "-o", "json"), nil)
				t.Logf("%s\n%s", r.stderr, r.stdout)
				if r.status != 0 {
					t.Errorf("exit status %d", r.status)
				}
				if strings.Contains(r.stderr, "NOT READY") {
					t.Error("it shows an agent that is not ready yet")
				}
				if r.took > 150*time.Second { // showPatience is 80 s
					t.Errorf("it took %s", r.took)
				}
				var result demo.Result
				if err := json.Unmarshal([]byte(r.stdout), &result); err != nil {
					t.Fatal(err)
				}
				if !result.OK || result.Dataplane != dataplane {
					t.Errorf("ok %v on %s", result.OK, result.Dataplane)
				}
				checks := 0
				for _, s := range result.Steps {
					if len(s.Checks) == 0 {
						t.Errorf("step %q checks nothing", s.Title)
					}
					checks += len(s.Checks)
					for _, c := range s.Checks {
						if !c.OK {
							t.Errorf("step %q, %q: %s", s.Title, c.Name, c.Detail)
						}
					}
				}
				if len(result.Steps) < story.steps || checks < story.checks {
					t.Errorf("only %d steps with %d checks", len(result.Steps), checks)
				}
			})
		}
	}
}

func TestInterruptedDemoLeavesNothing(t *testing.T) {
	needRoot(t)
	buildDir := needBird(t)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(signal.String(), func(t *testing.T) {
			cmd := exec.Command(binary, "demo", "--dataplane", "kernel", "--build-dir", buildDir)
			r := run(t, cmd, func(said *testlog.Buffer) {
				// agents, BIRD, etcd and workloads are about to be there
				awaitText(t, said, "\n2. ")
				if len(netlab.Traces(fmt.Sprintf("vra-demo-%d", cmd.Process.Pid))) == 0 {
					t.Error("there is nothing to leave: this test tests nothing")
				}
				if err := cmd.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
			})
			if r.status != 1 || strings.Count(r.stderr, "\n") != 1 ||
				!strings.Contains(r.stderr, "interrupted") {
				t.Errorf("exit status %d: %s", r.status, r.stderr)
			}
			if strings.Contains(r.stdout, "✗") {
				t.Errorf("what was not waited for is said to have failed:\n%s", r.stdout)
			}
		})
	}
}

func TestDemoWhoseOutputIsClosedLeavesNothing(t *testing.T) {
	needRoot(t)
	buildDir := needBird(t)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "demo", "--dataplane", "kernel", "--build-dir", buildDir)
	cmd.Stdout = in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	out.Close() // as `head -1` does
	if err := cmd.Wait(); err == nil {
		t.Error("it went on without a reader")
	}
	for _, trace := range netlab.Traces(fmt.Sprintf("vra-demo-%d", cmd.Process.Pid)) {
		t.Errorf("left behind: %s", trace)
	}
}

func TestKeptDemoEndsWithInterrupt(t *testing.T) {
	needRoot(t)
	buildDir := needBird(t)
	t.Setenv("TMPDIR", filepath.Dir(binary)) // another demo that is kept is not in the way
	cmd := exec.Command(binary, "demo", "--keep", "--dataplane", "kernel", "--build-dir", buildDir)
	r := run(t, cmd, func(said *testlog.Buffer) {
		awaitText(t, said, "Ctrl-C")
		awaitText(t, said, "logs are in")
		tried := 0
		for line := range strings.Lines(said.String()) { // what it tells to try must work
			command := strings.TrimSpace(line)
			if !strings.HasPrefix(command, binary+" demo exec ") {
				continue
			}
			tried++
			if n := len(command) - len(binary); n > 80 {
				t.Errorf("%d columns: %s", n, command)
			}
			if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", command, err, out)
			}
		}
		if tried < 10 {
			t.Errorf("only %d commands to try", tried)
		}
		says := func(what, want string) {
			out, err := exec.Command("sh", "-c", binary+" demo exec "+what).CombinedOutput()
			if text := fmt.Sprint(string(out), err); !strings.Contains(text, want) {
				t.Errorf("%s: want %q, got %q", what, want, text)
			}
		}
		says("node-9 true", "the demo has no node node-9, it has node-1, node-2,")
		says("node-9", "the demo has no node node-9, it has node-1, node-2,")
		says("node-9 true; echo status $?", "status 2")
		says("node-1", "which command on node-1 of the demo?")
		says("node-1; echo status $?", "status 2")
		says("node-1 no-such-program", "executable file not found")
		says("node-1 sh -c 'exit 7'", "exit status 7")
		another := filepath.Join(os.TempDir(), fmt.Sprintf("vra-demo-%d", os.Getpid()))
		if err := os.MkdirAll(filepath.Join(another, "node-1/bin"), 0o700); err != nil {
			t.Fatal(err)
		}
		says("node-1 true", "--pid names one of several: 2 of this name are up")
		says(fmt.Sprintf("--pid %d node-1 sh -c 'exit 7'", cmd.Process.Pid), "exit status 7")
		says("--pid 1 node-1 true", "no demo of process 1 is up")
		cmd.Process.Signal(os.Interrupt)
	})
	if r.status != 0 || !strings.Contains(r.stdout, "\nremoving the nodes, ") {
		t.Errorf("exit status %d: %s\n%s", r.status, r.stderr, r.stdout)
	}
}

func TestDemoSaysWhatItLacks(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		env    []string
		root   bool
		status int
		want   string
	}{
		"root": {
			args: []string{"--dataplane", "kernel"}, status: 2, want: "needs root",
		},
		"root, to look into one": {
			args: []string{"exec", "node-1", "ls"}, status: 1, want: "needs root",
		},
		"a known data plane": {
			args: []string{"--dataplane", "bsd"}, root: true, status: 2,
			want: `"bsd" is none of auto, vpp, kernel`,
		},
		"VPP for tunnels": {
			args: []string{"--encap", "ipip", "--dataplane", "kernel"}, root: true, status: 2,
			want: "--encap needs VPP",
		},
		"the VPP asked for": {
			args: []string{"--dataplane", "vpp"}, env: []string{"PATH=/nowhere"}, root: true,
			status: 2, want: "no vpp on PATH",
		},
		"the VPP named": {
			env: []string{"VPP_BIN=/nowhere/vpp"}, root: true, status: 2, want: "/nowhere/vpp",
		},
		"BIRD": {
			args: []string{"--dataplane", "kernel", "--build-dir", t.TempDir()},
			env:  []string{"PATH=/nowhere"}, root: true,
			status: 1, want: "needs BIRD 1.6 and cannot get it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.root {
				needRoot(t)
			}
			cmd := exec.Command(binary, append([]string{"demo"}, c.args...)...)
			cmd.Env = append(append(os.Environ(), "VPP_BIN="), c.env...)
			if !c.root && os.Geteuid() == 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{
					Credential: &syscall.Credential{Uid: 65534, Gid: 65534},
				}
				cmd.Dir = "/"
			}
			r := run(t, cmd, nil)
			if r.status != c.status || r.stdout != "" {
				t.Errorf("exit status %d, said %q", r.status, r.stdout)
			}
			if strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, c.want) {
				t.Errorf("want one sentence with %q, got %q", c.want, r.stderr)
			}
		})
	}
}

func awaitText(t *testing.T, said *testlog.Buffer, text string) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for !strings.Contains(said.String(), text) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not say %q:\n%s", text, said.String())
		}
		time.Sleep(20 * time.Millisecond)
	}
}
