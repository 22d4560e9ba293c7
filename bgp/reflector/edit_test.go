package reflector

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// storedNode is a Node as calico-node and calicoctl write it, with fields that nothing here knows.
const storedNode = `{"kind":"Node","apiVersion":"projectcalico.org/v3",` +
	`"metadata":{"name":"edge-7","uid":"6f0a8a1e","generation":9007199254740993,` +
	`"creationTimestamp":"2026-01-05T08:00:00Z","labels":{"rack":"r2"},` +
	`"annotations":{"projectcalico.org/kube-labels":"{\"a\":\"<b>\"}"},` +
	`"managedFields":[{"manager":"x"}]},` +
	`"spec":{"bgp":{"ipv4Address":"172.30.8.7/24","asNumber":64801,"future":{"deep":[1,2]}},` +
	`"orchRefs":[{"nodeName":"edge-7.k8s","orchestrator":"k8s"}],"newField":1e400},` +
	`"status":{"podCIDRs":["10.0.0.0/24"]}}`

// same compares JSON by what it says. Numbers are compared as they are written.
func same(t interface{ Fatal(...any) }, a, b []byte) bool {
	decode := func(text []byte) (v any) {
		d := json.NewDecoder(strings.NewReader(string(text)))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatal(err, string(text))
		}
		return v
	}
	return reflect.DeepEqual(decode(a), decode(b))
}

func TestReflectorAndBack(t *testing.T) {
	on, err := setReflector([]byte(storedNode), rolesOf("rr/role"), 7)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer(
		`"labels":{`, `"labels":{"rr/role":"true",`,
		`"annotations":{`, `"annotations":{"vpp-route-agent/reflector":"7",`,
		`"bgp":{`, `"bgp":{"routeReflectorClusterID":"224.0.0.1",`).Replace(storedNode)
	if !same(t, on, []byte(want)) {
		t.Errorf("got  %s\nwant %s", on, want)
	}
	off, err := unsetReflector(on, "rr/role", "")
	if err != nil || !same(t, off, []byte(storedNode)) {
		t.Errorf("back: %s, %v", off, err)
	}
	cordoned, err := unsetReflector(on, "rr/role", "too slow")
	if err != nil || !strings.Contains(string(cordoned), `"vpp-route-agent/reflector-cordon":`+
		`"too slow"`) {
		t.Errorf("cordoned: %s, %v", cordoned, err)
	}
}

// TestMeshOffAndOn: the flag is a boolean, and what the API refuses beside it moves into an
// annotation and back.
func TestMeshOffAndOn(t *testing.T) {
	for _, spec := range []string{
		`{}`,
		`{"nodeToNodeMeshEnabled":true,"asNumber":64512}`,
		`{"asNumber":"1.10","nodeMeshMaxRestartTime":"1m30s","future":{"x":null},` +
			`"nodeMeshPassword":{"secretKeyRef":{"name":"bgp","key":"mesh","optional":true}}}`,
	} {
		stored := configuration(spec).Value
		off, err := meshOff(stored, start)
		if err != nil {
			t.Fatal(err)
		}
		conf := Read([]Object{{Key: confKey, Value: off}}).snapshot.BGPConfigurations["default"]
		if on := conf.NodeToNodeMeshEnabled; on == nil || *on || conf.NodeMeshPassword != nil ||
			conf.NodeMeshMaxRestartTime != nil {
			t.Errorf("%s: off is %s", spec, off)
		}
		on, err := meshOn(off)
		if err != nil || !same(t, on, stored) {
			t.Errorf("%s: on again is %s, %v", spec, on, err)
		}
	}
}

func TestMeshOffWithoutBGPConfiguration(t *testing.T) {
	off, err := meshOff(nil, start)
	if err != nil {
		t.Fatal(err)
	}
	w := Read([]Object{{Key: confKey, Value: off}})
	conf := w.snapshot.BGPConfigurations["default"]
	if w.meshIsOn() || conf.LogSeverityScreen != "Info" || len(w.snapshot.Problems) > 0 {
		t.Errorf("%s: %+v", off, w.snapshot.Problems)
	}
}

// TestNewPeer: it has what the mesh has, also while that is off; and the same step writes the same.
func TestNewPeer(t *testing.T) {
	stored := configuration(`{"nodeMeshMaxRestartTime":"1m30s",` +
		`"nodeMeshPassword":{"secretKeyRef":{"name":"bgp","key":"mesh"}}}`).Value
	off, err := meshOff(stored, start)
	if err != nil {
		t.Fatal(err)
	}
	for _, conf := range [][]byte{stored, off} {
		value, err := newPeer("rrs", "all()", labelled("rr/role"), conf, start)
		if err != nil {
			t.Fatal(err)
		}
		want := `{"kind":"BGPPeer","apiVersion":"projectcalico.org/v3","metadata":{"name":"rrs",` +
			`"uid":"c830a97c-8f22-86b0-9b87-fcb7a8470929",` +
			`"creationTimestamp":"2026-06-01T12:00:00Z",` +
			`"annotations":{"vpp-route-agent/reflector":"2026-06-01T12:00:00Z"}},` +
			`"spec":{"nodeSelector":"all()","peerSelector":"rr/role == 'true'",` +
			`"password":{"secretKeyRef":{"name":"bgp","key":"mesh"}},"maxRestartTime":"1m30s"}}`
		if !same(t, value, []byte(want)) {
			t.Errorf("got  %s\nwant %s", value, want)
		}
	}
}

// TestEditKeepsTheRest: whatever an object has beside, a value put somewhere and taken away again
// changes nothing.
func TestEditKeepsTheRest(t *testing.T) {
	scalar := rapid.SampledFrom([]string{`null`, `0.10`, `12345678901234567890`, `"<&>"`, `[{}]`})
	rapid.Check(t, func(t *rapid.T) {
		object := func(label string) string {
			var fields []string
			for _, k := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"x", "Y", "é",
				"rack"}), rapid.ID[string]).Draw(t, label) {
				fields = append(fields, `"`+k+`":`+scalar.Draw(t, label+k))
			}
			return strings.Join(fields, ",")
		}
		maps := []string{object("labels"), object("annotations"), object("bgp")}
		if maps[0] == "" || maps[1] == "" {
			t.Skip("empty labels or annotations are not stored")
		}
		stored := []byte(`{"metadata":{"labels":{` + maps[0] + `},"annotations":{` + maps[1] +
			`}},"spec":{"bgp":{` + maps[2] + `}},"status":` + scalar.Draw(t, "status") + `}`)
		on, err := setReflector(stored, rolesOf("rr"), 1)
		if err != nil {
			t.Fatal(err)
		}
		off, err := unsetReflector(on, "rr", "")
		if err != nil || !same(t, off, stored) {
			t.Fatalf("%s became %s, then %s, %v", stored, on, off, err)
		}
	})
}

func TestEditRefusesWhatIsNoObject(t *testing.T) {
	for _, text := range []string{`[]`, `{"metadata":7}`, `{"spec":{"bgp":"x"}}`, `{`} {
		if got, err := setReflector([]byte(text), rolesOf("rr"), 1); err == nil {
			t.Errorf("%s became %s", text, got)
		}
	}
	_, err := meshOn([]byte(`{"metadata":{"annotations":{"vpp-route-agent/mesh":"no"}}}`))
	const where = "metadata.annotations[vpp-route-agent/mesh]: "
	if err == nil || !strings.HasPrefix(err.Error(), where) {
		t.Errorf("%v", err)
	}
}

// rolesOf are the rules by which reflectors have a label.
func rolesOf(label string) rules {
	r, _ := Config{Label: label}.parse()
	return r
}
