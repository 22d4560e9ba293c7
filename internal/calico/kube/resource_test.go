package kube

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"vpp-route-agent/internal/calico"
)

// node is a Node of Kubernetes as calico-node and a kubelet keep it.
const aNode = `{"metadata":{"name":"edge-7","creationTimestamp":"2026-11-01T10:00:00Z",
 "resourceVersion":"57","labels":{"zone":"east","vpp-route-agent/route-reflector":"true"},
 "annotations":{"projectcalico.org/IPv4Address":"172.20.8.7/24",
  "projectcalico.org/ASNumber":"64801",
  "projectcalico.org/RouteReflectorClusterID":"224.0.0.1","vpp-route-agent/reflector":"1",
  "projectcalico.org/labels":"{\"rack\":\"r1\",\"zone\":\"west\"}","kubelet":"x"}},
 "spec":{"podCIDR":"10.1.0.0/24"},"status":{"conditions":[{"lastHeartbeatTime":"1"}]}}`

// What a controller reads of a Node is what an agent reads of it.
func TestResourceIsWhatAgentsRead(t *testing.T) {
	key, value, err := Resource("nodes", []byte(aNode))
	if err != nil {
		t.Fatal(err)
	}
	got := calico.Decode(key, value)
	o, err := Read("nodes", []byte(aNode))
	if err != nil {
		t.Fatal(err)
	}
	store := calico.NewStore("")
	o.Put(store, Options{})
	want := store.Snapshot(0).Nodes["edge-7"]
	n, ok := got.Value.(calico.Node)
	if !ok || n.IPv4 != want.IPv4 || n.ASNumber != want.ASNumber ||
		n.RouteReflectorClusterID != want.RouteReflectorClusterID ||
		!maps.Equal(n.Labels, want.Labels) {
		t.Errorf("got  %+v (%v)\nwant %+v", got.Value, got.Err, want)
	}
}

// change is the merge patch that edit asks for.
func change(t *testing.T, plural, object string, edit func(meta, spec map[string]any)) string {
	t.Helper()
	_, value, err := Resource(plural, []byte(object))
	if err != nil {
		t.Fatal(err)
	}
	var o map[string]any
	if err := json.Unmarshal(value, &o); err != nil {
		t.Fatal(err)
	}
	edit(o["metadata"].(map[string]any), o["spec"].(map[string]any))
	will, _ := json.Marshal(o)
	patch, err := Change(plural, []byte(object), will)
	if err != nil {
		return err.Error()
	}
	text, _ := json.Marshal(patch)
	return string(text)
}

func TestChange(t *testing.T) {
	const peer = `{"metadata":{"name":"p","annotations":{"projectcalico.org/metadata":"{}",
	 "vpp-route-agent/adopted":"1"}},"spec":{"peerSelector":"a","nodeSelector":"b"}}`
	const moved = `{"metadata":{"name":"edge-7","annotations":{"projectcalico.org/annotations":
	 "{\"vpp-route-agent/reflector\":\"1\",\"x\":\"y\"}"}}}`
	for _, tc := range []struct {
		what, plural, object string
		edit                 func(meta, spec map[string]any)
		want                 string
	}{
		{"no reflector any more", "nodes", aNode, func(meta, spec map[string]any) {
			delete(meta["labels"].(map[string]any), "vpp-route-agent/route-reflector")
			delete(meta, "annotations")
			delete(spec["bgp"].(map[string]any), "routeReflectorClusterID")
		}, `{"metadata":{"annotations":{"projectcalico.org/RouteReflectorClusterID":null,` +
			`"vpp-route-agent/reflector":null},` +
			`"labels":{"vpp-route-agent/route-reflector":null}}}`},
		{"a label of calicoctl's", "nodes", aNode, func(meta, _ map[string]any) {
			delete(meta["labels"].(map[string]any), "rack")
		}, `{"metadata":{"annotations":{"projectcalico.org/labels":"{\"zone\":\"west\"}"},` +
			`"labels":{"rack":null}}}`},
		{"a new cluster ID", "nodes", aNode, func(_, spec map[string]any) {
			spec["bgp"].(map[string]any)["routeReflectorClusterID"] = "224.0.0.2"
		}, `{"metadata":{"annotations":` +
			`{"projectcalico.org/RouteReflectorClusterID":"224.0.0.2"}}}`},
		{"an annotation that came from etcd", "nodes", moved, func(meta, _ map[string]any) {
			delete(meta, "annotations")
		}, `{"metadata":{"annotations":{"projectcalico.org/annotations":"{\"x\":\"y\"}",` +
			`"vpp-route-agent/reflector":null}}}`},
		{"what is not ours", "nodes", aNode, func(_, spec map[string]any) {
			spec["bgp"].(map[string]any)["asNumber"] = "1"
		}, `Node(edge-7): asNumber cannot be changed in Kubernetes`},
		{"the last of our annotations", "bgppeers", peer, func(meta, spec map[string]any) {
			delete(meta, "annotations")
			spec["peerSelector"] = "c"
		}, `{"metadata":{"annotations":{"vpp-route-agent/adopted":null}},` +
			`"spec":{"peerSelector":"c"}}`},
		{"nothing", "bgppeers", peer, func(_, _ map[string]any) {}, `{}`},
	} {
		if got := change(t, tc.plural, tc.object, tc.edit); got != tc.want {
			t.Errorf("%s:\n%s\nwant\n%s", tc.what, got, tc.want)
		}
	}
}

// A heartbeat, or an annotation of somebody else, is no change.
func TestResourceHasWhatMattersAlone(t *testing.T) {
	_, before, _ := Resource("nodes", []byte(aNode))
	for _, edit := range []func(o map[string]any){
		func(o map[string]any) { o["status"] = nil },
		func(o map[string]any) { inner(o, "metadata")["resourceVersion"] = "58" },
		func(o map[string]any) { inner(inner(o, "metadata"), "annotations")["kubelet"] = "y" },
	} {
		var o map[string]any
		if err := json.Unmarshal([]byte(aNode), &o); err != nil {
			t.Fatal(err)
		}
		edit(o)
		text, _ := json.Marshal(o)
		if _, after, err := Resource("nodes", text); err != nil || !slices.Equal(before, after) {
			t.Errorf("%v\n%s\nwas\n%s", err, after, before)
		}
	}
}

func TestCreate(t *testing.T) {
	key := calico.Key{Kind: calico.KindBGPPeer, Name: "p"}
	got, err := Create("crd.projectcalico.org/v1", key, []byte(`{"kind":"BGPPeer",
	 "apiVersion":"projectcalico.org/v3","metadata":{"name":"p","uid":"1","creationTimestamp":"x",
	 "annotations":{"vpp-route-agent/reflector":"t"}},"spec":{"peerSelector":"a"}}`))
	want := `{"apiVersion":"crd.projectcalico.org/v1","kind":"BGPPeer","metadata":{"annotations":` +
		`{"vpp-route-agent/reflector":"t"},"name":"p"},"spec":{"peerSelector":"a"}}`
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	key.Kind = calico.KindNode
	if _, err := Create("v1", key, []byte(`{}`)); err == nil {
		t.Error("a Node is created")
	}
}
