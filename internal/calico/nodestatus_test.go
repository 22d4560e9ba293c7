package calico

import (
	"net/netip"
	"reflect"
	"testing"
)

// calico-node's answer, both families, as v3.31 writes it: the names of protocols have ports.
const answeredStatus = `{"kind":"CalicoNodeStatus","apiVersion":"projectcalico.org/v3",
"metadata":{"name":"q-1","annotations":{"whose":"ours"}},
"spec":{"node":"edge-7","classes":["BGP","Routes"],"updatePeriodSeconds":0},
"status":{"lastUpdated":"2026-11-24T08:00:00Z",
"agent":{"birdV4":{},"birdV6":{}},
"bgp":{"numberEstablishedV4":1,"numberNotEstablishedV4":1,"numberEstablishedV6":1,
"numberNotEstablishedV6":0,
"peersV4":[{"peerIP":"10.0.0.2","type":"NodeMesh","state":"Established","since":"08:00:01"},
{"peerIP":"10.0.0.3","type":"NodePeer","state":"Active","since":"2026-11-23"},
{"peerIP":"","type":"NodePeer","since":"2026-11-23"}],
"peersV6":[{"peerIP":"fd00::2","type":"GlobalPeer","state":"Established","since":"08:00:01"}]},
"routes":{"routesV4":[
{"type":"FIB","destination":"10.1.0.0/26","gateway":"10.0.0.2","interface":"eth0",
"learnedFrom":{"sourceType":"NodeMesh","peerIP":"10.0.0.2"}},
{"type":"RIB","destination":"10.1.0.0/26","gateway":"10.0.0.2","interface":"eth0",
"learnedFrom":{"sourceType":"BGPPeer","peerIP":"10.0.0.3.port.1179"}},
{"type":"FIB","destination":"10.1.7.0/26","gateway":"N/A","interface":"blackhole",
"learnedFrom":{"sourceType":"Static"}},
{"type":"FIB","destination":"what","gateway":"N/A","interface":"x","learnedFrom":{}}],
"routesV6":[{"type":"FIB","destination":"fd01::/64","gateway":"fd00::2","interface":"eth0",
"learnedFrom":{"sourceType":"BGPPeer","peerIP":"fd00::2:port:1179"}}]}}}`

func TestDecodeNodeStatus(t *testing.T) {
	addr, pfx := netip.MustParseAddr, netip.MustParsePrefix
	want := NodeStatus{
		Annotations: map[string]string{"whose": "ours"}, Answered: true,
		Peers: []NodeStatusPeer{
			{addr("10.0.0.2"), PeerTypeMesh, true}, {addr("10.0.0.3"), PeerTypeNode, false},
			{addr("fd00::2"), PeerTypeGlobal, true},
		},
		Routes: []NodeStatusRoute{
			{pfx("10.1.0.0/26"), "10.0.0.2", "eth0", addr("10.0.0.2"), true},
			{pfx("10.1.0.0/26"), "10.0.0.2", "eth0", addr("10.0.0.3"), false},
			{pfx("10.1.7.0/26"), "N/A", "blackhole", netip.Addr{}, true},
			{pfx("fd01::/64"), "fd00::2", "eth0", addr("fd00::2"), true},
		},
	}
	if got, err := DecodeNodeStatus([]byte(answeredStatus)); err != nil ||
		!reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	for _, unanswered := range []string{`{}`, `{"status":{"lastUpdated":null,"bgp":{}}}`} {
		if got, err := DecodeNodeStatus([]byte(unanswered)); err != nil || got.Answered {
			t.Errorf("%s: %+v, %v", unanswered, got, err)
		}
	}
	if _, err := DecodeNodeStatus([]byte(`{"status":7}`)); err == nil {
		t.Error("garbage was read")
	}
}

func FuzzDecodeNodeStatus(f *testing.F) {
	f.Add([]byte(answeredStatus))
	f.Fuzz(func(t *testing.T, value []byte) {
		s, err := DecodeNodeStatus(value)
		if err != nil {
			return
		}
		for _, r := range s.Routes {
			if r.Prefix != r.Prefix.Masked() {
				t.Errorf("%+v is not masked", r)
			}
		}
	})
}
