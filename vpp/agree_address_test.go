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
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/core"
)

// TestDataplaneServerAgreesAboutAddresses sets flags and addresses, with and without sense, on a
// real VPP and on vpptest: return values, addresses and what they make of the FIB must be the same.
func TestDataplaneServerAgreesAboutAddresses(t *testing.T) {
	real, fake := startVPP(t), newServer(t)
	toFake, err := core.Connect(socketclient.NewVppClient(fake.Socket()))
	check(t, err)
	defer toFake.Disconnect()
	both := [2]api.Connection{real.conn, toFake}

	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	answers := map[string]int{}
	for step := range 400 {
		ask := randomAddressRequest(t, rng, toFake)
		var got [2]string
		for i, c := range both {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			got[i] = fmt.Sprint(ask(interfaces.NewServiceClient(c), ctx))
			cancel()
		}
		answers[got[0]]++
		if got[0] != got[1] {
			t.Fatalf("seed %d step %d: VPP: %s\nvpptest: %s", seed, step, got[0], got[1])
		}
		if step%5 != 0 {
			continue
		}
		for _, index := range []interface_types.InterfaceIndex{1, 2} {
			if a, b := addressesOf(t, both[0], index),
				addressesOf(t, both[1], index); !slices.Equal(a, b) {
				t.Fatalf("seed %d step %d: interface %d of VPP has %v, of vpptest %v", seed, step,
					index, a, b)
			}
		}
		a, b := dumpAll(t, both[0], nil), dumpAll(t, both[1], nil)
		for what := range a {
			if !b[what] {
				t.Errorf("seed %d step %d: only VPP has     %s", seed, step, what)
			}
		}
		for what := range b {
			if !a[what] {
				t.Errorf("seed %d step %d: only vpptest has %s", seed, step, what)
			}
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("400 requests; answers: %v", answers)
	if len(answers) < 5 {
		t.Error("the walk saw too little")
	}
}

type addressRequest func(interfaces.RPCService, context.Context) error

// randomAddressRequest leaves out what only harms: IPv4's routes of a removed address stay when it
// is removed with another length.
func randomAddressRequest(t *testing.T, rng *rand.Rand, fake api.Connection) addressRequest {
	index := pick(rng, []interface_types.InterfaceIndex{1, 1, 1, 2, 99})
	if rng.IntN(6) == 0 {
		flags := interface_types.IfStatusFlags(rng.IntN(2)) // admin up, or down
		return func(c interfaces.RPCService, ctx context.Context) error {
			_, err := c.SwInterfaceSetFlags(ctx, &interfaces.SwInterfaceSetFlags{SwIfIndex: index,
				Flags: flags})
			return err
		}
	}
	p := netip.MustParsePrefix(pick(rng, []string{
		"10.0.3.1/24", "10.0.3.2/24", "10.0.3.1/25", "10.0.3.1/32", "10.0.1.9/24", "10.0.1.1/24",
		"10.0.4.0/31", "10.0.5.1/30",
		"fd00:3::1/64", "fd00:3::2/64", "fd00:3::1/128", "fd00:1::9/64", "fd00:1::1/64",
	}))
	add := rng.IntN(2) == 0
	if !add && index != 99 {
		for _, has := range addressesOf(t, fake, index) {
			if has.Addr() == p.Addr() {
				p = has
			}
		}
	}
	prefix := ip_types.AddressWithPrefix(apiPrefix(t, p))
	prefix.Address = ip_types.NewAddress(p.Addr().AsSlice()) // with host bits
	return func(c interfaces.RPCService, ctx context.Context) error {
		_, err := c.SwInterfaceAddDelAddress(ctx,
			&interfaces.SwInterfaceAddDelAddress{SwIfIndex: index, IsAdd: add, Prefix: prefix})
		return err
	}
}

func addressesOf(t *testing.T, c api.Connection,
	index interface_types.InterfaceIndex) (found []netip.Prefix) {
	t.Helper()
	for _, six := range []bool{false, true} {
		stream, err := ip.NewServiceClient(c).IPAddressDump(t.Context(),
			&ip.IPAddressDump{SwIfIndex: index, IsIPv6: six})
		check(t, err)
		for {
			d, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			check(t, err)
			p, err := netip.ParsePrefix(ip_types.Prefix(d.Prefix).String())
			check(t, err)
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return found
}
