package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"vpp-route-agent/internal/calico/calicotest"
)

// TestDeployedConfigurationIsValid reads the configuration files that packages and manifests bring, as `run` would.
func TestDeployedConfigurationIsValid(t *testing.T) {
	for _, file := range []string{"../../deploy/agent.yaml", "../../deploy/kubernetes/agent.yaml"} {
		flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
		addFlags(flags)
		if err := flags.Parse([]string{"--config", file, "--node-name", "node-1"}); err != nil {
			t.Fatal(err)
		}
		c, err := loadConfig(flags, func(string) (string, bool) { return "", false })
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if c.etcdCAFile == "" || c.dataplane != "vpp" || c.etcdEndpoints[0] == "http://127.0.0.1:2379" {
			t.Errorf("%s: %+v", file, c)
		}
	}
}

// TestExamplesAreCalicos applies each example as calicoctl would: every kind, field and value must be one that Calico has.
func TestExamplesAreCalicos(t *testing.T) {
	etcd, err := calicotest.StartEtcd(calicotest.EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	t.Setenv("ETCD_ENDPOINTS", etcd.Endpoint())
	examples, err := filepath.Glob("../../deploy/examples/*.yaml")
	if err != nil || len(examples) < 3 {
		t.Fatalf("examples %v, %v", examples, err)
	}
	for _, file := range examples {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		out, err := runLab("", "apply", "-f", file)
		if want := strings.Count(string(text), "\nkind: "); err != nil || strings.Count(out, "applied ") != want {
			t.Errorf("%s: %v, want %d applied:\n%s", file, err, want, out)
		}
	}
}
