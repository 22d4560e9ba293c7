package agent

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
)

// NodePlan is the JSON of `plan`, and what GET /v1/plan has of a running agent. docs/plan.md
// describes it. It only grows, and lists are never null.
type (
	NodePlan struct {
		Node          string                `json:"node"`
		Waiting       string                `json:"waiting,omitempty"`
		HandsOff      bool                  `json:"handsOff,omitempty"`
		Speaker       *PlannedSpeaker       `json:"speaker,omitempty"`
		Peers         []PlannedPeer         `json:"peers"`
		Announcements []PlannedAnnouncement `json:"announcements"`
		Withheld      []WithheldStatus      `json:"withheld"`
		NotProgrammed []netip.Prefix        `json:"notProgrammed"`
		Problems      []ProblemStatus       `json:"problems"`
		Filters       []PlannedFilter       `json:"filters"`
		Policies      PlannedPolicies       `json:"policies"`
	}
	PlannedSpeaker struct {
		AS              uint32       `json:"as"`
		RouterID        netip.Addr   `json:"routerID"`
		ListenPort      uint16       `json:"listenPort"`
		ListenAddresses []netip.Addr `json:"listenAddresses"`
		ClusterID       string       `json:"clusterID,omitempty"`
	}
	PlannedPeer struct {
		// the address, and the port of a second session
		Peer                 bgp.PeerID          `json:"peer"`
		Address              netip.Addr          `json:"address"`
		Port                 uint16              `json:"port"`
		Type                 bgp.Scope           `json:"type"`
		Source               string              `json:"source"`
		Node                 string              `json:"node,omitempty"`
		RemoteAS             uint32              `json:"remoteAS"`
		LocalAS              uint32              `json:"localAS"`
		Dial                 string              `json:"dial"`
		Client               bool                `json:"client"`
		Reflector            bool                `json:"reflector"`
		ClusterID            string              `json:"clusterID,omitempty"`
		Password             *PlannedPassword    `json:"password,omitempty"`
		TTLSecurity          uint8               `json:"ttlSecurity"`
		Multihop             bool                `json:"multihop"`
		SourceAddress        string              `json:"sourceAddress"`
		RestartTimeSeconds   int                 `json:"restartTimeSeconds"`
		KeepaliveTimeSeconds int                 `json:"keepaliveTimeSeconds"`
		NextHopMode          string              `json:"nextHopMode"`
		Filters              []string            `json:"filters"`
		AllowLocalAS         int                 `json:"allowLocalAS"`
		ReachableBy          string              `json:"reachableBy,omitempty"`
		PrefixLimit          uint32              `json:"prefixLimit"`
		Differs              []PlannedDifference `json:"differs"`
	}
	PlannedPassword struct {
		Name string `json:"name"`
		Key  string `json:"key"`
	}
	PlannedDifference struct {
		Field string `json:"field"`
		Ours  string `json:"ours"`
		Stock string `json:"stock"`
		Why   string `json:"why"`
	}
	PlannedAnnouncement struct {
		Prefix       netip.Prefix `json:"prefix"`
		NextHop      netip.Addr   `json:"nextHop"`
		LocalPref    uint32       `json:"localPref"`
		Interface    string       `json:"interface,omitempty"`
		OnlyByFilter bool         `json:"onlyByFilter"`
		Service      bool         `json:"service,omitempty"`
	}
	PlannedFilter struct {
		Name     string   `json:"name"`
		ImportV4 []string `json:"importV4"`
		ImportV6 []string `json:"importV6"`
		ExportV4 []string `json:"exportV4"`
		ExportV6 []string `json:"exportV6"`
	}
	PlannedPolicies struct {
		ExportPools       []netip.Prefix `json:"exportPools"`
		NoExport          []netip.Prefix `json:"noExport"`
		ReflectedServices []netip.Prefix `json:"reflectedServices"`
		Communities       []string       `json:"communities"` // of prefixAdvertisements
	}
)

// inputs are what the plan in force was made of.
type inputs struct {
	snapshot *calico.Snapshot
	options  bgp.Options
}

// CurrentPlan is the plan that a running agent works by, as Calico's data and its settings have it:
// without what a drain and the state of the data plane change of it. Options are those settings.
type CurrentPlan struct {
	Plan     NodePlan    `json:"plan"`
	Revision int64       `json:"revision"` // of etcd
	Options  bgp.Options `json:"options"`
	// ClusterInformation: the agent's data have one, so that data without one change nothing.
	ClusterInformation bool `json:"clusterInformation,omitempty"`
}

// currentPlan fails while there is no plan.
func (a *Agent) currentPlan() (CurrentPlan, error) {
	a.mu.Lock()
	now := a.shown
	a.mu.Unlock()
	switch {
	case now.noBGP:
		return CurrentPlan{}, errors.New("the agent runs without BGP (--learn ipam)")
	case now.inputs.snapshot == nil:
		return CurrentPlan{}, fmt.Errorf("the agent has no plan yet: %s",
			cmp.Or(now.waitingForNode, "waiting for Calico's data"))
	}
	s, o := now.inputs.snapshot, now.inputs.options
	plan := NodePlanOf(a.cfg.Node, s, bgp.PlanFor(a.cfg.Node, s, o))
	return CurrentPlan{plan, s.Revision, o, s.ClusterInformation}, nil
}

// NodePlanOf shows p, the plan of a node that was made of s.
func NodePlanOf(node string, s *calico.Snapshot, p bgp.Plan) NodePlan {
	out := NodePlan{
		Node: node, Waiting: p.Waiting, HandsOff: s.DatastoreNotReady,
		Peers: []PlannedPeer{}, Announcements: []PlannedAnnouncement{},
		Withheld: []WithheldStatus{}, NotProgrammed: listOf(p.NotProgrammed),
		Problems: []ProblemStatus{}, Filters: []PlannedFilter{},
		Policies: PlannedPolicies{
			ExportPools: listOf(p.Policies.ExportPools), NoExport: listOf(p.Policies.NoExport),
			ReflectedServices: listOf(p.Policies.ReflectedServices), Communities: []string{},
		},
	}
	problems := slices.Concat(s.Problems, p.Problems)
	if p.Waiting == "" {
		problems = append(problems, bgp.Elsewhere(node, s)...)
	}
	for _, problem := range problems {
		out.Problems = append(out.Problems, ProblemOf(problem))
	}
	if p.Waiting != "" {
		return out
	}
	out.Speaker = &PlannedSpeaker{p.Speaker.AS, p.Speaker.RouterID, p.Speaker.ListenPort,
		listOf(p.Speaker.ListenAddresses), s.Nodes[node].RouteReflectorClusterID}
	for _, peer := range p.Peers {
		out.Peers = append(out.Peers, planPeer(node, s, peer))
	}
	for _, a := range p.Announcements {
		out.Announcements = append(out.Announcements,
			PlannedAnnouncement{a.Prefix, a.NextHop, a.LocalPref, a.Interface, a.OnlyByFilter,
				a.Service})
	}
	for _, w := range p.Withheld {
		out.Withheld = append(out.Withheld, WithheldStatus{w.Prefix, w.Reason})
	}
	for _, name := range slices.Sorted(maps.Keys(p.Policies.Filters)) {
		f := p.Policies.Filters[name]
		out.Filters = append(out.Filters, PlannedFilter{name, texts(f.Import4), texts(f.Import6),
			texts(f.Export4), texts(f.Export6)})
	}
	for _, a := range p.Policies.Advertisements {
		out.Policies.Communities = append(out.Policies.Communities,
			fmt.Sprintf("%s: %s", a.Prefix, strings.Join(texts(a.Communities), ", ")))
	}
	return out
}

func texts[T fmt.Stringer](all []T) []string {
	out := make([]string, len(all))
	for i, v := range all {
		out[i] = v.String()
	}
	return out
}

// listOf copies a list; none becomes an empty one.
func listOf[T any](all []T) []T { return append([]T{}, all...) }

func planPeer(node string, s *calico.Snapshot, p bgp.Peer) PlannedPeer {
	out := PlannedPeer{
		Peer: p.ID(), Address: p.Address, Port: p.Port, Type: p.Scope, Source: p.Source,
		Node: p.CalicoNode, RemoteAS: p.RemoteAS, LocalAS: p.LocalAS, Dial: p.Dial(),
		Client: p.Client, Reflector: p.Reflector, TTLSecurity: p.TTLSecurity,
		Multihop: p.Multihop, SourceAddress: "chosen by the kernel",
		RestartTimeSeconds:   int(p.RestartTime.Seconds()),
		KeepaliveTimeSeconds: int(p.KeepaliveTime.Seconds()),
		NextHopMode:          string(p.NextHop), Filters: listOf(p.Filters),
		AllowLocalAS: p.AllowLocalAS, PrefixLimit: p.PrefixLimit, Differs: []PlannedDifference{},
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
		out.Password = &PlannedPassword{p.Password.Name, p.Password.Key}
	}
	for _, d := range bgp.Differences(node, s, p) {
		out.Differs = append(out.Differs, PlannedDifference(d))
	}
	return out
}
