package grpc

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	"vpp-route-agent/internal/external"
	"vpp-route-agent/internal/external/proto/ligato/configurator"
	"vpp-route-agent/internal/external/proto/ligato/generic"
)

// itemsIn returns the items in a message of a service, which has them in fields of their own, in
// messages of such fields, or in lists.
func itemsIn(m protoreflect.Message) []external.Item { return appendItems(nil, m) }

func appendItems(all []external.Item, m protoreflect.Message) []external.Item {
	if len(m.GetUnknown()) > 0 {
		name := m.Descriptor().FullName()
		all = append(all, external.Item{Key: string(name), Problem: external.Problem{
			State:  external.Unimplemented,
			Detail: fmt.Sprintf("%s has fields that this agent does not know", name),
		}})
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.Message() == nil || !m.Has(f):
		case f.IsList():
			n, list := len(all), m.Get(f).List()
			all = append(all, make([]external.Item, list.Len())...)
			external.EachInParallel(list.Len(), func(i int) {
				all[n+i] = external.Decode(list.Get(i).Message().Interface())
			})
		case external.ModelOf(m.Get(f).Message().Interface()) != nil:
			all = append(all, external.Decode(m.Get(f).Message().Interface()))
		default:
			all = appendItems(all, m.Get(f).Message())
		}
	}
	return all
}

// keysIn returns the keys of the items in a message, of which only what names them is looked at.
func keysIn(m protoreflect.Message) (all []string) {
	for _, item := range itemsIn(m) {
		all = append(all, item.Key)
	}
	return all
}

// configOf puts items into Ligato's message for all of them.
func configOf(items []external.Item) *configurator.Config {
	c := &configurator.Config{}
	for _, item := range items {
		put(c.ProtoReflect(), item.Message.ProtoReflect())
	}
	return c
}

// put puts a message into the field of to, or of a message in it, that is made for it.
func put(to, m protoreflect.Message) bool {
	fields := to.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.Message() == nil:
		case f.Message() == m.Descriptor() && f.IsList():
			to.Mutable(f).List().Append(protoreflect.ValueOfMessage(m))
			return true
		case f.Message() == m.Descriptor():
			to.Set(f, protoreflect.ValueOfMessage(m))
			return true
		case !f.IsList() && isContainer(f.Message()):
			if next := to.NewField(f).Message(); put(next, m) {
				put(to.Mutable(f).Message(), m)
				return true
			}
		}
	}
	return false
}

func isContainer(d protoreflect.MessageDescriptor) bool { return d.Name() == "ConfigData" }

// fromGeneric makes an item of one that a generic client puts.
func fromGeneric(u *generic.UpdateItem) external.Item {
	id := u.GetItem().GetId()
	refuse := func(state external.State, format string, args ...any) external.Item {
		return external.Item{Key: keyOf(id),
			Problem: external.Problem{State: state, Detail: fmt.Sprintf(format, args...)}}
	}
	data := u.GetItem().GetData().GetAny()
	if data == nil {
		return refuse(external.Invalid, "it has no data")
	}
	kind := data.MessageName()
	t, err := protoregistry.GlobalTypes.FindMessageByName(kind)
	if err != nil || external.ModelOf(t.Zero().Interface()) == nil {
		return refuse(external.Unimplemented, "message %s", kind)
	}
	m := t.New().Interface()
	if err := proto.Unmarshal(data.Value, m); err != nil {
		return refuse(external.Invalid, "it cannot be decoded: %v", err)
	}
	item, size := external.Decode(m), 0
	for key, value := range u.GetLabels() {
		size += len(key) + len(value)
	}
	if size > maxLabels {
		return refuse(external.Invalid, "its labels have %d bytes; at most %d", size, maxLabels)
	}
	if item.Labels = u.GetLabels(); item.Problem != (external.Problem{}) {
		return item
	}
	if model := external.ModelOf(m); id.GetModel() != "" && id.GetModel() != model.Name() {
		return refuse(external.Invalid, "its message is of model %s", model.Name())
	}
	if id.GetName() != "" && !external.SameKey(keyOf(id), item.Key) {
		return refuse(external.Invalid, "the name does not fit the value, whose key is %s",
			item.Key)
	}
	return item
}

// keyOf returns the key of an item by its model and name.
func keyOf(id *generic.Item_ID) string {
	for _, m := range external.Models() {
		if m.Name() == id.GetModel() {
			return external.NormalKey(m.KeyPrefix() + id.GetName())
		}
	}
	return id.GetModel() + "/" + id.GetName()
}

// toGeneric returns an item as generic clients see it.
func toGeneric(item external.Item) (*generic.Item, error) {
	data, err := anypb.New(item.Message)
	if err != nil {
		return nil, err
	}
	data.TypeUrl = "models.ligato.io/" + string(item.Message.ProtoReflect().Descriptor().FullName())
	return &generic.Item{Id: idOf(item.Key),
		Data: &generic.Data{Union: &generic.Data_Any{Any: data}}}, nil
}

// asText makes a text for a message: one with other bytes, which keys in etcd and names of
// interfaces may have, cannot be sent.
func asText(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// idOf returns the model and name of a key.
func idOf(key string) *generic.Item_ID {
	key = asText(key)
	for _, m := range external.Models() {
		if name, ok := strings.CutPrefix(key, m.KeyPrefix()); ok {
			return &generic.Item_ID{Model: m.Name(), Name: name}
		}
	}
	return &generic.Item_ID{Name: key}
}
