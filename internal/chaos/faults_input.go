package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

var inputFaults = []fault{
	{
		name: "input-malformed", keepsSessions: true, onlyFirst: true, kind: kernelNodes,
		allowed: "0",
		what:    "malformed UPDATEs (RFC 7606): the session and other paths stay, the path goes",
		run:     sendMalformed,
	},
	{
		name: "input-absurd", keepsSessions: true, onlyFirst: true, kind: kernelNodes, allowed: "0",
		what: "absurd prefixes: 127/8, 224/4, the underlay, addresses of nodes; after them a " +
			"default route, which is none", run: sendAbsurd,
	},
	{name: "input-flood", onlyFirst: true, kind: kernelNodes, allowed: "0",
		what: "a peer announces 100 000 prefixes and has a limit of 1000; it is accepted " +
			"again, and behaves",
		run: func(ctx context.Context, t *trial) error { return floodPrefixes(ctx, t, 100_000) }},
	{
		name: "input-garbage", keepsSessions: true, kind: kernelNodes, allowed: "0",
		what: "garbage, truncated JSON and 1 MiB under every kind of Calico key, " +
			"odd names, for 3 s", run: writeGarbage,
	},
	{
		name: "input-hammer", keepsSessions: true, onlyFirst: true, kind: kernelNodes, allowed: "0",
		what: "100 clients hammer admin socket, gRPC and metrics for 8 s, some never " +
			"finish a request", run: hammer,
	},
}

// attacked runs f with an attacker that peers with node 1, and takes it away again.
func (t *trial) attacked(ctx context.Context, f func(attacker) error) error {
	x, err := newAttacker(t.cluster)
	if err != nil {
		return err
	}
	defer x.Close()
	if err := t.Apply(ctx, attackerPeer); err != nil {
		return err
	}
	if err := x.wait(ctx); err != nil {
		return err
	}
	t.start = time.Now()
	return errors.Join(f(x), t.Data.Delete(ctx, "BGPPeer", "attacker"))
}

// sendMalformed has each malformed UPDATE be about a prefix that was announced well before. It is
// taken for a withdrawal of that one alone.
func sendMalformed(ctx context.Context, t *trial) error {
	victim, other := netip.MustParsePrefix("10.66.0.0/24"), netip.MustParsePrefix("10.66.1.0/24")
	has := func(what string, want map[netip.Prefix]bool) error {
		return netlab.Await(ctx, recovery, what, func(ctx context.Context) error {
			have, err := t.nodes[0].programmed(ctx)
			if err != nil {
				return err
			}
			for p, wanted := range want {
				if _, ok := have[p]; ok != wanted {
					return fmt.Errorf("%s is in the FIB: %t", p, ok)
				}
			}
			return nil
		})
	}
	return t.attacked(ctx, func(x attacker) error {
		for what, attributes := range malformed {
			session := x.session()
			x.send(update(good, victim, other))
			err := has("before "+what, map[netip.Prefix]bool{victim: true, other: true})
			if err != nil {
				return err
			}
			x.send(update(attributes, victim))
			err = has("after "+what, map[netip.Prefix]bool{victim: false, other: true})
			t.must(err == nil, "%v", err)
			if x.session() != session || session == nil {
				t.must(false, "%s ended the session", what)
				if err := x.wait(ctx); err != nil {
					return err
				}
			}
		}
		t.note("%d kinds", len(malformed))
		return nil
	})
}

// sendAbsurd has sound prefixes follow the absurd ones, among them a default route, as routers of a
// rack announce: when those are in the FIB, the others have had their chance.
func sendAbsurd(ctx context.Context, t *trial) error {
	n := t.nodes[0]
	sound := []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("10.66.0.0/24"),
	}
	return t.attacked(ctx, func(x attacker) error {
		absurd := []string{
			"0.0.0.0/8", "127.0.0.0/8", "127.0.0.1/32", "169.254.0.0/16", "169.254.1.1/32",
			"224.0.0.0/4", "240.0.0.0/4", "255.255.255.255/32",
			"192.168.4.0/24", "192.168.4.11/32", "192.168.4.12/32", "192.168.4.13/32",
			"192.168.4.99/32",
		}
		for _, p := range absurd {
			x.send(update(good, netip.MustParsePrefix(p)))
		}
		x.send(update(good, sound...))
		want := t.wanted(n)
		for _, p := range sound {
			want[p] = attackerAddress
		}
		exactly := func(ctx context.Context) error {
			have, err := n.programmed(ctx)
			if err != nil {
				return err
			}
			return difference(want, have)
		}
		err := netlab.Await(ctx, recovery,
			"the FIB has the sound prefixes, and none of the absurd", exactly)
		if err == nil {
			// routes are written one by one
			err = errors.Join(testcluster.Pause(ctx, 300*time.Millisecond), exactly(ctx))
		}
		t.must(err == nil, "%v", err)
		t.note("%d prefixes", len(absurd))
		return nil
	})
}

// floodPrefixes has the attacker cut off for its flood, and then do better.
func floodPrefixes(ctx context.Context, t *trial, count int) error {
	a, sound := t.ours(1), netip.MustParsePrefix("10.66.0.0/24")
	a.Flags = []string{"--prefix-limit", "node=1000", "--prefix-limit-retry", "5s"}
	defer func() { a.Flags = nil }()
	if err := t.restart(ctx, a); err != nil {
		return err
	}
	before, err := t.footprint(ctx)
	if err != nil {
		return err
	}
	err = t.attacked(ctx, func(x attacker) error {
		first := x.session()
		var prefixes []netip.Prefix
		for i := range count {
			prefixes = append(prefixes,
				netip.PrefixFrom(
					netip.AddrFrom4([4]byte{20 + byte(i>>16), byte(i >> 8), byte(i), 1}), 32))
			if x.session() != first {
				break // it is cut off
			}
			if len(prefixes) == 500 { // a message has 4096 bytes at most
				x.send(update(good, prefixes...))
				prefixes = prefixes[:0]
			}
		}
		err := netlab.Await(ctx, recovery, "the attacker is cut off",
			func(ctx context.Context) error {
				s, err := a.Status(ctx)
				if err != nil {
					return err
				}
				for _, p := range s.BGP.Peers {
					if p.Address == attackerAddress && strings.Contains(p.LastError, "limit") {
						return nil
					}
				}
				return errors.New("it is not")
			})
		if err != nil {
			return err
		}
		if err := t.converged(ctx, recovery); err != nil { // its routes are gone
			return err
		}
		err = netlab.Await(ctx, recovery, "the attacker is accepted again",
			func(context.Context) error {
				if s := x.session(); s == nil || s == first {
					return errors.New("it is not")
				}
				return nil
			})
		if err != nil {
			return err
		}
		return netlab.Await(ctx, recovery, "what it announces now is taken",
			func(ctx context.Context) error {
				x.send(update(good, sound))
				have, err := t.nodes[0].programmed(ctx)
				if _, ok := have[sound]; err == nil && !ok {
					err = fmt.Errorf("no %s", sound)
				}
				return err
			})
	})
	if err != nil {
		return err
	}
	if err := t.noGrowth(ctx, before, 128<<20); err != nil {
		return err
	}
	most, err := a.Memory("VmHWM")
	if err != nil {
		return err
	}
	t.note("at most %d MiB", most/mib)
	a.Flags = nil
	return t.restart(ctx, a)
}

// restart ends an agent and starts it with its present settings.
func (t *trial) restart(ctx context.Context, a *testcluster.Agent) error {
	if err := a.Stop(); err != nil {
		return err
	}
	if err := a.Start(ctx); err != nil {
		return err
	}
	return t.converged(ctx, recovery)
}

func writeGarbage(ctx context.Context, t *trial) error {
	noise := make([]byte, 1<<20)
	rand.Read(noise) // never fails
	block := netip.MustParsePrefix("10.1.99.0/26")
	var keys []string
	for _, k := range []calico.Key{
		{Kind: calico.KindNode, Name: "garbage"}, {Kind: calico.KindIPPool, Name: "garbage"},
		{Kind: calico.KindBGPPeer, Name: "garbage"},
		{Kind: calico.KindBGPFilter, Name: "garbage"},
		{Kind: calico.KindBGPConfiguration, Name: "node.node-1"},
		{Kind: calico.KindBlock, CIDR: block},
		{Kind: calico.KindBlockAffinity, CIDR: block, Owner: calico.Owner{Host: "node-1"}},
		{Kind: calico.KindClusterInformation, Name: "garbage"},
		{Kind: calico.KindWorkloadEndpoint, Namespace: "default", Name: "garbage"},
		{Kind: calico.KindLiveMigration, Namespace: "default", Name: "garbage"},
		{Kind: calico.KindFelixConfiguration, Name: "node.node-1"},
		{Kind: calico.KindHandle, Name: "garbage"}, {Kind: calico.KindIPAMConfig},
	} {
		keys = append(keys, k.String())
	}
	for _, odd := range []string{
		"", "/", "a/b", "..", "\x00", "\xff\xfe", strings.Repeat("x", 4000), "node-1/", "ÄÖ 💥",
	} {
		keys = append(keys, "/calico/resources/v3/projectcalico.org/nodes/"+odd+"x",
			"/calico/ipam/v2/assignment/ipv4/block/"+odd+"x")
	}
	values := []string{
		"{", "null", "[]", `"text"`, `{"spec":`, `{"spec":{"bgp":{"ipv4Address":"nonsense"}}}`,
		`{"spec":{"cidr":"0.0.0.0/99"}}`, "\xff\xfe\x00", string(noise)[:1<<20-4096],
	}
	most := 0
	for _, value := range values {
		for _, key := range keys {
			if len(value) > 1<<16 && len(key) > 200 {
				continue // etcd takes 1.5 MiB in a request
			}
			if err := t.Data.PutRaw(ctx, key, value); err != nil {
				return fmt.Errorf("put %.60q: %w", key, err)
			}
		}
		if err := testcluster.Pause(ctx, 300*time.Millisecond); err != nil {
			return err
		}
		s, err := t.ours(1).Status(ctx)
		if err != nil {
			return err
		}
		most = max(most, len(s.Problems))
	}
	t.must(most >= 10, "status named %d problems at most", most)
	t.note("%d keys, %d values each, up to %d named as problems", len(keys), len(values), most)
	for _, key := range keys {
		if key[len(key)-1] == '/' {
			continue
		}
		if err := t.Data.DeleteRaw(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

func hammer(ctx context.Context, t *trial) error {
	before, err := t.footprint(ctx)
	if err != nil {
		return err
	}
	const clients = 100
	limited, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	a := t.ours(1)
	dials := []func(context.Context) (net.Conn, error){
		func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", a.Socket)
		},
		func(ctx context.Context) (net.Conn, error) {
			return testcluster.Dial(ctx, t.nodes[0].NS, "tcp4", "127.0.0.1:50051")
		},
		func(ctx context.Context) (net.Conn, error) {
			return testcluster.Dial(ctx, t.nodes[0].NS, "tcp4", "127.0.0.1:9179")
		},
	}
	requests := []string{
		"GET /v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"POST /v1/guard/release HTTP/1.1\r\nHost: x\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
		"\x00\xff garbage \r\n\r\n",
	}
	var wg sync.WaitGroup
	var answered atomic.Int64
	for i := range clients {
		wg.Go(func() {
			for n := i; limited.Err() == nil; n++ {
				conn, err := dials[n%len(dials)](limited)
				if err != nil {
					testcluster.Pause(limited, 10*time.Millisecond)
					continue
				}
				conn.SetDeadline(time.Now().Add(time.Second))
				conn.Write([]byte(requests[n%len(requests)]))
				if n, _ := conn.Read(make([]byte, 4096)); n > 0 { // what it says does not matter
					answered.Add(1)
				}
				conn.Close()
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	t.must(answered.Load() > 0, "nothing was answered")
	t.note("%d requests answered", answered.Load())
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	return t.noGrowth(ctx, before, 128<<20)
}
