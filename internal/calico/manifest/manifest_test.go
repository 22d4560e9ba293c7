package manifest

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"vpp-route-agent/internal/calico"
)

const head = "apiVersion: projectcalico.org/v3\nkind: "

func TestSnapshotSeesWhatOneNodeSees(t *testing.T) {
	text := head + "Node\nmetadata: {name: edge-7}\nspec: {bgp: {ipv4Address: 10.0.0.7/24}}\n" +
		"--- # a second\n" + head + "BlockAffinity\nmetadata: {name: a}\nspec: {node: edge-7, " +
		"cidr: 10.1.0.0/26, state: confirmed}\n" +
		"---\n" + head + "BlockAffinity\nmetadata: {name: b}\nspec: {node: edge-8, cidr: " +
		"10.1.0.64/26, state: confirmed}\n" +
		"---\n" + head + "WorkloadEndpoint\nmetadata: {name: w, namespace: shop}\nspec: {node: " +
		"edge-7, ipNetworks: [10.1.0.70/32], interfaceName: cali1}\n"
	resources, err := Read([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Manifest{Resources: resources}.Snapshot("edge-7", false)
	if err != nil {
		t.Fatal(err)
	}
	own := netip.MustParsePrefix("10.1.0.0/26")
	if len(s.Nodes) != 1 || len(s.Affinities) != 1 ||
		s.Affinities[own] != calico.AffinityConfirmed || len(s.WorkloadEndpoints) != 1 ||
		len(s.Problems) != 0 {
		t.Errorf("%+v", s)
	}
}

func TestReadTakesListsApart(t *testing.T) {
	resources, err := Read([]byte(`apiVersion: projectcalico.org/v3
kind: NodeList
metadata: {resourceVersion: "77"}
items:
- apiVersion: projectcalico.org/v3
  kind: Node
  metadata: {name: a, creationTimestamp: null, resourceVersion: "5", generation: 2,
    ownerReferences: [{kind: Node, name: a, uid: 1-2}], finalizers: [example.com/f],
    managedFields: [{manager: kubectl, fieldsV1: {"f:spec": {}}}]}
  spec: {}
  status: {}
- apiVersion: projectcalico.org/v3
  kind: Node
  metadata: {name: b}
  spec: {}
`))
	if err != nil || len(resources) != 2 || resources[1].String() != "Node(b)" {
		t.Errorf("%v %v", resources, err)
	}
}

// calicoctl decodes into Calico's types, so a scalar becomes text where text is asked for.
func TestReadTakesScalarsForText(t *testing.T) {
	node := "apiVersion: projectcalico.org/v3\nkind: Node\n" +
		"metadata: {name: 7, labels: {x: yes, a: 2, b: 1.5, c: true, d: 'no'}}\n" +
		"spec: {orchRefs: [{nodeName: 12, orchestrator: off}]}\n"
	item := "- " + strings.TrimSuffix(strings.ReplaceAll(node, "\n", "\n  "), "  ")
	for name, text := range map[string]string{
		"alone":     node,
		"in a list": "apiVersion: projectcalico.org/v3\nkind: NodeList\nitems:\n" + item,
	} {
		resources, err := Read([]byte(text))
		if err != nil || len(resources) != 1 {
			t.Errorf("%s: %v %v", name, resources, err)
			continue
		}
		r := resources[0]
		want := map[string]string{"x": "true", "a": "2", "b": "1.5", "c": "true", "d": "no"}
		if r.Metadata.Name != "7" || !maps.Equal(r.Metadata.Labels, want) {
			t.Errorf("%s: %+v", name, r.Metadata)
		}
		const spec = `{"orchRefs":[{"nodeName":"12","orchestrator":"false"}]}`
		if got := string(r.Spec); got != spec {
			t.Errorf("%s: %s, want %s", name, got, spec)
		}
	}
	const wrong = "Node\nmetadata: {name: a, labels: {x: [yes]}}\nspec: {}"
	if r, err := Read([]byte(head + wrong)); err == nil {
		t.Errorf("a list is text: %v", r)
	}
}

// An empty list of a node is not the same as none: it takes the place of the cluster's.
func TestSnapshotTellsAnEmptyListFromNone(t *testing.T) {
	text := head + "BGPConfiguration\nmetadata: {name: node.a}\nspec: " +
		"{prefixAdvertisements: []}\n---\n" +
		head + "BGPConfiguration\nmetadata: {name: node.b}\nspec: {listenPort: 180}\n"
	resources, err := Read([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Manifest{Resources: resources}.Snapshot("a", false)
	if err != nil {
		t.Fatal(err)
	}
	empty := s.BGPConfigurations["node.a"].PrefixAdvertisements
	if none := s.BGPConfigurations["node.b"].PrefixAdvertisements; empty == nil || none != nil {
		t.Errorf("empty %#v, none %#v", empty, none)
	}
}

func TestReadNamesDocumentAndField(t *testing.T) {
	good := head + "Node\nmetadata: {name: good}\nspec: {}\n---\n"
	for _, tc := range []struct{ name, yaml, want string }{
		{"in a list", "apiVersion: projectcalico.org/v3\nkind: NodeList\nitems: [{apiVersion: " +
			"projectcalico.org/v3, kind: Node, metadata: {name: x}, spec: {bpg: {}}}]",
			`document 2: items[0]: Node(x): spec: unknown field "bpg"`},
		{"affinity's prefix", head + "BlockAffinity\nmetadata: {name: x}\nspec: {node: edge-1, " +
			"cidr: ten, state: confirmed}",
			`document 2: BlockAffinity(x): spec.cidr: "ten" is not a prefix`},
		{"affinity's owner", head + "BlockAffinity\nmetadata: {name: x}\nspec: {cidr: " +
			"10.1.0.0/26, state: confirmed}",
			`document 2: BlockAffinity(x): spec.node: "" is not a name`},
		{"affinity's type", head + "BlockAffinity\nmetadata: {name: x}\nspec: {node: edge-1, " +
			"cidr: 10.1.0.0/26, type: pod}",
			`document 2: BlockAffinity(x): spec.type: "pod" is neither host nor virtual`},
		{"affinity too large", head + "BlockAffinity\nmetadata: {name: x}\nspec: {node: edge-1, " +
			"cidr: 10.0.0.0/8, state: confirmed}",
			`document 2: BlockAffinity(x): key: block 10.0.0.0/8 is larger`},
		{"a number too large", head + "BGPPeer\nmetadata: {name: x}\nspec: {ttlSecurity: 300}",
			"document 2: BGPPeer(x): spec.ttlSecurity: 300 is not a whole number from 0 to 255"},
		{"a port too large", head + "BGPConfiguration\nmetadata: {name: default}\nspec: " +
			"{listenPort: 70000}", "spec.listenPort: 70000 is not a whole number from 0 to 65535"},
		{"text for truth", head + "BGPConfiguration\nmetadata: {name: default}\nspec: " +
			"{nodeToNodeMeshEnabled: 'yes'}",
			"spec.nodeToNodeMeshEnabled: text is not true or false"},
		{"text for a mapping", head + "Node\nmetadata: {name: x}\nspec: {bgp: on}",
			"spec.bgp: a truth value is not a mapping"},
		{"a list for a mapping", head + "Node\nmetadata: [x]\nspec: {}",
			"metadata: a list is not a mapping"},
		{"endpoint's address", head + "WorkloadEndpoint\nmetadata: {name: x, namespace: " +
			"shop}\nspec: {node: edge-1, ipNetworks: [10.1.0.300]}",
			`document 2: WorkloadEndpoint(shop/x): spec.ipNetworks[0]`},
		{"no mapping", "just words", "document 2: it is no resource: a mapping with apiVersion, " +
			"kind, metadata and spec is expected"},
		{"a sequence", "[1, 2]", "document 2: it is no resource"},
		{"last line without an end", head + "Pod\nmetadata: {name: x}",
			`document 2: kind "Pod" is not one of`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Read([]byte(good + tc.yaml))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v\nwant %s", err, tc.want)
			}
		})
	}
	if _, err := Read([]byte("# nothing\n---\n")); err == nil {
		t.Error("no resource is no error")
	}
}

// A resource that is not read would be missed in silence.
func TestReadDropsNoDocument(t *testing.T) {
	first := head + "Node\nmetadata: {name: a}\nspec: {}\n"
	second := "{apiVersion: projectcalico.org/v3, kind: Node, metadata: {name: b}}\n"
	for name, text := range map[string]string{
		"on the line of ---": first + "--- " + second,
		"a tag behind ---":   first + "--- !node\n" + second,
		"an end before":      first + "...\n--- " + second,
		"bare CR":            strings.ReplaceAll(first+"---\n"+second, "\n", "\r"),
	} {
		if all, err := Read([]byte(text)); err != nil || len(all) != 2 {
			t.Errorf("%s: %v, %v", name, all, err)
		}
	}
	for name, text := range map[string]string{
		"an end alone": first + "...\n" + second, "an empty mapping": first + "--- {}\n" + second,
	} {
		all, err := Read([]byte(text))
		if err == nil || !strings.Contains(err.Error(), ": line 5: ") {
			t.Errorf("%s: %v, %v", name, all, err)
		}
	}
}

// Calico reads these as not given, so they say nothing of what they seem to say.
func TestReadRemarksOnZeros(t *testing.T) {
	for _, field := range []string{"asNumber", "listenPort"} {
		text := head + "BGPConfiguration\nmetadata: {name: default}\nspec: {" + field + ": 0}"
		_, err := Read([]byte(text))
		want := "document 1: BGPConfiguration(default): spec." + field +
			": 0 is as if it were not given"
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v", field, err)
		}
		if all, remarks, err := ReadKnown([]byte(text)); err != nil || len(remarks) != 1 ||
			len(all.Resources) != 1 {
			t.Errorf("%s: %v, %v, %v", field, all, remarks, err)
		}
	}
}

// What is applied takes the place of what was there, also where it stands for nothing any more. The
// rest stays, and so does the snapshot that it is applied to.
func TestOverIsApply(t *testing.T) {
	node := func(as int) string {
		return fmt.Sprintf("%sNode\nmetadata: {name: edge-5}\nspec: {bgp: {ipv4Address: "+
			"192.0.2.5/24, asNumber: %d}}\n---\n", head, as)
	}
	const endpoint = head + "WorkloadEndpoint\nmetadata: {name: w, namespace: shop}\nspec: " +
		"{node: edge-5, ipNetworks: [10.1.9.7/32], interfaceName: cali1}\n---\n"
	ready := func(is bool) string {
		return fmt.Sprintf("%sClusterInformation\nmetadata: {name: default}\nspec: "+
			"{datastoreReady: %t}\n---\n", head, is)
	}
	const pool = head + "IPPool\nmetadata: {name: pods}\nspec: {cidr: 10.1.0.0/16}\n---\n"
	read := func(texts ...string) []Resource {
		all, err := Read([]byte(strings.Join(texts, "")))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := Manifest{Resources: read(node(1), endpoint, pool, ready(false))}
	base, err := before.Snapshot("edge-5", false)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Over(base, "edge-5", read(node(2), ready(true)))
	if err != nil || got.Nodes["edge-5"].ASNumber != 2 || got.DatastoreNotReady ||
		len(got.IPPools) != 1 || len(got.WorkloadEndpoints) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if base.Nodes["edge-5"].ASNumber != 1 || !base.DatastoreNotReady {
		t.Errorf("the base became %+v", base)
	}
	again, err := Over(base, "edge-5", nil)
	if err != nil || !reflect.DeepEqual(again, base) {
		t.Errorf("nothing was applied:\n%+v\n%+v, %v", base, again, err)
	}
}

// What kubectl prints is no form to write to etcd.
func TestReadTakesNoObjectsOfKubernetes(t *testing.T) {
	text := []byte("{apiVersion: v1, kind: Node, metadata: {name: a}}")
	const want = `document 1: apiVersion is "v1", not "projectcalico.org/v3"`
	if all, err := Read(text); err == nil || err.Error() != want {
		t.Errorf("%v, %v", all, err)
	}
	if all, _, err := ReadKnown(text); err != nil || len(all.Objects) != 1 || all.Resources != nil {
		t.Errorf("%v, %v", all, err)
	}
}
