package external

import (
	"testing"

	_ "go.etcd.io/etcd/api/v3/etcdserverpb" // see TestFilesBesideEtcds
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"

	"vpp-route-agent/internal/external/proto/contiv/rpc"
	"vpp-route-agent/internal/external/proto/ligato/configurator"
	"vpp-route-agent/internal/external/proto/ligato/generic"
	"vpp-route-agent/internal/external/proto/ligato/kvscheduler"
	"vpp-route-agent/internal/external/proto/ligato/linux"
	"vpp-route-agent/internal/external/proto/ligato/vpp"
	"vpp-route-agent/internal/external/proto/ligato/vpp/l3"
)

// The bytes follow from the numbers in Ligato v3.5.0 and in Contiv's rpc.proto.
func TestMessagesOnTheWire(t *testing.T) {
	const path = "\x08\x02\x1a\x0b10.1.0.0/16\x22\x0b192.168.1.1\x30\x01"
	r := &l3.Route{VrfId: 2, DstNetwork: "10.1.0.0/16", NextHopAddr: "192.168.1.1", Weight: 1}
	table := []*l3.VrfTable{{Id: 3}}
	for _, c := range []struct {
		message proto.Message
		wire    string
	}{
		{r, path},
		{&rpc.DataRequest{StaticRoutes: []*l3.Route{r}}, "\x92\x03\x1e" + path},
		{&rpc.DataRequest{VrfTables: table}, "\xba\x01\x02\x08\x03"},
		{&rpc.DataRequest{ProxyArp: &l3.ProxyARP{}}, "\xa2\x03\x00"},
		{&rpc.DataRequest{LinuxRoutes: []*linux.Route{{OutgoingInterface: "x"}}},
			"\xda\x05\x03\x0a\x01x"},
		{&configurator.UpdateRequest{
			Update:     &configurator.Config{VppConfig: &vpp.ConfigData{Vrfs: table}},
			FullResync: true, WaitDone: true,
		}, "\x0a\x07\x0a\x05\xe2\x02\x02\x08\x03\x10\x01\x18\x01"},
		{&configurator.DeleteRequest{WaitDone: true}, "\x18\x01"},
		{&generic.SetConfigRequest{OverwriteAll: true}, "\x10\x01"},
		{&kvscheduler.ValueStatus{Key: "k", State: kvscheduler.ValueState_RETRYING,
			LastOperation: kvscheduler.TxnOperation_VALIDATE}, "\x0a\x01k\x10\x0a\x20\x01"},
		{&vpp.Interface{Name: "m", Type: vpp.Interface_MEMIF,
			Link: &vpp.Interface_Memif{Memif: &vpp.MemifLink{Id: 1, Secret: "s"}},
		}, "\x0a\x01m\x10\x04\xaa\x06\x05\x18\x01\x2a\x01s"},
		{&vpp.XConnectPair{TransmitInterface: "x"}, "\x12\x01x"},
		{&l3.ARPEntry{Interface: "x", Static: true}, "\x0a\x01x\x20\x01"},
		{&l3.L3XConnect{Interface: "x", Protocol: l3.L3XConnect_IPV6,
			Paths: []*l3.L3XConnect_Path{{NextHopAddr: "::1"}},
		}, "\x0a\x01x\x10\x01\x1a\x05\x12\x03::1"},
		{&linux.Interface{Name: "v", Type: linux.Interface_VETH,
			Link: &linux.Interface_Veth{Veth: &linux.VethLink{PeerIfName: "w"}},
		}, "\x0a\x01v\x10\x01\xa2\x01\x03\x0a\x01w"},
		{&linux.NetNamespace{Type: linux.NetNamespace_FD, Reference: "/n"}, "\x08\x03\x12\x02/n"},
	} {
		have, err := proto.Marshal(c.message)
		if err != nil || string(have) != c.wire {
			t.Errorf("%T: % x, want % x (%v)", c.message, have, c.wire, err)
		}
		back := c.message.ProtoReflect().New().Interface()
		err = proto.Unmarshal([]byte(c.wire), back)
		if err != nil || !proto.Equal(back, c.message) {
			t.Errorf("%T comes back as %v (%v)", c.message, back, err)
		}
	}
}

// A second file of one name would end this program before its first test.
func TestFilesBesideEtcds(t *testing.T) {
	for path, want := range map[string]string{
		"rpc.proto": "etcdserverpb", "contiv/rpc/dataservices.proto": "rpc",
	} {
		f, err := protoregistry.GlobalFiles.FindFileByPath(path)
		if err != nil || string(f.Package()) != want {
			t.Errorf("%s is of package %v (%v), want %s", path, f, err, want)
		}
	}
}

func TestStatesAreLigatos(t *testing.T) {
	for _, s := range append([]State{Nonexistent, Removed}, States...) {
		if want := kvscheduler.ValueState(s).String(); s.String() != want {
			t.Errorf("%d is %v, want %s", s, s, want)
		}
	}
}
