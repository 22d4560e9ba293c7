package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"vpp-route-agent/internal/kubernetes/kubetest"
)

// The controller listens beside an agent of the same host, which may have the same file, unless a
// flag says otherwise.
func TestControllerListens(t *testing.T) {
	for _, tc := range []struct{ name, flag, env, file, want string }{
		{name: "nothing is said", want: "127.0.0.1:9180"},
		{name: "the file has the agent's", file: "127.0.0.1:9179", want: "127.0.0.1:9180"},
		{name: "the environment has", env: "127.0.0.1:9179", want: "127.0.0.1:9180"},
		{name: "another address in the file", file: "127.0.0.9:9179", want: "127.0.0.9:9179"},
		{name: "a flag that is the agent's default", flag: "127.0.0.1:9179",
			want: "127.0.0.1:9179"},
		{name: "a flag goes before the file", flag: "127.0.0.1:9179", file: "127.0.0.9:1",
			want: "127.0.0.1:9179"},
		{name: "off", flag: "off", want: ""},
	} {
		var args []string
		if tc.flag != "" {
			args = append(args, "--metrics-listen", tc.flag)
		}
		if tc.file != "" {
			path := filepath.Join(t.TempDir(), "agent.yaml")
			err := os.WriteFile(path, []byte("metricsListen: "+tc.file+"\n"), 0o600)
			if err != nil {
				t.Fatal(err)
			}
			args = append(args, "--config", path)
		}
		cmd := reflectorControllerCommand()
		if err := cmd.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		cfg, err := loadConfig(cmd.Flags(), func(name string) (string, bool) {
			switch name {
			case "NODENAME":
				return "ctl-1", true
			case "VPP_ROUTE_AGENT_METRICS_LISTEN":
				return tc.env, tc.env != ""
			}
			return "", false
		})
		if got := controllerListen(cfg, cmd.Flags()); err != nil || got != tc.want {
			t.Errorf("%s: %v, %q, want %q", tc.name, err, got, tc.want)
		}
	}
}

// With a kubeconfig the Nodes are followed, until the controller ends.
func TestControllerFollowsKubernetes(t *testing.T) {
	t.Attr("part", "Kubernetes API, a stand-in")
	e := startEtcd(t)
	s := kubetest.NewServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		cfg := config{nodeName: "ctl-1", etcdEndpoints: []string{e.Endpoint()}}
		ended <- runController(ctx, cfg, s.Kubeconfig(), slog.New(slog.DiscardHandler))
	}()
	for end := time.Now().Add(patience); s.Lists() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("Nodes were never listed")
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}
