package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
)

// reflectors STATUS REGEXP SUBCOMMAND [ARG…]: a reflectors command ends with this status, and says
// so.
func reflectorsOf(sc *script, args []string) (string, error) {
	if len(args) < 3 {
		return "", usage("reflectors STATUS REGEXP SUBCOMMAND [ARG…]")
	}
	want, err := strconv.Atoi(args[0])
	re, err2 := regexp.Compile("(?m)" + args[1])
	if err != nil || err2 != nil {
		return "", usage("%v, %v", err, err2)
	}
	ctx, cancel := brief()
	defer cancel()
	cmd := exec.CommandContext(ctx, "vpp-route-agent", append([]string{"reflectors"},
		args[2:]...)...)
	cmd.Env = append(slices.Clone(sc.env.Vars), "ETCD_ENDPOINTS=http://"+sc.net+".1:2379")
	if sc.kubernetes {
		where, err := sc.datastoreFlags()
		if err != nil {
			return "", err
		}
		cmd.Args = append(cmd.Args, where...)
	}
	cmd.Dir = sc.env.WorkDir
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != want || !re.Match(out) {
		return "", fmt.Errorf("status %d, want %d, and %q in:\n%s", got, want, args[1],
			indent(string(out)))
	}
	return string(out), nil
}
