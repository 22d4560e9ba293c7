package calico

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

type storedSecretRef struct {
	SecretKeyRef *struct {
		Name string `json:"name"`
		Key  string `json:"key"`
	} `json:"secretKeyRef"`
}

func (s *storedSecretRef) ref() *SecretKeyRef {
	if s == nil || s.SecretKeyRef == nil {
		return nil
	}
	return &SecretKeyRef{Name: s.SecretKeyRef.Name, Key: s.SecretKeyRef.Key}
}

func decodeBGPConfiguration(k Key, value []byte) (BGPConfiguration, error) {
	type cidr struct {
		CIDR string `json:"cidr"`
	}
	var spec struct {
		NodeToNodeMeshEnabled  *bool            `json:"nodeToNodeMeshEnabled"`
		ASNumber               asNumber         `json:"asNumber"`
		ListenPort             uint16           `json:"listenPort"`
		BindMode               string           `json:"bindMode"`
		LogSeverityScreen      string           `json:"logSeverityScreen"`
		NodeMeshPassword       *storedSecretRef `json:"nodeMeshPassword"`
		NodeMeshMaxRestartTime *duration        `json:"nodeMeshMaxRestartTime"`
		Communities            []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"communities"`
		PrefixAdvertisements []struct {
			CIDR        string   `json:"cidr"`
			Communities []string `json:"communities"`
		} `json:"prefixAdvertisements"`
		ServiceClusterIPs              []cidr   `json:"serviceClusterIPs"`
		ServiceExternalIPs             []cidr   `json:"serviceExternalIPs"`
		ServiceLoadBalancerIPs         []cidr   `json:"serviceLoadBalancerIPs"`
		ServiceLoadBalancerAggregation string   `json:"serviceLoadBalancerAggregation"`
		IgnoredInterfaces              []string `json:"ignoredInterfaces"`
		LocalWorkloadPeeringIPV4       string   `json:"localWorkloadPeeringIPV4"`
		LocalWorkloadPeeringIPV6       string   `json:"localWorkloadPeeringIPV6"`
		ProgramClusterRoutes           string   `json:"programClusterRoutes"`
		IPv4NormalRoutePriority        int      `json:"ipv4NormalRoutePriority"`
		IPv6NormalRoutePriority        int      `json:"ipv6NormalRoutePriority"`
	}
	if _, err := decodeSpec(k, value, &spec); err != nil {
		return BGPConfiguration{}, err
	}
	c := BGPConfiguration{
		Name:                           k.Name,
		NodeToNodeMeshEnabled:          spec.NodeToNodeMeshEnabled,
		ASNumber:                       uint32(spec.ASNumber),
		ListenPort:                     spec.ListenPort,
		BindMode:                       spec.BindMode,
		LogSeverityScreen:              spec.LogSeverityScreen,
		NodeMeshPassword:               spec.NodeMeshPassword.ref(),
		NodeMeshMaxRestartTime:         (*time.Duration)(spec.NodeMeshMaxRestartTime),
		ServiceLoadBalancerAggregation: spec.ServiceLoadBalancerAggregation,
		IgnoredInterfaces:              spec.IgnoredInterfaces,
		LocalWorkloadPeeringIPV4:       spec.LocalWorkloadPeeringIPV4,
		LocalWorkloadPeeringIPV6:       spec.LocalWorkloadPeeringIPV6,
		ProgramClusterRoutes:           spec.ProgramClusterRoutes,
		IPv4NormalRoutePriority:        spec.IPv4NormalRoutePriority,
		IPv6NormalRoutePriority:        spec.IPv6NormalRoutePriority,
	}
	for _, named := range spec.Communities {
		c.Communities = append(c.Communities, Community(named))
	}
	if spec.PrefixAdvertisements != nil {
		c.PrefixAdvertisements = []PrefixAdvertisement{} // an empty list of a node counts, too
	}
	for _, p := range spec.PrefixAdvertisements {
		c.PrefixAdvertisements = append(c.PrefixAdvertisements, PrefixAdvertisement(p))
	}
	for _, s := range []struct {
		from []cidr
		into *[]string
	}{
		{spec.ServiceClusterIPs, &c.ServiceClusterIPs},
		{spec.ServiceExternalIPs, &c.ServiceExternalIPs},
		{spec.ServiceLoadBalancerIPs, &c.ServiceLoadBalancerIPs},
	} {
		for _, entry := range s.from {
			*s.into = append(*s.into, entry.CIDR)
		}
	}
	return c, nil
}

func decodeBGPPeer(k Key, value []byte) (BGPPeer, error) {
	var spec struct {
		Node                     string           `json:"node"`
		NodeSelector             string           `json:"nodeSelector"`
		PeerIP                   string           `json:"peerIP"`
		PeerSelector             string           `json:"peerSelector"`
		ASNumber                 asNumber         `json:"asNumber"`
		LocalASNumber            asNumber         `json:"localASNumber"`
		KeepOriginalNextHop      bool             `json:"keepOriginalNextHop"`
		NextHopMode              string           `json:"nextHopMode"`
		Password                 *storedSecretRef `json:"password"`
		SourceAddress            string           `json:"sourceAddress"`
		MaxRestartTime           *duration        `json:"maxRestartTime"`
		KeepaliveTime            duration         `json:"keepaliveTime"`
		NumAllowedLocalASNumbers int              `json:"numAllowedLocalASNumbers"`
		TTLSecurity              uint8            `json:"ttlSecurity"`
		ReachableBy              string           `json:"reachableBy"`
		Filters                  []string         `json:"filters"`
		LocalWorkloadSelector    string           `json:"localWorkloadSelector"`
		ReversePeering           string           `json:"reversePeering"`
	}
	if _, err := decodeSpec(k, value, &spec); err != nil {
		return BGPPeer{}, err
	}
	return BGPPeer{
		Name:                     k.Name,
		Node:                     spec.Node,
		NodeSelector:             spec.NodeSelector,
		PeerIP:                   spec.PeerIP,
		PeerSelector:             spec.PeerSelector,
		ASNumber:                 uint32(spec.ASNumber),
		LocalASNumber:            uint32(spec.LocalASNumber),
		KeepOriginalNextHop:      spec.KeepOriginalNextHop,
		NextHopMode:              spec.NextHopMode,
		Password:                 spec.Password.ref(),
		SourceAddress:            spec.SourceAddress,
		MaxRestartTime:           (*time.Duration)(spec.MaxRestartTime),
		KeepaliveTime:            time.Duration(spec.KeepaliveTime),
		NumAllowedLocalASNumbers: spec.NumAllowedLocalASNumbers,
		TTLSecurity:              spec.TTLSecurity,
		ReachableBy:              spec.ReachableBy,
		Filters:                  spec.Filters,
		LocalWorkloadSelector:    spec.LocalWorkloadSelector,
		ReversePeering:           spec.ReversePeering,
	}, nil
}

// storedFilterRule has every known member of a rule, including unused ones, to detect unknown ones.
type storedFilterRule struct {
	CIDR          string `json:"cidr"`
	MatchOperator string `json:"matchOperator"`
	PrefixLength  *struct {
		Min *int `json:"min"`
		Max *int `json:"max"`
	} `json:"prefixLength"`
	Source      string `json:"source"`
	Interface   string `json:"interface"`
	PeerType    string `json:"peerType"`
	Communities *struct {
		Values []string `json:"values"`
	} `json:"communities"`
	ASPathPrefix []asNumber `json:"asPathPrefix"`
	Priority     int        `json:"priority"`
	Action       string     `json:"action"`
	Operations   []struct {
		AddCommunity *struct {
			Value string `json:"value"`
		} `json:"addCommunity"`
		PrependASPath *struct {
			Prefix []asNumber `json:"prefix"`
		} `json:"prependASPath"`
		SetPriority *struct {
			Value int `json:"value"`
		} `json:"setPriority"`
	} `json:"operations"`
}

// decodeBGPFilter decodes a filter. It ignores unknown members of a rule but reports them in a
// partialError: a rule without an unknown condition matches more than its author meant.
func decodeBGPFilter(k Key, value []byte) (BGPFilter, error) {
	var spec struct {
		ExportV4 []json.RawMessage `json:"exportV4"`
		ImportV4 []json.RawMessage `json:"importV4"`
		ExportV6 []json.RawMessage `json:"exportV6"`
		ImportV6 []json.RawMessage `json:"importV6"`
	}
	if _, err := decodeSpec(k, value, &spec); err != nil {
		return BGPFilter{}, err
	}
	f := BGPFilter{Name: k.Name}
	var unknown []string
	for _, list := range []struct {
		field string
		from  []json.RawMessage
		into  *[]BGPFilterRule
	}{
		{"spec.exportV4", spec.ExportV4, &f.ExportV4},
		{"spec.importV4", spec.ImportV4, &f.ImportV4},
		{"spec.exportV6", spec.ExportV6, &f.ExportV6},
		{"spec.importV6", spec.ImportV6, &f.ImportV6},
	} {
		for i, raw := range list.from {
			rule, err := decodeFilterRule(raw)
			if err != nil {
				return BGPFilter{}, fmt.Errorf("%s[%d]: %w", list.field, i, err)
			}
			*list.into = append(*list.into, rule)

			strict := json.NewDecoder(bytes.NewReader(raw))
			strict.DisallowUnknownFields()
			if err := strict.Decode(new(storedFilterRule)); err != nil {
				unknown = append(unknown,
					fmt.Sprintf("%s[%d]: %s, ignored: the rule may match more than it should",
						list.field, i, strings.TrimPrefix(err.Error(), "json: ")))
			}
		}
	}
	if unknown != nil {
		return f, partialError(strings.Join(unknown, "; "))
	}
	return f, nil
}

func decodeFilterRule(raw []byte) (BGPFilterRule, error) {
	var s storedFilterRule
	if err := unmarshal(raw, &s); err != nil {
		return BGPFilterRule{}, err
	}
	r := BGPFilterRule{
		CIDR:          s.CIDR,
		MatchOperator: s.MatchOperator,
		Source:        s.Source,
		Interface:     s.Interface,
		PeerType:      s.PeerType,
		ASPathPrefix:  asNumbers(s.ASPathPrefix),
		Priority:      s.Priority,
		Action:        s.Action,
	}
	if s.PrefixLength != nil {
		r.PrefixLength = &PrefixLengthRange{Min: s.PrefixLength.Min, Max: s.PrefixLength.Max}
	}
	if s.Communities != nil {
		r.Communities = append([]string{}, s.Communities.Values...)
	}
	for _, o := range s.Operations {
		var op BGPFilterOperation
		if o.AddCommunity != nil {
			op.AddCommunity = o.AddCommunity.Value
		}
		if o.PrependASPath != nil {
			op.PrependASPath = asNumbers(o.PrependASPath.Prefix)
		}
		if o.SetPriority != nil {
			op.SetPriority = o.SetPriority.Value
		}
		r.Operations = append(r.Operations, op)
	}
	return r, nil
}
