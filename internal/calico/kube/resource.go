package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"vpp-route-agent/internal/calico"
)

// ourNotes begins the annotations that are kept in a resource: nobody else's matter to whoever
// asks for it.
const ourNotes = "vpp-route-agent/"

// notesNote has a Node's annotations that came from etcd (libcalico-go lib/backend/k8s/resources).
const notesNote = annotated + "annotations"

// resourceKinds are the kinds that Resource and Change know, by what they are called in URLs.
var resourceKinds = map[string]calico.Kind{
	"nodes": calico.KindNode, "bgppeers": calico.KindBGPPeer,
	"bgpconfigurations":   calico.KindBGPConfiguration,
	"clusterinformations": calico.KindClusterInformation,
}

// Plural is what resources of a kind are called in URLs; "": Resource does not know it.
func Plural(k calico.Kind) string {
	for plural, kind := range resourceKinds {
		if kind == k {
			return plural
		}
	}
	return ""
}

// Resource returns an object among those of plural as etcd would have it, in one form for all with
// the same content: what is in it is what decides sessions and roles. Metadata and heartbeats of
// Kubernetes are not.
func Resource(plural string, text []byte) (calico.Key, []byte, error) {
	var o struct {
		Metadata struct {
			Name        string            `json:"name"`
			Created     string            `json:"creationTimestamp"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec json.RawMessage `json:"spec"`
	}
	err := json.Unmarshal(text, &o)
	key := calico.Key{Kind: resourceKinds[plural], Name: o.Metadata.Name}
	if err != nil || key.Name == "" {
		return key, nil, fmt.Errorf("%s: it is no object with a name", plural)
	}
	meta := map[string]any{"name": key.Name}
	notes := map[string]string{}
	for name, value := range o.Metadata.Annotations {
		if strings.HasPrefix(name, ourNotes) {
			notes[name] = value
		}
	}
	spec := any(o.Spec)
	if key.Kind == calico.KindNode {
		meta["creationTimestamp"] = o.Metadata.Created
		// labels that cannot be read are a problem of the agents; Kubernetes' own stay
		labels, err := mergeLabels(o.Metadata.Annotations[labelsNote], o.Metadata.Labels)
		if err != nil {
			labels = o.Metadata.Labels
		}
		if len(labels) > 0 {
			meta["labels"] = labels
		}
		var before map[string]string
		_ = json.Unmarshal([]byte(o.Metadata.Annotations[notesNote]), &before) // mostly none
		for name, value := range before {
			if _, is := notes[name]; !is && strings.HasPrefix(name, ourNotes) {
				notes[name] = value
			}
		}
		spec = nodeSpec(key.Name, o.Metadata.Annotations)
	}
	if len(notes) > 0 {
		meta["annotations"] = notes
	}
	value, err := canonical(map[string]any{"metadata": meta, "spec": spec})
	return key, value, err
}

// Resource returns an object as Resource does; false: sessions do not follow from its kind.
func (o Object) Resource() (k calico.Key, value []byte, is bool, err error) {
	if resourceKinds[o.kind.plural] == "" {
		return k, nil, false, nil
	}
	k, value, err = Resource(o.kind.plural, o.object.json)
	return k, value, true, err
}

// bgpNotes are the annotations that say how a Node takes part in BGP, by the field that etcd has.
var bgpNotes = map[string]string{"ipv4Address": ipv4Note, "ipv6Address": ipv6Note,
	"asNumber": asNote, clusterField: clusterNote}

const clusterField = "routeReflectorClusterID"

func nodeSpec(name string, notes map[string]string) map[string]any {
	bgp := map[string]string{}
	for field, note := range bgpNotes {
		if text := notes[note]; text != "" {
			bgp[field] = text
		}
	}
	return map[string]any{"bgp": bgp,
		"orchRefs": []any{map[string]string{"nodeName": name, "orchestrator": "k8s"}}}
}

// canonical is JSON with sorted fields.
func canonical(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var fields any
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

// Canonical is a resource as Resource returns it, from what etcd would have.
func Canonical(k calico.Key, value []byte) ([]byte, error) {
	var fields struct {
		Metadata map[string]any `json:"metadata"`
		Spec     any            `json:"spec"`
	}
	if err := json.Unmarshal(value, &fields); err != nil {
		return nil, err
	}
	delete(fields.Metadata, "uid")
	if k.Kind != calico.KindNode {
		delete(fields.Metadata, "creationTimestamp")
	}
	return canonical(map[string]any{"metadata": fields.Metadata, "spec": fields.Spec})
}

// Create returns the object of a group that a new resource is.
func Create(group string, k calico.Key, value []byte) ([]byte, error) {
	if k.Kind == calico.KindNode {
		return nil, errors.New("a Node is made by Kubernetes alone")
	}
	text, err := Canonical(k, value)
	if err != nil {
		return nil, err
	}
	var o map[string]any
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, err
	}
	o["apiVersion"], o["kind"] = group, string(k.Kind)
	return json.Marshal(o)
}

// Change returns the merge patch that makes of an object the one of another resource. All of a Node
// but its labels, our annotations and its cluster ID is written by others.
func Change(plural string, object, will []byte) (map[string]any, error) {
	k, was, err := Resource(plural, object)
	if err != nil {
		return nil, err
	}
	var from, to map[string]any
	if err := errors.Join(json.Unmarshal(was, &from), json.Unmarshal(will, &to)); err != nil {
		return nil, err
	}
	patch := MergePatch(from, to)
	meta := inner(patch, "metadata")
	for _, name := range []string{"labels", "annotations"} {
		if all, is := meta[name]; is && all == nil { // ours go, and not others'
			gone := map[string]any{}
			for name := range inner(inner(from, "metadata"), name) {
				gone[name] = nil
			}
			meta[name] = gone
		}
	}
	if k.Kind != calico.KindNode {
		return patch, nil
	}
	bgp := inner(inner(patch, "spec"), "bgp")
	for _, part := range []struct {
		of    map[string]any
		known []string
	}{{meta, []string{"labels", "annotations"}}, {inner(patch, "spec"), []string{"bgp"}},
		{bgp, []string{clusterField}}} {
		for name := range part.of {
			if !slices.Contains(part.known, name) {
				return nil, fmt.Errorf("%s: %s cannot be changed in Kubernetes", k.Resource(), name)
			}
		}
	}
	notes := map[string]any{}
	maps.Copy(notes, inner(meta, "annotations"))
	if id, is := bgp[clusterField]; is {
		notes[clusterNote] = id
	}
	for note, of := range map[string]string{labelsNote: "labels", notesNote: "annotations"} {
		if text, is := withoutRemoved(object, note, inner(meta, of)); is {
			notes[note] = text
		}
	}
	out := map[string]any{"annotations": notes}
	if labels := inner(meta, "labels"); len(labels) > 0 {
		out["labels"] = labels
	}
	return map[string]any{"metadata": out}, nil
}

// inner is an object in an object; nil: there is none.
func inner(o map[string]any, name string) map[string]any {
	in, _ := o[name].(map[string]any)
	return in
}

// withoutRemoved is the annotation with what Calico keeps of a Node's labels or annotations,
// without those that a patch removes; false: it stays.
func withoutRemoved(object []byte, note string, patch map[string]any) (text string, changed bool) {
	var n nodeObject
	var all map[string]string
	_ = json.Unmarshal(object, &n)
	if json.Unmarshal([]byte(n.Metadata.Annotations[note]), &all) != nil {
		return "", false
	}
	for name, value := range patch {
		if _, is := all[name]; is && value == nil {
			delete(all, name)
			changed = true
		}
	}
	left, err := json.Marshal(all)
	return string(left), changed && err == nil
}

// MergePatch is the JSON merge patch (RFC 7386) from one object to another.
func MergePatch(from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for name := range from {
		if _, is := to[name]; !is {
			patch[name] = nil
		}
	}
	for name, value := range to {
		was, is := from[name]
		a, isA := was.(map[string]any)
		b, isB := value.(map[string]any)
		switch {
		case is && isA && isB:
			if in := MergePatch(a, b); len(in) > 0 {
				patch[name] = in
			}
		case !is || !reflect.DeepEqual(was, value):
			patch[name] = value
		}
	}
	return patch
}
