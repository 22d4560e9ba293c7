package main

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/recorder"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/internal/testlog"
)

// recordIn lets a process record in a state directory that something settled.
func recordIn(t *testing.T, dir string) {
	t.Helper()
	r := recorder.New(recorder.Config{Dir: recorderDir(dir), Size: 1 << 20, Updates: 1 << 20,
		Node: "a", Version: "v1", Log: testlog.New(t)})
	r.Checkpoints(func(func() bool) {})
	r.Settled(fib.Moment(time.Second))
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // writes what there is
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// readsRecords runs a command that reads what was recorded in a state directory.
func readsRecords(call, dir string) (out, said string, err error) {
	root := newCommand()
	var stdout, stderr bytes.Buffer
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	root.SetArgs(append(strings.Fields(call), "--state-dir", dir))
	err = root.Execute()
	return stdout.String(), stderr.String(), err
}

// Each command names the segment that is damaged, and that which is gone, on standard error.
func TestCommandsNameWhatIsNotRead(t *testing.T) {
	dir := t.TempDir()
	for range 5 {
		recordIn(t, dir)
	}
	damaged := filepath.Join(recorderDir(dir), "0000000002.rec")
	b, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	err = errors.Join(os.WriteFile(damaged, b, 0o600),
		os.Remove(filepath.Join(recorderDir(dir), "0000000004.rec")),
		os.MkdirAll(filepath.Join(recorderDir(dir), "updates"), 0o700),
		os.WriteFile(filepath.Join(recorderDir(dir), "updates", "0000000001.mrt"),
			bytes.Repeat([]byte{0xff}, 100), 0o600),
		os.WriteFile(filepath.Join(recorderDir(dir), "updates", "0000000003.mrt"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	ofRecords := []string{"not read: " + damaged + ": damaged: ", "not read: segment 4 is gone"}
	for command, want := range map[string][]string{
		"history 10.0.0.0/24": ofRecords, "trace": ofRecords, "dump": ofRecords,
		"replay": ofRecords,
		"mrt": {"not read: " + filepath.Join(recorderDir(dir), "updates", "0000000001.mrt") +
			": damaged at byte 0: ", "not read: segment 2 is gone"},
	} {
		_, said, err := readsRecords(command, dir)
		if err != nil && !errors.Is(err, errSilent) {
			t.Errorf("%s: %v", command, err)
		}
		for _, text := range want {
			if !strings.Contains(said, text) {
				t.Errorf("%s says %q, and not %q", command, said, text)
			}
		}
	}
}

// replay says what it could not compare.
func TestPrintReplayed(t *testing.T) {
	at := func(minute int) time.Time {
		return time.Date(2026, 11, 27, 9, minute, 0, 0, time.Local)
	}
	var b strings.Builder
	err := printReplayed(&b, recorder.Replayed{Runs: []recorder.Run{
		{Process: at(1), Version: "v1", From: at(2), To: at(9), Inputs: 1204, Compared: 1100,
			Plans: 1, Keys: 312, Gaps: 1, Undecided: 2, NotCompared: []recorder.NotCompared{
				{From: at(3), To: at(4), Moments: 12, Inputs: 1, Reason: recorder.ReasonMissing}}},
		{Process: at(10), Version: "v1", Problem: recorder.ReasonShort.String(),
			NotCompared: []recorder.NotCompared{{Reason: recorder.ReasonShort}}},
	}})
	const want = `Run of 2026-11-27 09:01:00, v1: 1204 inputs from 2026-11-27 09:02:00 to ` +
		`2026-11-27 09:09:00; compared 1100 decisions and 1 plan; the same 312 routes, ` +
		`2 inputs not decided upon, 1 gap
  not compared from 2026-11-27 09:03:00 to 2026-11-27 09:04:00, 12 moments and 1 input: ` +
		`records are missing, up to a whole checkpoint
Run of 2026-11-27 09:10:00, v1: not compared: the records of the process end before its first ` +
		`checkpoint is whole and all decided
`
	if got := b.String(); err != nil || got != want {
		t.Errorf("got\n%s\nwant\n%s%v", got, want, err)
	}
}

// A full disk may have left no record, or the beginning of one.
func TestAnEmptyRecorderSaysSo(t *testing.T) {
	empty, none := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(recorderDir(empty), "updates"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{empty, none} {
		for _, call := range []string{"history 10.0.0.1", "history 10.0.0.1 -o json", "trace",
			"trace -o json", "dump", "dump 10.0.0.0/26", "replay", "mrt"} {
			out, _, err := readsRecords(call, dir)
			if err == nil || !strings.HasPrefix(err.Error(), "nothing is recorded in "+dir) ||
				!strings.Contains(err.Error(), "--recorder-size 0") {
				t.Errorf("%s: %v\n%s", call, err, out)
			}
		}
	}
}

func TestReplayOfDamageSaysSo(t *testing.T) {
	for _, segment := range []string{"", "VPP"} {
		dir := t.TempDir()
		err := os.MkdirAll(recorderDir(dir), 0o700)
		if err == nil {
			err = os.WriteFile(filepath.Join(recorderDir(dir), "0000000001.rec"), []byte(segment),
				0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, format := range []string{"table", "json"} {
			out, _, err := readsRecords("replay -o "+format, dir)
			if err == nil || err.Error() != "there is nothing to replay in "+recorderDir(dir) ||
				format == "json" && !strings.Contains(out, `"runs": []`) {
				t.Errorf("%q, %s: %v\n%s", segment, format, err, out)
			}
		}
	}
}

// An empty list may be due to a wrong length: what contains the prefix is named.
func TestNoRecordIsAboutAPrefix(t *testing.T) {
	for asked, want := range map[string]string{
		"10.1.3.7/32": "nothing to show about 10.1.3.7/32; there are records about 10.1.3.0/26, " +
			"which contains it\n",
		"10.1.0.0/16": "nothing to show about 10.1.0.0/16\n",
		"10.2.0.0":    "nothing to show about prefixes that contain 10.2.0.0\n",
	} {
		a, err := parseAbout(asked)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{"10.1.3.0/24", "10.1.3.0/26", "10.1.2.0/23", "10.1.3.8/32"} {
			a.has(route.Key{Prefix: netip.MustParsePrefix(p)})
		}
		var b strings.Builder
		if a.sayNone(&b); b.String() != want {
			t.Errorf("%s: %q", asked, b.String())
		}
	}
	dir := t.TempDir()
	recordIn(t, dir)
	for _, call := range []string{"history 10.0.0.0/24", "dump 10.0.0.0/24"} {
		_, said, err := readsRecords(call, dir)
		if err != nil || said != "nothing to show about 10.0.0.0/24\n" {
			t.Errorf("%s: %v, %q", call, err, said)
		}
	}
}

func TestAnAddressWithAZoneIsRefused(t *testing.T) {
	asked, err := parseAbout("fe80::1%eth0")
	if err == nil || !strings.Contains(err.Error(), "zone") {
		t.Errorf("got %v, %v", asked, err)
	}
}
