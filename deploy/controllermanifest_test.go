package deploy

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

const controllerDir = "kubernetes/reflector-controller/"

// TestControllerManifests: two controllers that may read Nodes and nothing else, as nobody, with
// etcd's certificates where their configuration says.
func TestControllerManifests(t *testing.T) {
	objects := append(decode(t, read(t, controllerDir+"deployment.yaml")),
		decode(t, read(t, controllerDir+"rbac.yaml"))...)
	var d *appsv1.Deployment
	var account *corev1.ServiceAccount
	var role *rbacv1.ClusterRole
	var binding *rbacv1.ClusterRoleBinding
	for _, o := range objects {
		switch o := o.(type) {
		case *appsv1.Deployment:
			d = o
		case *corev1.ServiceAccount:
			account = o
		case *rbacv1.ClusterRole:
			role = o
		case *rbacv1.ClusterRoleBinding:
			binding = o
		default:
			t.Errorf("%T", o)
		}
	}
	if d == nil || account == nil || role == nil || binding == nil {
		t.Fatal("an object is missing")
	}
	pod := d.Spec.Template.Spec
	if *d.Spec.Replicas != 2 || d.Spec.Selector.MatchLabels["app.kubernetes.io/name"] !=
		d.Spec.Template.Labels["app.kubernetes.io/name"] {
		t.Errorf("%d replicas, selector %v", *d.Spec.Replicas, d.Spec.Selector)
	}
	if len(role.Rules) != 1 || !slices.Equal(role.Rules[0].Resources, []string{"nodes"}) ||
		!slices.Equal(role.Rules[0].Verbs, []string{"get", "list", "watch"}) {
		t.Errorf("rules %+v", role.Rules)
	}
	if s := binding.Subjects[0]; binding.RoleRef.Name != role.Name || s.Name != account.Name ||
		pod.ServiceAccountName != account.Name || s.Namespace != "vpp-route-agent" {
		t.Errorf("binding %+v, account %s", binding, pod.ServiceAccountName)
	}
	c := pod.Containers[0]
	s := c.SecurityContext
	if pod.HostNetwork || !*pod.SecurityContext.RunAsNonRoot || *s.AllowPrivilegeEscalation ||
		!*s.ReadOnlyRootFilesystem || len(s.Capabilities.Add) > 0 ||
		!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("security: %+v, %+v", pod.SecurityContext, s)
	}
	checkMemoryLimit(t, c)
	mounts := map[string]string{}
	for _, m := range c.VolumeMounts {
		mounts[m.Name] = m.MountPath + "/"
	}
	var config struct{ EtcdCACertFile, EtcdCertFile, EtcdKeyFile string }
	check(t, yaml.Unmarshal(read(t, controllerDir+"controller.yaml"), &config))
	for _, file := range []string{config.EtcdCACertFile, config.EtcdCertFile, config.EtcdKeyFile} {
		if !strings.HasPrefix(file, mounts["etcd"]) || mounts["etcd"] == "" {
			t.Errorf("%s is not in %s", file, mounts["etcd"])
		}
	}
	var k struct {
		Resources          []string
		ConfigMapGenerator []struct {
			Name  string
			Files []string
		}
	}
	check(t, yaml.Unmarshal(read(t, controllerDir+"kustomization.yaml"), &k))
	generated := k.ConfigMapGenerator[0]
	for _, v := range pod.Volumes {
		if v.ConfigMap != nil && v.ConfigMap.Name != generated.Name {
			t.Errorf("ConfigMap %s, and %s is made", v.ConfigMap.Name, generated.Name)
		}
	}
	known := append(append(k.Resources, generated.Files...), "kustomization.yaml")
	for _, file := range files(t, controllerDir+"*.yaml") {
		if !slices.Contains(known, filepath.Base(file)) {
			t.Errorf("%s is deployed by nothing", file)
		}
	}
}
