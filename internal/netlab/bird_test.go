package netlab

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// buildDir is where the Makefile keeps what is unpacked: below the module's root.
const buildDir = "../../build/packages"

func findBird(t *testing.T) BirdPrograms {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	p, err := FindBird(ctx, buildDir)
	if err != nil {
		t.Skip(err)
	}
	t.Logf("BIRD %s", p.Version)
	return p
}

func TestBirdAcceptsTheConfiguration(t *testing.T) {
	programs := findBird(t)
	full := BirdConfig{
		RouterID: addr("10.0.0.1"), Address: addr("10.0.0.1"), AS: 64512, Port: 1790,
		Cluster:  addr("244.0.0.1"),
		Extra:    "protocol static upstream { route 10.99.0.0/24 blackhole; }",
		Blocks:   []netip.Prefix{pfx("10.1.0.0/26"), pfx("10.1.7.7/32")},
		Services: []netip.Prefix{pfx("10.96.0.0/12")},
		Pools: []BirdPool{{Prefix: pfx("10.1.0.0/16")},
			{Prefix: pfx("10.2.0.0/16"), DisableBGPExport: true}},
		Peers: []BirdPeer{
			MeshPeer(addr("10.0.0.1"), addr("10.0.0.2"), 64512),
			{Name: "Global_10_0_0_3", Address: addr("10.0.0.3"), Port: 1790, AS: 64513,
				Password: "s3cret", RestartTime: new(time.Minute), HoldTime: 9 * time.Second},
			{Name: "Node_10_0_0_4", Address: addr("10.0.0.4"), AS: 64512, Client: true,
				RestartTime: new(time.Duration(0))},
		},
	}
	six := full
	six.Extra = ""
	six.Address, six.Blocks, six.Pools = addr("fd00::1"), []netip.Prefix{pfx("fd01::/122")},
		[]BirdPool{{Prefix: pfx("fd01::/48")}}
	six.Services = []netip.Prefix{pfx("fd96::/112")}
	six.Peers = []BirdPeer{MeshPeer(addr("fd00::1"), addr("fd00::2"), 64512)}
	for name, c := range map[string]BirdConfig{
		"least": {RouterID: addr("10.0.0.1"), Address: addr("10.0.0.1"), AS: 64512}, "full": full,
		"IPv6": six,
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "bird.conf")
			check(t, os.WriteFile(file, []byte(c.String()), 0o600))
			program := programs.Bird
			if c.Address.Is6() {
				program = programs.Bird6
			}
			cmd := exec.Command(program, "-p", "-c", file)
			cmd.Env = append(os.Environ(), programs.Env...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s\n%s", err, out, c)
			}
		})
	}
}

func TestMeshPeerIsPassiveByStringOrder(t *testing.T) {
	for _, c := range []struct {
		self, peer string
		passive    bool
	}{
		{"10.0.0.1", "10.0.0.2", true},
		{"10.0.0.2", "10.0.0.1", false},
		{"10.0.0.10", "10.0.0.9", true}, // "10.0.0.9" is the greater string
		{"10.0.0.9", "10.0.0.10", false},
		{"fd00::10", "fd00::9", true},
	} {
		if p := MeshPeer(addr(c.self), addr(c.peer), 64512); p.Passive != c.passive {
			t.Errorf("%s towards %s: passive %v", c.self, c.peer, p.Passive)
		}
	}
}

// TestBirdMesh runs two BIRD nodes as calico-node would configure them, with a workload on one, and
// pings it.
func TestBirdMesh(t *testing.T) {
	programs := findBird(t)
	for _, c := range []struct {
		family, a, b, net    string
		pool, blockA, blockB string
		workload, hostBits   string
	}{
		{"IPv4", "10.0.0.1", "10.0.0.2", "/24", "10.1.0.0/16", "10.1.0.0/26", "10.1.0.64/26",
			"10.1.0.65", "/32"},
		{"IPv6", "fd00::1", "fd00::2", "/64", "fd01::/48", "fd01::/122", "fd01::40/122", "fd01::41",
			"/128"},
	} {
		t.Run(c.family, func(t *testing.T) {
			l := newLab(t)
			ns := must[*Namespace](t)
			a, b, workload := ns(l.Namespace("a")), ns(l.Namespace("b")),
				ns(l.Namespace("workload"))
			check(t, b.Forward())
			check(t, l.Veth(End{Namespace: a, Device: "eth0",
				Addresses: []netip.Prefix{pfx(c.a + c.net)}},
				End{Namespace: b, Device: "eth0", Addresses: []netip.Prefix{pfx(c.b + c.net)}}))
			check(t, l.Veth(End{Namespace: b, Device: "cali1"},
				End{Namespace: workload, Device: "eth0",
					Addresses: []netip.Prefix{pfx(c.workload + c.hostBits)}}))
			check(t, b.AddRouteMetric(pfx(c.workload+c.hostBits), netip.Addr{}, "cali1", 1024))
			mac, err := b.MAC("cali1")
			check(t, err)
			gateway := addr("169.254.1.1")
			if addr(c.a).Is6() {
				gateway = addr("fe80::1:1")
			}
			check(t, workload.AddNeighbour("eth0", gateway, mac))
			zero := netip.PrefixFrom(addr(c.a).Prev(), 0).Masked()
			check(t, workload.AddRoute(zero, gateway, "eth0"))

			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			node := func(n *Namespace, self, peer, block string) *Bird {
				bird, err := l.StartBird(ctx, programs, n, n.Short(), BirdConfig{
					RouterID: addr("192.0.2." + self[len(self)-1:]), Address: addr(self), AS: 64512,
					Blocks: []netip.Prefix{pfx(block)}, Pools: []BirdPool{{Prefix: pfx(c.pool)}},
					Peers: []BirdPeer{MeshPeer(addr(self), addr(peer), 64512)},
				})
				check(t, err)
				return bird
			}
			birdA, birdB := node(a, c.a, c.b, c.blockA), node(b, c.b, c.a, c.blockB)
			check(t, birdA.AwaitEstablished(ctx))
			check(t, birdB.AwaitEstablished(ctx))
			var routes []BirdRoute
			waitFor(t, "a route of the peer", func() bool {
				routes, err = birdA.Routes(ctx, "protocol Mesh_"+birdName(addr(c.b)))
				check(t, err)
				return len(routes) > 0
			})
			r := routes[0]
			if len(routes) != 1 || r.Prefix != pfx(c.blockB) || r.NextHop != addr(c.b) ||
				r.LocalPref != "2147482623" || !r.Best {
				t.Errorf("a learned %+v", routes) // the workload's own route stays inside b's block
			}
			_, err = a.Ping(ctx, addr(c.workload))
			check(t, err)
			table, err := a.Run(ctx, "ip", "-6", "route")
			if addr(c.a).Is4() {
				table, err = a.Run(ctx, "ip", "route")
			}
			check(t, err)
			if !strings.Contains(string(table),
				c.blockB+" via "+c.b+" dev eth0 proto bird metric 1024") {
				t.Errorf("kernel of a:\n%s", table)
			}

			// the workload is moving in
			check(t, b.AddRouteMetric(pfx(c.workload+c.hostBits), netip.Addr{}, "cali1", 512))
			waitFor(t, "the borrowed address", func() bool {
				routes, err = birdA.Routes(ctx, "for "+c.workload)
				check(t, err)
				return len(routes) > 0 && routes[0].Prefix == pfx(c.workload+c.hostBits) &&
					routes[0].LocalPref == "2147483135"
			})

			check(t, birdB.Kill())
			check(t, birdB.Restart(ctx))
			check(t, birdB.AwaitEstablished(ctx))
		})
	}
}

func TestBirdThatCannotStartSaysWhy(t *testing.T) {
	programs := findBird(t)
	l := newLab(t)
	n := must[*Namespace](t)(l.Namespace("a"))
	_, err := l.StartBird(t.Context(), programs, n, "bad",
		BirdConfig{RouterID: addr("10.0.0.1"), AS: 1, Peers: []BirdPeer{{Name: "no name"}}})
	if err == nil || !strings.Contains(err.Error(), "bad ended at once") ||
		!strings.Contains(err.Error(), "syntax error") {
		t.Errorf("got %v", err)
	}
}

func TestUnpackRefusesAnotherVersion(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "bird")
	check(t, os.Mkdir(root, 0o755))
	check(t, os.WriteFile(filepath.Join(root, completeFile), []byte("2.0.12-7"), 0o644))
	if _, err := Unpack(t.Context(), dir, "bird", "1.6."); err == nil ||
		!strings.Contains(err.Error(), "2.0.12-7") {
		t.Errorf("got %v", err)
	}
	if p, err := Unpack(t.Context(), dir, "bird", "2."); err != nil || p.Version != "2.0.12-7" {
		t.Errorf("got %+v, %v", p, err)
	}
}

func TestParseProtocols(t *testing.T) {
	got := parseProtocols([]string{
		"name     proto    table    state  since       info",
		"kernel1  Kernel   master   up     11:28:36    ",
		"Mesh_10_0_0_2 BGP      master   start  11:28:40    Active        Socket: " +
			"Connection refused",
	})
	want := []BirdProtocol{
		{Name: "kernel1", Kind: "Kernel", State: "up", Since: "11:28:36"},
		{Name: "Mesh_10_0_0_2", Kind: "BGP", State: "start", Since: "11:28:40",
			Info: "Active Socket: Connection refused"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestParseRoutes(t *testing.T) {
	got := parseRoutes(strings.Split(
		`10.1.0.64/26      via 10.0.0.2 on eth0 [Mesh_10_0_0_2 10:00:00] * (100/0) [i]
	Type: BGP unicast univ
	BGP.origin: IGP
	BGP.as_path: 64513 64514
	BGP.next_hop: fd00::2 fe80::2
	BGP.local_pref: 100
                   via 10.0.0.3 on eth0 [Mesh_10_0_0_3 10:00:00] (100/0) [i]
10.1.0.0/26        blackhole [own_blocks 10:00:00] * (200)`, "\n"))
	want := []BirdRoute{
		{Prefix: pfx("10.1.0.64/26"), Protocol: "Mesh_10_0_0_2", Best: true,
			NextHop: addr("fd00::2"), LocalPref: "100", ASPath: "64513 64514", Origin: "IGP"},
		{Prefix: pfx("10.1.0.64/26"), Protocol: "Mesh_10_0_0_3"},
		{Prefix: pfx("10.1.0.0/26"), Protocol: "own_blocks", Best: true},
	}
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got  %+v\nwant %+v", got[i], want[i])
		}
	}
}
