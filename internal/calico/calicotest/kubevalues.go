package calicotest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/kube"
	"vpp-route-agent/internal/calico/manifest"
	"vpp-route-agent/internal/kubernetes"
)

// NewKubernetesCluster writes to Calico's data in the Kubernetes API, in a group such as
// "crd.projectcalico.org/v1", what calicoctl, Calico's IPAM and its CNI plugin would, and the Pods
// and Nodes of kubelets. It has no raw keys.
func NewKubernetesCluster(client *kubernetes.Client, group string) *Cluster {
	return &Cluster{values: kubeValues{client, group}}
}

// kubeValues are in the Kubernetes API.
type kubeValues struct {
	client *kubernetes.Client
	group  string
}

// What the CNI plugin notes on a Pod.
const (
	containerNote = "cni.projectcalico.org/containerID"
	addressNote   = "cni.projectcalico.org/podIP"
	addressesNote = "cni.projectcalico.org/podIPs"
)

var errPodsStay = errors.New("a Pod does not move to another node")

func (k kubeValues) Close() error {
	k.client.Close()
	return nil
}

func (k kubeValues) kind(plural string) kubernetes.Resource {
	if plural == "nodes" || plural == "pods" {
		return kubernetes.Resource{Version: "v1", Plural: plural}
	}
	group, version, _ := strings.Cut(k.group, "/")
	return kubernetes.Resource{Group: group, Version: version, Plural: plural}
}

// at is the object that a key stands for.
func (k kubeValues) at(key calico.Key) (r kubernetes.Resource, err error) {
	switch key.Kind {
	case calico.KindNode:
		r = k.kind("nodes")
		r.Name = key.Name
	case calico.KindWorkloadEndpoint:
		r = k.kind("pods")
		r.Namespace, r.Name = key.Namespace, podOf(key.Name)
	case calico.KindBlock:
		r = k.kind("ipamblocks")
		r.Name = kube.BlockName(key.CIDR)
	case calico.KindBlockAffinity:
		r = k.kind("blockaffinities")
		r.Name = cmp.Or(key.Owner.Host, key.Owner.Virtual) + "-" + kube.BlockName(key.CIDR)
	case calico.KindHandle, calico.KindIPPool, calico.KindBGPConfiguration, calico.KindBGPPeer,
		calico.KindBGPFilter, calico.KindFelixConfiguration, calico.KindClusterInformation:
		r = k.kind(strings.ToLower(string(key.Kind)) + "s")
		r.Name = key.Name
	default:
		return r, fmt.Errorf("%s is not in the Kubernetes datastore", key.Resource())
	}
	return r, nil
}

// podOf is the pod in the name of a WorkloadEndpoint, whose parts have their dashes twice.
func podOf(name string) string {
	parts := strings.Split(strings.ReplaceAll(name, "--", "\x00"), "-")
	if len(parts) < 3 {
		return ""
	}
	return strings.ReplaceAll(parts[2], "\x00", "-")
}

func (k kubeValues) get(ctx context.Context, key calico.Key) ([]byte, int64, error) {
	at, err := k.at(key)
	if err != nil {
		return nil, 0, err
	}
	object, err := k.client.Get(ctx, at)
	if kubernetes.IsNotFound(err) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	value, err := valueOf(key.Kind, object)
	return value, revisionOf(object), err
}

func revisionOf(object []byte) int64 {
	var o struct {
		Metadata struct{ ResourceVersion string }
	}
	_ = json.Unmarshal(object, &o)
	n, _ := strconv.ParseInt(o.Metadata.ResourceVersion, 10, 64)
	return n
}

// valueOf is what etcd would have for an object.
func valueOf(kind calico.Kind, object []byte) ([]byte, error) {
	var o struct {
		Metadata manifest.Metadata `json:"metadata"`
		Spec     json.RawMessage   `json:"spec"`
	}
	if err := json.Unmarshal(object, &o); err != nil {
		return nil, err
	}
	switch kind {
	case calico.KindBlock, calico.KindHandle:
		return o.Spec, nil
	case calico.KindBlockAffinity:
		var a struct{ State string }
		err := json.Unmarshal(o.Spec, &a)
		return []byte(fmt.Sprintf(`{"state":%q}`, a.State)), err
	case calico.KindWorkloadEndpoint:
		return podValue(o.Metadata, o.Spec)
	}
	return json.Marshal(manifest.Resource{Kind: kind, APIVersion: manifest.APIVersion,
		Metadata: o.Metadata, Spec: o.Spec})
}

// podValue is the endpoint of a pod whose network the CNI plugin has made; nil: it has not.
func podValue(meta manifest.Metadata, spec json.RawMessage) ([]byte, error) {
	var s struct{ NodeName string }
	if err := json.Unmarshal(spec, &s); err != nil {
		return nil, err
	}
	address, err := netip.ParsePrefix(meta.Annotations[addressNote])
	container := meta.Annotations[containerNote]
	if err != nil || container == "" {
		return nil, nil
	}
	e := newEndpoint(s.NodeName, meta.Namespace, meta.Name, container, address.Addr())
	return json.Marshal(map[string]any{"metadata": e.meta, "spec": e.spec})
}

// object is the object for a value.
func (k kubeValues) object(key calico.Key, value []byte) (*kubeObject, error) {
	switch key.Kind {
	case calico.KindHandle:
		return &kubeObject{Kind: string(key.Kind), Metadata: manifest.Metadata{Name: key.Name},
			Spec: json.RawMessage(value)}, nil
	case calico.KindWorkloadEndpoint:
		return podOfEndpoint(key, value)
	}
	if _, o := (&mirror{group: k.group}).object(key.String(), value); o != nil {
		return o, nil
	}
	return nil, fmt.Errorf("%s has no form in the Kubernetes datastore", key.Resource())
}

// podOfEndpoint has the network in the CNI plugin's annotations: a status takes a kubelet.
func podOfEndpoint(key calico.Key, value []byte) (*kubeObject, error) {
	var r struct {
		Spec manifest.WorkloadEndpointSpec `json:"spec"`
	}
	if err := json.Unmarshal(value, &r); err != nil {
		return nil, err
	}
	container := map[string]string{"name": "main", "image": "none"}
	return &kubeObject{Kind: "Pod",
		Metadata: manifest.Metadata{Name: r.Spec.Pod, Namespace: key.Namespace,
			Annotations: map[string]string{containerNote: r.Spec.ContainerID,
				addressNote:   strings.Join(r.Spec.IPNetworks, ","),
				addressesNote: strings.Join(r.Spec.IPNetworks, ",")}},
		Spec: map[string]any{"nodeName": r.Spec.Node, "containers": []any{container}}}, nil
}

func (k kubeValues) put(ctx context.Context, key calico.Key, value []byte, revision int64) error {
	at, err := k.at(key)
	if err != nil {
		return err
	}
	o, err := k.object(key, value)
	if err != nil {
		return err
	}
	o.Metadata.UID, o.Metadata.CreationTimestamp = "", "" // Kubernetes gives its own
	wanted := o.json(k.group)
	if revision == 0 {
		_, err = k.client.Create(ctx, at, wanted)
	} else {
		err = k.change(ctx, at, wanted, revision)
	}
	if kubernetes.IsConflict(err) || kubernetes.IsNotFound(err) && revision != 0 {
		return errConflict
	}
	return err
}

// change makes an object the wanted one; what a Node has besides is its kubelet's, and stays.
func (k kubeValues) change(ctx context.Context, at kubernetes.Resource, wanted []byte,
	revision int64) error {
	now, err := k.client.Get(ctx, at)
	if err != nil {
		return err
	}
	if revisionOf(now) != revision {
		return errConflict
	}
	var from, to map[string]any
	if err := errors.Join(json.Unmarshal(now, &from), json.Unmarshal(wanted, &to)); err != nil {
		return err
	}
	if at.Plural == "pods" {
		return errPodsStay
	}
	delete(to, "status")
	patch := kube.MergePatch(of(from, to), to)
	meta, _ := patch["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		patch["metadata"] = meta
	}
	meta["resourceVersion"] = strconv.FormatInt(revision, 10)
	text, err := json.Marshal(patch)
	if err == nil {
		_, err = k.client.Patch(ctx, at, text)
	}
	return err
}

// of is what an object has of the parts that are written: labels and annotations, but for those of
// others, and the spec of what is Calico's.
func of(from, to map[string]any) map[string]any {
	out := map[string]any{}
	for _, part := range []string{"apiVersion", "kind", "spec"} {
		if _, is := to[part]; is {
			out[part] = from[part]
		}
	}
	had, _ := from["metadata"].(map[string]any)
	meta := map[string]any{"name": had["name"]}
	for _, part := range []string{"labels", "annotations"} {
		kept := map[string]any{}
		all, _ := had[part].(map[string]any)
		for name, value := range all {
			if part == "labels" || strings.HasPrefix(name, "projectcalico.org/") {
				kept[name] = value
			}
		}
		meta[part] = kept
	}
	out["metadata"] = meta
	return out
}

func (k kubeValues) delete(ctx context.Context, key calico.Key, revision int64) error {
	at, err := k.at(key)
	if err != nil {
		return err
	}
	err = k.client.Delete(ctx, at, strconv.FormatInt(revision, 10))
	if kubernetes.IsConflict(err) || kubernetes.IsNotFound(err) {
		return errConflict
	}
	return err
}

func (k kubeValues) endpoints(ctx context.Context, namespace string) (all [][]byte, err error) {
	pods := k.kind("pods")
	pods.Namespace = namespace
	return all, k.list(ctx, pods, func(object []byte) error {
		value, err := valueOf(calico.KindWorkloadEndpoint, object)
		if value != nil {
			all = append(all, value)
		}
		return err
	})
}

func (k kubeValues) list(ctx context.Context, r kubernetes.Resource,
	take func(object []byte) error) error {
	_, err := k.client.List(ctx, r, kubernetes.ListOptions{},
		func(_ string, objects []json.RawMessage) error {
			for _, o := range objects {
				if err := take(o); err != nil {
					return err
				}
			}
			return nil
		})
	if kubernetes.IsNotFound(err) { // it is not installed
		return nil
	}
	return err
}

func (k kubeValues) snapshot(ctx context.Context, node string) (*calico.Snapshot, error) {
	store := calico.NewStore(node)
	for _, plural := range append([]string{"nodes"}, Plurals...) {
		if plural == "ipamhandles" { // agents do not read them
			continue
		}
		err := k.list(ctx, k.kind(plural), func(object []byte) error {
			o, err := kube.Read(plural, object)
			if err == nil {
				o.Put(store, kube.Options{})
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return store.Snapshot(0), nil
}
