package reflector

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"vpp-route-agent/internal/calico"
)

// peerName is the name of our BGPPeer.
const peerName = "vpp-route-agent-reflectors"

var (
	peerKey = calico.Key{Kind: calico.KindBGPPeer, Name: peerName}
	confKey = calico.Key{Kind: calico.KindBGPConfiguration, Name: "default"}
)

// Our annotations. A Node or BGPPeer without roleNote belongs to a person: its role is not changed,
// and it is not deleted.
const (
	// roleNote is on each Node that we made a reflector, with its turn (see World.turn), and on our
	// BGPPeer, with the time of its creation.
	roleNote = "vpp-route-agent/reflector"
	// cordonNote keeps a Node from being a reflector; its value says why.
	cordonNote = "vpp-route-agent/reflector-cordon"
	// groupNote is on the BGPPeer of a group, and holds what group has in JSON. On the Node of a
	// client it holds the group that we gave it: nothing else says whether a person changed the
	// label.
	groupNote = groupLabel
	// meshNote is on the BGPConfiguration while we have the mesh turned off, and holds its fields.
	meshNote = "vpp-route-agent/mesh"
)

// Labels of topologies in which not every client peers with every reflector.
const (
	// numberLabel is on each Node of a reflector, with its turn.
	numberLabel = "vpp-route-agent/reflector-number"
	// groupLabel is on each Node of a client that peers with the reflectors of a group alone.
	groupLabel = "vpp-route-agent/reflector-group"
)

// meshBefore is the value of meshNote: the flag, and what Calico refuses while the mesh is off.
type meshBefore struct {
	Enabled     json.RawMessage `json:"nodeToNodeMeshEnabled,omitempty"`
	Password    json.RawMessage `json:"nodeMeshPassword,omitempty"`
	RestartTime json.RawMessage `json:"nodeMeshMaxRestartTime,omitempty"`
}

const (
	meshField        = "nodeToNodeMeshEnabled"
	passwordField    = "nodeMeshPassword"
	restartTimeField = "nodeMeshMaxRestartTime"
)

// edit changes a resource's stored JSON. It keeps every field that it does not know.
type edit struct {
	value []byte
	err   error
}

// set stores v at a path of field names, and creates what is missing on the way.
func (e *edit) set(v any, path ...string) {
	if e.err == nil {
		e.value, e.err = setAt(e.value, v, path)
	}
}

// remove deletes the field at a path, and labels or annotations that become empty by that.
func (e *edit) remove(path ...string) {
	e.set(nil, path...)
}

// get decodes the field at a path into v, and reports whether there is one.
func (e *edit) get(v any, path ...string) bool {
	at := json.RawMessage(e.value)
	for _, name := range path {
		var fields map[string]json.RawMessage
		if e.err != nil || len(at) == 0 {
			return false
		}
		e.err = json.Unmarshal(at, &fields)
		at = fields[name]
	}
	if e.err != nil || len(at) == 0 || string(at) == "null" {
		return false
	}
	e.err = json.Unmarshal(at, v)
	return e.err == nil
}

// setAt returns a JSON object with v at a path; nil removes.
func setAt(object json.RawMessage, v any, path []string) (json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if len(object) > 0 {
		if err := json.Unmarshal(object, &fields); err != nil {
			return nil, err
		}
	}
	if fields == nil { // it was null
		fields = map[string]json.RawMessage{}
	}
	name, rest := path[0], path[1:]
	var inner json.RawMessage
	var err error
	switch {
	case v == nil && fields[name] == nil:
		return object, nil
	case len(rest) > 0:
		inner, err = setAt(fields[name], v, rest)
	case v != nil:
		inner, err = json.Marshal(v)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	fields[name] = inner
	emptied := (name == "labels" || name == "annotations") && string(inner) == "{}"
	if inner == nil || emptied {
		delete(fields, name)
	}
	return json.Marshal(fields)
}

// setReflector makes a Node a reflector. Label and cluster ID come in one write: a node that saw
// the ID alone would have no session with it.
func setReflector(node []byte, r rules, turn int) ([]byte, error) {
	e := edit{value: node}
	e.set("true", "metadata", "labels", r.Label)
	if r.Topology != Single {
		e.set(strconv.Itoa(turn), "metadata", "labels", numberLabel)
	}
	e.set(strconv.Itoa(turn), "metadata", "annotations", roleNote)
	e.set(r.clusterIDOf(turn), "spec", "bgp", "routeReflectorClusterID")
	return e.value, e.err
}

// unsetReflector undoes setReflector. A reason also cordons the node.
func unsetReflector(node []byte, label, reason string) ([]byte, error) {
	e := edit{value: node}
	e.remove("metadata", "labels", label)
	e.remove("metadata", "labels", numberLabel)
	e.remove("metadata", "annotations", roleNote)
	e.remove("metadata", "annotations", adoptedNote)
	e.remove("spec", "bgp", "routeReflectorClusterID")
	if reason != "" {
		e.set(reason, "metadata", "annotations", cordonNote)
	}
	return e.value, e.err
}

// meshSettings returns the fields of the mesh: from the spec, or from our annotation while we have
// it turned off.
func meshSettings(conf []byte) (mesh meshBefore, err error) {
	e := edit{value: conf}
	var note string
	if e.get(&note, "metadata", "annotations", meshNote) {
		if err := json.Unmarshal([]byte(note), &mesh); err != nil {
			return mesh, fmt.Errorf("metadata.annotations[%s]: %w", meshNote, err)
		}
		return mesh, nil
	}
	e.get(&mesh, "spec")
	return mesh, e.err
}

// meshOff turns the mesh off in a BGPConfiguration, which need not exist.
func meshOff(conf []byte, now time.Time) ([]byte, error) {
	e := edit{value: conf}
	if len(conf) == 0 {
		e.value = created(calico.KindBGPConfiguration, "default", now)
		e.set("Info", "spec", "logSeverityScreen") // as Calico's documentation does
	}
	before, err := meshSettings(conf)
	text, _ := json.Marshal(before) // it was decoded from JSON
	e.err = cmp.Or(e.err, err)
	e.set(string(text), "metadata", "annotations", meshNote)
	e.remove("spec", passwordField)
	e.remove("spec", restartTimeField)
	e.set(false, "spec", meshField)
	return e.value, e.err
}

// meshOn undoes meshOff.
func meshOn(conf []byte) ([]byte, error) {
	before, err := meshSettings(conf)
	e := edit{value: conf, err: err}
	e.remove("metadata", "annotations", meshNote)
	for _, f := range []struct {
		name string
		v    json.RawMessage
	}{
		{meshField, before.Enabled}, {passwordField, before.Password},
		{restartTimeField, before.RestartTime},
	} {
		if f.v == nil {
			e.remove("spec", f.name)
		} else {
			e.set(f.v, "spec", f.name)
		}
	}
	return e.value, e.err
}

// setGroup puts a Node into a group; "" takes it out.
func setGroup(node []byte, group string) ([]byte, error) {
	e := edit{value: node}
	if group == "" {
		e.remove("metadata", "labels", groupLabel)
		e.remove("metadata", "annotations", groupNote)
	} else {
		e.set(group, "metadata", "labels", groupLabel)
		e.set(group, "metadata", "annotations", groupNote)
	}
	return e.value, e.err
}

// newPeer returns a BGPPeer that gives some nodes sessions with some reflectors. Password and
// restart time are the mesh's: otherwise the session would be reset when its role changes.
func newPeer(name, nodes, reflectors string, conf []byte, now time.Time) ([]byte, error) {
	mesh, err := meshSettings(conf)
	e := edit{value: created(calico.KindBGPPeer, name, now), err: err}
	e.set(stamp(now), "metadata", "annotations", roleNote)
	e.set(nodes, "spec", "nodeSelector")
	e.set(reflectors, "spec", "peerSelector")
	if mesh.Password != nil {
		e.set(mesh.Password, "spec", "password")
	}
	if mesh.RestartTime != nil {
		e.set(mesh.RestartTime, "spec", "maxRestartTime")
	}
	return e.value, e.err
}

// labelled selects the reflectors.
func labelled(label string) string { return fmt.Sprintf("%s == 'true'", label) }

// ofNumbers selects the reflectors with some numbers, separated by commas.
func ofNumbers(numbers string) string {
	return fmt.Sprintf("%s in { '%s' }", numberLabel, strings.ReplaceAll(numbers, ",", "', '"))
}

// outside selects the nodes that are in none of some groups.
func outside(groups []group) string {
	if len(groups) == 0 {
		return "all()"
	}
	var names []string
	for _, g := range groups {
		names = append(names, "'"+g.Name+"'")
	}
	return fmt.Sprintf("%s not in { %s }", groupLabel, strings.Join(names, ", "))
}

// setNodes gives a BGPPeer other nodes.
func setNodes(peer []byte, nodes string) ([]byte, error) {
	e := edit{value: peer}
	e.set(nodes, "spec", "nodeSelector")
	return e.value, e.err
}

// setNumbers gives the BGPPeer of a group other reflectors.
func setNumbers(peer []byte, g group) ([]byte, error) {
	e := edit{value: peer}
	e.set(string(encode(g)), "metadata", "annotations", groupNote)
	e.set(ofNumbers(g.Reflectors), "spec", "peerSelector")
	return e.value, e.err
}

// created returns a new resource. Its UID follows from name and time, so that Next is a function of
// its inputs.
func created(kind calico.Kind, name string, now time.Time) []byte {
	sum := sha256.Sum256([]byte(string(kind) + name + stamp(now)))
	id := sum[:16]
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // version 8 (RFC 9562 §5.8)
	e := edit{}
	e.set(kind, "kind")
	e.set("projectcalico.org/v3", "apiVersion")
	e.set(name, "metadata", "name")
	e.set(fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]),
		"metadata", "uid")
	e.set(stamp(now), "metadata", "creationTimestamp")
	return e.value
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
