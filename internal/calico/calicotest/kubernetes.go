package calicotest

import (
	"cmp"
	"context"
	"encoding/json"
	"net/netip"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/kube"
	"vpp-route-agent/internal/calico/manifest"
)

// Objects takes what a cluster is in the Kubernetes datastore; kubetest.Server does. Keys are
// "namespace/name" or the name.
type Objects interface {
	Install(groupVersion string, plurals ...string)
	PutObject(kind string, object []byte)
	DeleteObject(kind, key string)
}

// Plurals are Calico's kinds that are written here.
var Plurals = []string{"ippools", "bgpconfigurations", "bgppeers", "bgpfilters",
	"felixconfigurations", "clusterinformations", "blockaffinities", "ipamblocks", "ipamhandles"}

// Mirror writes a cluster that is in etcd as the Kubernetes datastore would have it, too: at once,
// and with each change until ctx ends. What has no form there (handles, migrations, what is not
// JSON) is left out.
func Mirror(ctx context.Context, client *clientv3.Client, group string, to Objects) error {
	to.Install(group, Plurals...)
	m := mirror{group, to, map[string]mirrored{}, map[mirrored]string{}}
	now, err := client.Get(ctx, "/calico/", clientv3.WithPrefix())
	if err != nil {
		return err
	}
	for _, kv := range now.Kvs {
		m.put(string(kv.Key), kv.Value)
	}
	for resp := range client.Watch(ctx, "/calico/", clientv3.WithPrefix(),
		clientv3.WithRev(now.Header.Revision+1)) {
		if err := resp.Err(); err != nil {
			return err
		}
		for _, ev := range resp.Events {
			if ev.Type == clientv3.EventTypePut {
				m.put(string(ev.Kv.Key), ev.Kv.Value)
			} else {
				m.delete(string(ev.Kv.Key))
			}
		}
	}
	return nil
}

type mirror struct {
	group string
	to    Objects
	of    map[string]mirrored // by key of etcd
	owner map[mirrored]string // the key of etcd: a Pod that moves has two
}

type mirrored struct{ kind, key string }

func (m *mirror) put(key string, value []byte) {
	kind, object := m.object(key, value)
	if object == nil {
		return
	}
	o := mirrored{kind, object.key()}
	m.of[key], m.owner[o] = o, key
	m.to.PutObject(kind, object.json(m.group))
}

func (m *mirror) delete(key string) {
	o, ok := m.of[key]
	if ok && m.owner[o] == key {
		m.to.DeleteObject(o.kind, o.key)
		delete(m.owner, o)
	}
	delete(m.of, key)
}

// kubeObject is an object of the Kubernetes API.
type kubeObject struct {
	Kind     string            `json:"kind"`
	Metadata manifest.Metadata `json:"metadata"`
	Spec     any               `json:"spec,omitempty"`
	Status   any               `json:"status,omitempty"`
}

func (o *kubeObject) key() string {
	return strings.TrimPrefix(o.Metadata.Namespace+"/"+o.Metadata.Name, "/")
}

func (o *kubeObject) json(group string) []byte {
	version := "v1"
	if o.Kind != "Node" && o.Kind != "Pod" {
		version = group
	}
	text, err := json.Marshal(struct {
		APIVersion string `json:"apiVersion"`
		*kubeObject
	}{version, o})
	if err != nil {
		panic("calicotest: " + err.Error()) // it was JSON in etcd
	}
	return text
}

// object returns the object for a value of etcd, and its kind as RBAC has it; nil: there is none.
func (m *mirror) object(key string, value []byte) (kind string, o *kubeObject) {
	k, err := calico.ParseKey(key)
	if err != nil {
		return "", nil
	}
	crd := func(plural string) string { return plural + "." + strings.Split(m.group, "/")[0] }
	switch k.Kind {
	case calico.KindBlock:
		if !json.Valid(value) {
			return "", nil
		}
		return crd("ipamblocks"), &kubeObject{Kind: "IPAMBlock",
			Metadata: manifest.Metadata{Name: kube.BlockName(k.CIDR)}, Spec: json.RawMessage(value)}
	case calico.KindBlockAffinity:
		return crd("blockaffinities"), affinityObject(k, value)
	}
	var r manifest.Resource
	if json.Unmarshal(value, &r) != nil || len(r.Spec) == 0 {
		return "", nil
	}
	r.Metadata.Name, r.Metadata.Namespace = k.Name, k.Namespace
	switch k.Kind {
	case calico.KindNode:
		return "nodes", nodeObject(r)
	case calico.KindWorkloadEndpoint:
		return "pods", podObject(r)
	case calico.KindIPPool, calico.KindBGPConfiguration, calico.KindBGPPeer,
		calico.KindBGPFilter, calico.KindFelixConfiguration, calico.KindClusterInformation:
		return crd(strings.ToLower(string(k.Kind)) + "s"),
			&kubeObject{Kind: string(k.Kind), Metadata: r.Metadata, Spec: r.Spec}
	}
	return "", nil
}

func affinityObject(k calico.Key, value []byte) *kubeObject {
	var a manifest.Affinity
	if json.Unmarshal(value, &a) != nil {
		return nil
	}
	kind := "host"
	if k.Owner.Virtual != "" {
		kind = "virtual"
	}
	owner := cmp.Or(k.Owner.Host, k.Owner.Virtual)
	return &kubeObject{Kind: "BlockAffinity",
		Metadata: manifest.Metadata{Name: owner + "-" + kube.BlockName(k.CIDR)},
		Spec: map[string]string{"node": owner, "type": kind, "state": string(a.State),
			"cidr": k.CIDR.String(), "deleted": "false"}}
}

// nodeObject is a Node as calico-node annotates it, and a kubelet that is well keeps it.
func nodeObject(r manifest.Resource) *kubeObject {
	var spec struct {
		BGP                                      map[string]any
		IPv4VXLANTunnelAddr, IPv6VXLANTunnelAddr string
		Addresses                                []struct{ Address, Type string }
		Wireguard                                struct {
			InterfaceIPv4Address, InterfaceIPv6Address string
		}
	}
	if json.Unmarshal(r.Spec, &spec) != nil {
		return nil
	}
	notes := map[string]string{}
	note := func(name, text string) {
		if text != "" {
			notes["projectcalico.org/"+name] = text
		}
	}
	for field, name := range map[string]string{"ipv4Address": "IPv4Address",
		"ipv6Address": "IPv6Address", "asNumber": "ASNumber",
		"ipv4IPIPTunnelAddr":      "IPv4IPIPTunnelAddr",
		"routeReflectorClusterID": "RouteReflectorClusterID"} {
		switch v := spec.BGP[field].(type) {
		case string:
			note(name, v)
		case float64:
			text, _ := json.Marshal(uint64(v))
			note(name, string(text))
		}
	}
	note("IPv4VXLANTunnelAddr", spec.IPv4VXLANTunnelAddr)
	note("IPv6VXLANTunnelAddr", spec.IPv6VXLANTunnelAddr)
	note("IPv4WireguardInterfaceAddr", spec.Wireguard.InterfaceIPv4Address)
	note("IPv6WireguardInterfaceAddr", spec.Wireguard.InterfaceIPv6Address)
	type address struct {
		Type    string `json:"type"`
		Address string `json:"address"`
	}
	var addresses []address
	for _, a := range spec.Addresses {
		text, _, _ := strings.Cut(a.Address, "/")
		addresses = append(addresses, address{"InternalIP", text})
	}
	return &kubeObject{Kind: "Node",
		Metadata: manifest.Metadata{Name: r.Metadata.Name, Labels: r.Metadata.Labels,
			Annotations: notes},
		Status: map[string]any{"addresses": addresses,
			"conditions": []any{map[string]string{"type": "Ready", "status": "True"}}}}
}

// podObject is the Pod of a WorkloadEndpoint that the CNI plugin made.
func podObject(r manifest.Resource) *kubeObject {
	var spec manifest.WorkloadEndpointSpec
	if json.Unmarshal(r.Spec, &spec) != nil || spec.Pod == "" {
		return nil
	}
	type podIP struct {
		IP string `json:"ip"`
	}
	var ips []podIP
	for _, n := range spec.IPNetworks {
		p, err := netip.ParsePrefix(n)
		if err != nil {
			return nil
		}
		ips = append(ips, podIP{p.Addr().String()})
	}
	labels := map[string]string{}
	for k, v := range r.Metadata.Labels {
		if !strings.HasPrefix(k, "projectcalico.org/") {
			labels[k] = v
		}
	}
	return &kubeObject{Kind: "Pod",
		Metadata: manifest.Metadata{Name: spec.Pod, Namespace: r.Metadata.Namespace,
			Labels: labels},
		Spec:   map[string]any{"nodeName": spec.Node},
		Status: map[string]any{"phase": "Running", "podIPs": ips}}
}
