package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"vpp-route-agent/internal/calico/calicotest"
)

// TestDeployedConfigurationIsValid reads the configuration files that packages and manifests bring,
// as `run` would.
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
		if c.etcdCAFile == "" || c.dataplane != "vpp" ||
			c.etcdEndpoints[0] == "http://127.0.0.1:2379" {
			t.Errorf("%s: %+v", file, c)
		}
	}
}

// TestKubernetesDatastoreConfigurationIsValid reads what the overlay for that brings, in a pod.
func TestKubernetesDatastoreConfigurationIsValid(t *testing.T) {
	const file = "../../deploy/kubernetes-datastore/agent.yaml"
	c, err := load(t, []string{"--config", file}, map[string]string{
		"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, "")
	if err != nil || !c.inKubernetes() || c.dataplane != "vpp" {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestExamplesAreCalicos applies each example as calicoctl would: every kind, field and value must
// be one that Calico has.
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
		if want := strings.Count(string(text), "\nkind: "); err != nil ||
			strings.Count(out, "applied ") != want {
			t.Errorf("%s: %v, want %d applied:\n%s", file, err, want, out)
		}
	}
}

// The container of the DaemonSet, alone and with the component that lets Prometheus in, is started
// as Kubernetes would: the agent takes it.
func TestKubernetesContainerIsAccepted(t *testing.T) {
	base, scrape := container(t, "daemonset.yaml"), container(t, "scrape/daemonset.yaml")
	file, err := os.ReadFile("../../deploy/kubernetes/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(base.Args) != 3 || base.Args[0] != "run" || base.Args[1] != "--config" {
		t.Fatalf("arguments %q: this test stands in for --config only", base.Args)
	}
	for name, tc := range map[string]struct {
		env    []corev1.EnvVar
		host   string // status.hostIP
		listen string
	}{
		"alone": {base.Env, "192.0.2.7", "127.0.0.1:9179"},
		"with scrape": {append(base.Env, scrape.Env...), "192.0.2.7",
			"192.0.2.7:9179"},
		"with scrape, a node in 6": {append(base.Env, scrape.Env...), "fd00:10::5",
			"[fd00:10::5]:9179"},
	} {
		env := map[string]string{}
		for _, v := range tc.env {
			env[v.Name] = strings.ReplaceAll(v.Value, "$(HOST_IP)", tc.host)
			if v.ValueFrom != nil {
				env[v.Name] = "node-1"
			}
		}
		c, err := load(t, nil, env, string(file))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if c.metricsListen != tc.listen || c.nodeName != "node-1" {
			t.Errorf("%s: node %s, metrics on %s", name, c.nodeName, c.metricsListen)
		}
	}
}

// The container of the controller's Deployment is started as Kubernetes would: the controller takes
// it, and its probes ask where it listens.
func TestControllerContainerIsAccepted(t *testing.T) {
	c := container(t, "reflector-controller/deployment.yaml")
	file, err := os.ReadFile("../../deploy/kubernetes/reflector-controller/controller.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "controller.yaml")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	args := slices.Clone(c.Args)
	i := slices.Index(args, "--config=/etc/vpp-route-agent/controller.yaml")
	if i < 0 {
		t.Fatalf("arguments %q: this test stands in for --config", args)
	}
	args[i] = "--config=" + path
	cmd, rest, err := newCommand().Find(args)
	if err != nil || cmd.Name() != controller {
		t.Fatalf("%v, %v", cmd, err)
	}
	if err := cmd.ParseFlags(rest); err != nil {
		t.Fatal(err)
	}
	cfg, err := loadConfig(cmd.Flags(), func(name string) (string, bool) {
		return "pod-1", name == "NODENAME"
	})
	if err != nil || cfg.metricsListen != ":9180" || cfg.nodeName != "pod-1" || !cfg.plaintext ||
		cfg.etcdCAFile == "" || c.Ports[0].ContainerPort != 9180 {
		t.Errorf("%v, %+v", err, cfg)
	}
}

func container(t *testing.T, file string) corev1.Container {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../deploy/kubernetes", file))
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.DaemonSet // a Deployment has its containers in the same place
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d.Spec.Template.Spec.Containers[0]
}
