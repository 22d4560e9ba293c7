package deploy

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// The overlay takes etcd's Secret from the DaemonSet, and nothing else.
func TestKubernetesDatastoreNeedsNoEtcd(t *testing.T) {
	var base appsv1.DaemonSet
	check(t, yaml.Unmarshal(read(t, "kubernetes/daemonset.yaml"), &base))
	type deletion struct {
		Name, MountPath string
		Patch           string `json:"$patch"`
	}
	var patch struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Name         string
						VolumeMounts []deletion
					}
					Volumes []deletion
				}
			}
		}
	}
	check(t, yaml.Unmarshal(read(t, "kubernetes-datastore/daemonset.yaml"), &patch))
	var secrets, mounts []deletion
	pod := base.Spec.Template.Spec
	for _, v := range pod.Volumes {
		if v.Secret != nil {
			secrets = append(secrets, deletion{Name: v.Name, Patch: "delete"})
		}
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		if slices.Contains(secrets, deletion{Name: m.Name, Patch: "delete"}) {
			mounts = append(mounts, deletion{MountPath: m.MountPath, Patch: "delete"})
		}
	}
	to := patch.Spec.Template.Spec
	if len(to.Containers) != 1 || to.Containers[0].Name != pod.Containers[0].Name ||
		!slices.Equal(to.Volumes, secrets) ||
		!slices.Equal(to.Containers[0].VolumeMounts, mounts) {
		t.Errorf("it patches %+v; the Secrets are %v, mounted at %v", to, secrets, mounts)
	}
	var k struct {
		Resources []string
		Patches   []struct{ Path string }
	}
	check(t, yaml.Unmarshal(read(t, "kubernetes-datastore/kustomization.yaml"), &k))
	if !slices.Equal(k.Resources, []string{"../kubernetes", "rbac.yaml"}) ||
		len(k.Patches) != 1 || k.Patches[0].Path != "daemonset.yaml" {
		t.Errorf("%+v", k)
	}
}

// What the ClusterRole allows is tested where it is used, in internal/calico/kubernetes.
func TestKubernetesDatastoreIsReadOnly(t *testing.T) {
	found := false
	for _, o := range decode(t, read(t, "kubernetes-datastore/rbac.yaml")) {
		role, ok := o.(*rbacv1.ClusterRole)
		if !ok {
			continue
		}
		found = true
		for _, rule := range role.Rules {
			if !slices.Equal(rule.Verbs, []string{"get", "list", "watch"}) ||
				slices.Contains(rule.Resources, "*") || slices.Contains(rule.Resources, "secrets") {
				t.Errorf("rule %+v", rule)
			}
		}
	}
	if !found {
		t.Error("there is no ClusterRole")
	}
}

// The overlay of the controller takes etcd from its Deployment, and nothing else; the rights to
// write are the controller's, but for Leases. What they allow is tested where it is used, in
// internal/reflectors.
func TestKubernetesDatastoreController(t *testing.T) {
	const dir = "kubernetes-datastore/reflector-controller/"
	var base appsv1.Deployment
	check(t, yaml.Unmarshal(read(t, controllerDir+"deployment.yaml"), &base))
	pod := base.Spec.Template.Spec
	var patch appsv1.Deployment
	check(t, yaml.Unmarshal(read(t, dir+"deployment.yaml"), &patch))
	to := patch.Spec.Template.Spec
	if patch.Name != base.Name || len(to.Containers) != 1 ||
		to.Containers[0].Name != pod.Containers[0].Name || len(to.Volumes) != 1 ||
		to.Volumes[0].Name != "etcd" || len(to.Containers[0].VolumeMounts) != 1 ||
		to.Containers[0].VolumeMounts[0].MountPath != "/etcd-secrets" {
		t.Errorf("it patches %+v", to)
	}
	var config struct{ DatastoreType string }
	check(t, yaml.Unmarshal(read(t, dir+"controller.yaml"), &config))
	if config.DatastoreType != "kubernetes" {
		t.Errorf("the controller's datastore is %q", config.DatastoreType)
	}
	var k struct {
		Resources []string
		Patches   []struct{ Path string }
	}
	check(t, yaml.Unmarshal(read(t, dir+"kustomization.yaml"), &k))
	if !slices.Equal(k.Resources,
		[]string{"../../kubernetes/reflector-controller", "rbac.yaml"}) ||
		len(k.Patches) != 1 || k.Patches[0].Path != "deployment.yaml" {
		t.Errorf("%+v", k)
	}
	agents := 0
	for _, o := range decode(t, read(t, dir+"rbac.yaml")) {
		var rules []rbacv1.PolicyRule
		var subjects []rbacv1.Subject
		switch o := o.(type) {
		case *rbacv1.ClusterRole:
			rules = o.Rules
		case *rbacv1.Role:
			rules = o.Rules
		case *rbacv1.ClusterRoleBinding:
			subjects = o.Subjects
		case *rbacv1.RoleBinding:
			if subjects = o.Subjects; o.RoleRef.Name == "vpp-route-agent-status" {
				agents++
				if subjects[0].Name != "vpp-route-agent" {
					t.Errorf("agents are %+v", subjects)
				}
				continue
			}
		default:
			t.Errorf("%T", o)
		}
		for _, s := range subjects {
			if s.Name != "vpp-route-agent-reflector-controller" {
				t.Errorf("the controller is %+v", s)
			}
		}
		for _, r := range rules {
			if slices.Contains(r.Verbs, "*") || slices.Contains(r.Resources, "*") ||
				slices.Contains(r.Resources, "secrets") {
				t.Errorf("rule %+v", r)
			}
		}
	}
	if agents != 1 {
		t.Errorf("agents are bound %d times", agents)
	}
}
