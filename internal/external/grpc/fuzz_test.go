package grpc

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"vpp-route-agent/internal/external"
	"vpp-route-agent/internal/external/proto/contiv/rpc"
	"vpp-route-agent/internal/external/proto/ligato/configurator"
	"vpp-route-agent/internal/external/proto/ligato/generic"
	"vpp-route-agent/internal/external/proto/ligato/vpp"
	"vpp-route-agent/internal/external/proto/ligato/vpp/l3"
)

// FuzzRequests decodes whatever a client may send. What is accepted survives the journal, and
// merges.
func FuzzRequests(f *testing.F) {
	for _, m := range []proto.Message{
		&rpc.DataRequest{StaticRoutes: []*l3.Route{routeTo(1)}, Interfaces: []*vpp.Interface{{}},
			VrfTables: []*l3.VrfTable{{Id: 7}}, ProxyArp: &l3.ProxyARP{}},
		&configurator.UpdateRequest{Update: &configurator.Config{VppConfig: &vpp.ConfigData{
			Routes: []*l3.Route{routeTo(1)}, Nat44Global: &vpp.Nat44Global{}}}},
		&generic.SetConfigRequest{
			Updates: []*generic.UpdateItem{updateOf(routeTo(1), "", nil), {}}},
	} {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var items []external.Item
		contiv, ligato := &rpc.DataRequest{}, &configurator.UpdateRequest{}
		if proto.Unmarshal(raw, contiv) == nil {
			items = append(items, itemsIn(contiv.ProtoReflect())...)
		}
		if proto.Unmarshal(raw, ligato) == nil {
			items = append(items, itemsIn(ligato.GetUpdate().ProtoReflect())...)
		}
		set := &generic.SetConfigRequest{}
		if proto.Unmarshal(raw, set) == nil {
			for _, u := range set.Updates {
				items = append(items, fromGeneric(u))
			}
		}
		source := external.Source{Name: Name, Items: map[string]external.Item{}}
		r := record{Txn: 1, Source: Name}
		for _, item := range items {
			if item.Problem != (external.Problem{}) {
				continue
			}
			if err := r.put(item); err != nil {
				t.Fatalf("%s: %v", item.Key, err)
			}
			source.Items[item.Key] = item
		}
		line, err := appendRecord(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodeRecord(line[:len(line)-1])
		if err != nil {
			t.Fatal(err)
		}
		s := newStore()
		s.replay([]record{back})
		for key, item := range source.Items {
			if got := s.sources[Name][key]; !proto.Equal(got.Message, item.Message) {
				t.Fatalf("%s: %v from disk, %v before", key, got.Message, item.Message)
			}
		}
		external.Judge(external.Merge([]external.Source{source},
			external.Policy{Table0: true}), external.Facts{})
	})
}

// FuzzJournal reads whatever a disk may return.
func FuzzJournal(f *testing.F) {
	line, err := appendRecord(nil, record{Format: journalFormat})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(line)
	f.Fuzz(func(t *testing.T, raw []byte) {
		if r, err := decodeRecord(raw); err == nil {
			newStore().replay([]record{r})
		}
	})
}
