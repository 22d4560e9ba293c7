package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/manifest"
)

// planCommand evaluates a file of resources for a node, without an agent or etcd.
func planCommand() *cobra.Command {
	var node, file, routerID string
	var prefixes []string
	var asJSON, strict bool
	c := &cobra.Command{
		Use:   "plan --node NAME -f FILE|-",
		Short: "Show what a node would do with a file of Calico resources",
		Long: `Show what a node would do with Calico resources in calicoctl's YAML: its BGP
sessions, what it would announce, and what would become of given prefixes at each peer. Nothing is
asked and nothing is changed: neither an agent nor etcd need to run.

The kinds are Node, IPPool, BGPConfiguration, BGPPeer, BGPFilter, WorkloadEndpoint, BlockAffinity,
ClusterInformation, FelixConfiguration and LiveMigration, alone or in lists, as "calicoctl get KIND
-o yaml" prints them. docs/plan.md describes the JSON.`,
		Example: `  vpp-route-agent plan --node edge-7 -f resources.yaml
  vpp-route-agent plan --node edge-7 -f resources.yaml --prefix 10.77.4.0/26 -o json`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if node == "" {
				return usageError{errors.New("give --node NAME")}
			}
			asked, err := parsePrefixes(prefixes)
			if err != nil {
				return usageError{err}
			}
			text, err := readFileOr(cmd.InOrStdin(), file)
			if err != nil {
				return usageError{err}
			}
			defer sayWhenSlow(func() string { return "the plan of " + node + ", of " + file })()
			snapshot, skipped, err := readResources(node, text)
			if strict {
				err = cmp.Or(errors.Join(skipped...), err)
			}
			if err != nil {
				return usageError{fmt.Errorf("%s: %w", file, err)}
			}
			for _, s := range skipped {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: %s; it is ignored\n", file, s)
			}
			_, err = bgp.ChooseRouterID(routerID, node, netip.Addr{})
			if routerID != "" && err != nil {
				return usageError{fmt.Errorf("--router-id: %w", err)}
			}
			plan := planOf(node, snapshot, bgp.Options{RouterID: routerID}, asked)
			if asJSON {
				return printJSON(cmd.OutOrStdout(), plan)
			}
			return printPlan(cmd.OutOrStdout(), plan)
		},
	}
	c.Flags().StringVar(&node, "node", "", "name of the node in Calico")
	c.Flags().StringVarP(&file, "filename", "f", "",
		"file with the resources; - for standard input")
	c.Flags().StringSliceVar(&prefixes, "prefix", nil, "prefix or address to show; may be "+
		"given several times")
	c.Flags().StringVar(&routerID, "router-id", "",
		`the node's CALICO_ROUTER_ID: a dotted quad, or "hash"; empty: its IPv4 address`)
	c.Flags().BoolVar(&strict, "strict", false, "refuse a file with unknown fields, instead of a "+
		"warning")
	outputFlag(c, &asJSON)
	return c
}

// readResources returns what node would see, and remarks about fields that it does not know.
func readResources(node string, text []byte) (*calico.Snapshot, []error, error) {
	resources, skipped, err := manifest.ReadKnown(text)
	if err != nil {
		return nil, skipped, err
	}
	s, err := manifest.Snapshot(node, resources)
	if err != nil {
		return nil, skipped, err
	}
	if _, found := s.Nodes[node]; !found {
		return nil, skipped, fmt.Errorf("there is no Node(%s) in it", node)
	}
	return s, skipped, nil
}

func parsePrefixes(texts []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range texts {
		p, err := agent.ParsePrefixOrAddr(text)
		if err != nil {
			return nil, fmt.Errorf("--prefix: %w", err)
		}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out, nil
}

// The JSON of plan; docs/plan.md describes it. It only grows, and lists are never null.
type (
	nodePlan struct {
		Node          string                `json:"node"`
		Waiting       string                `json:"waiting,omitempty"`
		HandsOff      bool                  `json:"handsOff,omitempty"`
		Speaker       *plannedSpeaker       `json:"speaker,omitempty"`
		Peers         []plannedPeer         `json:"peers"`
		Announcements []announcedPrefix     `json:"announcements"`
		Withheld      []withheldPrefix      `json:"withheld"`
		NotProgrammed []netip.Prefix        `json:"notProgrammed"`
		Problems      []agent.ProblemStatus `json:"problems"`
		Prefixes      []prefixPlan          `json:"prefixes"`
	}
	plannedSpeaker struct {
		AS              uint32       `json:"as"`
		RouterID        netip.Addr   `json:"routerID"`
		ListenPort      uint16       `json:"listenPort"`
		ListenAddresses []netip.Addr `json:"listenAddresses"`
		ClusterID       string       `json:"clusterID,omitempty"`
	}
	plannedPeer struct {
		Peer                 bgp.PeerID   `json:"peer"` // address, and port of a second session
		Address              netip.Addr   `json:"address"`
		Port                 uint16       `json:"port"`
		Type                 bgp.Scope    `json:"type"`
		Source               string       `json:"source"`
		Node                 string       `json:"node,omitempty"`
		RemoteAS             uint32       `json:"remoteAS"`
		LocalAS              uint32       `json:"localAS"`
		Dial                 string       `json:"dial"`
		Client               bool         `json:"client"`
		Reflector            bool         `json:"reflector"`
		ClusterID            string       `json:"clusterID,omitempty"`
		Password             *secretKey   `json:"password,omitempty"`
		TTLSecurity          uint8        `json:"ttlSecurity"`
		Multihop             bool         `json:"multihop"`
		SourceAddress        string       `json:"sourceAddress"`
		RestartTimeSeconds   int          `json:"restartTimeSeconds"`
		KeepaliveTimeSeconds int          `json:"keepaliveTimeSeconds"`
		NextHopMode          string       `json:"nextHopMode"`
		Filters              []string     `json:"filters"`
		AllowLocalAS         int          `json:"allowLocalAS"`
		ReachableBy          string       `json:"reachableBy,omitempty"`
		Differs              []difference `json:"differs"`
	}
	secretKey struct {
		Name string `json:"name"`
		Key  string `json:"key"`
	}
	difference struct {
		Field string `json:"field"`
		Ours  string `json:"ours"`
		Stock string `json:"stock"`
		Why   string `json:"why"`
	}
	announcedPrefix struct {
		Prefix       netip.Prefix `json:"prefix"`
		NextHop      netip.Addr   `json:"nextHop"`
		LocalPref    uint32       `json:"localPref"`
		Interface    string       `json:"interface,omitempty"`
		OnlyByFilter bool         `json:"onlyByFilter"`
		Service      bool         `json:"service,omitempty"`
	}
	withheldPrefix struct {
		Prefix netip.Prefix `json:"prefix"`
		Reason string       `json:"reason"`
	}
)

// planOf is the plan of a node that s has.
func planOf(node string, s *calico.Snapshot, o bgp.Options, asked []netip.Prefix) nodePlan {
	p := bgp.PlanFor(node, s, o)
	cluster := s.Nodes[node].RouteReflectorClusterID
	out := nodePlan{
		Node: node, Waiting: p.Waiting, HandsOff: s.DatastoreNotReady,
		Peers: []plannedPeer{}, Announcements: []announcedPrefix{}, Withheld: []withheldPrefix{},
		NotProgrammed: listOf(p.NotProgrammed),
		Problems:      []agent.ProblemStatus{}, Prefixes: []prefixPlan{},
	}
	for _, problem := range slices.Concat(s.Problems, p.Problems) {
		out.Problems = append(out.Problems, agent.ProblemOf(problem))
	}
	if p.Waiting != "" {
		return out
	}
	out.Speaker = &plannedSpeaker{p.Speaker.AS, p.Speaker.RouterID, p.Speaker.ListenPort,
		listOf(p.Speaker.ListenAddresses), cluster}
	for _, peer := range p.Peers {
		out.Peers = append(out.Peers, planPeer(node, s, peer))
	}
	for _, a := range p.Announcements {
		out.Announcements = append(out.Announcements,
			announcedPrefix{a.Prefix, a.NextHop, a.LocalPref, a.Interface, a.OnlyByFilter,
				a.Service})
	}
	for _, w := range p.Withheld {
		out.Withheld = append(out.Withheld, withheldPrefix{w.Prefix, w.Reason})
	}
	for _, prefix := range asked {
		out.Prefixes = append(out.Prefixes, planPrefix(prefix, p))
	}
	return out
}

// listOf copies a list; none becomes an empty one.
func listOf[T any](all []T) []T { return append([]T{}, all...) }

func planPeer(node string, s *calico.Snapshot, p bgp.Peer) plannedPeer {
	out := plannedPeer{
		Peer: p.ID(), Address: p.Address, Port: p.Port, Type: p.Scope, Source: p.Source,
		Node: p.CalicoNode, RemoteAS: p.RemoteAS, LocalAS: p.LocalAS, Dial: p.Dial(),
		Client: p.Client, Reflector: p.Reflector, TTLSecurity: p.TTLSecurity,
		Multihop: p.Multihop, SourceAddress: "chosen by the kernel",
		RestartTimeSeconds:   int(p.RestartTime.Seconds()),
		KeepaliveTimeSeconds: int(p.KeepaliveTime.Seconds()),
		NextHopMode:          string(p.NextHop), Filters: listOf(p.Filters),
		AllowLocalAS: p.AllowLocalAS, Differs: []difference{},
	}
	if p.Client {
		out.ClusterID = s.Nodes[node].RouteReflectorClusterID
	}
	if p.NextHop == bgp.NextHopAuto {
		out.NextHopMode = "Auto"
	}
	if p.LocalAddress.IsValid() {
		out.SourceAddress = p.LocalAddress.String()
	}
	if p.ReachableBy.IsValid() {
		out.ReachableBy = p.ReachableBy.String()
	}
	if p.Password != nil {
		out.Password = &secretKey{p.Password.Name, p.Password.Key}
	}
	for _, d := range bgp.Differences(node, s, p) {
		out.Differs = append(out.Differs, difference(d))
	}
	return out
}
