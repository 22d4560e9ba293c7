package agent

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/changes"
	"vpp-route-agent/internal/recorder"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/ipam"
)

// fill sets all that v has to something.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch x := v.Addr().Interface().(type) {
	case *netip.Addr:
		*x = netip.MustParseAddr("10.0.0.7")
		return
	case *netip.Prefix:
		*x = netip.MustParsePrefix("10.7.0.0/16")
		return
	case *route.Key: // of routes of this node's own
		x.Prefix = netip.MustParsePrefix("10.8.0.0/16")
		return
	case *route.Encap:
		*x = route.IPIP
		return
	case *[]route.Object:
		*x = []route.Object{route.Link{Name: "tunl0", MAC: "66:00:00:00:00:01"},
			route.Address{Interface: "tunl0", Address: netip.MustParsePrefix("10.7.0.1/32")},
			route.Up{Interface: "tunl0"}, route.Endpoint{Interface: "tunl0",
				Outer: netip.MustParseAddr("10.0.0.7")}}
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("text")
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(t, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key)
		fill(t, value)
		v.SetMapIndex(key, value)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	default:
		t.Fatalf("a %v cannot be filled", v.Type())
	}
}

// onDisk is what is read of inputs that were recorded.
func onDisk(t *testing.T, in planInputs) *planInputs {
	t.Helper()
	var out planInputs
	for c := range changes.Of(nil, &in) {
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var read changes.Recorded
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		if err := changes.Apply(read, &out); err != nil {
			t.Fatal(err)
		}
	}
	return &out
}

// No field of facts and options is forgotten, on the way to disk and back.
func TestAllThatPlansAreMadeOfIsRecorded(t *testing.T) {
	var f Facts
	fill(t, reflect.ValueOf(&f).Elem())
	f.Tunnels, f.Overlay = nil, nil // nothing depends on them, say ipam's tests
	for _, nodes := range []route.Nodes{f.HeldNodes, f.Former.Nodes} {
		nodes[1].Address = nodes[0].Address.Next() // each is there once
	}
	if got := onDisk(t, inputsOf(f)).facts(); !reflect.DeepEqual(got, f) {
		t.Errorf("the facts are\n%+v instead of\n%+v", got, f)
	}
	var in planInputs
	fill(t, reflect.ValueOf(&in).Elem())
	for i := range in.FormerTunnels {
		in.FormerTunnels[i] = tunnel{Up: in.FormerTunnels[i].Up}
	}
	if got := onDisk(t, in); !reflect.DeepEqual(got, &in) {
		t.Errorf("the inputs are\n%+v instead of\n%+v", got, in)
	}
	empty := onDisk(t, inputsOf(Facts{Announced: map[netip.Prefix]bool{},
		Outgoing: []route.Outgoing{}}))
	if empty.Announced == nil || empty.Outgoing == nil || empty.PeerRoutes != nil {
		t.Errorf("what is empty and what is not there are one: %+v", empty)
	}
}

// A part of a plan is there for each field, and none is left out.
func TestPlanParts(t *testing.T) {
	var p Plan
	p.BGP.Policies.Normal4 = 7
	names := map[string]any{}
	for _, part := range planParts(p, ipam.RemotePlan{}, nil) {
		if recorder.Digest(part.Value); names[part.Name] != nil {
			t.Errorf("two parts %q", part.Name)
		}
		names[part.Name] = part.Value
	}
	if names["BGP.Policies.Normal4"] != uint32(7) {
		t.Errorf("%v", names)
	}
	for _, name := range []string{"Own", "Tunnels", "Encapsulation", "Overlay.Routes", "Remotes",
		"BGP.Peers", "BGP.Speaker.RouterID"} {
		if _, there := names[name]; !there {
			t.Errorf("there is no part %q of %v", name, names)
		}
	}
}

// A plan that was recorded is made again, also with this node as it was.
func TestReplanner(t *testing.T) {
	s := &calico.Snapshot{Nodes: map[string]calico.Node{
		"a": {Name: "a", IPv4: netip.MustParsePrefix("10.0.0.1/24")},
		"b": {Name: "b", IPv4: netip.MustParsePrefix("10.0.0.2/24")},
		"c": {Name: "c", IPv4: netip.MustParsePrefix("10.0.0.2/24")}}}
	for name, in := range map[string]planInputs{
		"with BGP":    {Options: bgp.Options{RouterID: "hash"}},
		"without BGP": {NoBGP: true, Sources: []ipam.AddressSource{ipam.NodeObject}},
		"as it was": {OwnNode: &calico.Node{Name: "a",
			IPv4: netip.MustParsePrefix("10.0.0.9/24")}},
	} {
		r := NewReplanner("a").(*Replanner)
		r.snapshot, r.inputs = s, &in
		addresses := []netip.Addr{netip.MustParseAddr("10.0.0.1")}
		if in.OwnNode != nil {
			addresses[0] = netip.MustParseAddr("10.0.0.9")
		}
		for _, part := range r.Plan() {
			if part.Name == "OwnAddresses" && !reflect.DeepEqual(part.Value, addresses) {
				t.Errorf("%s: %v", name, part.Value)
			}
			if shared, is := part.Value.([]calico.Problem); is && part.Name == "SharedAddresses" &&
				len(shared) != 2*len(in.Sources) {
				t.Errorf("%s: hosts that share an address: %v", name, shared)
			}
		}
	}
}

// What the recorder does for a plan of 1000 nodes, beside the plan itself.
func BenchmarkDigestOfPlan(b *testing.B) {
	s := &calico.Snapshot{Nodes: map[string]calico.Node{}}
	for i := range 1000 {
		a := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		s.Nodes[a.String()] = calico.Node{Name: a.String(), IPv4: netip.PrefixFrom(a, 16)}
	}
	b.Run("plan", func(b *testing.B) {
		for b.Loop() {
			PlanFor("10.0.0.1", s, bgp.Options{}, Facts{})
		}
	})
	parts := planParts(PlanFor("10.0.0.1", s, bgp.Options{}, Facts{}), ipam.RemotePlan{}, nil)
	b.Run("digest", func(b *testing.B) {
		for b.Loop() {
			for _, part := range parts {
				recorder.Digest(part.Value)
			}
		}
	})
}
