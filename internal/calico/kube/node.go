package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"vpp-route-agent/internal/calico"
)

// Annotations of a Node that calico-node writes (libcalico-go lib/backend/k8s/resources/node.go).
const (
	annotated     = "projectcalico.org/"
	labelsNote    = annotated + "labels" // set with calicoctl, as JSON
	ipv4Note      = annotated + "IPv4Address"
	ipv6Note      = annotated + "IPv6Address"
	asNote        = annotated + "ASNumber"
	clusterNote   = annotated + "RouteReflectorClusterID"
	ipipNote      = annotated + "IPv4IPIPTunnelAddr"
	vxlanNote     = annotated + "IPv4VXLANTunnelAddr"
	vxlan6Note    = annotated + "IPv6VXLANTunnelAddr"
	macNote       = annotated + "VXLANTunnelMACAddr"
	mac6Note      = annotated + "VXLANTunnelMACAddrV6"
	wgNote        = annotated + "IPv4WireguardInterfaceAddr"
	wg6Note       = annotated + "IPv6WireguardInterfaceAddr"
	wgPublicNote  = annotated + "WireguardPublicKey"
	wg6PublicNote = annotated + "WireguardPublicKeyV6"
)

// nodeObject is what is read of a Node.
type nodeObject struct {
	Metadata struct {
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		PodCIDR  string   `json:"podCIDR"`
		PodCIDRs []string `json:"podCIDRs"`
	} `json:"spec"`
	Status struct {
		Addresses []struct {
			Type    string `json:"type"`
			Address string `json:"address"`
		} `json:"addresses"`
	} `json:"status"`
}

// nodeItems returns the Node, and with podCIDRs its blocks. Kubernetes allows one per family.
func nodeItems(c converter, place, name string, o object) []placed {
	var n nodeObject
	key := calico.Key{Kind: calico.KindNode, Name: o.name}
	item := calico.Item{Key: key, Name: name}
	if item.Err = unmarshal(o.json, &n); item.Err != nil {
		return []placed{{place, item}}
	}
	before, _ := c.before(key).(calico.Node)
	item.Value, item.Err = convertNode(o.name, n, before, c.podCIDRs)
	all := []placed{{place, item}}
	if !c.podCIDRs {
		return all
	}
	for i, at := range podCIDRPlaces(place) {
		block, affinity := podCIDRItems(n, i, o.name, name)
		all = append(all, placed{at.affinity, affinity}, placed{at.block, block})
	}
	return all
}

// podCIDRPlaces are where the Store has what a Node's podCIDRs stand for.
func podCIDRPlaces(node string) (all [2]struct{ block, affinity string }) {
	for i := range all {
		at := fmt.Sprintf("%s/spec.podCIDRs[%d]", node, i)
		all[i].block, all[i].affinity = at, at+", affinity"
	}
	return all
}

// podCIDRItems returns the i-th podCIDR as a block of its node, and as its affinity.
func podCIDRItems(n nodeObject, i int, node, name string) (block, affinity calico.Item) {
	if i >= len(n.Spec.PodCIDRs) {
		return block, affinity
	}
	cidr, err := calico.ParseNetwork(n.Spec.PodCIDRs[i])
	if err == nil && cidr.Bits() == 0 {
		err = errors.New("it is all addresses")
	}
	if err != nil {
		block.Name, block.Err = name, fmt.Errorf("spec.podCIDRs[%d]: %w", i, err)
		return block, affinity
	}
	owner := calico.Owner{Host: node}
	return calico.Item{Key: calico.Key{Kind: calico.KindBlock, CIDR: cidr}, Name: name,
			Value: calico.Block{CIDR: cidr, Owner: owner}},
		calico.Item{Key: calico.Key{Kind: calico.KindBlockAffinity, Owner: owner, CIDR: cidr},
			Name: name, Value: calico.AffinityConfirmed}
}

// convertNode returns a Node. Each annotation is checked alone: one that cannot be used is an
// error, and what the Node said before counts.
func convertNode(name string, n nodeObject, before calico.Node, podCIDRs bool) (calico.Node,
	error) {
	notes := n.Metadata.Annotations
	out := calico.Node{Name: name}
	var errs []string
	wrong := func(field string, err error) bool {
		if err != nil {
			errs = append(errs, fmt.Sprintf("metadata.annotations[%s]: %v", field, err))
		}
		return err != nil
	}
	var err error
	if out.Labels, err = mergeLabels(notes[labelsNote], n.Metadata.Labels); wrong(labelsNote,
		err) {
		out.Labels = withLabels(before.Labels, n.Metadata.Labels)
	}
	for _, p := range []struct {
		note         string
		v6           bool
		into, before *netip.Prefix
	}{
		{ipv4Note, false, &out.IPv4, &before.IPv4}, {ipv6Note, true, &out.IPv6, &before.IPv6},
	} {
		if *p.into, err = calico.ParseHostPrefix(notes[p.note], p.v6); wrong(p.note, err) {
			*p.into = *p.before
		}
	}
	if text := notes[asNote]; text != "" {
		if out.ASNumber, err = calico.ParseASNumber(text); wrong(asNote, err) {
			out.ASNumber = before.ASNumber
		}
	}
	out.RouteReflectorClusterID = notes[clusterNote]
	if id := out.RouteReflectorClusterID; id != "" {
		if a, err := netip.ParseAddr(id); err != nil || !a.Is4() {
			wrong(clusterNote, fmt.Errorf("%.40q is not a dotted quad", id))
			out.RouteReflectorClusterID = before.RouteReflectorClusterID
		}
	}
	out.VXLANTunnelMACAddr, out.VXLANTunnelMACAddrV6 = notes[macNote], notes[mac6Note]
	out.WireguardKey = notes[wgPublicNote]+notes[wg6PublicNote] != ""
	tunnels := notes
	if podCIDRs && n.Spec.PodCIDR != "" {
		tunnels = staticTunnels(n)
	}
	for _, t := range []struct {
		from         map[string]string
		note         string
		v6           bool
		into, before *netip.Addr
	}{
		{tunnels, ipipNote, false, &out.IPv4IPIPTunnelAddr, &before.IPv4IPIPTunnelAddr},
		{notes, vxlanNote, false, &out.IPv4VXLANTunnelAddr, &before.IPv4VXLANTunnelAddr},
		{notes, vxlan6Note, true, &out.IPv6VXLANTunnelAddr, &before.IPv6VXLANTunnelAddr},
		{tunnels, wgNote, false, &out.WireguardIPv4, &before.WireguardIPv4},
		{tunnels, wg6Note, true, &out.WireguardIPv6, &before.WireguardIPv6},
	} {
		if *t.into, err = calico.ParseHostAddr(t.from[t.note], t.v6); wrong(t.note, err) {
			*t.into = *t.before
		}
	}
	addresses := []netip.Addr{out.IPv4.Addr(), out.IPv6.Addr()}
	for _, a := range n.Status.Addresses {
		if p, err := calico.ParseNetwork(a.Address); err == nil && a.Type == "InternalIP" {
			addresses = append(addresses, p.Addr())
		}
	}
	out.HostIPv4, out.HostIPv6 = calico.FirstOfEach(addresses)
	if errs != nil {
		return out, errors.New(strings.Join(errs, "; "))
	}
	return out, nil
}

// staticTunnels are the tunnel addresses of a node whose pods have addresses by host-local: the one
// behind that of its podCIDR.
func staticTunnels(n nodeObject) map[string]string {
	first := ""
	if p, err := calico.ParseHostPrefix(n.Spec.PodCIDR, false); err == nil {
		first = p.Addr().Next().String()
	}
	all := map[string]string{ipipNote: first}
	if n.Metadata.Annotations[wgPublicNote] != "" {
		all[wgNote] = first
	}
	return all
}

// mergeLabels adds Kubernetes' labels, which go first, to those set with calicoctl.
func mergeLabels(calicos string, kubernetes map[string]string) (map[string]string, error) {
	var all map[string]string
	if calicos != "" {
		if json.Unmarshal([]byte(calicos), &all) != nil {
			return nil, errors.New("it is no JSON of labels")
		}
	}
	return withLabels(all, kubernetes), nil
}

func withLabels(all, more map[string]string) map[string]string {
	if len(all)+len(more) == 0 {
		return nil
	}
	out := make(map[string]string, len(all)+len(more))
	for _, from := range []map[string]string{all, more} {
		for k, v := range from {
			out[k] = v
		}
	}
	return out
}
