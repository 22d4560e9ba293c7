package vpp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"go.fd.io/govpp/adapter/socketclient"
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/core"
)

// TestDataplaneServerAgreesWithRealVPP sends the same requests, good and bad, to a real VPP and to
// vpptest: return values, dumps and lookups must be the same. GoVPP's core is the client of both.
func TestDataplaneServerAgreesWithRealVPP(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // GoVPP waits for ever
	defer cancel()
	real := startVPP(t)
	fake := newServer(t)
	toFake, err := core.Connect(socketclient.NewVppClient(fake.Socket()))
	check(t, err)
	defer toFake.Disconnect()
	both := [2]api.Connection{real.conn, toFake}

	// Of equal priority the earlier source forwards.
	var ids [2][]uint8
	for i, c := range both {
		for n, priority := range []uint8{0x88, 0x88, 0x70} {
			r, err := fib.NewServiceClient(c).FibSourceAdd(ctx,
				&fib.FibSourceAdd{Src: fib.FibSource{Priority: priority, Name: walkers[n]}})
			check(t, err)
			ids[i] = append(ids[i], r.ID)
		}
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	retvals := map[string]int{}
	for step := range 3000 {
		req := randomRequest(rng)
		var got [2]string
		for i, c := range both {
			r := *req
			if r.Route.Src != 0 {
				r.Route.Src = ids[i][r.Route.Src-1]
			}
			short, cancel := context.WithTimeout(ctx, 30*time.Second)
			_, err := ip.NewServiceClient(c).IPRouteAddDelV2(short, &r)
			cancel()
			if got[i] = fmt.Sprint(err); errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("seed %d step %d: no answer to %+v", seed, step, req)
			}
		}
		retvals[got[0]]++
		if got[0] != got[1] {
			t.Fatalf("seed %d step %d: %+v\nVPP:     %s\nvpptest: %s", seed, step, req, got[0],
				got[1])
		}
		if step%10 != 0 {
			continue
		}
		look := ip.IPRouteLookupV2{Exact: uint8(rng.IntN(2)), Prefix: randomPrefix(rng),
			TableID: pick(rng, tables)}
		for i, c := range both {
			r, err := ip.NewServiceClient(c).IPRouteLookupV2(ctx, &look)
			got[i] = fmt.Sprint(err)
			if err == nil {
				got[i] = describe(r.Route, ids[i])
			}
		}
		if got[0] != got[1] {
			t.Errorf("seed %d step %d: lookup %+v\nVPP:     %s\nvpptest: %s", seed, step, look,
				got[0], got[1])
		}
	}
	var dumps [2]map[string]bool
	for i, c := range both {
		dumps[i] = dumpAll(t, c, ids[i])
	}
	for what := range dumps[0] {
		if !dumps[1][what] {
			t.Errorf("only VPP has     %s", what)
		}
	}
	for what := range dumps[1] {
		if !dumps[0][what] {
			t.Errorf("only vpptest has %s", what)
		}
	}
	t.Logf("3000 requests, %d entries at the end; answers: %v", len(dumps[0]), retvals)
	if len(retvals) < 4 || len(dumps[0]) < 20 {
		t.Error("the walk saw too little")
	}
}

// walkers are FIB sources, in the order in which they are registered.
var walkers = []string{"walk", "twin", "better"}

var tables = []uint32{0, 0, 0, otherTable, missingTable}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

func randomPrefix(rng *rand.Rand) ip_types.Prefix {
	s := pick(rng, []string{
		"198.18.0.0/24", "198.18.0.9/24", "198.18.0.0/16", "198.18.0.7/32", "10.0.1.2/32",
		"10.0.1.0/24", "0.0.0.0/0", "10.0.2.1/32",
		"2001:db8::/64", "2001:db8::9/64", "2001:db8::7/128", "fd00:1::2/128", "::/0",
	})
	p, err := ip_types.ParsePrefix(s)
	if err != nil {
		panic(err)
	}
	return p
}

// randomRequest is what the agent may send, and what it may send by mistake: whole path sets,
// replaced or deleted.
func randomRequest(rng *rand.Rand) *ip.IPRouteAddDelV2 {
	r := &ip.IPRouteAddDelV2{IsAdd: rng.IntN(3) > 0}
	r.Route.Prefix, r.Route.TableID, r.Route.Src = randomPrefix(rng), pick(rng, tables),
		uint8(rng.IntN(1+len(walkers)))
	if rng.IntN(40) == 0 {
		r.Route.Prefix.Len = 200 // lookups do not check that: VPP would crash
	}
	if rng.IntN(4) == 0 {
		p := fib_types.FibPath{SwIfIndex: ^uint32(0), Weight: 1,
			Type: fib_types.FIB_API_PATH_TYPE_DROP}
		// VPP crashes on the other two outside table 0 and, where they cover a recursive next hop,
		// under its API source.
		if r.Route.TableID == 0 && r.Route.Src != 0 {
			p.Type = pick(rng, []fib_types.FibPathType{p.Type,
				fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH,
				fib_types.FIB_API_PATH_TYPE_ICMP_PROHIBIT})
		}
		if r.Route.Prefix.Address.Af == ip_types.ADDRESS_IP6 {
			p.Proto = fib_types.FIB_API_PATH_NH_PROTO_IP6
		}
		r.Route.Paths = append(r.Route.Paths, p)
	} else {
		for range rng.IntN(4) {
			r.Route.Paths = append(r.Route.Paths, randomPath(rng, r.Route.Src == 1))
		}
	}
	r.Route.NPaths = uint8(len(r.Route.Paths))
	return r
}

func randomPath(rng *rand.Rand, recursive bool) fib_types.FibPath {
	next := netip.MustParseAddr(pick(rng, []string{"10.0.1.2", "10.0.1.3", "10.0.2.2", "198.18.0.7",
		"192.0.2.1", "fd00:1::2", "2001:db8::7", "2001:db8:1::1"}))
	p := fib_types.FibPath{
		SwIfIndex: pick(rng, []uint32{1, 1, 1, 2, 2, 99}), TableID: pick(rng, tables),
		Weight: uint8(rng.IntN(4)), Preference: uint8(rng.IntN(2)),
	}
	if recursive && rng.IntN(3) == 0 {
		// Only under one source, and only to neighbours in subnets that no route of the walk
		// covers: VPP 25.10 crashes when recursive routes of two sources at one prefix change, and
		// under churn of routes that resolve through each other.
		next = netip.MustParseAddr(pick(rng, []string{"10.0.2.2", "10.0.2.3", "fd00:2::2"}))
		p.SwIfIndex, p.TableID = ^uint32(0), pick(rng, []uint32{0, 0, 0, missingTable})
	}
	if next.Is6() {
		p.Proto, p.Nh.Address = fib_types.FIB_API_PATH_NH_PROTO_IP6,
			ip_types.AddressUnionIP6(next.As16())
	} else {
		p.Nh.Address = ip_types.AddressUnionIP4(next.As4())
	}
	if rng.IntN(50) == 0 {
		p.Proto = 9
	}
	return p
}

// describe leaves out what is each server's own affair: statistics, source numbers, order of paths.
func describe(r ip.IPRouteV2, own []uint8) string {
	src := fmt.Sprint("source ", r.Src)
	if i := slices.Index(own, r.Src); i >= 0 {
		src = "source " + walkers[i]
	}
	var paths []string
	for _, p := range r.Paths {
		paths = append(paths, fmt.Sprintf("[%s %d %x if %d table %d weight %d preference %d]",
			p.Type, p.Proto, p.Nh.Address.XXX_UnionData, int32(p.SwIfIndex), p.TableID, p.Weight,
			p.Preference))
	}
	slices.Sort(paths)
	return fmt.Sprintf("%s table %d %s %v", r.Prefix, r.TableID, src, paths)
}

func dumpAll(t *testing.T, c api.Connection, own []uint8) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, table := range []uint32{0, otherTable} {
		for _, six := range []bool{false, true} {
			stream, err := ip.NewServiceClient(c).IPRouteV2Dump(t.Context(),
				&ip.IPRouteV2Dump{Table: ip.IPTable{TableID: table, IsIP6: six}})
			check(t, err)
			for {
				d, err := stream.Recv()
				if errors.Is(err, io.EOF) {
					break
				}
				check(t, err)
				all[describe(d.Route, own)] = true
			}
		}
	}
	return all
}
