package grpc

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/anypb"

	"vpp-route-agent/internal/external"
	"vpp-route-agent/internal/external/proto/contiv/rpc"
	"vpp-route-agent/internal/external/proto/ligato/configurator"
	"vpp-route-agent/internal/external/proto/ligato/generic"
	"vpp-route-agent/internal/external/proto/ligato/vpp"
	"vpp-route-agent/internal/external/proto/ligato/vpp/l3"
	"vpp-route-agent/internal/route"
)

// served is a server on a socket, and a connection to it.
type served struct {
	*bed
	conn *grpc.ClientConn
	ctx  context.Context
}

func serve(t *testing.T) *served {
	t.Helper()
	return serveWith(t, DefaultPolicy(false))
}

func serveWith(t *testing.T, p Policy) *served {
	t.Helper()
	return serveLogging(t, p, slog.New(slog.DiscardHandler))
}

func serveLogging(t *testing.T, p Policy, log *slog.Logger, others ...external.Adapter) *served {
	t.Helper()
	dir := t.TempDir()
	b := newBed(dir, others...)
	l, err := net.Listen("unix", filepath.Join(dir, "external.sock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	done := make(chan error, 1)
	server := NewServer(b.Source, b.controller, p, nil, log)
	go func() { done <- server.Serve(ctx, l) }()
	conn, err := grpc.NewClient("unix:"+l.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		b.stop()
	})
	return &served{bed: b, conn: conn, ctx: ctx}
}

func routeTo(n int) *l3.Route {
	return &l3.Route{DstNetwork: fmt.Sprintf("10.9.%d.0/24", n), NextHopAddr: "10.0.0.2"}
}

// The secret of a memif is on disk, for root alone, and shown to nobody.
func TestSecretsAreShownToNobody(t *testing.T) {
	const secret = "hunter2"
	var log bytes.Buffer
	s := serveLogging(t, DefaultPolicy(false), slog.New(slog.NewJSONHandler(&log, nil)))
	memif := &vpp.Interface{Name: "memif1", Type: vpp.Interface_MEMIF, Link: &vpp.Interface_Memif{
		Memif: &vpp.MemifLink{SocketFilename: "/run/m.sock", Secret: secret}}}
	data := rpc.NewDataChangeServiceClient(s.conn)
	_, err := data.Put(s.ctx, &rpc.DataRequest{Interfaces: []*vpp.Interface{memif}})
	checkError(t, "Put", err, codes.OK, "")
	config := configurator.NewConfiguratorServiceClient(s.conn)
	get, err := config.Get(s.ctx, &configurator.GetRequest{})
	checkError(t, "Get", err, codes.OK, "")
	dump, err := config.Dump(s.ctx, &configurator.DumpRequest{})
	checkError(t, "Dump", err, codes.OK, "")
	manager := generic.NewManagerServiceClient(s.conn)
	items, err := manager.GetConfig(s.ctx, &generic.GetConfigRequest{})
	checkError(t, "GetConfig", err, codes.OK, "")
	state, err := manager.DumpState(s.ctx, &generic.DumpStateRequest{})
	checkError(t, "DumpState", err, codes.OK, "")
	for _, m := range []proto.Message{get, dump, items, state} {
		wire, err := proto.Marshal(m)
		if err != nil || !bytes.Contains(wire, []byte("/run/m.sock")) ||
			bytes.Contains(wire, []byte(secret)) {
			t.Errorf("%T is %v (%v)", m, m, err)
		}
	}
	if strings.Contains(log.String(), secret) || !strings.Contains(log.String(), "transaction") {
		t.Errorf("the log: %s", log.String())
	}
	journal, err := os.Stat(filepath.Join(s.dir, "external-grpc.journal"))
	if err != nil || journal.Mode().Perm() != 0o600 {
		t.Errorf("%v (%v)", journal, err)
	}
	s.restart()
	back := s.Source.store.sources["grpc"]["config/vpp/v2/interfaces/memif1"]
	if !proto.Equal(back.Message, memif) {
		t.Errorf("after a restart it is %v", back.Message)
	}
}

// checkError compares the code of an error, and what its text begins with.
func checkError(t *testing.T, what string, err error, code codes.Code, text string) {
	t.Helper()
	s := status.Convert(err)
	if s.Code() != code || !strings.HasPrefix(s.Message(), text) {
		t.Errorf("%s: %v %q, want %v %q", what, s.Code(), s.Message(), code, text)
	}
}

func TestContivsServices(t *testing.T) {
	s := serve(t)
	change, resync := rpc.NewDataChangeServiceClient(s.conn), rpc.NewDataResyncServiceClient(s.conn)
	var header metadata.MD
	_, err := change.Put(s.ctx, &rpc.DataRequest{
		VrfTables: []*l3.VrfTable{{Id: 7, Label: "red"}},
		StaticRoutes: []*l3.Route{routeTo(1),
			{VrfId: 7, DstNetwork: "10.9.2.0/24", Type: l3.Route_DROP}},
		AccessLists: []*vpp.ACL{{Name: "a"}},
	}, grpc.Header(&header))
	checkError(t, "put", err, codes.FailedPrecondition,
		"KeyErrors: [config/vpp/acls/v2/acl/a (VALIDATE): model vpp.acls.acl]")
	details := status.Convert(err).Details()
	if len(details) != 1 || details[0].(*generic.UpdateResult).Status.Status != "UNIMPLEMENTED" {
		t.Errorf("details %v", details)
	}
	if got := header.Get("seqnum"); len(got) != 1 || got[0] != "1" {
		t.Errorf("seqnum %v", got)
	}
	check(t, "the rest of the call", s.fib.routes(),
		"[10.9.1.0/24 via 10.0.0.2 10.9.2.0/24 table 7 drop]")
	if _, err := change.Del(s.ctx, &rpc.DataRequest{
		StaticRoutes: []*l3.Route{routeTo(1)}}); err != nil {
		t.Error(err)
	}
	_, err = change.Del(s.ctx, &rpc.DataRequest{StaticRoutes: []*l3.Route{routeTo(1)}})
	checkError(t, "deleted twice", err, codes.FailedPrecondition,
		"KeyErrors: [config/vpp/v2/route/vrf/0/dst/10.9.1.0/24/gw/10.0.0.2 (VALIDATE): "+
			"the client has no such item]")
	if _, err := resync.Resync(s.ctx, &rpc.DataRequest{
		StaticRoutes: []*l3.Route{routeTo(3)}}); err != nil {
		t.Error(err)
	}
	check(t, "after the resync", s.fib.routes(), "[10.9.3.0/24 via 10.0.0.2]")
}

func TestFieldsThatNobodyKnowsAreRefused(t *testing.T) {
	s := serve(t)
	r := &rpc.DataRequest{StaticRoutes: []*l3.Route{routeTo(1), routeTo(2)}}
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 900, protowire.VarintType), 1)
	r.ProtoReflect().SetUnknown(unknown)
	r.StaticRoutes[1].ProtoReflect().SetUnknown(unknown)
	_, err := rpc.NewDataChangeServiceClient(s.conn).Put(s.ctx, r)
	checkError(t, "put", err, codes.FailedPrecondition, "KeyErrors: [rpc.DataRequest (VALIDATE): "+
		"rpc.DataRequest has fields that this agent does not know, "+
		"config/vpp/v2/route/vrf/0/dst/10.9.2.0/24/gw/10.0.0.2 (VALIDATE): "+
		"ligato.vpp.l3.Route has fields that this agent does not know]")
	check(t, "the rest of the call", s.fib.routes(), "[10.9.1.0/24 via 10.0.0.2]")
}

func TestLigatosConfigurator(t *testing.T) {
	s := serve(t)
	c := configurator.NewConfiguratorServiceClient(s.conn)
	config := func(routes ...*l3.Route) *configurator.Config {
		return &configurator.Config{VppConfig: &vpp.ConfigData{Routes: routes}}
	}
	if _, err := c.Update(s.ctx, &configurator.UpdateRequest{Update: config(routeTo(1)),
		WaitDone: true}); err != nil {
		t.Error(err)
	}
	other := metadata.AppendToOutgoingContext(s.ctx, "datasrc", "other")
	if _, err := c.Update(other, &configurator.UpdateRequest{FullResync: true,
		Update: config(routeTo(1), routeTo(2))}); err != nil {
		t.Error(err)
	}
	got, err := c.Get(s.ctx, &configurator.GetRequest{})
	if err != nil || !proto.Equal(got.GetConfig(), config(routeTo(1), routeTo(2))) {
		t.Errorf("get: %v %v", got, err)
	}
	s.fib.set(func() { s.fib.refused["10.9.2.0/24"] = true })
	awaitDump := func(want *configurator.Config) {
		t.Helper()
		var dump *configurator.DumpResponse
		for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
			if dump, err = c.Dump(s.ctx, &configurator.DumpRequest{}); err != nil {
				t.Fatal(err)
			}
			if proto.Equal(dump.Dump, want) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("dump: %v", dump)
	}
	awaitDump(config(routeTo(1)))
	if _, err := c.Delete(s.ctx, &configurator.DeleteRequest{
		Delete: config(routeTo(1))}); err != nil {
		t.Error(err)
	}
	awaitDump(config(routeTo(1))) // the other source's
	if _, err := c.Update(other, &configurator.UpdateRequest{FullResync: true}); err != nil {
		t.Error(err)
	}
	check(t, "after an empty resync", s.fib.routes(), "[]")
	bad := metadata.AppendToOutgoingContext(s.ctx, "datasrc", "a/b")
	_, err = c.Update(bad, &configurator.UpdateRequest{})
	checkError(t, "datasrc", err, codes.InvalidArgument, `datasrc "a/b" is no name of a client`)
}

// updateOf is an update of a generic client.
func updateOf(m proto.Message, name string, labels map[string]string) *generic.UpdateItem {
	data, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	data.TypeUrl = "models.ligato.io/" + string(m.ProtoReflect().Descriptor().FullName())
	return &generic.UpdateItem{Labels: labels, Item: &generic.Item{
		Id:   &generic.Item_ID{Model: external.ModelOf(m).Name(), Name: name},
		Data: &generic.Data{Union: &generic.Data_Any{Any: data}},
	}}
}

func TestLigatosManager(t *testing.T) {
	s := serve(t)
	c := generic.NewManagerServiceClient(s.conn)
	name := "vrf/0/dst/10.9.1.0/24/gw/10.0.0.2"
	red := map[string]string{"color": "red"}
	out, err := c.SetConfig(s.ctx, &generic.SetConfigRequest{Updates: []*generic.UpdateItem{
		updateOf(routeTo(1), name, red), updateOf(routeTo(2), "", nil)}})
	if err != nil || len(out.GetResults()) != 2 ||
		out.Results[0].Key != "config/vpp/v2/route/"+name || out.Results[0].Id.Name != name ||
		out.Results[0].Status.Status != "CONFIGURED" {
		t.Fatalf("set: %v %v", out, err)
	}
	get := func(r *generic.GetConfigRequest) (names []string) {
		t.Helper()
		got, err := c.GetConfig(s.ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range got.Items {
			names = append(names, i.Item.Id.Name+" "+i.Status.Status)
		}
		return names
	}
	ids := []*generic.Item_ID{{Model: "vpp.route", Name: name}}
	for _, r := range []*generic.GetConfigRequest{{Labels: red}, {Ids: ids},
		{Labels: map[string]string{"color": ""}}} {
		if got := get(r); len(got) != 1 || got[0] != name+" CONFIGURED" {
			t.Errorf("get %v: %v", r, got)
		}
	}
	got := get(&generic.GetConfigRequest{Labels: map[string]string{"!color": ""}})
	if len(got) != 1 || got[0] == name+" CONFIGURED" {
		t.Errorf("get without the label: %v", got)
	}
	state, err := c.DumpState(s.ctx, &generic.DumpStateRequest{Ids: ids})
	if err != nil || len(state.GetItems()) != 1 {
		t.Errorf("state: %v %v", state, err)
	}
	_, err = c.SetConfig(s.ctx, &generic.SetConfigRequest{Updates: []*generic.UpdateItem{
		updateOf(routeTo(3), name, nil)}})
	checkError(t, "another name", err, codes.FailedPrecondition, "KeyErrors: [config/vpp/v2/route/"+
		name+" (VALIDATE): the name does not fit the value, whose key is "+
		"config/vpp/v2/route/vrf/0/dst/10.9.3.0/24/gw/10.0.0.2]")
	deleted, err := c.SetConfig(s.ctx, &generic.SetConfigRequest{Updates: []*generic.UpdateItem{
		{Item: &generic.Item{Id: ids[0]}}}})
	if err != nil || deleted.Results[0].Op != generic.UpdateResult_DELETE ||
		deleted.Results[0].Status.Status != "REMOVED" {
		t.Errorf("deleted: %v %v", deleted, err)
	}
	if _, err := c.SetConfig(s.ctx, &generic.SetConfigRequest{OverwriteAll: true}); err != nil {
		t.Error(err)
	}
	check(t, "nothing is left", s.fib.routes(), "[]")
}

// A client hears that its transaction goes on before its deadline: at the deadline it hangs up.
func TestTheNumberOfATransactionThatGoesOn(t *testing.T) {
	s := serve(t)
	s.fib.set(func() { s.fib.silent = true })
	ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
	defer cancel()
	var header metadata.MD
	_, err := rpc.NewDataChangeServiceClient(s.conn).Put(ctx,
		&rpc.DataRequest{StaticRoutes: []*l3.Route{routeTo(1)}}, grpc.Header(&header))
	if status.Code(err) != codes.DeadlineExceeded ||
		!strings.Contains(err.Error(), "transaction 1: it is accepted and goes on") ||
		!slices.Equal(header.Get(SeqnumKey), []string{"1"}) {
		t.Errorf("%v, %v", header, err)
	}
}

// What etcd or a data plane has may be no text, which no message can have: others are told.
func TestBytesThatAreNoText(t *testing.T) {
	const bad = "config/vpp/v2/route/\xff"
	notes := newNotifications(false)
	notes.add(route.Interface{Name: "eth\xff"}, vpp.InterfaceState_UP)
	for _, m := range []proto.Message{
		idOf(bad), statusOf(external.Verdict{Key: bad, Details: []string{bad}}), notes.kept[0],
	} {
		if _, err := proto.Marshal(m); err != nil {
			t.Errorf("%T: %v", m, err)
		}
	}
}

func TestSubscribe(t *testing.T) {
	s := serve(t)
	c := generic.NewManagerServiceClient(s.conn)
	name := "vrf/0/dst/10.9.1.0/24/gw/10.0.0.2"
	stream, err := c.Subscribe(s.ctx, &generic.SubscribeRequest{
		Subscriptions: []*generic.Subscription{
			{Id: &generic.Item_ID{Model: "vpp.route", Name: name}}}})
	if err != nil {
		t.Fatal(err)
	}
	s.do(Change{Puts: puts(1, 2)})
	for {
		got, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range got.Notifications {
			if n.Item.Id.Name != name {
				t.Errorf("got %v", n)
			}
			if n.Status.Status == "CONFIGURED" {
				return
			}
		}
	}
}

// otherAdapter has the items of another source.
type otherAdapter chan external.Snapshot

func (otherAdapter) Name() string                          { return "other" }
func (o otherAdapter) Snapshots() <-chan external.Snapshot { return o }
func (otherAdapter) Answer(external.Answer)                {}

func TestSubscribeHearsOfOtherSources(t *testing.T) {
	other := make(otherAdapter, 1)
	s := serveLogging(t, DefaultPolicy(false), slog.New(slog.DiscardHandler), other)
	ctx, cancel := context.WithTimeout(s.ctx, 20*time.Second)
	defer cancel()
	stream, err := generic.NewManagerServiceClient(s.conn).Subscribe(ctx,
		&generic.SubscribeRequest{})
	if err != nil {
		t.Fatal(err)
	}
	hears := func(state string) {
		t.Helper()
		for {
			got, err := stream.Recv()
			if err != nil {
				t.Fatalf("not heard: %s: %v; items are %v", state, err, s.controller.Verdicts())
			}
			for _, n := range got.Notifications {
				if n.Status.Status == state {
					return
				}
			}
		}
	}
	one := item(1, "")
	other <- external.Snapshot{Complete: true, Sources: []external.Source{
		{Name: "other", Items: map[string]external.Item{one.Key: one}}}}
	hears("CONFIGURED")
	s.fib.set(func() { s.fib.refused["10.9.1.0/24"] = true })
	hears("RETRYING")
}

// What agentctl does: it links the descriptors of all models without knowing any.
func TestLigatosMetaService(t *testing.T) {
	s := serve(t)
	c := generic.NewMetaServiceClient(s.conn)
	known, err := c.KnownModels(s.ctx, &generic.KnownModelsRequest{Class: "config"})
	if err != nil || len(known.KnownModels) != 10 {
		t.Fatalf("%v %v", known, err)
	}
	registered := map[string]bool{}
	for _, m := range known.KnownModels {
		options := map[string]string{}
		for _, o := range m.Options {
			options[o.Key] = o.Values[0]
		}
		if registered[options["protoFile"]] {
			t.Errorf("agentctl warns on each call: %s is registered already", options["protoFile"])
		}
		registered[options["protoFile"]] = true
		f, err := c.ProtoFileDescriptor(s.ctx, &generic.ProtoFileDescriptorRequest{
			FullProtoFileName: options["protoFile"]})
		if err != nil {
			t.Fatal(err)
		}
		files, err := protodesc.NewFiles(&descriptorpb.FileDescriptorSet{
			File: append(f.FileImportDescriptors.GetFile(), f.FileDescriptor)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := files.FindDescriptorByName(protoreflect.FullName(m.ProtoName)); err != nil {
			t.Errorf("%s: %v", m.ProtoName, err)
		}
		if one := m.Spec.Type == "proxyarp-global"; (options["nameTemplate"] == "") != one {
			t.Errorf("%s has the name template %q", m.ProtoName, options["nameTemplate"])
		}
	}
	_, err = c.ProtoFileDescriptor(s.ctx, &generic.ProtoFileDescriptorRequest{
		FullProtoFileName: "nothing.proto"})
	checkError(t, "no such file", err, codes.NotFound, `no file "nothing.proto"`)
}

// logLines has what is logged, without the time and level.
type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	_, text, _ := strings.Cut(string(line), "msg=")
	l <- strings.TrimSpace(text)
	return len(line), nil
}

func TestTheLogSaysWhatACallIsAnswered(t *testing.T) {
	lines := make(logLines, 10)
	s := serveLogging(t, DefaultPolicy(false), slog.New(slog.NewTextHandler(lines, nil)))
	put := func(routes ...*l3.Route) {
		_, _ = rpc.NewDataChangeServiceClient(s.conn).Put(s.ctx,
			&rpc.DataRequest{StaticRoutes: routes})
	}
	line := func(txn, puts int, answer codes.Code) string {
		return fmt.Sprintf("transaction component=external source=grpc txn=%d client=\"uid %d\" "+
			"of=grpc puts=%d deletes=0 replace=false answer=%v err=<nil>", txn, os.Geteuid(), puts,
			answer)
	}
	put(routeTo(1))
	check(t, "accepted", <-lines, line(1, 1, codes.OK))
	put(routeTo(2), &l3.Route{DstNetwork: "10.9.3.1/24"})
	check(t, "one of two", <-lines, line(2, 2, codes.FailedPrecondition))
}

func TestErrorsAreBounded(t *testing.T) {
	s := serve(t)
	r := &rpc.DataRequest{}
	for n := range 10_000 {
		r.StaticRoutes = append(r.StaticRoutes,
			&l3.Route{DstNetwork: fmt.Sprintf("10.%d.%d.1/24", n/256, n%256)})
	}
	_, err := rpc.NewDataChangeServiceClient(s.conn).Put(s.ctx, r)
	got := status.Convert(err)
	if got.Code() != codes.FailedPrecondition || len(got.Details()) != maxErrors ||
		!strings.HasSuffix(got.Message(), ", and 9980 more]") {
		t.Errorf("%v, %d details", got, len(got.Details()))
	}
	if n := proto.Size(got.Proto()); n > 16<<10 {
		t.Errorf("the error has %d bytes", n)
	}
	_, err = rpc.NewDataChangeServiceClient(s.conn).Put(s.ctx, &rpc.DataRequest{
		Interfaces: []*vpp.Interface{{Name: strings.Repeat("x", 1<<20)}}})
	if n := proto.Size(status.Convert(err).Proto()); n < 100 || n > 2<<10 {
		t.Errorf("the error about one huge key has %d bytes: %.300v", n, err)
	}
}

func TestAllOrNothingIsAskedForByMetadata(t *testing.T) {
	s := serve(t)
	s.fib.set(func() { s.fib.refused["10.9.1.0/24"] = true })
	ctx := metadata.AppendToOutgoingContext(s.ctx, "all-or-nothing", "true")
	_, err := rpc.NewDataChangeServiceClient(s.conn).Put(ctx, &rpc.DataRequest{
		StaticRoutes: []*l3.Route{routeTo(1), routeTo(2)}})
	checkError(t, "put", err, codes.Aborted, "transaction 1: "+ErrRolledBack.Error())
	check(t, "routes", s.fib.routes(), "[]")
}

func TestAClientThatIsGone(t *testing.T) {
	lines := make(logLines, 10)
	s := serveLogging(t, DefaultPolicy(false), slog.New(slog.NewTextHandler(lines, nil)))
	s.fib.set(func() { s.fib.silent = true })
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := rpc.NewDataChangeServiceClient(s.conn).Put(ctx, &rpc.DataRequest{
			StaticRoutes: []*l3.Route{routeTo(1)}})
		ended <- err
	}()
	const wanted = "[10.9.1.0/24 via 10.0.0.2]"
	for end := time.Now().Add(2 * time.Minute); s.fib.routes() != wanted; {
		if time.Now().After(end) {
			t.Fatalf("wanted are %s", s.fib.routes())
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	checkError(t, "put", <-ended, codes.Canceled, "")
	for line := ""; !strings.Contains(line, "accepted and goes on: context canceled"); {
		select {
		case line = <-lines: // of the server
		case <-time.After(time.Minute):
			t.Fatalf("logged last: %s", line)
		}
		if strings.Contains(line, "cannot be sent") {
			t.Errorf("of a client that has gone: %s", line)
		}
	}
	check(t, "it goes on", s.fib.routes(), wanted)
	s.fib.set(func() { s.fib.away = "VPP does not answer" })
	_, err := rpc.NewDataChangeServiceClient(s.conn).Put(s.ctx, &rpc.DataRequest{
		StaticRoutes: []*l3.Route{routeTo(2)}})
	checkError(t, "away", err, codes.Unavailable,
		"transaction 2: it is accepted and goes on: VPP does not answer")
}

func TestReflection(t *testing.T) {
	s := serve(t)
	stream, err := grpc_reflection_v1.NewServerReflectionClient(s.conn).ServerReflectionInfo(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	got, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	names := fmt.Sprint(got.GetListServicesResponse().GetService())
	for _, want := range []string{"rpc.DataChangeService", "rpc.DataResyncService",
		"ligato.configurator.ConfiguratorService", "ligato.generic.ManagerService",
		"ligato.generic.MetaService"} {
		if !strings.Contains(names, want) {
			t.Errorf("no %s in %s", want, names)
		}
	}
}
