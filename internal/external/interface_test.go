package external

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"vpp-route-agent/internal/external/proto/ligato/vpp"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// onLink is an item about an interface that is up and has these addresses.
func onLink(name string, addresses ...string) string {
	list := ""
	if len(addresses) > 0 {
		list = `"` + strings.Join(addresses, `","`) + `"`
	}
	return fmt.Sprintf(`config/vpp/v2/interfaces/%[1]s = {"name":"%[1]s","enabled":true,`+
		`"ip_addresses":[%[2]s]}`, name, list)
}

const loop1 = `config/vpp/v2/interfaces/loop1 = {"name":"loop1","type":"SOFTWARE_LOOPBACK",` +
	`"ip_addresses":["10.0.0.1/24"]}`

const loop1in7 = `config/vpp/v2/interfaces/loop1 = {"name":"loop1","vrf":7,` +
	`"type":"SOFTWARE_LOOPBACK","ip_addresses":["10.0.0.1/24"]}`

func memif(fields string) string {
	return `{"name":"x","type":"MEMIF","memif":{"socket_filename":"/run/m.sock",` + fields + `}}`
}

func tap(fields string) string { return `{"name":"x","type":"TAP","tap":{` + fields + `}}` }

func TestSettingsOfMadeLinks(t *testing.T) {
	for value, want := range map[string]route.Link{
		`{"name":"x","type":"MEMIF","phys_address":"2:0:0:0:0:1","memif":{"master":true,"id":3,` +
			`"socket_filename":"/m","secret":"s","ring_size":8,"buffer_size":9}}`: {Name: "x",
			Kind: route.Memif, MAC: "02:00:00:00:00:01", Memif: route.MemifSettings{
				Socket: "/m", Master: true, ID: 3, Secret: "s", RingSize: 8, BufferSize: 9}},
		memif(`"rx_queues":2,"tx_queues":3`): {Name: "x", Kind: route.Memif,
			Memif: route.MemifSettings{Socket: "/run/m.sock", RxQueues: 2, TxQueues: 3}},
		tap(`"host_if_name":"t","rx_ring_size":8,"tx_ring_size":16,"enable_gso":true`): {
			Name: "x", Kind: route.TAP, HostName: "t",
			TAP: route.TAPSettings{RxRing: 8, TxRing: 16, GSO: true}},
		`{"name":"x","type":"AF_PACKET","mtu":1400,"afpacket":{"host_if_name":"v"}}`: {Name: "x",
			Kind: route.AFPacket, MTU: 1400, HostName: "v"},
	} {
		i := DecodeJSON("config/vpp/v2/interfaces/x", []byte(value), Item{})
		if !i.Problem.ok() {
			t.Errorf("%s: %v", value, i.Problem)
			continue
		}
		if got := objectsOf(i.Message.(*vpp.Interface))[0]; got != want {
			t.Errorf("%s: %+v, want %+v", value, got, want)
		}
	}
}

// Whatever is wrong with an item, its secret is in no answer.
func TestSecretsAreInNoAnswer(t *testing.T) {
	const key = "config/vpp/v2/interfaces/x"
	for _, value := range []string{
		memif(`"secret":"hunter2","ring_size":3`),
		memif(`"secret":"hunter2","mode":"IP"`),
		memif(`"secret":"hunter2` + strings.Repeat("x", 20) + `"`),
		memif(`"secret":"hunter2\u0001"`),
		memif(`"secret":["hunter2"]`),
		memif(`"secret":hunter2`),
		memif(`"secret":"hunter2","id":"hunter2"`),
		memif(`"secret":"hunter2"x`),
		memif(`"secret":"hunter2","nothing":1`),
		`{"name":"x","memif":{"secret":"hunter2"}}`,
		`"hunter2"`,
	} {
		i := DecodeJSON(key, []byte(value), Item{})
		if i.Problem.ok() || strings.Contains(i.Problem.Detail, "hunter2") ||
			!strings.Contains(i.Problem.Detail, "memif") &&
				!strings.Contains(i.Problem.Detail, "(line 1:") {
			t.Errorf("%s: %v", value, i.Problem)
		}
	}
	i := DecodeJSON(key, []byte(memif(`"secret":"hunter2"`)), Item{})
	link := objectsOf(i.Message.(*vpp.Interface))[0]
	shown := WithoutSecrets(i.Message)
	text := fmt.Sprintf("%v %+v %#v %s %v", link, link, link, link, shown)
	if strings.Contains(text, "hunter2") {
		t.Errorf("printed as %s", text)
	}
	if i.Message.(*vpp.Interface).GetMemif().GetSecret() != "hunter2" {
		t.Error("the item has lost its secret")
	}
	other := link.(route.Link)
	if other.Memif.Secret = "another"; other.Digest() == link.Digest() {
		t.Error("another secret does not make it anew")
	}
}

func TestMergeInterfaces(t *testing.T) {
	own := Policy{Own: []route.Address{{Interface: "eth0",
		Address: netip.MustParsePrefix("192.168.4.7/24")}}}
	for _, c := range []struct {
		name     string
		linux    bool
		sources  []Source
		objects  string
		verdicts string
	}{
		{
			name:    "up with addresses",
			sources: []Source{source(t, "etcd", onLink("eth0", "10.0.0.1/24", "10.0.0.2/24"))},
			objects: "interface eth0; address 10.0.0.1/24 of eth0; address 10.0.0.2/24 of eth0",
		},
		{
			name: "left as it is", sources: []Source{source(t, "etcd",
				`config/vpp/v2/interfaces/eth0 = {"name":"eth0"}`)},
		},
		{
			name: "made", sources: []Source{source(t, "etcd", loop1)},
			objects: "address 10.0.0.1/24 of loop1; new interface loop1",
		},
		{
			name: "in a table", sources: []Source{source(t, "etcd", table7, loop1in7)},
			objects: "address 10.0.0.1/24 table 7 of loop1; VRF table 7 (IPv4) \"seven\"; " +
				"new interface loop1; IPv4 table of loop1",
		},
		{
			name: "without its table it has no address", sources: []Source{source(t, "etcd",
				loop1in7)},
			objects:  "new interface loop1",
			verdicts: "etcd interfaces/loop1 PENDING there is no VRF table 7 (IPv4)",
		},
		{
			name:    "equal subnets in two tables",
			sources: []Source{source(t, "etcd", table7, loop1in7, onLink("eth0", "10.0.0.1/24"))},
			objects: "interface eth0; address 10.0.0.1/24 of eth0; address 10.0.0.1/24 table 7 " +
				"of loop1; VRF table 7 (IPv4) \"seven\"; new interface loop1; IPv4 table of loop1",
		},
		{
			name: "Linux has no tables", linux: true, sources: []Source{source(t, "etcd",
				`config/vpp/v2/interfaces/eth0 = {"name":"eth0","vrf":7}`)},
			verdicts: "etcd interfaces/eth0 UNIMPLEMENTED field vrf with this data plane",
		},
		{
			name: "Linux makes none", linux: true, sources: []Source{source(t, "etcd", loop1)},
			verdicts: "etcd interfaces/loop1 UNIMPLEMENTED making an interface with this data " +
				"plane",
		},
		{
			name: "Linux makes no memif", linux: true, sources: []Source{source(t, "etcd",
				"config/vpp/v2/interfaces/x = "+memif(`"id":1`))},
			verdicts: "etcd interfaces/x UNIMPLEMENTED making an interface with this data plane",
		},
		{
			name: "Linux makes no TAP", linux: true, sources: []Source{source(t, "etcd",
				"config/vpp/v2/interfaces/x = "+tap(`"version":2`))},
			verdicts: "etcd interfaces/x UNIMPLEMENTED making an interface with this data plane",
		},
		{
			name: "one source has it whole",
			sources: []Source{source(t, "grpc", onLink("eth0", "10.0.0.1/24")),
				source(t, "etcd", onLink("eth0", "10.0.1.1/24"))},
			objects:  "interface eth0; address 10.0.0.1/24 of eth0",
			verdicts: "etcd interfaces/eth0 PENDING source grpc has interface eth0",
		},
		{
			name: "a subnet is on one interface",
			sources: []Source{source(t, "grpc", onLink("eth1", "10.0.0.1/24", "fd00::1/64")),
				source(t, "etcd", onLink("eth2", "10.0.0.128/25", "10.0.1.1/24", "fd00::/48"),
					onLink("eth3", "10.0.0.9/32", "10.0.2.1/24"), onLink("eth4", "10.0.1.1/16"))},
			objects: "interface eth1; interface eth2; interface eth3; interface eth4; address " +
				"10.0.0.1/24 of eth1; address fd00::1/64 of eth1; address 10.0.1.1/24 of eth2; " +
				"address 10.0.2.1/24 of eth3",
			verdicts: "etcd interfaces/eth2 FAILED 10.0.0.128/25 overlaps 10.0.0.1/24 of eth1, " +
				"fd00::/48 overlaps fd00::1/64 of eth1; etcd interfaces/eth3 FAILED 10.0.0.9/32 " +
				"overlaps 10.0.0.1/24 of eth1; etcd interfaces/eth4 FAILED 10.0.1.1/16 " +
				"overlaps 10.0.0.1/24 of eth1",
		},
		{
			name: "the uplink's address is the agent's, and may be wanted twice",
			sources: []Source{source(t, "etcd",
				onLink("eth0", "192.168.4.7/24", "192.168.4.8/24"),
				onLink("eth1", "192.168.4.9/32"))},
			objects: "interface eth0; interface eth1; address 192.168.4.7/24 of eth0; address " +
				"192.168.4.8/24 of eth0",
			verdicts: "etcd interfaces/eth1 FAILED 192.168.4.9/32 overlaps 192.168.4.7/24 of " +
				"eth0",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := own
			p.Linux = c.linux
			plan := Merge(c.sources, p)
			var objects []string
			for _, o := range plan.Objects {
				objects = append(objects, o.Key().String())
			}
			if got := strings.Join(objects, "; "); got != c.objects {
				t.Errorf("objects %q, want %q", got, c.objects)
			}
			got := printed(Judge(plan, Facts{}))
			for want := range strings.SplitSeq(c.verdicts, "; ") {
				if !strings.Contains(got, want) {
					t.Errorf("verdicts\n%s\nlack %q", got, want)
				}
			}
		})
	}
}

func TestJudgeInterfaces(t *testing.T) {
	eth1 := route.Interface{Name: "eth1",
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.9/24")}}
	up := route.Up{Interface: "eth0"}.Key()
	address := func(text string) route.ObjectKey {
		return route.Address{Interface: "eth0", Address: netip.MustParsePrefix(text)}.Key()
	}
	one := fib.Entry{Object: address("10.0.1.1/24"), State: fib.Programmed}
	for _, c := range []struct {
		name       string
		up         fib.State
		address    fib.Entry // 10.0.0.1/24
		more       []fib.Entry
		interfaces []route.Interface // eth0 is always there
		want       string
		unfinished bool
	}{
		{name: "all is there", up: fib.Programmed, address: fib.Entry{State: fib.Programmed},
			want: "CONFIGURED "},
		{name: "others have set it", up: fib.Shadowed, address: fib.Entry{State: fib.Shadowed},
			want: "CONFIGURED "},
		{name: "another interface has it", up: fib.Shadowed,
			address:    fib.Entry{State: fib.Failed, Error: "address in use", Attempts: 3},
			interfaces: []route.Interface{eth1},
			want:       "FAILED 10.0.0.1/24 overlaps 10.0.0.9/24 of eth1"},
		{name: "refused", up: fib.Shadowed,
			address: fib.Entry{State: fib.Failed, Error: "no memory", Attempts: 3},
			want:    "RETRYING no memory"},
		{name: "on its way", up: fib.Programmed, address: fib.Entry{State: fib.Pending},
			want: "PENDING " + notAcknowledged, unfinished: true},
		{name: "one more is on its way out", up: fib.Programmed,
			address: fib.Entry{State: fib.Programmed},
			more:    []fib.Entry{{Object: address("10.0.2.1/24"), State: fib.Deleting}},
			want:    "PENDING address 10.0.2.1/24 of eth0 is being deleted", unfinished: true},
		{name: "two problems", up: fib.Pending,
			address: fib.Entry{State: fib.Failed, Error: "no memory"}, unfinished: true,
			want: "RETRYING " + notAcknowledged + ", no memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := Merge([]Source{source(t, "etcd",
				onLink("eth0", "10.0.0.1/24", "10.0.1.1/24"))}, allowed)
			c.address.Object = address("10.0.0.1/24")
			v := Judge(plan, Facts{Entries: []fib.Entry{},
				Objects:    append(c.more, c.address, one, fib.Entry{Object: up, State: c.up}),
				Interfaces: append([]route.Interface{{Name: "eth0"}}, c.interfaces...)})[0]
			got := v.State.String() + " " + strings.Join(v.Details, ", ")
			if got != c.want || v.Unfinished != c.unfinished {
				t.Errorf("%q (unfinished: %v), want %q", got, v.Unfinished, c.want)
			}
		})
	}
}

// Of thousands of addresses that are wrong the first are named.
func TestJudgeNamesAFew(t *testing.T) {
	var overlapping []string
	for i := range 2000 {
		overlapping = append(overlapping, fmt.Sprintf("10.0.%d.%d/8", i/256, i%256))
	}
	plan := Merge([]Source{source(t, "etcd", onLink("eth0", "10.200.0.1/8"),
		onLink("eth1", overlapping...))}, allowed)
	v := Judge(plan, Facts{Entries: []fib.Entry{},
		Interfaces: []route.Interface{{Name: "eth0"}, {Name: "eth1"}}})[1]
	if n := len(v.Details); v.State != Failed || n != maxDetails+1 || v.Details[n-1] != "and more" {
		t.Errorf("%v, %d details: %q", v.State, n, v.Details)
	}
}

// What makes the state is named, also behind 20 parts that are less wrong.
func TestJudgeNamesTheWorst(t *testing.T) {
	var addresses []string
	for i := range 30 {
		addresses = append(addresses, fmt.Sprintf("10.0.%d.1/24", i))
	}
	plan := Merge([]Source{source(t, "etcd", onLink("eth0", addresses...))}, allowed)
	f := Facts{Entries: []fib.Entry{}, Interfaces: []route.Interface{{Name: "eth0"}}}
	for i, o := range plan.items[0].objects {
		f.Objects = append(f.Objects, fib.Entry{Object: o.Key(), State: fib.Failed,
			Error: fmt.Sprintf("refusal %d", i), GivenUp: i >= 25, Attempts: 9})
	}
	v := Judge(plan, f)[0]
	if got := strings.Join(v.Details, "\n"); v.State != Failed || len(v.Details) != maxDetails+1 ||
		!strings.Contains(got, "refusal 0\n") ||
		!strings.Contains(got, "refusal 25 (refused 9 times") ||
		!strings.HasSuffix(got, "\nand more") {
		t.Errorf("%v, %d details:\n%s", v.State, len(v.Details), got)
	}
}

// An interface that is not there is named even if nothing is wanted of it.
func TestJudgeMissingInterface(t *testing.T) {
	for _, item := range []string{onLink("tap0", "10.0.0.1/24"),
		`config/vpp/v2/interfaces/tap0 = {"name":"tap0"}`} {
		plan := Merge([]Source{source(t, "etcd", item)}, allowed)
		for there, want := range map[bool]string{
			false: "PENDING there is no interface tap0", true: "PENDING " + notAcknowledged,
		} {
			f := Facts{Entries: []fib.Entry{}}
			if there {
				f.Interfaces = []route.Interface{{Name: "tap0"}}
			}
			v := Judge(plan, f)[0]
			got := v.State.String() + " " + strings.Join(v.Details, ", ")
			if there && len(plan.Objects) == 0 {
				want = "CONFIGURED "
			}
			if got != want {
				t.Errorf("%s: %q, want %q", item, got, want)
			}
		}
	}
}

// Nothing on an interface that the agent makes is final before that is there.
func TestJudgeMadeInterfaces(t *testing.T) {
	made := route.LinkKey("loop1")
	address := route.Address{Interface: "loop1", Address: netip.MustParsePrefix("10.0.0.1/24")}
	near := `config/vpp/v2/arp/loop1/10.0.0.9 = {"interface":"loop1","ip_address":"10.0.0.9",` +
		`"phys_address":"02:fe:00:00:00:01","static":true}`
	over := `= {"dst_network":"10.9.1.0/24","outgoing_interface":"loop1"}`
	for _, c := range []struct {
		name       string
		link       fib.Entry
		isShown    bool // by the data plane's facts
		want       string
		unfinished int
	}{
		{name: "on its way", link: fib.Entry{State: fib.Pending}, unfinished: 3,
			want: "PENDING there is no interface loop1 yet; PENDING " + notAcknowledged +
				"; PENDING there is no interface loop1 yet"},
		{name: "another's", link: fib.Entry{State: fib.Shadowed, By: made.String()},
			want: "PENDING there is no interface loop1 yet; FAILED another program has made new " +
				"interface loop1; PENDING there is no interface loop1 yet"},
		{name: "made", link: fib.Entry{State: fib.Programmed}, unfinished: 1,
			want: "CONFIGURED; CONFIGURED; PENDING there is no interface loop1 yet"},
		{name: "shown", link: fib.Entry{State: fib.Programmed}, isShown: true,
			want: "CONFIGURED; CONFIGURED; CONFIGURED"},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := Merge([]Source{source(t, "etcd", loop1, near, over)}, allowed)
			c.link.Object = made
			f := Facts{
				Entries: []fib.Entry{{Key: plan.Routes[0].Key, State: fib.Programmed,
					Origin: route.External}},
				Objects: []fib.Entry{c.link, {Object: address.Key(), State: fib.Programmed},
					{Object: plan.Objects[1].Key(), State: fib.Programmed}},
			}
			if c.isShown {
				f.Interfaces = []route.Interface{{Name: "loop1"}}
			}
			var got []string
			unfinished := 0
			for _, v := range Judge(plan, f) {
				got = append(got, strings.TrimSpace(v.State.String()+" "+
					strings.Join(v.Details, ", ")))
				if v.Unfinished {
					unfinished++
				}
			}
			if text := strings.Join(got, "; "); text != c.want || unfinished != c.unfinished {
				t.Errorf("%q (%d unfinished), want %q", text, unfinished, c.want)
			}
		})
	}
}
