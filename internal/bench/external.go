package main

import (
	"context"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"vpp-route-agent/internal/external"
	server "vpp-route-agent/internal/external/grpc"
	"vpp-route-agent/internal/external/proto/ligato/configurator"
	"vpp-route-agent/internal/external/proto/ligato/vpp"
	"vpp-route-agent/internal/external/proto/ligato/vpp/l3"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// externalItems is how many items a client has.
const externalItems = 10_000

// externalCalls looks at what items cost that wait, and at how they are applied. Then it has a
// client put all its routes in one call, beside the engine alone that is set to the same ones.
func externalCalls(l *lab) error {
	b, p := l.b, l.plane
	c, err := p.connect(b.ctx)
	if err != nil {
		return err
	}
	defer c.stop()
	e := &externalFIB{engine: c.engine(b.ctx, filepath.Join(l.Dir(), "journal-external"))}
	defer e.stop()
	client, stop, err := e.serve(b.ctx, l.Dir())
	if err != nil {
		return err
	}
	defer stop()

	var routes []*l3.Route
	var same []route.Route
	for _, prefix := range hostPrefixes(externalItems) {
		routes = append(routes, &l3.Route{DstNetwork: prefix.String(),
			NextHopAddr: hops[0].String()})
		same = append(same, route.Route{Key: route.Key{Prefix: prefix}, Origin: route.External,
			Paths: []route.Path{{NextHop: hops[0], Weight: 1}}})
	}
	if err := e.waiting(b, client, routes); err != nil {
		return err
	}
	// an engine of its own: the controller would judge what is set here
	alone := c.engine(b.ctx, filepath.Join(l.Dir(), "journal-alone"))
	defer alone.stop()
	var byCall, byEngine series
	err = rounds(b.pick(15, 5), func() error {
		took, err := e.call(b.ctx, client, routes)
		byCall = append(byCall, rate(externalItems, took.Seconds()))
		if err == nil {
			_, err = e.call(b.ctx, client, nil)
		}
		return err
	}, func() error {
		took, err := alone.settle(b.ctx, same)
		byEngine = append(byEngine, rate(externalItems, took.Seconds()))
		if err == nil {
			_, err = alone.settle(b.ctx, nil)
		}
		return err
	})
	if err != nil {
		return err
	}
	b.compare("external: one Update of 10 000 routes", "add/s", byCall, "engine alone", byEngine,
		b.quiet(p.limit(atLeast(0.6))), fmt.Sprintf("on %s, %d rounds", p.name, len(byCall)))
	return nil
}

// waiting measures what items cost that wait for an interface, and whether each is written once
// when it comes.
func (e *externalFIB) waiting(b *bench, client configurator.ConfiguratorServiceClient,
	routes []*l3.Route) error {
	before := settledHeap()
	err := e.putWaiting(b.ctx, client, routes)
	if err != nil {
		return err
	}
	b.single("external: heap of an item", "B", float64(settledHeap()-before)/externalItems,
		atMost(2048), "10 000 routes that wait for an interface")
	began, used := time.Now(), ownCPUSeconds()
	time.Sleep(time.Duration(b.pick(20, 5)) * time.Second)
	used = ownCPUSeconds() - used
	b.single("external: CPU while 10 000 items wait", "%", 100*used/time.Since(began).Seconds(),
		atMost(1), "of a core, the engine's included")

	stats := e.Stats()
	began = time.Now()
	_, err = client.Update(b.ctx, &configurator.UpdateRequest{
		Update: &configurator.Config{VppConfig: &vpp.ConfigData{Interfaces: []*vpp.Interface{
			{Name: awaitedLink, Type: vpp.Interface_SOFTWARE_LOOPBACK, Enabled: true}}}}})
	if err == nil {
		err = e.written(b.ctx, stats, externalItems)
	}
	if err != nil {
		return err
	}
	took := time.Since(began)
	now := e.Stats()
	b.single("external: writes when the interface comes", "per item",
		float64(now.Put+now.Errors-stats.Put-stats.Errors)/externalItems, atMost(1.01),
		fmt.Sprintf("all after %v, in %d batches", took.Round(time.Millisecond),
			now.Batches-stats.Batches))
	_, err = e.call(b.ctx, client, nil)
	return err
}

// awaitedLink is what items wait for.
const awaitedLink = "memif9"

// putWaiting has a client want the same networks through an interface that is not there.
func (e *externalFIB) putWaiting(ctx context.Context,
	client configurator.ConfiguratorServiceClient, routes []*l3.Route) error {
	var waiting []*l3.Route
	for _, r := range routes {
		waiting = append(waiting,
			&l3.Route{DstNetwork: r.DstNetwork, OutgoingInterface: awaitedLink})
	}
	_, err := e.call(ctx, client, waiting)
	return err
}

// settledHeap waits for the last verdicts, whose memory is in use until they are delivered.
func settledHeap() uint64 {
	least := uint64(math.MaxUint64)
	for range 3 {
		time.Sleep(time.Second)
		least = min(least, heapInUse())
	}
	return least
}

// heapInUse returns unused memory to the system, so that none of this is done later.
func heapInUse() uint64 {
	debug.FreeOSMemory()
	debug.FreeOSMemory() // what finalizers released
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// externalFIB is an engine that external configuration alone sets.
type externalFIB struct{ *engine }

// Want replaces what external configuration wants.
func (e *engine) Want(all fib.Source) uint64 {
	var w fib.Wanted
	w.Sources[route.External] = all
	return e.Set(w)
}

func (e *externalFIB) Changed() <-chan struct{} { return e.ExternalChanged() }
func (e *externalFIB) Away() string             { return "" }

// serve answers clients until stop.
func (e *externalFIB) serve(ctx context.Context, dir string) (
	client configurator.ConfiguratorServiceClient, stop func(), err error) {
	source := server.New(server.Config{StateDir: dir, Log: discard})
	controller := external.NewController([]external.Adapter{source},
		external.Plane{Policy: external.Policy{Table0: true}, FIB: e})
	l, err := net.Listen("unix", filepath.Join(dir, "external.sock"))
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	s := server.NewServer(source, controller, server.DefaultPolicy(false), nil, discard)
	wait.Go(func() { _ = source.Run(ctx) })
	wait.Go(func() { _ = controller.Run(ctx) })
	wait.Go(func() { _ = s.Serve(ctx, l) })
	conn, err := grpc.NewClient("unix:"+l.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	stop = func() {
		if conn != nil {
			conn.Close()
		}
		cancel()
		wait.Wait()
	}
	if err != nil {
		stop()
		return nil, nil, err
	}
	return configurator.NewConfiguratorServiceClient(conn), stop, nil
}

// call makes these routes all that the client wants, and returns how long its call took.
func (e *externalFIB) call(ctx context.Context, client configurator.ConfiguratorServiceClient,
	routes []*l3.Route) (time.Duration, error) {
	began := time.Now()
	_, err := client.Update(ctx, &configurator.UpdateRequest{FullResync: true,
		Update: &configurator.Config{VppConfig: &vpp.ConfigData{Routes: routes}}})
	return time.Since(began), err
}

// settle sets the engine to these routes, and returns how long it took until all of it was
// acknowledged.
func (e *engine) settle(ctx context.Context, routes []route.Route) (time.Duration, error) {
	stats, began := e.Stats(), time.Now()
	e.Want(fib.Source{Routes: routes, Complete: true})
	err := e.written(ctx, stats, externalItems)
	return time.Since(began), err
}
