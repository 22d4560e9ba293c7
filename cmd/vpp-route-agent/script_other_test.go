package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"vpp-route-agent/internal/route"
	"vpp-route-agent/vpp/vpptest"
)

// otherNode is a node besides edge-5 that an agent and a VPP of its own run on.
type otherNode struct {
	agent *agentProcess // nil: it was killed
	vpp   *vpptest.Server
}

var otherCommand = verbs(map[string]command{
	"start":    otherStart,
	"kill":     onOther(func(o *otherNode) { o.agent.kill(); o.agent = nil }),
	"freeze":   onOther(func(o *otherNode) { o.agent.cmd.Process.Signal(syscall.SIGSTOP) }),
	"thaw":     onOther(func(o *otherNode) { o.agent.cmd.Process.Signal(syscall.SIGCONT) }),
	"shows":    otherShows,
	"workload": otherWorkload,
})

// other start NODE [FLAG…]: run an agent as that node, whose VPP has 10.9.0.N on memif0.
func otherStart(sc *script, args []string) (string, error) {
	if len(args) == 0 {
		return "", usage("other start NODE [FLAG…]")
	}
	name, flags := args[0], args[1:]
	number := name[strings.LastIndex(name, "-")+1:]
	binary, err := exec.LookPath("vpp-route-agent")
	if err != nil {
		return "", err
	}
	datastore, err := sc.datastoreFlags()
	if err != nil {
		return "", err
	}
	o := sc.others[name]
	if o == nil {
		o = &otherNode{}
		if o.vpp, err = vpptest.Start(sc.path(name + "-vpp.sock")); err != nil {
			return "", err
		}
		o.vpp.AddInterface("memif0", netip.MustParsePrefix("10.9.0."+number+"/24"))
		sc.others[name] = o
	}
	if o.agent != nil {
		return "", usage("the agent of %s runs already", name)
	}
	o.agent, err = sc.fork(exec.Command(binary, append(append([]string{"run", "--node-name", name,
		"--admin-socket", sc.path(name + ".sock"), "--state-dir", sc.path(name + "-state"),
		"--vpp-socket", o.vpp.Socket(), "--gobgp-listen", "off", "--metrics-listen", "off",
		"--next-hop", "10.9.0." + number, "--log-level", "debug"}, datastore...), flags...)...),
		nil, sc.path(name+".log"))
	return "", err
}

// onOther does something to the node that is the argument.
func onOther(do func(*otherNode)) command {
	return func(sc *script, args []string) (string, error) {
		if len(args) != 1 || sc.others[args[0]] == nil || sc.others[args[0]].agent == nil {
			return "", usage("want a node whose agent runs")
		}
		do(sc.others[args[0]])
		return "", nil
	}
}

// other shows NODE REGEXP SUBCOMMAND [ARG…]: shows, of the agent of that node.
func otherShows(sc *script, args []string) (string, error) {
	if len(args) < 3 {
		return "", usage("other shows NODE REGEXP SUBCOMMAND [ARG…]")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	if err != nil {
		return "", usage("%v", err)
	}
	out, err := sc.ask(args[0]+".sock", args[2:]...)
	if err != nil {
		return "", err
	}
	if !re.MatchString(out) {
		return "", &differs{file: args[0], got: out, want: args[1]}
	}
	return out, nil
}

// other workload NODE ADDRESS: the CNI plugin has connected a workload to its VPP.
func otherWorkload(sc *script, args []string) (string, error) {
	if len(args) != 2 || sc.others[args[0]] == nil {
		return "", usage("other workload NODE ADDRESS")
	}
	a, err := netip.ParseAddr(args[1])
	if err != nil {
		return "", usage("%v", err)
	}
	o := sc.others[args[0]]
	o.vpp.AddInterface("tap0")
	o.vpp.InjectForeignRoute("API", route.Route{Key: route.Key{Prefix: route.HostPrefix(a)},
		Paths: route.CanonicalPaths([]route.Path{{Interface: "tap0"}})})
	return "", nil
}

// close ends the agent and its VPP, and returns what the race detector has said.
func (o *otherNode) close() (races error) {
	if o.agent != nil {
		o.agent.kill()
		races = o.agent.races()
	}
	o.vpp.Close()
	return races
}

// asks STATUS REGEXP CERTIFICATES AUTHORITY SUBCOMMAND [ARG…]: the subcommand, which reads the
// datastore and asks agents with the client's certificate of one folder, and believes the authority
// of another, ends with that status, and what it prints, or its error, matches. $NET stands in it.
func asksCommand(sc *script, args []string) (string, error) {
	if len(args) < 5 {
		return "", usage("asks STATUS REGEXP CERTIFICATES AUTHORITY SUBCOMMAND [ARG…]")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	if err != nil {
		return "", usage("%v", err)
	}
	flags, err := sc.datastoreFlags()
	if err != nil {
		return "", err
	}
	ctx, cancel := brief()
	defer cancel()
	var out strings.Builder
	root := newCommand()
	root.SetArgs(slices.Concat(args[4:], flags, []string{
		"--tls-cert-file", sc.path(args[2] + "/client.pem"),
		"--tls-key-file", sc.path(args[2] + "/client-key.pem"),
		"--tls-client-ca-file", sc.path(args[3] + "/ca.pem")}))
	root.SetOut(&out)
	root.SetErr(&out)
	err = root.ExecuteContext(ctx)
	if err != nil && !errors.Is(err, errSilent) {
		fmt.Fprintln(&out, err)
	}
	text := strings.ReplaceAll(out.String(), sc.net+".", "$NET.")
	if got := strconv.Itoa(exitStatus(err)); got != args[0] || !re.MatchString(text) {
		return "", fmt.Errorf("status %s, want %s and %q:\n%s", got, args[0], args[1],
			indent(text))
	}
	return text, nil
}

// query METHOD PATH CERTIFICATES|none STATUS: what --query-listen of edge-5 answers; STATUS is none
// where it answers nothing.
func queryCommand(sc *script, args []string) (string, error) {
	if len(args) != 4 {
		return "", usage("query METHOD PATH CERTIFICATES|none STATUS")
	}
	conf := &tls.Config{InsecureSkipVerify: true}
	if args[2] != "none" {
		pair, err := tls.LoadX509KeyPair(sc.path(args[2]+"/client.pem"),
			sc.path(args[2]+"/client-key.pem"))
		if err != nil {
			return "", usage("%v", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	ctx, cancel := brief()
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, args[0],
		"https://"+sc.net+".5:"+queryPort+args[1], nil)
	if err != nil {
		return "", usage("%v", err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: conf}}
	status := "none"
	resp, err := client.Do(req)
	if err == nil {
		resp.Body.Close()
		status = strconv.Itoa(resp.StatusCode)
	}
	if status != args[3] {
		return "", fmt.Errorf("%s %s: status %s, %v", args[0], args[1], status, err)
	}
	return "", nil
}
