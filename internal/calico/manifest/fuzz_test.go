package manifest

import "testing"

// FuzzRead: what was read without an error makes a snapshot without problems at every node that it
// names, and is stored under a key that parses.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		head + "Node\nmetadata: {name: edge-7, labels: {a: b}}\nspec: {bgp: {ipv4Address: " +
			"10.0.0.7/24, asNumber: '1.10'}}\n",
		head + "NodeList\nitems: [{apiVersion: projectcalico.org/v3, kind: Node, metadata: " +
			"{name: a}}]\n",
		head + "BlockAffinity\nmetadata: {name: a}\nspec: {node: edge-7, cidr: 10.1.0.7/26, " +
			"state: confirmed}\n---\n" + head + "IPPool\nmetadata: {name: p}\nspec: {cidr: " +
			"'fd00::/64'}\n",
		head + "WorkloadEndpoint\nmetadata: {name: w, namespace: shop}\nspec: {node: edge-7, " +
			"ipNetworks: [10.1.0.70/32]}\n",
		head + "BGPFilter\nmetadata: {name: f}\nspec: {importV4: [{action: Accept, operations: " +
			"[{setPriority: {value: 3}}]}]}\n",
		head + "BGPConfiguration\nmetadata: {name: default}\nspec: " +
			"{nodeMeshMaxRestartTime: 1m30s}\n", "---\n{", "&a [*a]",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		resources, err := Read([]byte(text))
		if err != nil {
			return
		}
		for _, r := range resources {
			key, _, err := r.Stored()
			if err != nil {
				t.Fatalf("%s is read and cannot be stored: %v", r, err)
			}
			s, err := Manifest{Resources: []Resource{r}}.Snapshot(r.node(key), false)
			if err != nil || len(s.Problems) > 0 {
				t.Errorf("%s is read and cannot be used: %v %v", r, err, s.Problems)
			}
		}
	})
}
