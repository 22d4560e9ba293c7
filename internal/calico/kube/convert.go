// Package kube says what objects of the Kubernetes API stand for where Calico keeps its data there.
// The conversions are pure, and follow libcalico-go lib/backend/k8s. It reads and writes nothing.
package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"vpp-route-agent/internal/calico"
)

// object is an object of the Kubernetes API.
type object struct {
	namespace, name string
	json            []byte
}

// placed is what an object stands for, and the place where the Store has it. One without Value and
// Err stands for nothing.
type placed struct {
	place string
	item  calico.Item
}

// converter knows what a conversion depends on besides the object.
type converter struct {
	podCIDRs bool   // a Node's podCIDRs are its blocks
	node     string // what Kubernetes calls this node
	// before returns what is known of an item; nil: nothing.
	before func(calico.Key) any
}

// kind is a kind of object.
type kind struct {
	plural     string // in URLs
	name       string // as kubectl prints it
	namespaced bool
	items      func(c converter, place, name string, o object) []placed
}

// place is where the Store has what o stands for. It does not depend on the content.
func (k kind) place(o object) string {
	if o.namespace != "" {
		return k.plural + "/" + o.namespace + "/" + o.name
	}
	return k.plural + "/" + o.name
}

// title is what kubectl calls o: "IPAMBlock(10-1-0-0-26)".
func (k kind) title(o object) string {
	if o.namespace != "" {
		return k.name + "(" + o.namespace + "/" + o.name + ")"
	}
	return k.name + "(" + o.name + ")"
}

// convert returns what o stands for, always at the same places.
func (k kind) convert(c converter, o object) []placed {
	return k.items(c, k.place(o), k.title(o), o)
}

var (
	nodes = kind{plural: "nodes", name: "Node", items: nodeItems}
	pods  = kind{plural: "pods", name: "Pod", namespaced: true,
		items: func(_ converter, place, name string, o object) []placed {
			return []placed{{place, podItem(name, o)}}
		}}
	services = kind{plural: "services", name: "Service", namespaced: true,
		items: func(_ converter, place, name string, o object) []placed {
			return []placed{{place, serviceItem(name, o)}}
		}}
	endpointSlices = kind{plural: "endpointslices", name: "EndpointSlice", namespaced: true,
		items: func(c converter, place, name string, o object) []placed {
			return []placed{{place, sliceItem(name, c.node, o)}}
		}}
	machineMigrations = kind{plural: "virtualmachineinstancemigrations", namespaced: true,
		name: "VirtualMachineInstanceMigration",
		items: func(_ converter, place, name string, o object) []placed {
			return []placed{{place, migrationItem(name, o)}}
		}}
	ipPools = kind{plural: "ippools", name: string(calico.KindIPPool),
		items: func(_ converter, place, name string, o object) []placed {
			return []placed{{place, poolItem(name, o)}}
		}}
	bgpConfigurations   = resource("bgpconfigurations", calico.KindBGPConfiguration)
	bgpPeers            = resource("bgppeers", calico.KindBGPPeer)
	bgpFilters          = resource("bgpfilters", calico.KindBGPFilter)
	felixConfigurations = resource("felixconfigurations", calico.KindFelixConfiguration)
	clusterInformations = resource("clusterinformations", calico.KindClusterInformation)
	blockAffinities     = kind{plural: "blockaffinities", name: "BlockAffinity",
		items: func(_ converter, place, name string, o object) []placed {
			return []placed{{place, affinityItem(name, o)}}
		}}
	ipamBlocks = kind{plural: "ipamblocks", name: "IPAMBlock",
		items: func(_ converter, place, name string, o object) []placed {
			return []placed{{place, blockItem(name, o)}}
		}}
)

// resource is a kind whose objects look as Calico's resources in etcd do.
func resource(plural string, k calico.Kind) kind {
	return kind{plural: plural, name: string(k),
		items: func(_ converter, place, name string, o object) []placed {
			item := calico.Decode(calico.Key{Kind: k, Name: o.name}, o.json)
			item.Name = name
			return []placed{{place, item}}
		}}
}

// poolItem is the item of an IPPool. One that Calico 2 wrote says in ipip what ipipMode says today:
// Calico up to 3.31 goes by it, and later CRDs lack it (libcalico-go
// lib/backend/k8s/resources/ippool.go).
func poolItem(name string, o object) calico.Item {
	var stored struct {
		Spec struct {
			IPIP *struct {
				Enabled bool   `json:"enabled"`
				Mode    string `json:"mode"`
			} `json:"ipip"`
		} `json:"spec"`
	}
	if err := unmarshal(o.json, &stored); err != nil {
		return calico.Item{Name: name, Err: err}
	}
	item := calico.Decode(calico.Key{Kind: calico.KindIPPool, Name: o.name}, o.json)
	item.Name = name
	old := stored.Spec.IPIP
	pool, usable := item.Value.(calico.IPPool)
	if old == nil || !usable {
		return item
	}
	switch {
	case !old.Enabled:
		pool.IPIPMode = calico.EncapNever
	case old.Mode == "cross-subnet":
		pool.IPIPMode = calico.EncapCrossSubnet
	default:
		pool.IPIPMode = calico.EncapAlways
	}
	item.Value = pool
	return item
}

// blockItem is the item of an IPAMBlock, whose spec is what etcd has as a block.
func blockItem(name string, o object) calico.Item {
	item := calico.DecodeBlockObject(o.json)
	item.Name = name
	return item
}

// affinityItem is the item of a BlockAffinity. spec.deleted is a string in crd.projectcalico.org/v1
// and a bool in projectcalico.org/v3; without a type it is a host's.
func affinityItem(name string, o object) calico.Item {
	var stored struct {
		Spec struct {
			State   json.RawMessage `json:"state"`
			Node    string          `json:"node"`
			Type    string          `json:"type"`
			CIDR    string          `json:"cidr"`
			Deleted json.RawMessage `json:"deleted"`
		} `json:"spec"`
	}
	fail := func(err error) calico.Item { return calico.Item{Name: name, Err: err} }
	if err := unmarshal(o.json, &stored); err != nil {
		return fail(err)
	}
	spec := stored.Spec
	deleted, err := isTrue(spec.Deleted)
	switch {
	case err != nil:
		return fail(fmt.Errorf("spec.deleted: %w", err))
	case deleted:
		return calico.Item{}
	case spec.Node == "":
		return fail(errors.New("spec.node: it names no node"))
	}
	owner := calico.Owner{Host: spec.Node}
	switch spec.Type {
	case "", "host":
	case "virtual":
		owner = calico.Owner{Virtual: spec.Node}
	default:
		return fail(fmt.Errorf("spec.type: %q is neither host nor virtual", spec.Type))
	}
	cidr, err := calico.ParseBlock(spec.CIDR)
	if err != nil {
		return fail(fmt.Errorf("spec.cidr: %w", err))
	}
	value, err := json.Marshal(map[string]json.RawMessage{"state": spec.State})
	if err != nil {
		return fail(err)
	}
	item := calico.Decode(calico.Key{Kind: calico.KindBlockAffinity, Owner: owner, CIDR: cidr},
		value)
	item.Name, item.Err = name, wrap("spec", item.Err)
	return item
}

// isTrue reads true, "true" and what strconv takes for it. Nothing and "" are false.
func isTrue(raw json.RawMessage) (bool, error) {
	text := strings.Trim(string(raw), `"`)
	if text == "" || text == "null" {
		return false, nil
	}
	is, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%.40q is not true or false", text)
	}
	return is, nil
}

// unmarshal says which field is wrong, in terms of the object rather than of Go.
func unmarshal(raw []byte, into any) error {
	err := json.Unmarshal(raw, into)
	if wrongType := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrongType) {
		return fmt.Errorf("%s: cannot be a JSON %s", wrongType.Field, wrongType.Value)
	}
	return err
}

// wrap prefixes err, which may be nil, with a field's name.
func wrap(field string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s.%w", field, err)
}
