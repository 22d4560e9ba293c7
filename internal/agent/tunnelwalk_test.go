package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.fd.io/govpp/api"
	"pgregory.net/rapid"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/ipam"
	"vpp-route-agent/vpp"
	"vpp-route-agent/vpp/vpptest"
)

// tunnelWalker takes random steps in a cluster whose resources an agent reads, and its VPP has.
// From the decoders of what is in etcd to the messages of VPP's API all is what runs in production.
type tunnelWalker struct {
	t       *rapid.T
	journal string
	server  *vpptest.Server
	store   *calico.Store
	written map[string][]byte // by key, as etcd has it
	// nodes, pools and blocks are as written; l has what can be read of it.
	nodes  map[string]nodeText
	pools  map[string]poolText
	blocks map[netip.Prefix]blockText
	l      *literal
	lists  int
	// orphans: another deleted tunl0, whose endpoints VPP keeps for the next with its index.
	orphans bool
	wrong   []string     // what settle found
	tell    func(string) // once, of all that is wrong

	snapshots datastoreStub
	speaker   *speaker
	engine    *fib.Engine
	agent     *Agent
	stop      func()
}

// TestWalkOfEncapsulation: whatever happens to Nodes, pools, blocks, paths, VPP and the agent, in
// the end there are exactly the tunnels and routes that literal says.
func TestWalkOfEncapsulation(t *testing.T) {
	t.Parallel() // a walk keeps one processor busy at most
	dir, n := t.TempDir(), 0
	first := "" // failure: rapid tells it before all draws, where a long output may be cut
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the first failure (nothing: the bubble did not end): %s", first)
		}
	})
	tell := func(what string) { first = cmp.Or(first, what) }
	rapid.Check(t, func(rt *rapid.T) {
		n++
		journal := filepath.Join(dir, fmt.Sprint(n))
		var failed any // rapid stops a run by a panic, which must not end in the bubble
		synctest.Test(t, func(*testing.T) {
			defer func() { failed = recover() }()
			walkTunnels(rt, journal, tell)
		})
		if failed == nil {
			return
		}
		if fmt.Sprintf("%T", failed) == "rapid.invalidData" {
			// on a line of its own: rapid tells failures apart by where they come from
			panic(failed)
		}
		tell(fmt.Sprint(failed))
		panic(failed)
	})
}

func walkTunnels(t *rapid.T, journal string, tell func(string)) {
	w := &tunnelWalker{t: t, journal: journal, tell: tell, server: vpptest.Unserved(),
		written: map[string][]byte{}, nodes: map[string]nodeText{}, pools: map[string]poolText{},
		blocks: map[netip.Prefix]blockText{},
		l: &literal{nodes: map[string]nodeText{}, pools: map[string]poolText{},
			blocks:     map[netip.Prefix]blockText{},
			affinities: map[netip.Prefix]bool{}, learned: map[netip.Prefix][]netip.Addr{}}}
	w.l.bgp = rapid.Bool().Draw(t, "BGP")
	w.l.ipam = !w.l.bgp || rapid.Bool().Draw(t, "IPAM")
	addUplink(w.server)
	w.put(calico.Key{Kind: calico.KindBGPConfiguration, Name: "default"},
		`{"spec":{"nodeToNodeMeshEnabled":false}}`)
	w.begin()
	w.start()
	defer func() {
		w.heal()
		w.stop()
		w.server.Close()
	}()
	steps := map[string]func(){
		"node": w.node, "another node": w.node, "this node": w.thisNode, "pool": w.pool,
		"another pool": w.pool, "block": w.block, "another block": w.block,
		"affinity": w.affinity, "learn": w.learn, "learn more": w.learn, "felix": w.setFelix,
		"list": w.list, "crash": w.crash, "restart VPP": w.restartVPP, "cut": w.cut,
		"refuse": w.refuse, "steal": w.steal,
		"spoil": w.spoil, "pause": w.pause, "settle": w.settle,
	}
	names := slices.Sorted(maps.Keys(steps))
	for range rapid.IntRange(1, 30).Draw(t, "steps") {
		steps[rapid.SampledFrom(names).Draw(t, "step")]()
	}
	w.settle()
}

// begin makes a cluster in which something is tunnelled; steps change it.
func (w *tunnelWalker) begin() {
	w.setNode(literalSelf, nodeText{v4: w.draw("v4", ownAddresses...), v6: "fd00::1/64",
		ipip: "10.1.0.1", vxlan: "10.1.0.2", vxlan6: "fd10::1"})
	w.setNode("b", nodeText{v4: "10.0.0.8/24", v6: "fd00::8/64", vxlan: "10.1.2.0",
		vxlan6: "fd10::40", mac: "66:00:00:00:00:08"})
	w.setNode("c", nodeText{v4: "10.8.0.8/24", v6: "fd08::8/64", vxlan: "10.1.2.64",
		vxlan6: "fd10::80"})
	four := poolText{cidr: "10.1.0.0/16", ipip: w.draw("ipipMode", "CrossSubnet", "Always")}
	if rapid.Bool().Draw(w.t, "VXLAN") {
		four.ipip, four.vxlan = four.vxlan, four.ipip
	}
	w.setPool("p", four)
	w.setPool("q", poolText{cidr: "fd10::/48", vxlan: "CrossSubnet"})
	for _, x := range []struct{ block, host string }{{"10.1.0.0/26", "a"}, {"10.1.2.0/26", "b"},
		{"10.1.2.64/26", "c"}, {"fd10::40/122", "b"}, {"fd10::80/122", "c"}} {
		p := pfx(x.block)
		w.setBlock(p, blockText{affinity: "host:" + x.host})
		if !w.l.bgp || x.host == literalSelf {
			continue
		}
		w.l.learned[p] = []netip.Addr{w.nodes[x.host].address(p.Addr().Is6()).Addr()}
		if p.Addr().Is4() && rapid.Bool().Draw(w.t, "multipath") {
			w.l.learned[p] = []netip.Addr{addr("10.0.0.8"), addr("10.8.0.8")}
		}
	}
}

// addUplink is what VPP has from its start-up script.
func addUplink(s *vpptest.Server) {
	s.AddInterface(literalUplink, literalOwn...)
	for to, by := range map[string]string{"0.0.0.0/0": "10.0.0.254", "::/0": "fd00::fe"} {
		s.InjectForeignRoute("CLI", route.Route{Key: key(to), Paths: []route.Path{
			{NextHop: addr(by), Interface: literalUplink, Weight: 1}}})
	}
}

func (w *tunnelWalker) start() {
	log := slog.New(slog.DiscardHandler)
	v := vpp.New(vpp.Config{Dial: w.server.Dial, Log: log})
	w.engine = fib.New(fib.Config{Dataplane: v, Journal: w.journal, Log: log, Tuning: fib.Tuning{
		SpotChecks: 1, RepairDrift: true, GuardShare: 0.3, GuardMinimum: 1}})
	w.snapshots = make(datastoreStub, 1)
	w.speaker = &speaker{history: &history{}, changed: make(chan struct{}, 1)}
	cfg := Config{
		Node: literalSelf, Dataplane: "vpp", Datastore: w.snapshots, FIB: w.engine, Log: log,
		Settings: Settings{Deferral: 30 * time.Second, EncapPause: 2 * time.Second,
			BGP: bgp.Options{Tunnels: []route.Encap{route.IPIP, route.VXLAN}}},
	}
	if w.l.bgp {
		cfg.Speaker = w.speaker
	}
	if w.l.ipam {
		cfg.EtcdRoutes = []ipam.AddressSource{ipam.NodeObject}
	}
	w.agent = New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, part := range []func(context.Context) error{v.Run, w.engine.Run, w.agent.Run} {
		all.Go(func() {
			if err := part(ctx); err != nil {
				panic(err)
			}
		})
	}
	w.stop = func() { cancel(); all.Wait() }

	w.store = calico.NewStoreFor(literalSelf, calico.Needs{NoBGP: !w.l.bgp,
		Hosts: calico.DefaultHosts, VXLAN: true})
	for _, k := range slices.Sorted(maps.Keys(w.written)) {
		w.store.Put(k, w.written[k])
	}
	w.lists++
	w.publish()
	for _, p := range slices.SortedFunc(maps.Keys(w.l.learned), route.ComparePrefixes) {
		w.hand(p, w.l.learned[p])
	}
}

// crash: the new process knows nothing of what cannot be read any more, and perhaps has lost the
// journal.
func (w *tunnelWalker) crash() {
	if rapid.Bool().Draw(w.t, "killed") { // it does not leave VPP's API in an orderly way
		w.server.DropConnections()
	}
	w.stop()
	if rapid.IntRange(0, 3).Draw(w.t, "journal lost") == 0 {
		os.Remove(w.journal)
	}
	clear(w.l.nodes)
	for name, n := range w.nodes {
		w.countNode(name, n)
	}
	maps.DeleteFunc(w.l.pools, func(name string, _ poolText) bool {
		return w.pools[name].cidr == garbage
	})
	maps.DeleteFunc(w.l.blocks, func(p netip.Prefix, _ blockText) bool {
		return !w.blocks[p].isReadable()
	})
	w.start()
}

func (w *tunnelWalker) publish() {
	s := w.store.Snapshot(1)
	s.Lists = w.lists
	calico.Deliver(w.snapshots, s)
}

func (w *tunnelWalker) put(k calico.Key, value string) {
	if w.written[k.String()] = []byte(value); w.store != nil {
		w.store.Put(k.String(), []byte(value))
		w.publish()
	}
}

func (w *tunnelWalker) remove(k calico.Key) {
	delete(w.written, k.String())
	w.store.Delete(k.String())
	w.publish()
}

// list: the newest snapshot comes from a list.
func (w *tunnelWalker) list() { w.lists++; w.publish() }

func (w *tunnelWalker) draw(what string, from ...string) string {
	return rapid.SampledFrom(from).Draw(w.t, what)
}

const garbage = "10.0.0.300/24"

var walkedNodes = []string{"b", "c", "d", "e"}

func (w *tunnelWalker) node() {
	name := w.draw("node", walkedNodes...)
	if rapid.IntRange(0, 4).Draw(w.t, "gone") == 0 {
		delete(w.nodes, name)
		delete(w.l.nodes, name)
		w.remove(calico.Key{Kind: calico.KindNode, Name: name})
		return
	}
	n := nodeText{
		v4: w.draw("v4", "10.0.0.8/24", "10.0.0.9/24", "10.8.0.8/24", "10.8.0.9/24", "10.8.0.8",
			"10.0.0.1/24", ""),
		v6:     w.draw("v6", "fd00::8/64", "fd08::8/64", "fd08::9/64", ""),
		ipip:   w.draw("IPIP", "10.1.9.1", ""),
		vxlan:  w.draw("VXLAN", "10.1.9.2", "10.1.9.3", ""),
		vxlan6: w.draw("VXLAN of IPv6", "fd10::9:1", "fd10::9:2", ""),
		mac: w.draw("MAC", "66:00:00:00:00:09", "", "66:00:00:00:00:08", "6600",
			"01:00:00:00:00:09"),
		mac6: w.draw("MAC of IPv6", "66:00:00:00:06:09", "", "garbage"),
	}
	fields := []*string{&n.v4, &n.v6, &n.ipip, &n.vxlan, &n.vxlan6}
	if i := rapid.IntRange(0, 4*len(fields)).Draw(w.t, "garbage"); i < len(fields) {
		*fields[i] = garbage
	}
	w.setNode(name, n)
}

// ownAddresses have lengths by which CrossSubnet takes the node behind the router for near, or the
// neighbour for far.
var ownAddresses = []string{"10.0.0.1/24", "10.0.0.1/12", "10.0.0.1", "10.0.0.4/24"}

func (w *tunnelWalker) thisNode() {
	n := nodeText{
		v4:     w.draw("v4", ownAddresses...),
		v6:     w.draw("v6", "fd00::1/64", ""),
		ipip:   w.draw("IPIP", "10.1.0.1", "10.1.0.3", ""),
		vxlan:  w.draw("VXLAN", "10.1.0.2", "10.1.0.4", ""),
		vxlan6: w.draw("VXLAN of IPv6", "fd10::1", ""),
		mac:    w.draw("MAC", "66:00:00:00:00:01", "", "66-00-00-00-00-02", "garbage"),
		mac6:   w.draw("MAC of IPv6", "66:00:00:00:06:01", ""),
	}
	if !w.l.bgp && rapid.IntRange(0, 4).Draw(w.t, "no address") == 0 {
		n.v4 = "" // with BGP the Node would count as it was
	}
	w.setNode(literalSelf, n)
}

func (w *tunnelWalker) setNode(name string, n nodeText) {
	w.nodes[name] = n
	w.countNode(name, n)
	w.put(calico.Key{Kind: calico.KindNode, Name: name}, spec(map[string]any{
		"bgp": map[string]string{"ipv4Address": n.v4, "ipv6Address": n.v6,
			"ipv4IPIPTunnelAddr": n.ipip},
		"ipv4VXLANTunnelAddr": n.vxlan, "ipv6VXLANTunnelAddr": n.vxlan6,
		"vxlanTunnelMACAddr": n.mac, "vxlanTunnelMACAddrV6": n.mac6}))
}

// countNode has what counts of a Node: one wrong address of BGP leaves it as it was, that of a
// tunnel itself alone, and a wrong MAC address is none.
func (w *tunnelWalker) countNode(name string, n nodeText) {
	if n.v4 == garbage || n.v6 == garbage {
		return
	}
	before := w.l.nodes[name]
	for _, f := range []struct{ is, was *string }{{&n.ipip, &before.ipip},
		{&n.vxlan, &before.vxlan}, {&n.vxlan6, &before.vxlan6}} {
		if *f.is == garbage {
			*f.is = *f.was
		}
	}
	w.l.nodes[name] = n
}

func spec(fields map[string]any) string {
	b, err := json.Marshal(map[string]any{"spec": fields})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func (w *tunnelWalker) pool() {
	name := w.draw("pool", "p", "q", "r")
	k := calico.Key{Kind: calico.KindIPPool, Name: name}
	if rapid.IntRange(0, 4).Draw(w.t, "gone") == 0 {
		delete(w.pools, name)
		delete(w.l.pools, name)
		w.remove(k)
		return
	}
	modes := []string{"Never", "Always", "CrossSubnet", "", "Never", "Always", "CrossSubnet",
		"Always", "Never", "Sometimes"}
	w.setPool(name, poolText{
		cidr: w.draw("CIDR", "10.1.0.0/16", "10.1.2.0/24", "10.2.0.0/16", "10.8.0.0/16",
			"fd10::/48", "10.1.0.0/16", "fd10::/48", garbage),
		ipip: w.draw("ipipMode", modes...), vxlan: w.draw("vxlanMode", modes...),
	})
}

func (w *tunnelWalker) setPool(name string, p poolText) {
	if w.pools[name] = p; p.cidr != garbage {
		w.l.pools[name] = poolText{p.cidr, modeOf(p.ipip), modeOf(p.vxlan)}
	}
	w.put(calico.Key{Kind: calico.KindIPPool, Name: name}, spec(map[string]any{
		"cidr": p.cidr, "ipipMode": p.ipip, "vxlanMode": p.vxlan}))
}

// modeOf is the mode that counts.
func modeOf(text string) string {
	if text == "Sometimes" {
		return "Never"
	}
	return text
}

var walkedBlocks = []string{"10.1.0.0/26", "10.1.2.0/26", "10.1.2.64/26", "10.2.3.0/26",
	"10.8.0.0/26", "10.9.0.0/26", "fd10::40/122", "fd10::80/122"}

func (w *tunnelWalker) block() {
	p := pfx(w.draw("block", walkedBlocks...))
	k := calico.Key{Kind: calico.KindBlock, CIDR: p}
	if rapid.IntRange(0, 4).Draw(w.t, "gone") == 0 {
		delete(w.blocks, p)
		delete(w.l.blocks, p)
		w.remove(k)
		return
	}
	b := blockText{affinity: w.draw("affinity", "host:a", "host:b", "host:c", "host:d", "host:x",
		"", "somebody"), allocated: map[int]string{}}
	for i := range 2 {
		b.allocated[6+i] = w.draw("allocated", "", "", "a", "b", "c", "e", "x")
	}
	w.setBlock(p, b)
}

func (w *tunnelWalker) setBlock(p netip.Prefix, b blockText) {
	var indices []*int
	var attributes []map[string]any
	for i := range 8 {
		on := b.allocated[i]
		if on == "" {
			indices = append(indices, nil)
			continue
		}
		indices = append(indices, new(len(attributes)))
		attributes = append(attributes, map[string]any{"handle_id": "h",
			"secondary": map[string]string{"node": on}})
	}
	value, err := json.Marshal(map[string]any{"cidr": p.String(), "affinity": b.affinity,
		"allocations": indices, "attributes": attributes})
	if err != nil {
		panic(err)
	}
	if w.blocks[p] = b; b.isReadable() {
		w.l.blocks[p] = b
	}
	w.put(calico.Key{Kind: calico.KindBlock, CIDR: p}, string(value))
}

func (b blockText) isReadable() bool {
	return b.affinity == "" || strings.HasPrefix(b.affinity, "host:")
}

func (w *tunnelWalker) affinity() {
	p := pfx(w.draw("block", walkedBlocks...))
	k := calico.Key{Kind: calico.KindBlockAffinity, Owner: calico.Owner{Host: literalSelf}, CIDR: p}
	if w.l.affinities[p] {
		delete(w.l.affinities, p)
		w.remove(k)
		return
	}
	w.l.affinities[p] = true
	w.put(k, `{"state":"confirmed"}`)
}

// learn has BGP's best paths to a prefix change.
func (w *tunnelWalker) learn() {
	if !w.l.bgp {
		return
	}
	p := pfx(w.draw("prefix", append(walkedBlocks, "10.1.0.0/16", "10.1.2.7/32", "10.7.0.0/24",
		"10.8.0.0/24", "10.8.0.8/32", "fd08::/64")...))
	hops := []string{"10.0.0.8", "10.0.0.9", "10.0.0.77", "10.8.0.8", "10.8.0.9", "10.8.0.200",
		"10.0.0.1"}
	if p.Addr().Is6() {
		hops = []string{"fd00::8", "fd00::77", "fd08::8", "fd08::9"}
	}
	w.l.learned[p] = nil
	for _, s := range rapid.SliceOfNDistinct(rapid.SampledFrom(hops), 0, 3, rapid.ID).Draw(w.t,
		"next hops") {
		w.l.learned[p] = append(w.l.learned[p], addr(s))
	}
	w.hand(p, w.l.learned[p])
}

func (w *tunnelWalker) hand(p netip.Prefix, hops []netip.Addr) {
	var paths []bgp.Path
	for _, a := range hops {
		paths = append(paths, bgp.Path{NextHop: a, LocalPref: 100})
	}
	Learner{w.engine}.Learned(p, paths)
}

func (w *tunnelWalker) setFelix() {
	number := func(what string, all ...int) int {
		return rapid.SampledFrom(all).Draw(w.t, what)
	}
	f := felixText{port: number("port", 0, 4790, 70000), vni: number("VNI", 0, 7, 1<<24),
		ipipMTU: number("IPIP MTU", 0, 1400, 20), vxlanMTU: number("MTU", 0, 1410, 1<<16),
		vxlanMTUV6: number("MTU of IPv6", 0, 1390, 9900),
		noIPIP:     number("no IPIP", 0, 0, 1) == 1, noVXLAN: number("no VXLAN", 0, 0, 1) == 1}
	w.l.felix = f
	w.put(calico.Key{Kind: calico.KindFelixConfiguration, Name: "default"}, spec(map[string]any{
		"vxlanPort": f.port, "vxlanVNI": f.vni, "ipipMTU": f.ipipMTU, "vxlanMTU": f.vxlanMTU,
		"vxlanMTUV6": f.vxlanMTUV6, "ipipEnabled": !f.noIPIP, "vxlanEnabled": !f.noVXLAN}))
}

func (w *tunnelWalker) restartVPP() {
	if err := w.server.Restart(addUplink); err != nil {
		panic(err)
	}
	w.orphans = false
}

// cut ends the connection after so many messages.
func (w *tunnelWalker) cut() {
	left := rapid.IntRange(0, 30).Draw(w.t, "after")
	w.server.CutAt(func(api.Message) bool { left--; return left < 0 })
}

// refuse has VPP refuse some messages until the next fault, or the end.
func (w *tunnelWalker) refuse() {
	name := w.draw("refused", "vxlan_add_del_tunnel_v3", "sw_interface_set_unnumbered",
		"sw_interface_set_mac_address", "sw_interface_set_mtu", "sw_interface_set_flags",
		"sw_interface_tag_add_del", "ip_neighbor_add_del", "teib_entry_add_del",
		"ipip_add_tunnel", "create_loopback_instance", "ip_route_add_del_v2", "add_node_next")
	each, n := rapid.IntRange(1, 3).Draw(w.t, "each"), 0
	w.server.Refuse(func(m api.Message) int32 {
		if m.GetMessageName() != name {
			return 0
		}
		if n++; n%each > 0 {
			return 0
		}
		return int32(api.UNSPECIFIED)
	})
}

func (w *tunnelWalker) heal() {
	w.server.CutAt(nil)
	w.server.Refuse(nil)
}

// steal is another's hand on interfaces of ours.
func (w *tunnelWalker) steal() {
	synctest.Wait()
	var ours []string
	for _, name := range w.server.Interfaces() {
		if name != "local0" && name != literalUplink {
			ours = append(ours, name)
		}
	}
	if slices.Sort(ours); len(ours) > 0 {
		name := rapid.SampledFrom(ours).Draw(w.t, "stolen")
		w.server.RemoveInterface(name)
		w.orphans = w.orphans || strings.HasSuffix(name, ":tunl0")
	}
}

// spoil is another's hand on a tunnel that stays.
func (w *tunnelWalker) spoil() {
	synctest.Wait()
	all := slices.Sorted(maps.Keys(w.server.VXLANFarEnds()))
	if len(all) == 0 {
		return
	}
	name := rapid.SampledFrom(all).Draw(w.t, "spoiled")
	switch w.draw("what", "neighbour", "MAC", "down") {
	case "neighbour":
		w.server.ChangeVXLAN(name, w.draw("neighbour", "", "66:00:00:00:09:09"), "")
	case "MAC":
		w.server.ChangeVXLAN(name, "", "66:00:00:00:09:09")
	case "down":
		w.server.SetLink(name, false)
	}
}

func (w *tunnelWalker) pause() {
	time.Sleep(time.Duration(rapid.IntRange(0, 5000).Draw(w.t, "ms")) * time.Millisecond)
}

// settle ends all faults and compares.
func (w *tunnelWalker) settle() {
	w.heal()
	// A suspicious list is believed, a former mode is over, and no back-off is longer.
	time.Sleep(2*formerHold + lostNodesHold + time.Minute)
	synctest.Wait()

	want := w.l.tunnels()
	links := []string{"local0", literalUplink}
	for name, mtu := range want.mtus {
		links = append(links, name)
		if _, got := w.server.Made(name); got != mtu {
			w.note("MTU %d of %s, want %d", got, name, mtu)
		}
	}
	for _, text := range want.vxlan {
		_, far, _ := strings.Cut(text, ">")
		links = append(links, "vxlan "+strings.Fields(far)[0])
	}
	var there []string
	for _, name := range w.server.Interfaces() {
		if _, rest, ours := strings.Cut(name, ":"); ours {
			_, name, _ = strings.Cut(rest, ":")
		}
		there = append(there, name)
	}
	if slices.Sort(links); !slices.Equal(slices.Sorted(slices.Values(there)), links) {
		w.note("VPP has the interfaces %q, want %q", there, links)
	}
	got := w.server.Endpoints("tunl0")
	if w.orphans {
		got = slices.DeleteFunc(got, func(a netip.Addr) bool {
			return !slices.Contains(want.ipip, a)
		})
	}
	if got = slices.Compact(got); !slices.Equal(got, want.ipip) {
		w.note("IPIP leads to %v, want %v", got, want.ipip)
	}
	if got := w.server.VXLANTunnels(); !slices.Equal(got, want.vxlan) {
		w.note("VXLAN tunnels\n%s\nwant\n%s", strings.Join(got, "\n"),
			strings.Join(want.vxlan, "\n"))
	}
	w.compareRoutes()
	if len(w.wrong) > 0 {
		slices.Sort(w.wrong)
		text := w.said() + "\n" + strings.Join(w.wrong, "\n")
		w.tell(text)
		w.t.Log(text)
		w.t.FailNow() // without the text: rapid makes a failure smaller only if it says the same
	}
}

func (w *tunnelWalker) note(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

func (w *tunnelWalker) compareRoutes() {
	want, far := w.l.routes(), w.server.VXLANFarEnds()
	got := map[netip.Prefix]string{}
	for _, r := range w.server.Routes("vpp-route-agent") {
		var paths []string
		for _, p := range r.Paths {
			outer, isIPIP := route.EndpointBehind(route.Path{Interface: "tunl0",
				NextHop: p.NextHop})
			switch to, isVXLAN := far[p.Interface]; {
			case isVXLAN:
				paths = append(paths, fmt.Sprint("VXLAN ", to))
			case isIPIP:
				paths = append(paths, fmt.Sprint("IPIP ", outer))
			default:
				paths = append(paths, strings.TrimSpace(fmt.Sprintf("via %s %s", p.NextHop,
					p.Interface)))
			}
		}
		if r.Kind == route.Drop {
			paths = append(paths, "drop")
		}
		slices.Sort(paths)
		got[r.Prefix] = strings.Join(paths, ", ")
	}
	for p := range want {
		if got[p] != want[p] {
			w.note("%s: %q, want %q", p, got[p], want[p])
		}
	}
	for p, text := range got {
		if want[p] == "" {
			w.note("%s: %q, want none", p, text)
		}
	}
}

// said is what the agent says.
func (w *tunnelWalker) said() string {
	var all []string
	for _, t := range w.agent.Tunnels() {
		all = append(all, fmt.Sprintf("tunnel %+v", t))
	}
	for _, o := range w.engine.Objects() {
		all = append(all, fmt.Sprintf("object %+v", o))
	}
	for _, p := range w.agent.Status().Problems {
		all = append(all, fmt.Sprintf("problem %+v", p))
	}
	return strings.Join(all, "\n")
}
