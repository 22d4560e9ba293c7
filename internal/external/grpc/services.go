package grpc

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"vpp-route-agent/internal/external"
	"vpp-route-agent/internal/external/proto/contiv/rpc"
	"vpp-route-agent/internal/external/proto/ligato/configurator"
	"vpp-route-agent/internal/external/proto/ligato/generic"
)

// Put is Contiv's.
func (s *Server) Put(ctx context.Context, r *rpc.DataRequest) (*rpc.PutResponse, error) {
	_, err := s.do(ctx, Change{Puts: itemsIn(r.ProtoReflect())})
	return &rpc.PutResponse{}, err
}

// Del is Contiv's.
func (s *Server) Del(ctx context.Context, r *rpc.DataRequest) (*rpc.DelResponse, error) {
	_, err := s.do(ctx, Change{Deletes: keysIn(r.ProtoReflect())})
	return &rpc.DelResponse{}, err
}

// Resync is Contiv's.
func (s *Server) Resync(ctx context.Context, r *rpc.DataRequest) (*rpc.ResyncResponse, error) {
	_, err := s.do(ctx, Change{Puts: itemsIn(r.ProtoReflect()), Replace: true})
	return &rpc.ResyncResponse{}, err
}

// Update is Ligato's.
func (s *Server) Update(ctx context.Context, r *configurator.UpdateRequest) (
	*configurator.UpdateResponse, error) {
	_, err := s.do(ctx, Change{Puts: itemsIn(r.GetUpdate().ProtoReflect()),
		Replace: r.FullResync, WaitDone: r.WaitDone})
	return &configurator.UpdateResponse{}, err
}

// Delete is Ligato's.
func (s *Server) Delete(ctx context.Context, r *configurator.DeleteRequest) (
	*configurator.DeleteResponse, error) {
	_, err := s.do(ctx, Change{Deletes: keysIn(r.GetDelete().ProtoReflect()),
		WaitDone: r.WaitDone})
	return &configurator.DeleteResponse{}, err
}

// Get is Ligato's: what all sources want.
func (s *Server) Get(context.Context, *configurator.GetRequest) (
	*configurator.GetResponse, error) {
	return &configurator.GetResponse{Config: configOf(s.wanted())}, nil
}

// Dump is Ligato's: what the data plane has acknowledged.
func (s *Server) Dump(context.Context, *configurator.DumpRequest) (
	*configurator.DumpResponse, error) {
	return &configurator.DumpResponse{Dump: configOf(s.configured())}, nil
}

// wanted returns the items of all sources, without secrets; of a key the first source has it.
func (s *Server) wanted() (all []external.Item) {
	seen := map[string]bool{}
	for _, source := range s.all.Sources() {
		for _, key := range sortedKeys(source.Items) {
			item := source.Items[key]
			if item.Message != nil && !seen[item.Key] {
				seen[item.Key] = true
				item.Message = external.WithoutSecrets(item.Message)
				all = append(all, item)
			}
		}
	}
	return all
}

func (s *Server) configured() []external.Item {
	state := s.states()
	return slices.DeleteFunc(s.wanted(), func(i external.Item) bool {
		return state[i.Key].State != external.Configured
	})
}

// states returns how the items stand by key; of a key the first source's.
func (s *Server) states() map[string]external.Verdict {
	all := map[string]external.Verdict{}
	for _, v := range s.all.Verdicts() {
		if _, ok := all[v.Key]; !ok {
			all[v.Key] = v
		}
	}
	return all
}

// SetConfig is Ligato's.
func (s *Server) SetConfig(ctx context.Context, r *generic.SetConfigRequest) (
	*generic.SetConfigResponse, error) {
	c := Change{Replace: r.OverwriteAll}
	for _, u := range r.Updates {
		if u.GetItem().GetData() == nil {
			c.Deletes = append(c.Deletes, keyOf(u.GetItem().GetId()))
		} else {
			c.Puts = append(c.Puts, fromGeneric(u))
		}
	}
	if c.Replace && len(c.Deletes) > 0 {
		return nil, status.Error(codes.InvalidArgument,
			"overwrite_all deletes what is not named: updates without data make no sense")
	}
	results, err := s.do(ctx, c)
	if err != nil {
		return nil, err
	}
	out := &generic.SetConfigResponse{}
	for _, r := range results {
		out.Results = append(out.Results, resultOf(r))
	}
	return out, nil
}

// GetConfig is Ligato's: what all sources want, and how it stands.
func (s *Server) GetConfig(_ context.Context, r *generic.GetConfigRequest) (
	*generic.GetConfigResponse, error) {
	states, asked := s.states(), choiceOf(r.Ids)
	out := &generic.GetConfigResponse{}
	for _, item := range s.wanted() {
		if !asked.has(item.Key) || !hasLabels(item, r.Labels) {
			continue
		}
		g, err := toGeneric(item)
		if err != nil {
			return nil, err
		}
		out.Items = append(out.Items, &generic.ConfigItem{Item: g, Labels: item.Labels,
			Status: statusOf(states[item.Key])})
	}
	return out, nil
}

// DumpState is Ligato's: what the data plane has acknowledged.
func (s *Server) DumpState(_ context.Context, r *generic.DumpStateRequest) (
	*generic.DumpStateResponse, error) {
	out, asked := &generic.DumpStateResponse{}, choiceOf(r.Ids)
	for _, item := range s.configured() {
		if !asked.has(item.Key) {
			continue
		}
		g, err := toGeneric(item)
		if err != nil {
			return nil, err
		}
		out.Items = append(out.Items, &generic.StateItem{Item: g})
	}
	return out, nil
}

// choice is the items that a client asks for by ID, their keys in the normal spelling. nil: all.
type choice map[string]bool

func choiceOf(ids []*generic.Item_ID) choice {
	if len(ids) == 0 {
		return nil
	}
	c := make(choice, len(ids))
	for _, id := range ids {
		c[external.NormalKey(keyOf(id))] = true
	}
	return c
}

func (c choice) has(key string) bool { return c == nil || c[external.NormalKey(key)] }

// hasLabels takes Ligato's filter: a label, with any value if it names none, and "!label".
func hasLabels(item external.Item, want map[string]string) bool {
	for key, value := range want {
		name, not := key, false
		if len(key) > 0 && key[0] == '!' {
			name, not = key[1:], true
		}
		have, ok := item.Labels[name]
		if (ok && (value == "" || have == value)) == not {
			return false
		}
	}
	return true
}

// KnownModels is Ligato's: the models that the agent carries out.
func (s *Server) KnownModels(_ context.Context, r *generic.KnownModelsRequest) (
	*generic.KnownModelsResponse, error) {
	out := &generic.KnownModelsResponse{}
	for _, m := range external.Models() {
		if !m.Carried || r.Class != "" && r.Class != "config" {
			continue
		}
		out.KnownModels = append(out.KnownModels, &generic.ModelDetail{
			Spec: &generic.ModelSpec{Module: m.Module, Version: m.Version, Type: m.Type,
				Class: "config"},
			ProtoName: string(m.Message().FullName()),
			Options: []*generic.ModelDetail_Option{
				{Key: "nameTemplate", Values: []string{m.NameTemplate}},
				{Key: "protoPackage", Values: []string{string(m.Message().ParentFile().Package())}},
				{Key: "protoFile", Values: []string{m.Message().ParentFile().Path()}},
			},
		})
	}
	return out, nil
}

// ProtoFileDescriptor is Ligato's.
func (s *Server) ProtoFileDescriptor(_ context.Context, r *generic.ProtoFileDescriptorRequest) (
	*generic.ProtoFileDescriptorResponse, error) {
	f, err := protoregistry.GlobalFiles.FindFileByPath(r.FullProtoFileName)
	if err != nil {
		return nil, status.Errorf(codes.NotFound, "no file %q", r.FullProtoFileName)
	}
	out := &generic.ProtoFileDescriptorResponse{FileDescriptor: protodesc.ToFileDescriptorProto(f),
		FileImportDescriptors: &descriptorpb.FileDescriptorSet{}}
	addImports(out.FileImportDescriptors, f)
	return out, nil
}

func addImports(to *descriptorpb.FileDescriptorSet, f protoreflect.FileDescriptor) {
	for i := range f.Imports().Len() {
		next := f.Imports().Get(i)
		known := func(d *descriptorpb.FileDescriptorProto) bool {
			return d.GetName() == next.Path()
		}
		if !slices.ContainsFunc(to.File, known) {
			to.File = append(to.File, protodesc.ToFileDescriptorProto(next))
			addImports(to, next)
		}
	}
}

// Subscribe is Ligato's: how items stand, now and after each change.
func (s *Server) Subscribe(r *generic.SubscribeRequest,
	stream generic.ManagerService_SubscribeServer) error {
	var ids []*generic.Item_ID
	for _, sub := range r.Subscriptions {
		ids = append(ids, sub.GetId())
	}
	asked, sent := choiceOf(ids), map[string]*generic.ItemStatus{}
	for {
		changed := s.all.Changed()
		out, before := &generic.SubscribeResponse{}, sent
		sent = map[string]*generic.ItemStatus{}
		for _, v := range s.all.Verdicts() {
			if !asked.has(v.Key) {
				continue
			}
			now := statusOf(v)
			if sent[v.Key] = now; !proto.Equal(now, before[v.Key]) {
				out.Notifications = append(out.Notifications,
					&generic.Notification{Item: &generic.Item{Id: idOf(v.Key)}, Status: now})
			}
		}
		if len(out.Notifications) > 0 {
			if err := stream.Send(out); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
