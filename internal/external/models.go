package external

import (
	"net/netip"
	"strings"
	"text/template"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"vpp-route-agent/internal/external/proto/ligato/linux"
	"vpp-route-agent/internal/external/proto/ligato/netalloc"
	"vpp-route-agent/internal/external/proto/ligato/vpp"
	"vpp-route-agent/internal/external/proto/ligato/vpp/l3"
)

// Model is one of Ligato's, with the version that it has in Ligato's releases v2 and v3.
type Model struct {
	Module, Version, Type string
	// NameTemplate makes the end of an item's key of its message. It is for text/template with
	// Ligato's functions ip, ipnet and protoip, so that clients can use it. "": there is one item.
	NameTemplate string
	// Carried: the agent carries it out.
	Carried bool
	empty   proto.Message
	name    *template.Template
}

// Name is what Ligato calls the model.
func (m *Model) Name() string { return m.Module + "." + m.Type }

// Message is the descriptor of its message.
func (m *Model) Message() protoreflect.MessageDescriptor {
	return m.empty.ProtoReflect().Descriptor()
}

// KeyPrefix begins the keys of its items; without a name it is the key.
func (m *Model) KeyPrefix() string {
	prefix := "config/" + strings.ReplaceAll(m.Module, ".", "/") + "/" + m.Version + "/" + m.Type
	if m.NameTemplate != "" {
		prefix += "/"
	}
	return prefix
}

// Models are all of Ligato's models.
func Models() []*Model { return models }

// ModelOf returns the model of a message, nil if it is none.
func ModelOf(m proto.Message) *Model {
	return modelByMessage[m.ProtoReflect().Descriptor().FullName()]
}

// modelOfKey returns the model that a key belongs to, nil if it is none.
func modelOfKey(key string) *Model {
	for _, m := range models {
		if prefix := m.KeyPrefix(); key == prefix ||
			m.NameTemplate != "" && strings.HasPrefix(key, prefix) {
			return m
		}
	}
	return nil
}

var models = []*Model{
	carried("vpp", "v2", "route", &l3.Route{},
		"{{with .OutgoingInterface}}if/{{.}}/{{end}}vrf/{{.VrfId}}/dst/"+
			"{{with ipnet .DstNetwork}}{{.IP}}/{{.MaskSize}}{{else}}{{.DstNetwork}}{{end}}"+
			"{{with .NextHopAddr}}/gw/{{.}}{{end}}"),
	carried("vpp", "v2", "vrf-table", &l3.VrfTable{}, "id/{{.Id}}/protocol/{{.Protocol}}"),
	carried("vpp", "v2", "interfaces", &vpp.Interface{}, "{{.Name}}"),
	carried("vpp", "v2", "l3xconnect", &l3.L3XConnect{}, "{{.Interface}}/protocol/{{.Protocol}}"),
	carried("vpp.l2", "v2", "xconnect", &vpp.XConnectPair{}, "{{.ReceiveInterface}}"),
	carried("vpp", "v2", "proxyarp-global", &l3.ProxyARP{}, ""),
	carried("vpp", "v2", "arp", &l3.ARPEntry{}, "{{.Interface}}/{{.IpAddress}}"),
	carried("linux.interfaces", "v2", "interface", &linux.Interface{}, "{{.Name}}"),
	carried("linux.l3", "v2", "arp", &linux.ARPEntry{}, "{{.Interface}}/{{.IpAddress}}"),
	carried("linux.l3", "v2", "route", &linux.Route{},
		"{{with ipnet .DstNetwork}}{{.IP}}/{{.MaskSize}}{{else}}{{.DstNetwork}}{{end}}/"+
			"{{.OutgoingInterface}}"),

	refused("vpp", "v2", "span", &vpp.Span{}, "{{.InterfaceFrom}}/to/{{.InterfaceTo}}"),
	refused("vpp", "v2", "ipscanneigh-global", &l3.IPScanNeighbor{}, ""),
	refused("vpp", "v2", "dhcp-proxy", &l3.DHCPProxy{},
		"{{protoip .SourceIpAddress}}/rx-vrf/{{.RxVrfId}}"),
	refused("vpp", "v2", "teib", &l3.TeibEntry{}, "{{.Interface}}/peer/{{.PeerAddr}}"),
	refused("vpp", "v2", "vrrp", &l3.VRRPEntry{}, "{{.Interface}}/vrid/{{.VrId}}"),
	refused("vpp.l2", "v2", "bridge-domain", &vpp.BridgeDomain{}, "{{.Name}}"),
	refused("vpp.l2", "v2", "fib", &vpp.FIBEntry{}, "{{.BridgeDomain}}/mac/{{.PhysAddress}}"),
	refused("vpp.acls", "v2", "acl", &vpp.ACL{}, "{{.Name}}"),
	refused("vpp.abfs", "v2", "abf", &vpp.ABF{}, "{{.Index}}"),
	refused("vpp.nat", "v2", "nat44-global", &vpp.Nat44Global{}, ""),
	refused("vpp.nat", "v2", "dnat44", &vpp.DNat44{}, "{{.Label}}"),
	refused("vpp.nat", "v2", "nat44-interface", &vpp.Nat44Interface{}, "{{.Name}}"),
	refused("vpp.nat", "v2", "nat44-pool", &vpp.Nat44AddressPool{},
		"{{if .Name}}{{.Name}}{{else}}vrf/{{.VrfId}}/address/{{.FirstIp}}"+
			"{{if and .LastIp (ne .FirstIp .LastIp)}}-{{.LastIp}}{{end}}{{end}}"),
	refused("vpp.nat", "v2", "nat44-vrf", &vpp.Nat44VrfTable{}, "vrfid/{{.SrcVrfId}}"),
	refused("vpp.nat", "v2", "nat44-vrf-route", &vpp.Nat44VrfRoute{},
		"vrfid/{{.SrcVrfId}}/destvrfid/{{.DestVrfId}}"),
	refused("vpp.ipsec", "v2", "spd", &vpp.SecurityPolicyDatabase{}, "{{.Index}}"),
	refused("vpp.ipsec", "v2", "sp", &vpp.SecurityPolicy{}, "spd/{{.SpdIndex}}/sa/{{.SaIndex}}/"+
		"{{if .IsOutbound}}out{{else}}in{{end}}bound/"+
		"local-addresses/{{.LocalAddrStart}}-{{.LocalAddrStop}}/"+
		"remote-addresses/{{.RemoteAddrStart}}-{{.RemoteAddrStop}}"),
	refused("vpp.ipsec", "v2", "sa", &vpp.SecurityAssociation{}, "{{.Index}}"),
	refused("vpp.ipsec", "v2", "tun-protect", &vpp.TunnelProtection{},
		"{{.Interface}}{{with .NextHopAddr}}/nh/{{.}}{{end}}"),
	refused("vpp", "v2", "ipredirect", &vpp.IPRedirect{},
		"l3/{{.L3Protocol}}/tx/{{.TxInterface}}"),
	refused("vpp", "v2", "tohost", &vpp.ToHost{},
		"l3/{{.L3Protocol}}/l4/{{.L4Protocol}}/port/{{.Port}}"),
	refused("vpp", "v2", "exception", &vpp.Exception{}, "reason/{{.Reason}}"),
	refused("vpp.srv6", "v2", "localsid", &vpp.LocalSID{}, "{{.Sid}}"),
	refused("vpp.srv6", "v2", "policy", &vpp.Policy{}, "{{.Bsid}}"),
	refused("vpp.srv6", "v2", "steering", &vpp.Steering{}, "{{.Name}}"),
	refused("vpp.srv6", "v2", "srv6-global", &vpp.SRv6Global{}, ""),
	refused("vpp.ipfix", "v2", "ipfix", &vpp.IPFIX{}, ""),
	refused("vpp.ipfix", "v2", "flowprobe-params", &vpp.FlowProbeParams{}, ""),
	refused("vpp.ipfix", "v2", "flowprobe-feature", &vpp.FlowProbeFeature{}, "{{.Interface}}"),
	refused("vpp.wg", "v1", "peer", &vpp.Peer{}, "{{.WgIfName}}/endpoint/{{.Endpoint}}/{{.Port}}"),
	refused("vpp.dns", "v1", "dnscache", &vpp.DNSCache{}, ""),
	refused("vpp.stn", "v2", "rule", &vpp.Rule{}, "{{.Interface}}/ip/{{.IpAddress}}"),
	refused("linux.iptables", "v2", "rulechain", &linux.RuleChain{}, "{{.Name}}"),
	refused("netalloc", "v1", "ip", &netalloc.IPAllocation{},
		"network/{{.NetworkName}}/interface/{{.InterfaceName}}"),
}

func carried(module, version, kind string, empty proto.Message, name string) *Model {
	m := refused(module, version, kind, empty, name)
	m.Carried = true
	return m
}

func refused(module, version, kind string, empty proto.Message, name string) *Model {
	return &Model{Module: module, Version: version, Type: kind, NameTemplate: name, empty: empty,
		name: template.Must(template.New(kind).Funcs(templateFuncs).Parse(name))}
}

// templateFuncs are those of Ligato's that the templates use.
var templateFuncs = template.FuncMap{
	"ipnet": func(text string) map[string]any {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil
		}
		return map[string]any{"IP": p.Masked().Addr().String(), "MaskSize": p.Bits()}
	},
	"protoip": func(text string) string { // the family
		a, err := netip.ParseAddr(text)
		switch {
		case err != nil:
			return "<invalid>"
		case a.Unmap().Is4():
			return "IPv4"
		}
		return "IPv6"
	},
}

var modelByMessage = func() map[protoreflect.FullName]*Model {
	all := map[protoreflect.FullName]*Model{}
	for _, m := range models {
		all[m.Message().FullName()] = m
	}
	return all
}()

// key returns the key of a message of the model.
func (m *Model) key(of proto.Message) string {
	var name strings.Builder
	if err := m.name.Execute(&name, of); err != nil {
		panic("external: " + err.Error()) // the templates are constant and tested
	}
	return m.KeyPrefix() + name.String()
}
