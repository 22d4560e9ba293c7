package kernel

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vpp-route-agent/internal/external"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/internal/testlog"
)

// linuxBed is external configuration with the second instance of sync, as with --dataplane vpp.
type linuxBed struct {
	*fib.Engine
	t          *testing.T
	lab        *netlab.Lab
	node, blue *netlab.Namespace
	dir        string
	stop       func()
	snapshots  chan external.Snapshot
	revision   int64

	mu     sync.Mutex // guards answer
	answer external.Answer
}

func newLinuxBed(t *testing.T) *linuxBed {
	t.Helper()
	l, node, _ := newNamespaces(t)
	blue, err := l.Namespace("blue")
	check(t, err)
	b := &linuxBed{t: t, lab: l, node: node, blue: blue, dir: t.TempDir()}
	b.start()
	t.Cleanup(func() { b.stop() })
	return b
}

// start starts the agent's part, again if it was stopped.
func (b *linuxBed) start() {
	log := testlog.New(b.t)
	journal := filepath.Join(b.dir, "linux.journal")
	d, err := NewNamespaces(Config{Namespace: b.node.Path(), Log: log},
		fib.JournalInterfaces(journal))
	check(b.t, err)
	b.Engine = fib.New(fib.Config{Dataplane: d, Journal: journal, ListRoutes: true, Log: log})
	b.snapshots = make(chan external.Snapshot, 1)
	c := external.NewController([]external.Adapter{b},
		external.Plane{FIB: b, Policy: external.Policy{Takes: external.IsLinux}})
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	for _, run := range []func(context.Context) error{d.Run, b.Run, c.Run} {
		done.Go(func() {
			if err := run(ctx); err != nil {
				b.t.Error(err)
			}
		})
	}
	b.stop = sync.OnceFunc(func() { cancel(); done.Wait(); d.Close() })
}

func (b *linuxBed) Name() string                        { return "client" }
func (b *linuxBed) Snapshots() <-chan external.Snapshot { return b.snapshots }
func (b *linuxBed) Changed() <-chan struct{}            { return b.ExternalChanged() }

func (b *linuxBed) Answer(a external.Answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = a
}

func (b *linuxBed) Want(all fib.Source) uint64 {
	var w fib.Wanted
	w.Sources[route.External] = all
	return b.Set(w)
}

func (b *linuxBed) Away() string {
	if b.Facts().Identity == "" {
		return "away"
	}
	return ""
}

// put wants these items, each as "KEY = JSON" below config/linux/, and nothing else.
func (b *linuxBed) put(items ...string) {
	b.revision++
	all := map[string]external.Item{}
	for _, text := range items {
		key, value, _ := strings.Cut("config/linux/"+text, " = ")
		all[key] = external.DecodeJSON(key, []byte(value), external.Item{})
	}
	select {
	case <-b.snapshots:
	default:
	}
	b.snapshots <- external.Snapshot{Complete: true, Revision: b.revision,
		Sources: []external.Source{{Name: b.Name(), Items: all}}}
}

// await waits until the items, by key, stand like this; the last of want is for all that follow.
func (b *linuxBed) await(want ...string) {
	b.t.Helper()
	var got []string
	b.eventually(strings.Join(want, "; "), func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		got = nil
		as := b.answer.Revision == b.revision && len(b.answer.Verdicts) >= len(want)
		for i, v := range b.answer.Verdicts {
			got = append(got, strings.TrimSpace(v.State.String()+" "+
				strings.Join(v.Details, ", ")))
			as = as && got[i] == want[min(i, len(want)-1)]
		}
		return as
	}, func() string { return strings.Join(got, "; ") })
}

func (b *linuxBed) eventually(what string, holds func() bool, instead func() string) {
	b.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("not: %s, but %s", what, instead())
		}
	}
}

// show prints what a command of iproute2 says in a namespace.
func (b *linuxBed) show(ns *netlab.Namespace, args string) string {
	b.t.Helper()
	out, err := ns.Run(b.t.Context(), "ip", strings.Fields(args)...)
	check(b.t, err)
	return string(out)
}

func (b *linuxBed) shows(ns *netlab.Namespace, args string, want ...string) {
	b.t.Helper()
	out := b.show(ns, args)
	for _, text := range want {
		if !strings.Contains(out, text) {
			b.t.Errorf("ip %s lacks %q:\n%s", args, text, out)
		}
	}
}

// pings waits until the node reaches an address.
func (b *linuxBed) pings(address string) {
	b.t.Helper()
	b.eventually("the node reaches "+address, func() bool {
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
		defer cancel()
		_, err := b.node.Ping(ctx, netip.MustParseAddr(address))
		return err == nil
	}, func() string { return b.show(b.node, "addr") })
}

// index returns the index of an interface of the node.
func (b *linuxBed) index(name string) int {
	b.t.Helper()
	link, err := b.node.Handle().LinkByName(name)
	check(b.t, err)
	return link.Attrs().Index
}

const existing = `interfaces/v2/interface/host = {"name":"host","type":"EXISTING",` +
	`"host_if_name":"eth1","enabled":true,"ip_addresses":["198.18.1.1/24"]}`

// pair are two items: an end in the node's namespace and one in another.
func (b *linuxBed) pair(path string) []string {
	return []string{
		`interfaces/v2/interface/near = {"name":"near","type":"VETH","enabled":true,` +
			`"veth":{"peer_if_name":"far"},"ip_addresses":["198.18.2.1/24"],"mtu":1400}`,
		fmt.Sprintf(`interfaces/v2/interface/far = {"name":"far","type":"VETH","enabled":true,`+
			`"veth":{"peer_if_name":"near"},"ip_addresses":["198.18.2.2/24"],`+
			`"host_if_name":"eth0","phys_address":"02:fe:00:00:00:22",`+
			`"namespace":{"type":"FD","reference":%q}}`, path),
	}
}

func TestLinuxExisting(t *testing.T) {
	b := newLinuxBed(t)
	before := b.show(b.node, "-o addr show eth1")
	b.put(existing)
	b.await("CONFIGURED")
	b.shows(b.node, "addr show eth1", "198.18.1.1/24", "10.0.1.1/24")
	b.stop()
	b.start() // which has lost its item meanwhile
	b.put()
	b.eventually("the addresses are as before", func() bool {
		return b.show(b.node, "-o addr show eth1") == before
	}, func() string { return b.show(b.node, "-o addr show eth1") })
	b.put(strings.ReplaceAll(existing, "eth1", "later"))
	for range 2 { // the second time it comes back
		b.await("PENDING there is no interface later")
		b.show(b.node, "link add later type veth peer name latepeer")
		b.await("CONFIGURED")
		b.show(b.node, "link del later")
	}
}

func TestLinuxVeth(t *testing.T) {
	b := newLinuxBed(t)
	items := b.pair(b.blue.Path())
	b.put(items...)
	b.await("CONFIGURED")
	b.shows(b.blue, "-d link show eth0", "02:fe:00:00:00:22", "alias vra:")
	b.shows(b.node, "-d link show near", "mtu 1400", "alias vra:")
	if _, err := b.node.Ping(t.Context(), netip.MustParseAddr("198.18.2.2")); err != nil {
		t.Errorf("packets between the namespaces: %v", err)
	}
	index := b.index("near")
	b.stop()
	b.start() // and the pair is found again
	b.put(items...)
	b.await("CONFIGURED")
	if now := b.index("near"); now != index {
		t.Errorf("it was %d and is %d", index, now)
	}
	items[0] = strings.ReplaceAll(items[0], "1400", "1300") // nothing is made anew
	b.put(items...)
	b.await("CONFIGURED")
	b.shows(b.node, "link show near", "mtu 1300")
	if now := b.index("near"); now != index {
		t.Errorf("it was %d and is %d", index, now)
	}
	b.show(b.blue, "link del eth0") // which another program should not do
	b.pings("198.18.2.2")
	b.put(items[0])
	b.await("PENDING there is no item of interface far of Linux", "REMOVED")
	if out := b.show(b.node, "link"); strings.Contains(out, "near") {
		t.Errorf("it is still there: %s", out)
	}
}

// Whatever becomes of an end by another program's hand, the pair is made again, with all that is on
// it.
func TestLinuxVethIsHealed(t *testing.T) {
	for _, tc := range []struct{ name, where, do string }{
		{"near deleted", "node", "link del near"},
		{"far moved", "blue", "link set eth0 netns ELSEWHERE"},
		{"near moved", "node", "link set near netns ELSEWHERE"},
		{"far renamed", "blue", "link set eth0 name eth9"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newLinuxBed(t)
			elsewhere, err := b.lab.Namespace("elsewhere")
			check(t, err)
			b.put(b.pair(b.blue.Path())...)
			b.await("CONFIGURED")
			at := map[string]*netlab.Namespace{"node": b.node, "blue": b.blue}[tc.where]
			b.show(at, strings.ReplaceAll(tc.do, "ELSEWHERE", elsewhere.Path()))
			b.eventually("both ends are back", func() bool {
				_, near := b.node.Handle().LinkByName("near")
				_, far := b.blue.Handle().LinkByName("eth0")
				return near == nil && far == nil
			}, func() string { return b.show(b.node, "link") + b.show(b.blue, "link") })
			b.pings("198.18.2.2")
			b.await("CONFIGURED")
			b.shows(b.node, "-d link show near", "mtu 1400", "alias vra:")
			b.shows(b.blue, "-d link show eth0", "02:fe:00:00:00:22", "alias vra:")
			for _, ns := range []*netlab.Namespace{elsewhere, b.blue} {
				if out := b.show(ns, "link"); strings.Contains(out, "eth9") ||
					ns == elsewhere && strings.Contains(out, "vra") {
					t.Errorf("the old end is left: %s", out)
				}
			}
			b.put()
			b.await("REMOVED")
		})
	}
}

// Both ends are in named namespaces, by a name and by a path: in two of them, and in one.
func TestLinuxVethOfNamedNamespaces(t *testing.T) {
	for _, second := range []string{"red", "blue"} {
		t.Run(second, func(t *testing.T) {
			b := newLinuxBed(t)
			far := b.blue
			if second != "blue" {
				var err error
				far, err = b.lab.Namespace(second)
				check(t, err)
			}
			items := b.pair(far.Path())
			items[1] = strings.Replace(items[1], "198.18.2.2", "198.18.3.2", 1)
			items[0] = strings.Replace(items[0], `"type":"VETH"`, `"type":"VETH","namespace":`+
				`{"type":"NSID","reference":"`+filepath.Base(b.blue.Path())+`"}`, 1)
			for range 2 {
				b.put(items...)
				b.await("CONFIGURED")
				b.shows(b.blue, "addr show near", "198.18.2.1/24", "mtu 1400")
				b.shows(far, "addr show eth0", "198.18.3.2/24", "02:fe:00:00:00:22")
				b.put()
				b.await("REMOVED")
			}
			if out := b.show(b.blue, "link"); strings.Contains(out, "near") {
				t.Errorf("it is still there: %s", out)
			}
		})
	}
}

// What another program has made is not touched.
func TestLinuxNameClash(t *testing.T) {
	b := newLinuxBed(t)
	b.show(b.node, "link add near type veth peer name theirs")
	before := b.show(b.node, "-o link show near")
	b.put(b.pair(b.blue.Path())...)
	b.await("RETRYING kernel: make interface "+b.blue.Path()+"/eth0: another program has made "+
		"interface near", "FAILED another program has made new interface near")
	b.put()
	b.await("REMOVED")
	if now := b.show(b.node, "-o link show near"); now != before {
		t.Errorf("it was %s and is %s", before, now)
	}
}

func TestLinuxRoutesAndNeighbours(t *testing.T) {
	b := newLinuxBed(t)
	items := append(b.pair(b.blue.Path()),
		`l3/v2/arp/far/198.18.2.9 = {"interface":"far","ip_address":"198.18.2.9",`+
			`"hw_address":"02:fe:00:00:00:09"}`,
		`l3/v2/route/198.18.3.0/24/far = {"outgoing_interface":"far","metric":7,`+
			`"dst_network":"198.18.3.0/24","gw_addr":"198.18.2.9"}`,
		`l3/v2/route/198.18.4.0/24/far = {"outgoing_interface":"far",`+
			`"dst_network":"198.18.4.0/24","scope":"HOST"}`,
		`l3/v2/route/2001:db8:3::/48/far = {"outgoing_interface":"far",`+
			`"dst_network":"2001:db8:3::/48"}`,
		`l3/v2/route/198.18.3.0/24/near = {"outgoing_interface":"near",`+
			`"dst_network":"198.18.3.0/24"}`)
	b.put(items...)
	b.await("CONFIGURED")
	b.shows(b.blue, "route", "198.18.3.0/24 via 198.18.2.9 dev eth0 proto 179 metric 7",
		"198.18.4.0/24 dev eth0 proto 179 scope host")
	b.shows(b.blue, "-6 route", "2001:db8:3::/48 dev eth0 proto 179 metric 1024")
	b.shows(b.node, "route", "198.18.3.0/24 dev near proto 179 scope link")
	b.shows(b.blue, "neigh", "198.18.2.9 dev eth0 lladdr 02:fe:00:00:00:09 PERMANENT")

	b.show(b.blue, "route del 198.18.3.0/24") // drift
	b.eventually("the route is back", func() bool {
		return strings.Contains(b.show(b.blue, "route"), "198.18.3.0/24 via")
	}, func() string { return b.show(b.blue, "route") })
	b.stop()
	b.start()
	b.put(slices.Concat(items[:3], items[4:])...) // without the first route
	b.await("CONFIGURED")
	b.eventually("what was deleted meanwhile is gone", func() bool {
		return !strings.Contains(b.show(b.blue, "route"), "198.18.3.0/24 via")
	}, func() string { return b.show(b.blue, "route") })
	b.put()
	b.await("REMOVED")
}

// Another program's route stays, and the item says whose place it is.
func TestLinuxForeignRoute(t *testing.T) {
	b := newLinuxBed(t)
	b.show(b.node, "route add 198.18.3.0/24 dev eth2 metric 7")
	b.put(existing, `l3/v2/route/198.18.3.0/24/host = {"outgoing_interface":"host","metric":7,`+
		`"dst_network":"198.18.3.0/24","gw_addr":"10.0.1.2"}`,
		`l3/v2/route/198.18.5.0/24/host = {"outgoing_interface":"host",`+
			`"dst_network":"198.18.5.0/24","gw_addr":"203.0.113.1"}`)
	b.await("CONFIGURED", "FAILED another program has made route 198.18.3.0/24 metric 7 over eth2",
		"PENDING kernel: gateway 203.0.113.1 is not reachable over eth1")
	b.show(b.node, "route del 198.18.3.0/24")
	b.show(b.node, "addr add 203.0.113.2/24 dev eth1")
	b.await("CONFIGURED")
	b.shows(b.node, "route", "198.18.3.0/24 via 10.0.1.2 dev eth1 proto 179 metric 7")
	b.show(b.node, "link set eth1 down")
	b.show(b.node, "link set eth1 up") // by the item, or by this
	b.await("CONFIGURED")
	b.put()
	b.await("REMOVED")
}

// A namespace that is not there is waited for; it is held by nobody when it goes.
func TestLinuxNamespaceComesAndGoes(t *testing.T) {
	b := newLinuxBed(t)
	name := b.blue.Name() + "-late"
	ip := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
	}
	t.Cleanup(func() { exec.Command("ip", "netns", "del", name).Run() })
	items := b.pair("/run/netns/" + name)
	b.put(items...)
	missing := []string{"PENDING kernel: there is no network namespace /run/netns/" + name,
		"PENDING waits for new interface /run/netns/" + name + "/eth0"}
	for range 2 { // the second time it comes back
		b.await(missing...)
		ip("netns", "add", name)
		b.await("CONFIGURED")
		ip("netns", "del", name)
	}
	b.await(missing...)
	// The kernel takes what is in a namespace away after its name.
	b.eventually("the pair goes with the namespace", func() bool {
		return !strings.Contains(b.show(b.node, "link"), "near")
	}, func() string { return b.show(b.node, "link") })
}

// A route is found, or found missing, whatever else is there.
func TestLinuxRouteIsFound(t *testing.T) {
	b := newBed(t)
	ip := func(ns *netlab.Namespace, args string) {
		t.Helper()
		_, err := ns.Run(t.Context(), "ip", strings.Fields(args)...)
		check(t, err)
	}
	r := route.LinuxRoute{Interface: "eth1", Network: pfx("198.18.3.0/24"), Metric: 7,
		Gateway: addr("10.0.1.2")}
	finds := func(what string, want bool) {
		t.Helper()
		o, err := b.Object(t.Context(), r.Key())
		if check(t, err); (o != nil) != want {
			t.Errorf("%s: found %v", what, o)
		}
	}
	finds("alone", false)
	ip(b.ns, "route add default via 10.0.1.2")
	finds("below a default route", false)
	ip(b.ns, "route add 198.18.3.0/24 dev eth2 metric 5")
	finds("behind another metric", false)
	check(t, b.PutObject(t.Context(), r))
	finds("put behind another metric", true)
	ip(b.ns, "route add 198.18.3.0/25 dev eth2")
	finds("with a longer prefix", true)
	ip(b.ns, "route del 198.18.3.0/24 metric 5")
	check(t, b.ns.Sysctl("net.ipv4.conf.all.ignore_routes_with_linkdown", "1"))
	ip(b.ns, "route del 198.18.3.0/25")
	ip(b.peer, "link set eth1 down")
	finds("without carrier", true)
	check(t, b.DeleteObject(t.Context(), r.Key()))
	finds("deleted", false)
}
