package kube

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"vpp-route-agent/internal/calico"
)

// Object is an object of the Kubernetes API as kubectl prints it.
type Object struct {
	kind   kind
	object object
}

// groups have the objects that are read, by apiVersion. Of projectcalico.org/v3 it is what
// calicoctl has no resources for.
var groups = map[string][]kind{
	"v1":                  {nodes, pods, services},
	"discovery.k8s.io/v1": {endpointSlices},
	"kubevirt.io/v1":      {machineMigrations},
	"crd.projectcalico.org/v1": {ipPools, bgpConfigurations, bgpPeers, bgpFilters,
		felixConfigurations, clusterInformations, blockAffinities, ipamBlocks},
	"projectcalico.org/v3": {ipamBlocks},
}

// ReadObject reads an object of Kubernetes from JSON, and reports whether it is one. One that lacks
// its namespace is in "default", as for kubectl. What it says is not looked at until Put.
func ReadObject(text []byte) (o Object, is bool, err error) {
	var head struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Metadata   metadata `json:"metadata"`
	}
	if json.Unmarshal(text, &head) != nil {
		return Object{}, false, nil
	}
	var names []string
	for _, k := range groups[head.APIVersion] {
		names = append(names, k.name)
		if k.name != head.Kind {
			continue
		}
		o = Object{k, object{head.Metadata.Namespace, head.Metadata.Name, text}}
		if k.namespaced {
			o.object.namespace = cmp.Or(o.object.namespace, "default")
		}
		switch {
		case o.object.name == "" || strings.Contains(o.object.name, "/"):
			return o, true, fmt.Errorf("%s: metadata.name %q is not a name", k.name, o.object.name)
		case !k.namespaced && o.object.namespace != "":
			return o, true, fmt.Errorf("%s: metadata.namespace is %q", k.title(o.object),
				o.object.namespace)
		}
		return o, true, nil
	}
	if names == nil || head.APIVersion == "projectcalico.org/v3" {
		return Object{}, false, nil
	}
	return Object{}, true, fmt.Errorf("kind %q of %s is not one of %s", head.Kind,
		head.APIVersion, strings.Join(names, ", "))
}

// Read reads an object that the API server has among those of plural, whose items lack what
// ReadObject goes by. One without a name is an error; what else it says is not looked at.
func Read(plural string, text []byte) (Object, error) {
	m := metadataOf(text)
	o := Object{plurals[plural], object{m.Namespace, m.Name, text}}
	if o.object.name == "" {
		return o, fmt.Errorf("%s: metadata.name is missing", plural)
	}
	return o, nil
}

type metadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// metadataOf reads no further than it must: what follows is mostly much longer, and its converter
// reads it anyway. A field of another type leaves the others.
func metadataOf(text []byte) (m metadata) {
	d := json.NewDecoder(bytes.NewReader(text))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return m
	}
	for d.More() {
		field, err := d.Token()
		if err != nil {
			return m
		}
		if field == "metadata" {
			_ = d.Decode(&m)
			return m
		}
		if d.Decode(new(json.RawMessage)) != nil {
			return m
		}
	}
	return m
}

// plurals are the kinds by what they are called in URLs.
var plurals = func() map[string]kind {
	all := map[string]kind{}
	for _, kinds := range groups {
		for _, k := range kinds {
			all[k.plural] = k
		}
	}
	return all
}()

// Place begins the places where a Store has the objects of a kind, or with a name this one's.
func Place(plural, name string) string { return plural + "/" + name }

// BlockName is what IPAM calls the object of a block (libcalico-go lib/names).
func BlockName(cidr netip.Prefix) string {
	return strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(cidr.String())
}

// Options say what objects stand for.
type Options struct {
	// UsePodCIDR: a Node's podCIDRs are its blocks, as in clusters where calico-node has
	// USE_POD_CIDR.
	UsePodCIDR bool
	// NodeRef is what Kubernetes calls the node of the Store, calico-node's CALICO_K8S_NODE_REF;
	// "": what Calico calls it.
	NodeRef string
}

// Put sets in s what o stands for.
func (o Object) Put(s *calico.Store, as Options) {
	c := converter{as.UsePodCIDR, cmp.Or(as.NodeRef, s.Node()), s.Value}
	for _, p := range o.kind.convert(c, o.object) {
		s.Set(p.place, p.item)
	}
}

// Placed is an item and its place in a Store.
type Placed struct {
	Place string
	Item  calico.Item
}

// Items are what o stands for, for whoever wants those of all nodes.
func (o Object) Items(as Options) (all []Placed) {
	c := converter{as.UsePodCIDR, as.NodeRef, func(calico.Key) any { return nil }}
	for _, p := range o.kind.convert(c, o.object) {
		all = append(all, Placed{p.place, p.item})
	}
	return all
}

// Delete undoes Put, also of an object that says something else by now.
func (o Object) Delete(s *calico.Store) {
	place := o.kind.place(o.object)
	s.Delete(place)
	if o.kind.plural == nodes.plural {
		for _, at := range podCIDRPlaces(place) {
			s.Delete(at.affinity)
			s.Delete(at.block)
		}
	}
}
