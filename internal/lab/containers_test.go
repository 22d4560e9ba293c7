package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakePrograms puts shell scripts in front of PATH; what containerlab is called with is returned by
// the function.
func fakePrograms(t *testing.T, docker, containerlab string) (called func() string) {
	t.Helper()
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	for name, script := range map[string]string{
		"docker":       docker,
		"containerlab": "call() { echo $DATAPLANE $* >> $CALLS; }\n" + containerlab,
	} {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("CALLS", calls)
	t.Setenv("DATAPLANE", "none")
	return func() string {
		text, _ := os.ReadFile(calls) // not there: no call
		return strings.TrimSpace(string(text))
	}
}

func pairInContainers(t *testing.T, dataplane string) error {
	t.Helper()
	top, err := readTopology("testdata/pair/pair.clab.yml", noEnv)
	check(t, err)
	n, err := buildContainers(t.Context(), top, "pair.clab.yml", dataplane, io.Discard)
	if err == nil {
		check(t, n.Close())
	}
	return err
}

func TestContainerlabIsAskedForAllNodesAtOnce(t *testing.T) {
	called := fakePrograms(t, "echo v1", "call $*")
	check(t, pairInContainers(t, "kernel"))
	want := "kernel deploy --reconfigure --max-workers 2 --topo pair.clab.yml\nnone destroy " +
		"--cleanup --topo pair.clab.yml"
	if got := called(); got != want {
		t.Errorf("containerlab was called with\n%s\nwant\n%s", got, want)
	}
}

func TestContainersAreNotMadeOfAnImageThatLacksSomething(t *testing.T) {
	for name, c := range map[string]struct{ docker, want string }{
		"no image": {`[ "$1" != image ]`, "there is no image none: make image"},
		"no VPP":   {`if [ "$1" = run ]; then echo none; fi`, "the image none has no VPP"},
		"no shell": {`if [ "$1" = run ]; then echo no sh; exit 127; fi`, "no sh"},
	} {
		called := fakePrograms(t, c.docker, "call $*")
		if err := pairInContainers(t, "vpp"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
		if got := called(); got != "" {
			t.Errorf("%s: containerlab was called with %s", name, got)
		}
	}
}

func TestInterruptedContainerlabMayCleanUpAndTheLabGoes(t *testing.T) {
	called := fakePrograms(t, "echo v1",
		`trap 'echo interrupted >> $CALLS; kill $!; exit 1' INT; call $*; if [ $1 = deploy ]; `+
			`then sleep 100 & wait; fi`)
	top, err := readTopology("testdata/pair/pair.clab.yml", noEnv)
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		for !strings.Contains(called(), "deploy") && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
	}()
	if _, err = buildContainers(ctx, top, "pair.clab.yml", "kernel", io.Discard); err == nil {
		t.Error("no error of a lab that was interrupted")
	}
	lines := strings.Split(called(), "\n")
	if len(lines) != 3 || lines[1] != "interrupted" || !strings.Contains(lines[2], "destroy") {
		t.Errorf("calls: %q", lines)
	}
}

// reader reads what a command writes up to a text, and then does something.
type reader struct {
	bytes.Buffer
	upTo string
	then func()
}

func (r *reader) Write(p []byte) (int, error) {
	n, err := r.Buffer.Write(p)
	if strings.Contains(r.String(), r.upTo) {
		r.then()
	}
	return n, err
}

// TestKeptLabSaysWhatRemovesIt: upon Ctrl-C, after a crash, and where its end fails.
func TestKeptLabSaysWhatRemovesIt(t *testing.T) {
	called := fakePrograms(t, "echo v1", "call $*; [ $1 = deploy ] || exit 3")
	ctx, interrupt := context.WithCancel(t.Context())
	out := &reader{upTo: "is killed", then: interrupt}
	c := config{build: t.TempDir(), with: "containerlab", keep: true, out: out}
	err := c.check(ctx, "testdata/pair")
	const removal = "containerlab destroy --cleanup --topo testdata/pair/pair.clab.yml"
	if err == nil || !strings.Contains(err.Error(), removal) {
		t.Errorf("of a destroy that failed: %v", err)
	}
	for _, want := range []string{
		"Ctrl-C, which removes it", "is killed, `" + removal + "` removes",
		"exec -it clab-test-pair-a sh", "clab-test-pair-a gobgp neighbor", "removing test-pair\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if !strings.Contains(called(), "destroy") {
		t.Errorf("called %s", called())
	}
}
