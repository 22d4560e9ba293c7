package kube

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"vpp-route-agent/internal/calico"
)

// Annotations of a Pod, by the CNI plugin (libcalico-go lib/backend/k8s/conversion).
const (
	podIPNote       = "cni.projectcalico.org/podIP"
	podIPsNote      = "cni.projectcalico.org/podIPs"
	awsPodIPsNote   = "vpc.amazonaws.com/pod-ips"
	floatingIPsNote = "cni.projectcalico.org/floatingIPs"
)

// podObject is what is read of a Pod.
type podObject struct {
	Metadata struct {
		Labels            map[string]string `json:"labels"`
		Annotations       map[string]string `json:"annotations"`
		DeletionTimestamp *string           `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		NodeName           string `json:"nodeName"`
		HostNetwork        bool   `json:"hostNetwork"`
		ServiceAccountName string `json:"serviceAccountName"`
	} `json:"spec"`
	Status struct {
		Phase  string `json:"phase"`
		PodIP  string `json:"podIP"`
		PodIPs []struct {
			IP string `json:"ip"`
		} `json:"podIPs"`
	} `json:"status"`
}

// podItem is the WorkloadEndpoint of a Pod; one with the host's network has none.
func podItem(name string, o object) calico.Item {
	var p podObject
	if err := unmarshal(o.json, &p); err != nil {
		return calico.Item{Name: name, Err: err}
	}
	if p.Spec.HostNetwork || p.Spec.NodeName == "" {
		return calico.Item{}
	}
	w := calico.WorkloadEndpoint{
		Namespace: o.namespace,
		Name: calico.WorkloadEndpointName(p.Spec.NodeName, calico.OrchestratorKubernetes,
			o.name, "eth0"),
		Labels: podLabels(o.namespace, p), Node: p.Spec.NodeName,
		InterfaceName: vethName(o.namespace, o.name),
		Orchestrator:  calico.OrchestratorKubernetes, Workload: o.name, Endpoint: "eth0",
	}
	item := calico.Item{Name: name,
		Key: calico.Key{Kind: calico.KindWorkloadEndpoint, Namespace: w.Namespace, Name: w.Name}}
	for field, ip := range p.addresses() {
		network, err := calico.ParseNetwork(ip)
		if err != nil {
			item.Err = fmt.Errorf("%s: %w", field, err)
			return item
		}
		w.IPNetworks = append(w.IPNetworks, network)
	}
	if p.finished() {
		w.IPNetworks = nil
	}
	w.FloatingIPs, item.Err = floatingIPs(p.Metadata.Annotations[floatingIPsNote], w.IPNetworks)
	item.Value = w
	return item
}

// addresses yields the addresses of a Pod and where they are written: the status goes before what
// the CNI plugin has annotated.
func (p podObject) addresses() func(yield func(field, ip string) bool) {
	notes := p.Metadata.Annotations
	var all []string
	from := ""
	note := func(name string) string { return "metadata.annotations[" + name + "]" }
	switch {
	case len(p.Status.PodIPs) > 0:
		from = "status.podIPs"
		for _, ip := range p.Status.PodIPs {
			all = append(all, ip.IP)
		}
	case p.Status.PodIP != "":
		from, all = "status.podIP", []string{p.Status.PodIP}
	case notes[podIPsNote] != "":
		from, all = note(podIPsNote), strings.Split(notes[podIPsNote], ",")
	case notes[podIPNote] != "":
		from, all = note(podIPNote), []string{notes[podIPNote]}
	case notes[awsPodIPsNote] != "":
		from, all = note(awsPodIPsNote), strings.Split(notes[awsPodIPsNote], ",")
	}
	return func(yield func(string, string) bool) {
		for _, ip := range all {
			if !yield(from, ip) {
				return
			}
		}
	}
}

// finished reports whether a Pod has lost its addresses: it has ended, or it is being deleted and
// the CNI plugin has emptied its annotation.
func (p podObject) finished() bool {
	if p.Metadata.DeletionTimestamp != nil {
		for _, note := range []string{podIPNote, awsPodIPsNote} {
			if ip, there := p.Metadata.Annotations[note]; there && ip == "" {
				return true
			}
		}
	}
	switch p.Status.Phase {
	case "Failed", "Succeeded", "Completed":
		return true
	}
	return false
}

func podLabels(namespace string, p podObject) map[string]string {
	labels := calico.WorkloadLabels(p.Metadata.Labels, p.Spec.ServiceAccountName)
	if labels == nil {
		labels = map[string]string{}
	}
	labels["projectcalico.org/namespace"] = namespace
	labels["projectcalico.org/orchestrator"] = calico.OrchestratorKubernetes
	return labels
}

// vethName is what the CNI plugin calls the host's side of a Pod's link.
func vethName(namespace, pod string) string {
	sum := sha1.Sum([]byte(namespace + "." + pod))
	return "cali" + hex.EncodeToString(sum[:])[:11]
}

// floatingIPs are those of a family of which the Pod has an address.
func floatingIPs(note string, networks []netip.Prefix) (all []netip.Addr, err error) {
	if note == "" || len(networks) == 0 {
		return nil, nil
	}
	var texts []string
	if json.Unmarshal([]byte(note), &texts) != nil {
		return nil, errors.New("metadata.annotations[" + floatingIPsNote +
			"]: it is no JSON list of addresses")
	}
	has := map[bool]bool{}
	for _, n := range networks {
		has[n.Addr().Is6()] = true
	}
	for _, text := range texts {
		// they are only reported, and the workload stays
		if a, err := netip.ParseAddr(text); err == nil && has[a.Is6()] {
			all = append(all, a)
		}
	}
	return all, nil
}
