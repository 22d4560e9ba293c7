package vpp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.fd.io/govpp/adapter/socketclient"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"
	"go.fd.io/govpp/core"

	"vpp-route-agent/internal/dataplanetest"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/vpp"
)

// realVPP is a VPP process of the test's own, without hugepages, devices or workers. The agent
// reaches it through a relay that can cut connections; the test itself talks to it with GoVPP's
// core, which shares no code with the package under test.
type realVPP struct {
	dir, bin, plugins string

	process *exec.Cmd
	exited  chan struct{}
	conn    *core.Connection
	relay   *relay
}

const (
	otherTable   = 7
	missingTable = 4711
)

// findVPP returns the binary and plugin folder, or skips the test where there is none.
func findVPP(t testing.TB) (bin, plugins string) {
	bin = os.Getenv("VPP_BIN")
	if bin == "" {
		var err error
		if bin, err = exec.LookPath("vpp"); err != nil {
			t.Skip(netlab.ErrNoVPP)
		}
	}
	return bin, os.Getenv("VPP_PLUGIN_PATH")
}

func startVPP(t testing.TB) *realVPP {
	t.Helper()
	bin, plugins := findVPP(t)
	dir, err := os.MkdirTemp("", "vpp") // short: socket paths have 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	r := &realVPP{dir: dir, bin: bin, plugins: plugins}
	t.Cleanup(func() {
		if r.relay != nil {
			r.relay.close()
		}
		r.stop()
		os.RemoveAll(dir)
	})
	r.start(t)
	r.relay = newRelay(t, r.path("relay.sock"), r.path("api.sock"))
	return r
}

func (r *realVPP) path(name string) string { return filepath.Join(r.dir, name) }

func (r *realVPP) start(t testing.TB) {
	t.Helper()
	conf := fmt.Sprintf(
		`unix {
  nodaemon cli-listen %[1]s/cli.sock runtime-dir %[1]s poll-sleep-usec 100 log %[1]s/vpp.log
}
api-segment { prefix %[2]s }
socksvr { socket-name %[1]s/api.sock }
statseg { socket-name %[1]s/stats.sock size 64M }
memory { main-heap-size 1G main-heap-page-size 4k }
buffers { buffers-per-numa 4096 page-size 4k }
physmem { max-size 128m }
plugins { %[3]s plugin default { disable } plugin l3xc_plugin.so { enable }
  plugin memif_plugin.so { enable } plugin af_packet_plugin.so { enable }
  plugin ping_plugin.so { enable } plugin vxlan_plugin.so { enable } }
`, r.dir, filepath.Base(r.dir), pluginPath(r.plugins))
	if err := os.WriteFile(r.path("startup.conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(r.path("out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	r.process = exec.Command(r.bin, "-c", r.path("startup.conf"))
	r.process.Stdout, r.process.Stderr = out, out
	r.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := r.process.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	r.exited = exited
	go func() { r.process.Wait(); close(exited) }()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if r.conn, err = core.Connect(socketclient.NewVppClient(r.path("api.sock"))); err == nil {
			break
		}
		if time.Now().After(deadline) {
			said, _ := os.ReadFile(r.path("out"))
			t.Fatalf("vpp does not come up: %v\n%s", err, said)
		}
	}
	r.configure(t)
}

func pluginPath(p string) string {
	if p == "" {
		return ""
	}
	return "path " + p
}

// stop ends the process and what it leaves in shared memory.
func (r *realVPP) stop() {
	if r.conn != nil {
		r.conn.Disconnect()
		r.conn = nil
	}
	if r.process == nil || r.process.Process == nil {
		return
	}
	r.process.Process.Signal(syscall.SIGTERM)
	select {
	case <-r.exited:
	case <-time.After(5 * time.Second):
		r.process.Process.Kill()
		<-r.exited
	}
	left, _ := filepath.Glob("/dev/shm/" + filepath.Base(r.dir) + "-*")
	for _, f := range left {
		os.Remove(f)
	}
}

// configure makes two loopbacks with addresses and one more table.
func (r *realVPP) configure(t testing.TB) {
	t.Helper()
	ctx := t.Context()
	for _, six := range []bool{false, true} {
		_, err := ip.NewServiceClient(r.conn).IPTableAddDelV2(ctx, &ip.IPTableAddDelV2{
			IsAdd: true, CreateMfib: true, Table: ip.IPTable{TableID: otherTable, IsIP6: six,
				Name: "other"},
		})
		check(t, err)
	}
	_, err := memif.NewServiceClient(r.conn).MemifSocketFilenameAddDelV2(ctx,
		&memif.MemifSocketFilenameAddDelV2{IsAdd: true, SocketID: otherSocket,
			SocketFilename: r.path("memif.sock")})
	check(t, err)
	links := interfaces.NewServiceClient(r.conn)
	for _, l := range testLinks {
		loop, err := links.CreateLoopback(ctx, &interfaces.CreateLoopback{})
		check(t, err)
		_, err = links.SwInterfaceSetFlags(ctx, &interfaces.SwInterfaceSetFlags{
			SwIfIndex: loop.SwIfIndex, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP,
		})
		check(t, err)
		for _, a := range []netip.Prefix{l.V4, l.V6} {
			_, err = links.SwInterfaceAddDelAddress(ctx, &interfaces.SwInterfaceAddDelAddress{
				SwIfIndex: loop.SwIfIndex, IsAdd: true,
				Prefix: ip_types.AddressWithPrefix(apiPrefix(t, a)),
			})
			check(t, err)
		}
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func apiPrefix(t testing.TB, p netip.Prefix) ip_types.Prefix {
	out, err := ip_types.ParsePrefix(p.String())
	check(t, err)
	return out
}

func (r *realVPP) version(t testing.TB) string {
	v, err := vpe.NewServiceClient(r.conn).ShowVersion(t.Context(), &vpe.ShowVersion{})
	check(t, err)
	return "VPP " + v.Version
}

// addForeign adds a route as another client of the API would, in words of VPP's command line.
func (r *realVPP) addForeign(t *testing.T, w route.Route) (remove func()) {
	t.Helper()
	how := "drop"
	if w.Kind == route.Via {
		how = w.Paths[0].NextHop.String() + " " + w.Paths[0].Interface
	}
	r.cli(t, "ip route add %s table %d via %s", w.Prefix, w.Table, how)
	return func() { r.cli(t, "ip route del %s table %d", w.Prefix, w.Table) }
}

// addWorkload adds a route under source API, as CNI plugins do.
func (r *realVPP) addWorkload(t *testing.T, w route.Route) (remove func()) {
	t.Helper()
	loop := slices.IndexFunc(testLinks[:], func(i dataplanetest.Interface) bool {
		return i.Name == w.Paths[0].Interface
	})
	path := fib_types.FibPath{SwIfIndex: uint32(loop + 1), Weight: 1} // local0 has 0
	if next := w.Paths[0].NextHop; next.Is6() {
		path.Proto, path.Nh.Address = fib_types.FIB_API_PATH_NH_PROTO_IP6,
			ip_types.AddressUnionIP6(next.As16())
	} else {
		path.Nh.Address = ip_types.AddressUnionIP4(next.As4())
	}
	req := ip.IPRouteAddDel{IsAdd: true, Route: ip.IPRoute{Prefix: apiPrefix(t, w.Prefix),
		NPaths: 1, Paths: []fib_types.FibPath{path}}}
	_, err := ip.NewServiceClient(r.conn).IPRouteAddDel(t.Context(), &req)
	check(t, err)
	return func() {
		req.IsAdd = false
		_, err := ip.NewServiceClient(r.conn).IPRouteAddDel(t.Context(), &req)
		check(t, err)
	}
}

// bucket finds the interface in "[0] [@3]: arp-ipv4: via 10.0.1.5 loop0", with a resolved neighbour
// "[0] [@5]: ipv4 via 10.0.1.5 loop0: mtu:…", or "[0] [@4]: ipv4-glean: [src:10.0.1.0/24] loop0:
// mtu:…".
var bucket = regexp.MustCompile(`(?m)^ +\[\d+\] \[@\d+\]: (?:\S+ via \S+|ipv[46]-glean: \S+) (\w+)`)

// egress counts the buckets of the entry's load balance.
func (r *realVPP) egress(t *testing.T, k route.Key) map[string]int {
	t.Helper()
	shares, ok := r.shares(t, k)
	if !ok {
		t.Fatalf("VPP does not show %s", k)
	}
	return shares
}

// shares is egress; not ok: the entry is not there.
func (r *realVPP) shares(t testing.TB, k route.Key) (shares map[string]int, ok bool) {
	t.Helper()
	family := "ip"
	if k.Prefix.Addr().Is6() {
		family = "ip6"
	}
	shown := r.cli(t, "show %s fib table %d %s", family, k.Table, k.Prefix)
	_, forwarding, ok := strings.Cut(shown, "forwarding:")
	shares = map[string]int{}
	for _, found := range bucket.FindAllStringSubmatch(forwarding, -1) {
		shares[found[1]]++
	}
	return shares, ok
}

func (r *realVPP) setLink(t *testing.T, name string, up bool) {
	t.Helper()
	r.cli(t, "set interface state %s %s", name, map[bool]string{true: "up", false: "down"}[up])
}

// addLink makes a loopback without addresses in an IPv4 table.
func (r *realVPP) addLink(t *testing.T, table uint32) (name string, remove func()) {
	t.Helper()
	name = strings.TrimSpace(r.cli(t, "loopback create-interface"))
	r.cli(t, "set interface ip table %s %d", name, table)
	return name, func() {
		if table != 0 { // else it may have addresses, with which it cannot be moved
			r.cli(t, "set interface ip table %s 0", name)
		}
		r.cli(t, "loopback delete-interface intfc %s", name)
	}
}

func (r *realVPP) tables(t *testing.T) []uint32 {
	t.Helper()
	stream, err := ip.NewServiceClient(r.conn).IPTableDump(t.Context(), &ip.IPTableDump{})
	check(t, err)
	var ids []uint32
	for {
		d, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			slices.Sort(ids)
			return slices.Compact(ids)
		}
		check(t, err)
		ids = append(ids, d.Table.TableID)
	}
}

func (r *realVPP) made(t *testing.T, name string) (mac string, mtu uint32) {
	t.Helper()
	stream, err := interfaces.NewServiceClient(r.conn).SwInterfaceDump(t.Context(),
		&interfaces.SwInterfaceDump{SwIfIndex: ^interface_types.InterfaceIndex(0)})
	check(t, err)
	for {
		d, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return mac, mtu
		}
		check(t, err)
		if strings.HasSuffix(d.Tag, ":"+name) {
			mac, mtu = d.L2Address.String(), d.Mtu[interface_types.MTU_PROTO_API_L3]
		}
	}
}

func (r *realVPP) memifSockets(t *testing.T) map[uint32]string {
	t.Helper()
	stream, err := memif.NewServiceClient(r.conn).MemifSocketFilenameDump(t.Context(),
		&memif.MemifSocketFilenameDump{})
	check(t, err)
	paths := map[uint32]string{}
	for {
		d, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return paths
		}
		check(t, err)
		paths[d.SocketID] = d.SocketFilename
	}
}

func (r *realVPP) cli(t testing.TB, format string, args ...any) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience) // GoVPP waits for ever
	defer cancel()
	reply, err := vlib.NewServiceClient(r.conn).CliInband(ctx,
		&vlib.CliInband{Cmd: fmt.Sprintf(format, args...)})
	check(t, err)
	return reply.Reply
}

// dump lists all entries of all sources.
func (r *realVPP) dump(t *testing.T) map[route.Key]string {
	t.Helper()
	all := map[route.Key]string{}
	for _, table := range []uint32{0, otherTable} {
		for _, six := range []bool{false, true} {
			stream, err := ip.NewServiceClient(r.conn).IPRouteV2Dump(t.Context(),
				&ip.IPRouteV2Dump{Table: ip.IPTable{TableID: table, IsIP6: six}})
			check(t, err)
			for {
				d, err := stream.Recv()
				if errors.Is(err, io.EOF) {
					break
				}
				check(t, err)
				k := route.Key{Table: table,
					Prefix: netip.MustParsePrefix(d.Route.Prefix.String()).Masked()}
				text := fmt.Sprintf("source %d", d.Route.Src)
				for _, p := range d.Route.Paths {
					text += fmt.Sprintf(", %s %d %x if %d table %d", p.Type, p.Proto,
						p.Nh.Address.XXX_UnionData, int32(p.SwIfIndex), p.TableID)
				}
				all[k] = text
			}
		}
	}
	return all
}

// send has VPP ping several addresses of a prefix, or the one that it has. A ping over the API
// takes what other clients send meanwhile for a key, and it is lost (src/plugins/ping/ping.c,
// 25.10): the agent is to have read the interfaces before.
func (r *realVPP) send(t *testing.T, k route.Key, packets int) {
	t.Helper()
	time.Sleep(100 * time.Millisecond)
	to := k.Prefix.Addr()
	for range packets {
		if next := to.Next(); k.Prefix.Contains(next) {
			to = next
		}
		said := r.cli(t, "ping %s repeat 1 interval 0.01", to)
		if !strings.Contains(said, "1 sent") {
			t.Fatalf("VPP sends nothing to %s: %s", to, said)
		}
	}
}

// agent is a vpp.VPP that runs until stop.
type agent struct {
	*vpp.VPP
	stop func()
}

func runAgent(t testing.TB, cfg vpp.Config) *agent {
	ctx, cancel := context.WithCancel(context.Background())
	v := vpp.New(cfg)
	done := make(chan struct{})
	go func() { v.Run(ctx); close(done) }()
	a := &agent{v, func() { cancel(); <-done }}
	t.Cleanup(a.stop)
	return a
}

// TestDataplaneRealVPP runs the conformance suite on a VPP process.
func TestDataplaneRealVPP(t *testing.T) {
	r := startVPP(t)
	cfg := vpp.Config{Socket: r.relay.path, StatsSocket: r.path("stats.sock")}
	a := runAgent(t, cfg)
	lacks := map[dataplanetest.Feature]string{}
	if _, err := os.Stat("/dev/vhost-net"); err != nil {
		lacks[dataplanetest.TAPs] = err.Error()
	}
	dataplanetest.Run(t, dataplanetest.Setup{
		Name:         r.version(t) + " (" + r.bin + ")",
		Dataplane:    a.VPP,
		Interfaces:   testLinks,
		OtherTable:   otherTable,
		MissingTable: missingTable,
		AddForeign:   r.addForeign,
		AddWorkload:  r.addWorkload,
		Dump:         r.dump,
		Egress:       r.egress,
		Send:         r.send,
		CountByHop: func(t *testing.T, on bool) {
			r.cli(t, "adjacency counters %s", map[bool]string{true: "enable", false: "disable"}[on])
		},
		NoHopCounts:  vpp.ErrNoHopCounts,
		SetLink:      r.setLink,
		AddLink:      r.addLink,
		Made:         r.made,
		HostLink:     hostLink,
		MemifSocket:  r.path("memif.sock"),
		MemifSockets: r.memifSockets,
		Tables:       r.tables,
		Reopen: func(*testing.T) fib.Dataplane {
			a.stop()
			a = runAgent(t, cfg)
			return a.VPP
		},
		Reconnect: func(*testing.T) { r.relay.cut() },
		Restart: func(ct *testing.T) {
			r.stop()
			r.start(ct)
		},
		Lacks: lacks,
	})
}

// TestDataplaneRealMemif has packets cross from one memif to another: the ends of a socket, in two
// tables of one VPP.
func TestDataplaneRealMemif(t *testing.T) {
	r := startVPP(t)
	a := runAgent(t, vpp.Config{Socket: r.relay.path})
	a.await(t, "VPP", present)
	for i, name := range []string{"slave", "master"} {
		of := route.MemifSettings{Socket: r.path("memif.sock"), Master: i == 1, Secret: "shared"}
		in := route.InTable{Interface: name, Table: route.Table{Name: "other"}}
		in.Table.ID = uint32(i * otherTable)
		address := route.Address{Interface: name, Table: in.Table.ID,
			Address: netip.MustParsePrefix(fmt.Sprintf("198.18.80.%d/24", i+1))}
		for _, o := range []route.Object{route.Link{Name: name, Kind: route.Memif, Memif: of}, in,
			route.Up{Interface: name}, address} {
			check(t, a.PutObject(t.Context(), o))
		}
	}
	for end := time.Now().Add(patience); ; {
		said := r.cli(t, "ping 198.18.80.2 repeat 3 interval 0.1")
		if strings.Contains(said, " 0% packet loss") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("packets are lost: %s\n%s", said, r.cli(t, "show memif"))
		}
	}
}

// The agent was killed before it could mark the sub-interface.
func TestUnmarkedSubInterfaceRealVPP(t *testing.T) {
	r := startVPP(t)
	a := runAgent(t, vpp.Config{Socket: r.relay.path})
	a.await(t, "VPP", present)
	link := route.Link{Name: "tenant", Kind: route.SubInterface, Parent: "loop0", VLAN: 7}
	for _, carryOn := range []func() error{
		func() error { return a.PutObject(t.Context(), link) },
		func() error { return a.DeleteObject(t.Context(), link.Key()) },
	} {
		r.cli(t, "create sub-interfaces loop0 17900007 dot1q 7 exact-match")
		check(t, carryOn())
		check(t, a.DeleteObject(t.Context(), link.Key()))
		if left := r.cli(t, "show interface"); strings.Contains(left, "17900007") {
			t.Errorf("it is left:\n%s", left)
		}
	}
	r.cli(t, "create sub-interfaces loop0 7")
	if err := a.PutObject(t.Context(), link); err == nil ||
		!strings.Contains(err.Error(), "loop0.7 has VLAN 7") {
		t.Errorf("beside another one: %v", err)
	}
}

// The agent was killed before it could mark the AF_PACKET interface, which has a client's MAC
// address.
func TestUnmarkedAFPacketRealVPP(t *testing.T) {
	const mac = "02:fe:00:00:00:07"
	r := startVPP(t)
	a := runAgent(t, vpp.Config{Socket: r.relay.path})
	a.await(t, "VPP", present)
	interfaces := func() (all string) { // without counters: packets come at any time
		for line := range strings.Lines(r.cli(t, "show interface")) {
			if fields := strings.Fields(line); len(fields) >= 4 {
				all += strings.Join(fields[:4], " ") + "\n"
			}
		}
		return all
	}
	before := interfaces()
	link := route.Link{Name: "tenant", Kind: route.AFPacket, HostName: hostLink, MAC: mac}
	const create = "create host-interface name %s hw-addr %s"
	for _, carryOn := range []func() error{
		func() error { return a.PutObject(t.Context(), link) },
		func() error { return a.DeleteObject(t.Context(), link.Key()) },
	} {
		name := strings.TrimSpace(r.cli(t, "create loopback interface"))
		r.cli(t, "set interface tag %s vra-claim:tenant", name)
		r.cli(t, "set interface mac address %s %s", name, mac)
		r.cli(t, create, hostLink, mac)
		check(t, carryOn())
		check(t, a.DeleteObject(t.Context(), link.Key()))
		if left := interfaces(); left != before {
			t.Errorf("interfaces:\n%s\nbefore:\n%s", left, before)
		}
	}
	missing := link
	missing.HostName = "missing9"
	r.cli(t, create, hostLink, mac)
	others := interfaces()
	if err := a.PutObject(t.Context(), missing); err == nil ||
		!strings.Contains(err.Error(), "another program's host-"+hostLink+" has that MAC") {
		t.Errorf("beside another program's: %v", err)
	}
	check(t, a.DeleteObject(t.Context(), link.Key()))
	if now := interfaces(); now != others {
		t.Errorf("interfaces:\n%s\nbefore:\n%s", now, others)
	}
	check(t, a.PutObject(t.Context(), link)) // VPP carried out late what it was asked before
	check(t, a.DeleteObject(t.Context(), link.Key()))
	if left := interfaces(); left != before {
		t.Errorf("interfaces:\n%s\nbefore:\n%s", left, before)
	}
	if err := a.PutObject(t.Context(), missing); err == nil ||
		!strings.Contains(err.Error(), "the kernel has no interface missing9") {
		t.Errorf("bound to what is missing: %v", err)
	}
	if left := interfaces(); left != before {
		t.Errorf("interfaces after a refusal:\n%s\nbefore:\n%s", left, before)
	}
}
