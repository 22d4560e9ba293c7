package main

import (
	"net/netip"
	"slices"
	"testing"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"vpp-route-agent/internal/testcluster"
)

// messages cuts a byte stream into BGP messages, as read by somebody else's decoder.
func messages(t *testing.T, b []byte) (all []*packet.BGPMessage) {
	t.Helper()
	for len(b) > 0 {
		n := int(b[16])<<8 | int(b[17])
		if n > testcluster.MaxMessage {
			t.Fatalf("a message of %d bytes", n)
		}
		m, err := packet.ParseBGPMessage(b[:n])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
		b = b[n:]
	}
	return all
}

func prefixesOf(t *testing.T, nlri []*packet.IPAddrPrefix) (all []netip.Prefix) {
	t.Helper()
	for _, p := range nlri {
		all = append(all, netip.MustParsePrefix(p.String()))
	}
	return all
}

func TestUpdatesCarryEveryPrefixOnce(t *testing.T) {
	want := append(hostPrefixes(2000), blockPrefixes(1000)...)
	next := netip.MustParseAddr("10.0.0.2")
	var announced, withdrawn []netip.Prefix
	sent := messages(t, announce(next, want))
	for _, m := range sent {
		u := m.Body.(*packet.BGPUpdate)
		announced = append(announced, prefixesOf(t, u.NLRI)...)
		for _, a := range u.PathAttributes {
			hop, ok := a.(*packet.PathAttributeNextHop)
			if ok && hop.Value.String() != next.String() {
				t.Errorf("next hop %s", hop.Value)
			}
		}
		if len(u.PathAttributes) != 4 {
			t.Errorf("%d attributes", len(u.PathAttributes))
		}
	}
	if len(sent) > 5 { // 5 bytes each, about 800 in a message
		t.Errorf("%d messages for %d prefixes", len(sent), len(want))
	}
	for _, m := range messages(t, withdraw(want)) {
		withdrawn = append(withdrawn, prefixesOf(t, m.Body.(*packet.BGPUpdate).WithdrawnRoutes)...)
	}
	if !slices.Equal(announced, want) {
		t.Errorf("announced %d prefixes, not the %d given", len(announced), len(want))
	}
	if !slices.Equal(withdrawn, want) {
		t.Errorf("withdrew %d prefixes, not the %d given", len(withdrawn), len(want))
	}
}

func TestOpenAndEndOfRIBAreWhatTheyShouldBe(t *testing.T) {
	open := messages(t, openMessage(netip.MustParseAddr("10.0.0.2")))[0].Body.(*packet.BGPOpen)
	if open.MyAS != asNumber || open.HoldTime != holdTime || open.ID.String() != "10.0.0.2" {
		t.Errorf("%+v", open)
	}
	var codes []packet.BGPCapabilityCode
	for _, p := range open.OptParams {
		for _, c := range p.(*packet.OptionParameterCapability).Capability {
			codes = append(codes, c.Code())
		}
	}
	want := []packet.BGPCapabilityCode{
		packet.BGP_CAP_MULTIPROTOCOL, packet.BGP_CAP_ROUTE_REFRESH, packet.BGP_CAP_GRACEFUL_RESTART,
		packet.BGP_CAP_FOUR_OCTET_AS_NUMBER,
	}
	if !slices.Equal(codes, want) {
		t.Errorf("capabilities %v", codes)
	}
	eor, family := messages(t, endOfRIB)[0].Body.(*packet.BGPUpdate).IsEndOfRib()
	if !eor || family != packet.RF_IPv4_UC {
		t.Errorf("End-of-RIB: %t %v", eor, family)
	}
}
