package grpc

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"vpp-route-agent/internal/external"
	"vpp-route-agent/internal/external/proto/ligato/configurator"
	"vpp-route-agent/internal/external/proto/ligato/generic"
	"vpp-route-agent/internal/external/proto/ligato/vpp"
	"vpp-route-agent/internal/external/proto/ligato/vpp/l3"
)

// Two transactions that ask for all or nothing and change one key are rolled back one after the
// other: nothing of the first is left.
func TestRollbacksOfOneKey(t *testing.T) {
	for _, order := range [][]int64{{2, 3}, {3, 2}} {
		s := newStore()
		value := func(n int) []external.Item {
			return []external.Item{item(1, fmt.Sprintf(`,"weight":%d`, n))}
		}
		for n := range 3 {
			s.apply(record{Txn: int64(n + 1), Source: Name, Atomic: n > 0}, value(n+1))
		}
		for _, txn := range order {
			s.apply(record{RollsBack: txn}, nil)
		}
		key := item(1, "").Key
		if got := s.sources[Name][key]; got.Revision != 1 {
			t.Errorf("rolled back in the order %v: what transaction %d has set is there", order,
				got.Revision)
		}
	}
}

func TestAClientHasALimitedNumberOfSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t.TempDir())
		defer func() { b.stop() }()
		for n := range b.limits.sources {
			sources := maps.Clone(b.store.sources)
			sources[fmt.Sprintf("grpc/%d", n)] = map[string]external.Item{"x": item(1, "")}
			b.store.sources = sources
		}
		check(t, "one more", b.do(Change{Source: "grpc/more", Puts: puts(2)}), "0 FAILED")
		check(t, "one that is there", b.do(Change{Source: "grpc/7", Puts: puts(2)}),
			"1 CONFIGURED")
	})
}

func TestAClientHasALimitedNumberOfItemsAndBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t.TempDir())
		defer func() { b.stop() }()
		b.limits.items = 3
		check(t, "items", b.do(Change{Puts: puts(1, 2, 3, 4)}),
			"1 CONFIGURED CONFIGURED CONFIGURED FAILED")
		check(t, "another source", b.do(Change{Source: "grpc/a", Puts: puts(5)}), "1 FAILED")
		check(t, "others instead", b.do(Change{Puts: puts(4, 5, 6), Replace: true}),
			"2 CONFIGURED CONFIGURED CONFIGURED REMOVED REMOVED REMOVED")
		b.limits.bytes = b.store.bytes[Name]
		size := fmt.Sprint(b.limits.bytes)
		labelled := item(4, "")
		labelled.Labels = map[string]string{"a": strings.Repeat("b", 10)}
		check(t, "bytes", b.do(Change{Puts: []external.Item{labelled}}), "2 FAILED")
		check(t, "as many", b.do(Change{Puts: puts(1, 2, 3), Replace: true}),
			"3 CONFIGURED CONFIGURED CONFIGURED REMOVED REMOVED REMOVED")
		check(t, "bytes", fmt.Sprint(b.store.bytes[Name]), size)
		b.restart()
		check(t, "bytes over a restart", fmt.Sprint(b.store.bytes[Name]), size)
		b.do(Change{Replace: true})
		check(t, "bytes of nothing", fmt.Sprint(len(b.store.bytes)), "0")
	})
}

// Calls that ask for all or nothing end with their deadlines; the agent has each in hand until the
// data plane has answered.
func TestUndecidedTransactionsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t.TempDir())
		defer func() { b.stop() }()
		b.do(Change{Puts: puts(1)})
		b.fib.set(func() { b.fib.away = "VPP does not answer" })
		time.Sleep(time.Second)
		c := Change{Source: "grpc/a", Atomic: true}
		for n := range maxCalls {
			c.Puts = []external.Item{item(2, fmt.Sprintf(`,"weight":%d`, n+1))}
			check(t, "undecided", b.do(c), fmt.Sprintf("%d: %v", n+2, ErrUnanswered))
		}
		size, goroutines := b.journalSize(t), runtime.NumGoroutine()
		c.Puts = puts(3)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, _, err := b.Do(ctx, Change{Client: Name, Source: "grpc/b", Puts: puts(3),
				Atomic: true})
			cancel()
			checkError(t, "one more", errorOf(nil, err), codes.ResourceExhausted,
				fmt.Sprintf("%v than %d", ErrUndecided, maxCalls))
		}
		synctest.Wait()
		if b.journalSize(t) != size || runtime.NumGoroutine() > goroutines {
			t.Error("the agent has more in hand than before")
		}
		check(t, "of another kind", b.do(Change{Puts: puts(4)}),
			fmt.Sprintf("%d PENDING: %v", maxCalls+2, ErrUnanswered))
		b.fib.set(func() { b.fib.away = "" })
		time.Sleep(time.Minute)
		check(t, "when VPP is back", b.do(c), fmt.Sprintf("%d CONFIGURED", maxCalls+3))
	})
}

func TestAClientMakesALimitedNumberOfCalls(t *testing.T) {
	s := serve(t)
	s.fib.set(func() { s.fib.silent = true })
	c := configurator.NewConfiguratorServiceClient(s.conn)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	update := &configurator.UpdateRequest{Update: &configurator.Config{
		VppConfig: &vpp.ConfigData{Routes: []*l3.Route{routeTo(1)}}}}
	for range maxCalls - 1 {
		go func() {
			for ctx.Err() == nil { // the call that asks below may have come before
				c.Update(ctx, update)
			}
		}()
	}
	stream, err := c.Notify(ctx, &configurator.NotifyRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_ = stream
	refused := func() bool {
		ctx, cancel := context.WithTimeout(s.ctx, 100*time.Millisecond)
		defer cancel()
		_, err := c.Update(ctx, update)
		return status.Code(err) == codes.ResourceExhausted
	}
	for end := time.Now().Add(2 * time.Minute); !refused(); {
		if time.Now().After(end) {
			t.Fatal("more calls are accepted")
		}
	}
	cancel()
	s.fib.set(func() { s.fib.silent = false })
	for end := time.Now().Add(2 * time.Minute); refused(); {
		if time.Now().After(end) {
			t.Fatal("no call is accepted after the others have ended")
		}
	}
}

// Clients that do not read their streams hold up nobody: with them, no change would ever end. Each
// is on disk before it is carried out, which can take seconds on a busy one.
func TestSlowReadersHoldUpNobody(t *testing.T) {
	s := serve(t)
	var all []external.Item
	for n := range 2000 {
		all = append(all, external.Decode(&l3.Route{
			DstNetwork: fmt.Sprintf("10.%d.%d.0/24", 100+n/256, n%256), NextHopAddr: "10.0.0.2"}))
	}
	for range 5 {
		stream, err := generic.NewManagerServiceClient(s.conn).Subscribe(s.ctx,
			&generic.SubscribeRequest{}, grpc.MaxCallRecvMsgSize(1<<30))
		if err != nil {
			t.Fatal(err)
		}
		_ = stream // never read
	}
	for range 5 {
		check(t, "put", fmt.Sprint(strings.Count(s.do(Change{Puts: all, Replace: true}),
			"CONFIGURED")), "2000")
		s.do(Change{Replace: true})
	}
}

// Ten thousand items that the data plane refuses are answered at once, and the client is told.
func TestManyItemsFailInOneCall(t *testing.T) {
	s := serve(t)
	s.fib.set(func() { s.fib.all = true })
	var routes []*l3.Route
	for n := range 10_000 {
		routes = append(routes, &l3.Route{
			DstNetwork: fmt.Sprintf("10.%d.%d.0/24", 100+n/256, n%256), NextHopAddr: "10.0.0.2"})
	}
	ctx := metadata.AppendToOutgoingContext(s.ctx, AtomicKey, "true")
	_, err := configurator.NewConfiguratorServiceClient(s.conn).Update(ctx,
		&configurator.UpdateRequest{Update: &configurator.Config{
			VppConfig: &vpp.ConfigData{Routes: routes}}})
	checkError(t, "update", err, codes.Aborted, "transaction 1: "+ErrRolledBack.Error())
	if !strings.Contains(status.Convert(err).Message(), "and 9980 more") {
		t.Errorf("%.300v", err)
	}
	check(t, "routes", s.fib.routes(), "[]")
}

// tables1000 are 1000 items of another source.
type tables1000 struct{ All }

func (tables1000) Sources() []external.Source {
	all := external.Source{Name: "etcd", Items: map[string]external.Item{}}
	for n := range uint32(1000) {
		item := external.Decode(&l3.VrfTable{Id: n + 1})
		all.Items[item.Key] = item
	}
	return []external.Source{all}
}

func (t tables1000) Verdicts() (all []external.Verdict) {
	for key := range t.Sources()[0].Items {
		all = append(all, external.Verdict{Source: "etcd", Key: key, State: external.Configured})
	}
	return all
}

// What a client asks for by ID costs as much as items and IDs together, not items times IDs.
func TestManyIDs(t *testing.T) {
	s := NewServer(nil, tables1000{}, Policy{}, nil, slog.New(slog.DiscardHandler))
	var ids []*generic.Item_ID
	for n := range 1000 {
		ids = append(ids, &generic.Item_ID{Model: "vpp.vrf-table",
			Name: fmt.Sprintf("id/%d/protocol/IPV4", n+999)})
	}
	for what, get := range map[string]func() (int, error){
		"GetConfig": func() (int, error) {
			out, err := s.GetConfig(t.Context(), &generic.GetConfigRequest{Ids: ids})
			return len(out.GetItems()), err
		},
		"DumpState": func() (int, error) {
			out, err := s.DumpState(t.Context(), &generic.DumpStateRequest{Ids: ids})
			return len(out.GetItems()), err
		},
	} {
		allocations := testing.AllocsPerRun(1, func() {
			if n, err := get(); n != 2 || err != nil {
				t.Errorf("%s: %d items, %v", what, n, err)
			}
		})
		t.Logf("%s: %.0f allocations", what, allocations)
		if most := 500_000.; allocations > most {
			t.Errorf("%s: %.0f allocations, more than %.0f", what, allocations, most)
		}
	}
}

// However often items come and go, and sources with them, nothing is left of them but a journal
// that is rewritten now and then.
func TestNothingGrowsWithTheNumberOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t.TempDir())
		defer func() { b.stop() }()
		var all []external.Item
		for n := range 100 {
			all = append(all, external.Decode(&l3.Route{
				DstNetwork: fmt.Sprintf("10.100.%d.0/24", n), NextHopAddr: "10.0.0.2"}))
		}
		most := int64(0)
		cycle := func(n int) {
			c := Change{Source: fmt.Sprintf("grpc/%d", n), Puts: all, Replace: true}
			if got := strings.Count(b.do(c), "CONFIGURED"); got != len(all) {
				t.Fatalf("cycle %d: %d of %d are CONFIGURED", n, got, len(all))
			}
			c.Puts = nil
			b.do(c)
			synctest.Wait() // a long journal is rewritten after the answer
			most = max(most, b.journalSize(t))
			time.Sleep(time.Minute) // until nobody is told any more of what was removed
		}
		measure := func() (bytes, goroutines int) {
			synctest.Wait()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int(m.HeapAlloc), runtime.NumGoroutine()
		}
		for n := range 210 { // as many as the history has
			cycle(n)
		}
		heap, goroutines := measure()
		for n := range 210 {
			cycle(1000 + n)
		}
		heapThen, goroutinesThen := measure()
		if heapThen > heap+1<<20 || goroutinesThen > goroutines {
			t.Errorf("%d KiB and %d goroutines, %d KiB and %d before", heapThen>>10,
				goroutinesThen, heap>>10, goroutines)
		}
		record := 400 * int64(len(all))
		if most > slack+2*record || len(b.store.sources)+len(b.store.bytes) > 0 {
			t.Errorf("the journal had %d KiB, and there are %d sources", most>>10,
				len(b.store.sources))
		}
		t.Logf("heap %d KiB, then %d KiB; the journal had up to %d KiB", heap>>10, heapThen>>10,
			most>>10)
	})
}
