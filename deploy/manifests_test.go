// Package deploy holds what is deployed against the programs that read it: Kubernetes' types,
// systemd, dpkg, Prometheus and Docker. What the agent itself reads (agent.yaml, the examples,
// metrics) is tested beside it, in cmd/vpp-route-agent.
package deploy

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"
)

// decode turns YAML into Kubernetes' objects as an API server would with strict field validation:
// unknown and repeated fields are errors.
func decode(t *testing.T, text []byte) (objects []runtime.Object) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, corev1.AddToScheme, rbacv1.AddToScheme,
	} {
		check(t, add(scheme))
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, doc := range bytes.Split(text, []byte("\n---\n")) {
		object, _, err := decoder.Decode(doc, nil, nil)
		if err != nil {
			t.Errorf("%v in:\n%s", err, doc)
			continue
		}
		var pod corev1.PodSpec
		switch o := object.(type) {
		case *appsv1.DaemonSet:
			pod = o.Spec.Template.Spec
		case *appsv1.Deployment:
			pod = o.Spec.Template.Spec
		}
		for _, twice := range repeatedKeys(pod) {
			t.Errorf("%s in:\n%s", twice, doc)
		}
		objects = append(objects, object)
	}
	return objects
}

// repeatedKeys are the entries of a pod's lists that an API server merges by key and that have the
// same key as one before: strict decoding does not see them, and which of them counts depends on
// how the manifest is applied.
func repeatedKeys(pod corev1.PodSpec) (repeated []string) {
	seen := map[string]bool{}
	add := func(key string) {
		if seen[key] {
			repeated = append(repeated, key+" twice")
		}
		seen[key] = true
	}
	for _, v := range pod.Volumes {
		add("volume " + v.Name)
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		add("container " + c.Name)
		for _, v := range c.Env {
			add("env " + v.Name + " of " + c.Name)
		}
		for _, p := range c.Ports {
			add(fmt.Sprintf("port %d/%s of %s", p.ContainerPort, p.Protocol, c.Name))
		}
		for _, m := range c.VolumeMounts {
			add("mount at " + m.MountPath + " of " + c.Name)
		}
	}
	return repeated
}

func TestManifestsAreKubernetes(t *testing.T) {
	decoded := 0
	check(t, filepath.WalkDir("kubernetes", func(file string, f fs.DirEntry, err error) error {
		switch {
		case err != nil || f.IsDir():
		case f.Name() == "kustomization.yaml": // kubectl reads them
		// the agent's own, and the controller's, which they read in a test
		case file == filepath.Join("kubernetes", "agent.yaml"), f.Name() == "controller.yaml":
		default:
			decoded += len(decode(t, read(t, file)))
		}
		return err
	}))
	if decoded < 10 {
		t.Errorf("only %d objects", decoded)
	}
}

func TestKustomizationNamesEveryFile(t *testing.T) {
	var k struct{ Resources []string }
	check(t, yaml.Unmarshal(read(t, "kubernetes/kustomization.yaml"), &k))
	want := append(k.Resources, "kustomization.yaml", "agent.yaml")
	for _, file := range files(t, "kubernetes/*.yaml") {
		if !slices.Contains(want, filepath.Base(file)) {
			t.Errorf("%s is deployed by nothing", file)
		}
	}
}

// TestKustomize renders what `kubectl apply -k` would send, where there is a kubectl.
func TestKustomize(t *testing.T) {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("no kubectl on PATH")
	}
	overlay := t.TempDir()
	here, err := os.Getwd()
	check(t, err)
	up, err := filepath.Rel(overlay, filepath.Join(here, "kubernetes"))
	check(t, err)
	check(t, os.WriteFile(filepath.Join(overlay, "kustomization.yaml"),
		[]byte("resources: ["+up+"]\ncomponents: ["+up+"/scrape]\n"), 0o644))
	const datastore = "kubernetes-datastore"
	for _, dir := range []string{"kubernetes", overlay, datastore} {
		out, err := exec.Command(kubectl, "kustomize", dir).Output()
		check(t, err)
		objects, want := decode(t, out), 6
		if dir == datastore {
			want = 8 // with ClusterRole and binding
		}
		if len(objects) != want {
			t.Errorf("%s: %d objects", dir, len(objects))
		}
		for _, o := range objects {
			if d, ok := o.(*appsv1.DaemonSet); ok {
				checkDaemonSet(t, d)
			}
			if _, global := o.(*rbacv1.ClusterRole); global && dir != datastore {
				t.Errorf("%s: a ClusterRole", dir)
			}
		}
	}
}

// checkDaemonSet holds what a restart without loss and least privilege rest on.
func checkDaemonSet(t *testing.T, d *appsv1.DaemonSet) {
	t.Helper()
	u := d.Spec.UpdateStrategy
	if u.Type != appsv1.RollingUpdateDaemonSetStrategyType ||
		u.RollingUpdate.MaxUnavailable.IntValue() != 1 {
		t.Errorf("update strategy %+v: want one node at a time", u)
	}
	pod := d.Spec.Template.Spec
	if !pod.HostNetwork {
		t.Error("BGP needs the host's network")
	}
	if s := *pod.TerminationGracePeriodSeconds; s < 5 || s > 60 {
		t.Errorf("%d s to end, of the 120 s that peers wait", s)
	}
	c := pod.Containers[0]
	if c.Lifecycle != nil {
		t.Error("a hook would withdraw or delay, and a restart needs neither")
	}
	if c.ReadinessProbe == nil || c.LivenessProbe == nil || c.Resources.Requests.Cpu().IsZero() ||
		c.Resources.Limits.Memory().IsZero() {
		t.Error("probes and resources must be set")
	}
	checkMemoryLimit(t, c)
	s := c.SecurityContext
	if !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
		!slices.Equal(s.Capabilities.Add, []corev1.Capability{"NET_BIND_SERVICE", "NET_ADMIN"}) ||
		s.Privileged != nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem {
		t.Errorf("security context %+v", s)
	}
	var config string
	for _, v := range pod.Volumes {
		if v.ConfigMap != nil {
			config = v.ConfigMap.Name
		}
	}
	if !strings.HasPrefix(config, "vpp-route-agent-") {
		t.Errorf("ConfigMap %q: a change of settings must change its name, or nothing rolls",
			config)
	}
}

// checkMemoryLimit sees that Go knows of the container's limit, as docs/operating.md has it.
func checkMemoryLimit(t *testing.T, c corev1.Container) {
	t.Helper()
	env := map[string]string{}
	for _, v := range c.Env {
		env[v.Name] = v.Value
	}
	// Go writes MiB, Kubernetes Mi
	soft, err := resource.ParseQuantity(strings.TrimSuffix(env["GOMEMLIMIT"], "B"))
	if err != nil || env["GOGC"] == "" {
		t.Fatalf("GOMEMLIMIT %q (%v), GOGC %q", env["GOMEMLIMIT"], err, env["GOGC"])
	}
	if limit := c.Resources.Limits.Memory().Value(); soft.Value() != limit/4*3 {
		t.Errorf("GOMEMLIMIT is %d, the limit %d", soft.Value(), limit)
	}
}

// TestAgentReadsItsSecretsOnly holds the Role to one kind, of one namespace, without writing.
func TestAgentReadsItsSecretsOnly(t *testing.T) {
	found := false
	for _, o := range decode(t, read(t, "kubernetes/rbac.yaml")) {
		role, ok := o.(*rbacv1.Role)
		if !ok {
			continue
		}
		found = true
		for _, rule := range role.Rules {
			if !slices.Equal(rule.Resources, []string{"secrets"}) ||
				!slices.Equal(rule.Verbs, []string{"get", "list", "watch"}) {
				t.Errorf("rule %+v", rule)
			}
		}
	}
	if !found {
		t.Error("there is no Role")
	}
}

func files(t *testing.T, patterns ...string) (all []string) {
	t.Helper()
	for _, p := range patterns {
		found, err := filepath.Glob(p)
		check(t, err)
		if len(found) == 0 {
			t.Fatalf("no file is like %s", p)
		}
		all = append(all, found...)
	}
	return all
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	raw, err := os.ReadFile(file)
	check(t, err)
	return raw
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
