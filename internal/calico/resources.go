package calico

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
)

// decodeNode decodes a Node. BGP does not depend on the addresses of tunnels, so that what before
// says counts in place of one that cannot be used.
func decodeNode(k Key, value []byte, before Node) (Node, error) {
	var spec struct {
		BGP struct {
			ASNumber                asNumber `json:"asNumber"`
			IPv4Address             string   `json:"ipv4Address"`
			IPv6Address             string   `json:"ipv6Address"`
			IPv4IPIPTunnelAddr      string   `json:"ipv4IPIPTunnelAddr"`
			RouteReflectorClusterID string   `json:"routeReflectorClusterID"`
		} `json:"bgp"`
		IPv4VXLANTunnelAddr  string          `json:"ipv4VXLANTunnelAddr"`
		IPv6VXLANTunnelAddr  string          `json:"ipv6VXLANTunnelAddr"`
		VXLANTunnelMACAddr   string          `json:"vxlanTunnelMACAddr"`
		VXLANTunnelMACAddrV6 string          `json:"vxlanTunnelMACAddrV6"`
		Addresses            json.RawMessage `json:"addresses"`
		Wireguard            struct {
			IPv4 string `json:"interfaceIPv4Address"`
			IPv6 string `json:"interfaceIPv6Address"`
		} `json:"wireguard"`
	}
	labels, err := decodeSpec(k, value, &spec)
	if err != nil {
		return Node{}, err
	}
	var status struct {
		Status struct {
			Key   string `json:"wireguardPublicKey"`
			KeyV6 string `json:"wireguardPublicKeyV6"`
		} `json:"status"`
	}
	_ = unmarshal(value, &status) // what is no text is no key
	n := Node{Name: k.Name, Labels: labels,
		WireguardKey:            status.Status.Key+status.Status.KeyV6 != "",
		ASNumber:                uint32(spec.BGP.ASNumber),
		RouteReflectorClusterID: spec.BGP.RouteReflectorClusterID,
		VXLANTunnelMACAddr:      spec.VXLANTunnelMACAddr,
		VXLANTunnelMACAddrV6:    spec.VXLANTunnelMACAddrV6}
	n.HostIPv4, n.HostIPv6 = hostAddresses(spec.Addresses)
	var errs []error
	n.IPv4, err = ParseHostPrefix(spec.BGP.IPv4Address, false)
	errs = append(errs, wrapField("spec.bgp.ipv4Address", err))
	n.IPv6, err = ParseHostPrefix(spec.BGP.IPv6Address, true)
	errs = append(errs, wrapField("spec.bgp.ipv6Address", err))
	if id := n.RouteReflectorClusterID; id != "" {
		if a, err := netip.ParseAddr(id); err != nil || !a.Is4() {
			errs = append(errs, fmt.Errorf("spec.bgp.routeReflectorClusterID: %q is not a "+
				"dotted quad", id))
		}
	}
	bgp := oneLine(errs)
	for _, t := range []struct {
		field, text  string
		v6           bool
		into, before *netip.Addr
	}{
		{"spec.bgp.ipv4IPIPTunnelAddr", spec.BGP.IPv4IPIPTunnelAddr, false,
			&n.IPv4IPIPTunnelAddr, &before.IPv4IPIPTunnelAddr},
		{"spec.ipv4VXLANTunnelAddr", spec.IPv4VXLANTunnelAddr, false,
			&n.IPv4VXLANTunnelAddr, &before.IPv4VXLANTunnelAddr},
		{"spec.ipv6VXLANTunnelAddr", spec.IPv6VXLANTunnelAddr, true,
			&n.IPv6VXLANTunnelAddr, &before.IPv6VXLANTunnelAddr},
		{"spec.wireguard.interfaceIPv4Address", spec.Wireguard.IPv4, false,
			&n.WireguardIPv4, &before.WireguardIPv4},
		{"spec.wireguard.interfaceIPv6Address", spec.Wireguard.IPv6, true,
			&n.WireguardIPv6, &before.WireguardIPv6},
	} {
		if *t.into, err = ParseHostAddr(t.text, t.v6); err != nil {
			if *t.into = *t.before; t.before.IsValid() {
				err = fmt.Errorf("%w, %s counts", err, t.before)
			}
			errs = append(errs, wrapField(t.field, err))
		}
	}
	switch err := oneLine(errs); {
	case bgp != nil:
		return n, err
	case err != nil:
		return n, partialError(err.Error())
	}
	return n, nil
}

// hostAddresses returns the first address of each family in spec.addresses by which other nodes may
// reach this one. It ignores invalid ones: a Node's sessions do not depend on them.
func hostAddresses(raw json.RawMessage) (v4, v6 netip.Addr) {
	var all []struct {
		Address string `json:"address"`
		Type    string `json:"type"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &all) != nil {
		return v4, v6
	}
	var fit []netip.Addr
	for _, a := range all {
		p, err := parseHostPrefix(a.Address)
		if err == nil && (a.Type == "CalicoNodeIP" || a.Type == "InternalIP") {
			fit = append(fit, p.Addr())
		}
	}
	return FirstOfEach(fit)
}

// FirstOfEach returns the first address of each family by which other nodes may reach a host.
func FirstOfEach(all []netip.Addr) (v4, v6 netip.Addr) {
	for _, a := range all {
		switch {
		case !a.IsValid() || unfitNextHop(a):
		case a.Is4() && !v4.IsValid():
			v4 = a
		case a.Is6() && !v6.IsValid():
			v6 = a
		}
	}
	return v4, v6
}

func decodeIPPool(k Key, value []byte) (IPPool, error) {
	var spec struct {
		CIDR             string    `json:"cidr"`
		IPIPMode         EncapMode `json:"ipipMode"`
		VXLANMode        EncapMode `json:"vxlanMode"`
		Disabled         bool      `json:"disabled"`
		DisableBGPExport bool      `json:"disableBGPExport"`
		BlockSize        int       `json:"blockSize"`
	}
	if _, err := decodeSpec(k, value, &spec); err != nil {
		return IPPool{}, err
	}
	cidr, err := ParseNetwork(spec.CIDR)
	if err == nil && !strings.Contains(spec.CIDR, "/") {
		err = fmt.Errorf("%q has no prefix length", spec.CIDR)
	}
	errs := []error{wrapField("spec.cidr", err)}
	unusable := err != nil
	blockSize, shortest, longest := 26, 20, 32
	if cidr.IsValid() && cidr.Addr().Is6() {
		blockSize, shortest, longest = 122, 116, 128
	}
	switch {
	case spec.BlockSize == 0 || unusable:
	case spec.BlockSize < shortest || spec.BlockSize > longest:
		errs = append(errs, fmt.Errorf("spec.blockSize: %d is not from %d to %d, %d counts",
			spec.BlockSize, shortest, longest, blockSize))
	default:
		blockSize = spec.BlockSize
	}
	ipip, err := parseEncapMode(spec.IPIPMode)
	errs = append(errs, wrapField("spec.ipipMode", err))
	vxlan, err := parseEncapMode(spec.VXLANMode)
	errs = append(errs, wrapField("spec.vxlanMode", err))
	p := IPPool{
		Name:             k.Name,
		CIDR:             cidr,
		IPIPMode:         ipip,
		VXLANMode:        vxlan,
		Disabled:         spec.Disabled,
		DisableBGPExport: spec.DisableBGPExport,
		BlockSize:        blockSize,
	}
	err = oneLine(errs)
	if err != nil && !unusable {
		err = partialError(err.Error())
	}
	return p, err
}

// parseEncapMode returns Never for what is no mode, as Calico does (libcalico-go, IPPoolV3ToV1).
func parseEncapMode(m EncapMode) (EncapMode, error) {
	switch m {
	case "":
		return EncapNever, nil
	case EncapNever, EncapAlways, EncapCrossSubnet:
		return m, nil
	}
	return EncapNever, fmt.Errorf("%.40q is none of Never, Always, CrossSubnet, Never counts", m)
}

// IsInherited reports whether workloads have a label from profiles, as those of namespaces and
// service accounts (libcalico-go/lib/backend/k8s/conversion/constants.go). Felix adds them before
// it selects.
func IsInherited(label string) bool {
	return strings.HasPrefix(label, "pcns.") || strings.HasPrefix(label, "pcsa.")
}

// WorkloadLabels returns the labels of a workload by which Felix selects, of those that it has
// itself (libcalico-go, workloadendpointprocessor.go): it cannot give itself what it would inherit.
func WorkloadLabels(own map[string]string, serviceAccount string) map[string]string {
	labels := maps.Clone(own)
	maps.DeleteFunc(labels, func(label, _ string) bool { return IsInherited(label) })
	if serviceAccount != "" {
		if labels == nil {
			labels = map[string]string{}
		}
		labels["projectcalico.org/serviceaccount"] = serviceAccount
	}
	return labels
}

func decodeWorkloadEndpoint(k Key, value []byte) (WorkloadEndpoint, error) {
	var spec struct {
		Node       string   `json:"node"`
		IPNetworks []string `json:"ipNetworks"`
		IPNATs     []struct {
			ExternalIP string `json:"externalIP"`
		} `json:"ipNATs"`
		InterfaceName      string `json:"interfaceName"`
		ServiceAccountName string `json:"serviceAccountName"`
		Orchestrator       string `json:"orchestrator"`
		Workload           string `json:"workload"`
		Pod                string `json:"pod"`
		Endpoint           string `json:"endpoint"`
	}
	labels, err := decodeSpec(k, value, &spec)
	if err != nil {
		return WorkloadEndpoint{}, err
	}
	w := WorkloadEndpoint{
		Namespace: k.Namespace, Name: k.Name, Node: spec.Node,
		Labels:        WorkloadLabels(labels, spec.ServiceAccountName),
		InterfaceName: spec.InterfaceName,
		Orchestrator:  spec.Orchestrator, Workload: cmp.Or(spec.Workload, spec.Pod),
		Endpoint: spec.Endpoint,
	}
	for i, text := range spec.IPNetworks {
		p, err := ParseNetwork(text)
		if err != nil {
			return WorkloadEndpoint{}, fmt.Errorf("spec.ipNetworks[%d]: %w", i, err)
		}
		w.IPNetworks = append(w.IPNetworks, p)
	}
	for _, nat := range spec.IPNATs {
		// they are only reported, and the workload stays
		if a, err := netip.ParseAddr(nat.ExternalIP); err == nil {
			w.FloatingIPs = append(w.FloatingIPs, a)
		}
	}
	return w, nil
}

// ClusterInformation is what Calico says of the cluster.
type ClusterInformation struct {
	NotReady bool   // it has datastoreReady: false; absent means unknown
	Version  string // of Calico, "v3.33.0"; "": not known
}

func decodeClusterInformation(k Key, value []byte) (ClusterInformation, error) {
	var spec struct {
		DatastoreReady *bool  `json:"datastoreReady"`
		CalicoVersion  string `json:"calicoVersion"`
	}
	_, err := decodeSpec(k, value, &spec)
	return ClusterInformation{spec.DatastoreReady != nil && !*spec.DatastoreReady,
		spec.CalicoVersion}, err
}

// oneLine joins errors into one line. It skips nil errors and returns nil if all are.
func oneLine(errs []error) error {
	text := ""
	for _, err := range errs {
		if err == nil {
			continue
		}
		if text != "" {
			text += "; "
		}
		text += err.Error()
	}
	if text == "" {
		return nil
	}
	return errors.New(text)
}
