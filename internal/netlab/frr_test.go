package netlab

import (
	"bufio"
	"context"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

func frr(t *testing.T) FRRPrograms {
	t.Helper()
	p, err := FindFRR(t.Context(), buildDir)
	if err != nil {
		t.Skip(err)
	}
	t.Attr("part", "FRR "+p.Version)
	return p
}

// TestFRRSpeaksWithBIRDAndFillsTheKernel has a router of FRR and one of BIRD that tell each other a
// prefix by eBGP.
func TestFRRSpeaksWithBIRDAndFillsTheKernel(t *testing.T) {
	l := newLab(t)
	programs := frr(t)
	bird := findBird(t)
	ns := must[*Namespace](t)
	a, b := ns(l.Namespace("a")), ns(l.Namespace("b"))
	check(t, l.Veth(
		End{Namespace: a, Device: "eth0", Addresses: []netip.Prefix{pfx("10.0.0.1/24")}},
		End{Namespace: b, Device: "eth0", Addresses: []netip.Prefix{pfx("10.0.0.2/24")}}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must[*Bird](t)(l.StartBird(ctx, bird, b, "bird", BirdConfig{
		RouterID: addr("10.0.0.2"), Address: addr("10.0.0.2"), AS: 64512,
		Blocks: []netip.Prefix{pfx("10.1.0.0/26")}, Pools: []BirdPool{{Prefix: pfx("10.1.0.0/16")}},
		Peers: []BirdPeer{{Name: "Router", Address: addr("10.0.0.1"), AS: 65001}},
	}))
	f := must[*FRR](t)(l.StartFRR(ctx, programs, a, "tor", FRRConfig{BGP: `
router bgp 65001
 bgp router-id 10.0.0.1
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor 10.0.0.2 remote-as 64512
 neighbor 10.0.0.2 timers connect 1
`}))
	check(t, f.AwaitEstablished(ctx))
	kernelHas := func(prefix string) bool {
		out, err := a.Run(ctx, "ip", "route", "show", prefix)
		check(t, err)
		return strings.Contains(string(out), "via 10.0.0.2")
	}
	waitFor(t, "the route in the kernel", func() bool { return kernelHas("10.1.0.0/26") })
	out, err := f.Zebra(ctx, "show ip route")
	if err != nil || !strings.Contains(out, "10.1.0.0/26") {
		t.Errorf("zebra shows %s, %v", out, err)
	}

	check(t, f.Configure(ctx, "router bgp 65001", "address-family ipv4 unicast",
		"network 172.16.0.0/24"))
	if out, err := f.Command(ctx, "show bgp ipv4 unicast 172.16.0.0/24"); err != nil ||
		!strings.Contains(out, "172.16.0.0/24") {
		t.Errorf("after configuring it: %s, %v", out, err)
	}
	if err := f.Configure(ctx, "router nonsense"); err == nil {
		t.Error("nonsense was accepted")
	}

	check(t, f.Kill())
	if !kernelHas("10.1.0.0/26") {
		t.Error("the kernel has lost the route of a router that was killed")
	}
	check(t, f.Restart(ctx))
	check(t, f.AwaitEstablished(ctx))
	check(t, f.Stop())
	waitFor(t, "the end of the route", func() bool { return !kernelHas("10.1.0.0/26") })
}

// TestBird2SpeaksWithFRR has the router's BIRD on one side; its configuration is text, in the
// language of BIRD 2.
func TestBird2SpeaksWithFRR(t *testing.T) {
	l := newLab(t)
	programs := frr(t)
	bird2, err := FindBird2(t.Context(), buildDir)
	if err != nil {
		t.Skip(err)
	}
	t.Attr("part", "BIRD "+bird2.Version)
	ns := must[*Namespace](t)
	a, b := ns(l.Namespace("a")), ns(l.Namespace("b"))
	check(t, l.Veth(
		End{Namespace: a, Device: "eth0", Addresses: []netip.Prefix{pfx("10.0.0.1/24")}},
		End{Namespace: b, Device: "eth0", Addresses: []netip.Prefix{pfx("10.0.0.2/24")}}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	router := must[*Bird](t)(l.StartBirdText(ctx, bird2, b, "bird", `
router id 10.0.0.2;
protocol device {}
protocol static { ipv4; route 172.16.0.0/24 blackhole; }
protocol bgp tor {
  local 10.0.0.2 as 65002;
  neighbor 10.0.0.1 as 65001;
  connect delay time 1;
  ipv4 { import all; export all; };
}
`))
	f := must[*FRR](t)(l.StartFRR(ctx, programs, a, "tor", FRRConfig{BGP: `
router bgp 65001
 bgp router-id 10.0.0.1
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor 10.0.0.2 remote-as 65002
 neighbor 10.0.0.2 timers connect 1
 address-family ipv4 unicast
  network 172.17.0.0/24
`}))
	check(t, f.AwaitEstablished(ctx))
	check(t, router.AwaitEstablished(ctx))
	waitFor(t, "the route of FRR", func() bool {
		// BIRD 2 calls it an error that there is none yet
		routes, err := router.Routes(ctx, "for 172.17.0.0/24")
		return err == nil && len(routes) == 1 && routes[0].NextHop == addr("10.0.0.1") &&
			routes[0].ASPath == "65001"
	})
}

func TestFRRSummaryJoinsFamilies(t *testing.T) {
	states, err := parseFRRSummary(
		`{"ipv4Unicast":{"peers":{"10.0.0.2":{"state":"Active"}}},` +
			`"ipv6Unicast":{"peers":{"fd00::2":{"state":"Established"}}}}`)
	if err != nil || len(states) != 2 || states["10.0.0.2"] != "Active" ||
		states["fd00::2"] != "Established" {
		t.Errorf("got %v, %v", states, err)
	}
	if _, err := parseFRRSummary("% BGP instance not found"); err == nil {
		t.Error("what is no JSON is no error")
	}
}

func TestFRRRepliesAreCutAtTheStatus(t *testing.T) {
	in := bufio.NewReader(strings.NewReader("one\ntwo\n\x00\x00\x00\x00next\x00\x00\x00\x02"))
	for _, want := range []struct {
		text   string
		status byte
	}{{"one\ntwo\n", 0}, {"next", 2}} {
		text, status, err := frrReply(in)
		if err != nil || text != want.text || status != want.status {
			t.Errorf("got %q, %d, %v; want %q, %d", text, status, err, want.text, want.status)
		}
	}
	if _, _, err := frrReply(in); err == nil {
		t.Error("an end in the middle of a reply is no error")
	}
}

func TestBindIsSeenByItsProcessOnly(t *testing.T) {
	l := newLab(t)
	own := l.Dir() + "/group"
	check(t, os.WriteFile(own, []byte("mine\n"), 0o600))
	before := must[[]byte](t)(os.ReadFile("/etc/group"))
	p, err := l.Start(Spec{Name: "cat", Path: "cat", Args: []string{"/etc/group"},
		Binds: []Bind{{Source: own, Target: "/etc/group"}}})
	check(t, err)
	<-p.Done()
	if log := must[[]byte](t)(os.ReadFile(p.LogPath())); string(log) != "mine\n" {
		t.Errorf("it reads %q", log)
	}
	if after := must[[]byte](t)(os.ReadFile("/etc/group")); string(after) != string(before) {
		t.Error("the host sees the bind as well")
	}
	p, err = l.Start(Spec{Name: "next", Path: "cat", Args: []string{"/etc/group"}})
	check(t, err)
	<-p.Done()
	if log := must[[]byte](t)(os.ReadFile(p.LogPath())); string(log) != string(before) {
		t.Error("the next process sees the bind as well")
	}
}
