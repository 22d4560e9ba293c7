package grpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"vpp-route-agent/internal/external"
	"vpp-route-agent/internal/external/proto/contiv/rpc"
	"vpp-route-agent/internal/external/proto/ligato/configurator"
	"vpp-route-agent/internal/external/proto/ligato/generic"
	"vpp-route-agent/internal/external/proto/ligato/linux"
	"vpp-route-agent/internal/external/proto/ligato/vpp"
	"vpp-route-agent/internal/external/proto/ligato/vpp/l3"
)

func TestClientsWriteWhatThePolicySays(t *testing.T) {
	own := uint32(os.Geteuid())
	s := serveWith(t, Policy{Clients: []Client{{UID: &own, Source: "tenant",
		Tables: []string{"7-9"}, Models: []string{"vpp.route"}}}})
	c := rpc.NewDataChangeServiceClient(s.conn)
	_, err := c.Put(s.ctx, &rpc.DataRequest{VrfTables: []*l3.VrfTable{{Id: 7}},
		StaticRoutes: []*l3.Route{routeTo(1), {VrfId: 7, DstNetwork: "10.9.2.0/24",
			Type: l3.Route_INTER_VRF, ViaVrfId: 3}}})
	checkError(t, "put", err, codes.FailedPrecondition, "KeyErrors: ["+
		"config/vpp/v2/vrf-table/id/7/protocol/IPV4 (VALIDATE): "+
		"the policy does not let this client write model vpp.vrf-table, "+
		"config/vpp/v2/route/vrf/0/dst/10.9.1.0/24/gw/10.0.0.2 (VALIDATE): "+
		"the policy does not let this client write table 0, "+
		"config/vpp/v2/route/vrf/7/dst/10.9.2.0/24 (VALIDATE): "+
		"the policy does not let this client write table 3]")
	_, err = c.Put(s.ctx, &rpc.DataRequest{StaticRoutes: []*l3.Route{
		{VrfId: 7, DstNetwork: "10.9.2.0/24", Type: l3.Route_DROP}}})
	if err != nil {
		t.Error(err)
	}
	ctx := metadata.AppendToOutgoingContext(s.ctx, ClientKey, "red")
	_, err = c.Put(ctx, &rpc.DataRequest{StaticRoutes: []*l3.Route{
		{VrfId: 8, DstNetwork: "10.9.2.0/24", Type: l3.Route_DROP}}})
	if err != nil {
		t.Error(err)
	}
	check(t, "sources", strings.Join(keysOf(s.Source), ", "),
		"grpc/tenant config/vpp/v2/route/vrf/7/dst/10.9.2.0/24, "+
			"grpc/tenant/red config/vpp/v2/route/vrf/8/dst/10.9.2.0/24")
}

// What a client may not write it can neither delete nor replace, by whatever call.
func TestClientsDeleteWhatThePolicySays(t *testing.T) {
	own := uint32(os.Geteuid())
	s := serveWith(t, Policy{Clients: []Client{{UID: &own, Tables: []string{"7"}}}})
	old := []*l3.Route{routeTo(1), routeTo(2), {VrfId: 7, DstNetwork: "10.9.3.0/24",
		Type: l3.Route_INTER_VRF, ViaVrfId: 3}}
	mine := &l3.Route{VrfId: 7, DstNetwork: "10.9.4.0/24", Type: l3.Route_DROP}
	table := &l3.VrfTable{Id: 7}
	var items []external.Item
	for _, m := range []proto.Message{old[0], old[1], old[2], mine, table} {
		items = append(items, external.Decode(m))
	}
	s.do(Change{Puts: items}) // by a client of an earlier policy
	before := keysOf(s.Source)
	keys := func(what string, want []string) {
		t.Helper()
		check(t, what, strings.Join(keysOf(s.Source), ", "), strings.Join(want, ", "))
	}
	const no = " (VALIDATE): the policy does not let this client write table "
	change, resync := rpc.NewDataChangeServiceClient(s.conn), rpc.NewDataResyncServiceClient(s.conn)
	_, err := change.Del(s.ctx, &rpc.DataRequest{StaticRoutes: old[:1]})
	checkError(t, "delete", err, codes.FailedPrecondition, "KeyErrors: ["+items[0].Key+no+"0]")
	manager := generic.NewManagerServiceClient(s.conn)
	_, err = manager.SetConfig(s.ctx, &generic.SetConfigRequest{Updates: []*generic.UpdateItem{
		{Item: &generic.Item{Id: idOf(items[0].Key)}}}})
	checkError(t, "set", err, codes.FailedPrecondition, "KeyErrors: ["+items[0].Key+no+"0]")
	_, err = change.Put(s.ctx, &rpc.DataRequest{StaticRoutes: []*l3.Route{
		{VrfId: 7, DstNetwork: "10.9.3.0/24", Type: l3.Route_DROP}}})
	checkError(t, "replace one", err, codes.FailedPrecondition, "KeyErrors: ["+items[2].Key+no+"3]")
	atomic := metadata.AppendToOutgoingContext(s.ctx, AtomicKey, "true")
	_, err = change.Del(atomic, &rpc.DataRequest{StaticRoutes: []*l3.Route{mine, old[0]}})
	checkError(t, "all or nothing", err, codes.Aborted, ErrRolledBack.Error())
	keys("nothing has changed", before)
	_, err = change.Del(s.ctx, &rpc.DataRequest{StaticRoutes: []*l3.Route{mine}})
	checkError(t, "delete what is the client's", err, codes.OK, "")
	_, err = resync.Resync(s.ctx, &rpc.DataRequest{StaticRoutes: []*l3.Route{mine}})
	checkError(t, "resync", err, codes.OK, "")
	_, err = manager.SetConfig(s.ctx, &generic.SetConfigRequest{OverwriteAll: true})
	checkError(t, "overwrite", err, codes.OK, "")
	_, err = configurator.NewConfiguratorServiceClient(s.conn).Update(s.ctx,
		&configurator.UpdateRequest{FullResync: true})
	checkError(t, "full resync", err, codes.OK, "")
	keys("the others' are there", before[:3])
}

// What stays of a source that is replaced counts as the client's.
func TestWhatThePolicyKeepsCounts(t *testing.T) {
	b := newBed(t.TempDir())
	defer func() { b.stop() }()
	b.do(Change{Puts: puts(1, 2)})
	b.limits.items = 3
	refuses := func(i external.Item) string {
		if i.Key == item(1, "").Key {
			return "no"
		}
		return ""
	}
	check(t, "replace", b.do(Change{Puts: puts(3, 4, 5), Replace: true, Refuses: refuses}),
		"2 CONFIGURED CONFIGURED FAILED REMOVED")
	check(t, "with it", b.do(Change{Puts: puts(1, 3, 4), Replace: true, Refuses: refuses}),
		"2 FAILED CONFIGURED CONFIGURED")
	check(t, "items", fmt.Sprint(len(b.Items(Name))), "3")
}

func TestDatasrcIsNoOtherClientsSource(t *testing.T) {
	own, other := uint32(os.Geteuid()), uint32(12345)
	s := serveWith(t, Policy{Clients: []Client{{UID: &own}, {UID: &other, Source: "tenant"},
		{Certificate: "a", Source: "grpc"}}})
	c := rpc.NewDataChangeServiceClient(s.conn)
	put := func(name string) error {
		ctx := metadata.AppendToOutgoingContext(s.ctx, ClientKey, name)
		_, err := c.Put(ctx, &rpc.DataRequest{StaticRoutes: []*l3.Route{routeTo(1)}})
		return err
	}
	checkError(t, "tenant", put("tenant"), codes.PermissionDenied,
		"the policy has grpc/tenant for another client")
	checkError(t, "one of nobody", put("red"), codes.OK, "")
	checkError(t, "grpc", put("grpc"), codes.OK, "")
}

func TestInterfacesThatThePolicyLeavesOut(t *testing.T) {
	c := Client{Interfaces: []string{"loop7", "red-*"}}
	for name, test := range map[string]struct {
		message proto.Message
		refused string
	}{
		"one by its name":   {message: &vpp.Interface{Name: "loop7"}},
		"one of a pattern":  {message: &vpp.Interface{Name: "red-"}},
		"of a longer name":  {message: &vpp.Interface{Name: "loop70"}, refused: "loop70"},
		"of a shorter name": {message: &vpp.Interface{Name: "red"}, refused: "red"},
		"a parent": {message: &vpp.Interface{Name: "red-1", Link: &vpp.Interface_Sub{
			Sub: &vpp.SubInterface{ParentName: "eth0"}}}, refused: "eth0"},
		"bound to Linux": {message: &vpp.Interface{Name: "red-1", Link: &vpp.Interface_Afpacket{
			Afpacket: &vpp.AfpacketLink{HostIfName: "eth0"}}}, refused: "eth0"},
		"a TAP's other end": {message: &vpp.Interface{Name: "red-1", Link: &vpp.Interface_Tap{
			Tap: &vpp.TapLink{HostIfName: "eth0"}}}, refused: "eth0"},
		"a neighbour":     {message: &l3.ARPEntry{Interface: "eth0"}, refused: "eth0"},
		"where it leads":  {message: &l3.Route{OutgoingInterface: "eth0"}, refused: "eth0"},
		"a next hop only": {message: &l3.Route{NextHopAddr: "10.0.0.1"}},
		"a cross-connect": {message: &vpp.XConnectPair{ReceiveInterface: "red-1",
			TransmitInterface: "eth0"}, refused: "eth0"},
		"a path of one": {message: &l3.L3XConnect{Interface: "red-1",
			Paths: []*l3.L3XConnect_Path{{OutgoingInterface: "eth0"}}}, refused: "eth0"},
		"proxy ARP": {message: &l3.ProxyARP{Interfaces: []*l3.ProxyARP_Interface{
			{Name: "red-1"}, {Name: "eth0"}}}, refused: "eth0"},
		"a device": {message: &linux.Interface{Name: "red-1", HostIfName: "eth0"},
			refused: "eth0"},
		"another end": {message: &linux.Interface{Name: "red-1", Link: &linux.Interface_Veth{
			Veth: &linux.VethLink{PeerIfName: "eth0"}}}, refused: "eth0"},
		"a route of Linux":     {message: &linux.Route{OutgoingInterface: "eth0"}, refused: "eth0"},
		"a neighbour in Linux": {message: &linux.ARPEntry{Interface: "eth0"}, refused: "eth0"},
	} {
		want := ""
		if test.refused != "" {
			want = "the policy does not let this client write interface " + test.refused
		}
		check(t, name, c.refuses(external.Item{Message: test.message}), want)
	}
}

func TestSocketsThatThePolicyLeavesOut(t *testing.T) {
	c := Client{SocketDirectories: []string{"/run/red", "/tmp/red"}}
	for socket, refused := range map[string]bool{
		"/run/red/a.sock": false, "/tmp/red/b/c.sock": false, "/run/redder/a.sock": true,
		"/run/red": true, "/run/a.sock": true,
	} {
		want := ""
		if refused {
			want = "the policy does not let this client use socket " + socket
		}
		m := &vpp.Interface{Name: "red-1", Link: &vpp.Interface_Memif{
			Memif: &vpp.MemifLink{SocketFilename: socket}}}
		check(t, socket, c.refuses(external.Item{Message: m}), want)
		all := Client{SocketDirectories: []string{"/"}}
		check(t, socket, all.refuses(external.Item{Message: m}), "")
		check(t, socket, (&Client{}).refuses(external.Item{Message: m}), "")
	}
}

func TestPolicyOfNamespaces(t *testing.T) {
	fd, nsid := linux.NetNamespace_FD, linux.NetNamespace_NSID
	for name, test := range map[string]struct {
		allowed, reference string
		kind               linux.NetNamespace_ReferenceType
		refused            string
	}{
		"the agent's":     {allowed: "own"},
		"not the agent's": {allowed: "blue", refused: "own"},
		"by name":         {allowed: "blue", reference: "blue", kind: nsid},
		"by path":         {allowed: "blue", reference: "/run/netns/../netns/blue", kind: fd},
		"by path, allowed by path": {allowed: "/proc/7/ns/net", reference: "/proc/7/ns/net",
			kind: fd},
		"another": {allowed: "blue", reference: "/blue", kind: fd, refused: "/blue"},
		"one with the agent's name": {allowed: "own", reference: "own", kind: nsid,
			refused: "/run/netns/own"},
		"one that begins so": {allowed: "blue", reference: "blue2", kind: nsid,
			refused: "/run/netns/blue2"},
	} {
		c := Client{Namespaces: []string{test.allowed}}
		i := &linux.Interface{Name: "x"}
		if test.reference != "" {
			i.Namespace = &linux.NetNamespace{Type: test.kind, Reference: test.reference}
		}
		want := ""
		if test.refused != "" {
			want = "the policy does not let this client write namespace " + test.refused
		}
		check(t, name, c.refuses(external.Item{Message: i}), want)
	}
}

func TestWhoHasNoEntryMayOnlyRead(t *testing.T) {
	s := serveWith(t, Policy{})
	_, err := rpc.NewDataChangeServiceClient(s.conn).Put(s.ctx, &rpc.DataRequest{})
	checkError(t, "put", err, codes.PermissionDenied, "the policy has no entry for uid ")
	_, err = configurator.NewConfiguratorServiceClient(s.conn).Get(s.ctx,
		&configurator.GetRequest{})
	if err != nil {
		t.Error(err)
	}
}

func TestCallersByCertificate(t *testing.T) {
	p := Policy{Clients: []Client{{Certificate: "a"}, {Certificate: "b.example.org"},
		{Anonymous: true, Source: "old"}}}
	call := func(info credentials.AuthInfo) string {
		ctx := peer.NewContext(context.Background(), &peer.Peer{AuthInfo: info,
			Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}})
		c, name := p.caller(ctx)
		if c == nil {
			return name + ": none"
		}
		return name + ": " + c.Certificate + c.Source
	}
	certificate := func(name string, dns ...string) credentials.AuthInfo {
		return credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{
			{Subject: pkix.Name{CommonName: name}, DNSNames: dns}}}}
	}
	_, plain, err := insecure.NewCredentials().ServerHandshake(nil)
	if err != nil {
		t.Fatal(err)
	}
	check(t, "plain text", call(plain), "127.0.0.1:1: old")
	check(t, "common name", call(certificate("a")), `certificate "a": a`)
	check(t, "DNS name", call(certificate("x", "b.example.org")),
		`certificate "x": b.example.org`)
	check(t, "another", call(certificate("x")), `certificate "x": none`)
}

func TestBadPolicies(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	for text, want := range map[string]string{
		"clients: [{}]":                                       "entry 1 of clients: one of uid,",
		"clients: [{uid: 1, anonymous: true}]":                "one of uid,",
		"clients: [{uid: 1}, {uid: 2, source: a/b}]":          `entry 2 of clients: source "a/b"`,
		"clients: [{uid: 1, models: [vpp.nothing]}]":          `there is no model "vpp.nothing"`,
		"clients: [{uid: 1, tables: ['9-7']}]":                `tables "9-7" are neither`,
		"clients: [{uid: 1, interfaces: ['a*b']}]":            `interfaces "a*b": a * is at the`,
		"clients: [{uid: 1, socket_directories: [run]}]":      `socket_directories "run" is no`,
		"clients: [{uid: 1, socket_directories: [/a/]}]":      `socket_directories "/a/" is no`,
		"clients: [{uid: 1, namespaces: [blue]}]":             "namespaces need interfaces",
		"clients: [{uid: -1}]":                                "uid",
		"clients: []\n---\nclients: [{uid: 1}]":               "it has 2 YAML documents",
		"client: []":                                          `unknown field "client"`,
		"clients: [{certificate: a, tables: ['7'], x: true}]": `unknown field "x"`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadPolicy(path)
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), path+": ") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
