package gobgp

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"vpp-route-agent/bgp"
)

// whoCalls is a Sink that counts its calls, and those by the goroutine that reads from a peer.
type whoCalls struct {
	Sink
	all, byReader atomic.Int32
}

func calledByReader() bool {
	stack := make([]byte, 64<<10)
	return strings.Contains(string(stack[:runtime.Stack(stack, false)]), "recvMessageloop")
}

func (w *whoCalls) Learned(p netip.Prefix, paths []bgp.Path) {
	if calledByReader() {
		w.byReader.Add(1)
	}
	w.all.Add(1)
	w.Sink.Learned(p, paths)
}

// An UPDATE that comes alone reaches the Sink without another goroutine; a stream does not, since
// it is faster where reading goes on meanwhile.
func TestUpdateAlone(t *testing.T) {
	const peer = "127.0.0.172"
	var sink whoCalls
	n := newLabAlone(t).node(64512, func(c *Config) { sink.Sink, c.Sink = c.Sink, &sink })
	n.farPeer(peer, 64512)
	set(t, n)
	f := dialFar(t, n, peer, 64512, 90, true)
	f.endOfRIB()
	const changes = 100
	for i := range int32(changes) {
		time.Sleep(2 * time.Millisecond)
		f.announce("10.6.0.0/26", fmt.Sprintf("192.0.2.%d", 1+i))
		eventually(t, "calls", i+1, sink.all.Load)
	}
	if n := sink.byReader.Load(); n < changes/2 { // each look at the peers occupies GoBGP
		t.Errorf("%d of %d UPDATEs were handled by the goroutine that had read them", n, changes)
	}

	before := sink.byReader.Load()
	var many []byte
	for i := range 1000 {
		b, err := packet.NewBGPUpdateMessage(nil, pathAttributes("192.0.2.1", 100),
			[]*packet.IPAddrPrefix{ipv4(0, fmt.Sprintf("10.7.%d.%d/32", i/250, i%250))}).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		many = append(many, b...)
	}
	f.conn.Write(many)
	eventually(t, "calls", changes+1000, func() int { return int(sink.all.Load()) })
	if n := sink.byReader.Load() - before; n > 100 {
		t.Errorf("%d of 1000 UPDATEs of a stream were handled by the goroutine that reads", n)
	}
}

// slowReader is a Sink that the goroutine that reads from a peer waits in.
type slowReader struct {
	Sink
	waits, resume chan struct{}
}

func (s *slowReader) Learned(p netip.Prefix, paths []bgp.Path) {
	if calledByReader() {
		select {
		case s.waits <- struct{}{}:
		default:
		}
		<-s.resume
	}
	s.Sink.Learned(p, paths)
}

// waitInSink returns a node whose goroutine that reads from a peer waits in the Sink.
func waitInSink(t *testing.T, peer string, hold uint16) (*node, *far, *slowReader) {
	sink := &slowReader{waits: make(chan struct{}, 1), resume: make(chan struct{})}
	n := newLabAlone(t).node(64512, func(c *Config) { sink.Sink, c.Sink = c.Sink, sink })
	n.farPeer(peer, 64512)
	set(t, n)
	f := dialFar(t, n, peer, 64512, hold, true)
	f.endOfRIB()
	for i := 1; ; i++ {
		f.announce("10.6.0.0/26", fmt.Sprintf("192.0.2.%d", 1+i%200))
		select {
		case <-sink.waits:
			return n, f, sink
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// wantAnswer: GoBGP waits for nobody.
func (n *node) wantAnswer(sink *slowReader) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 3*time.Second)
	defer cancel()
	err := n.ask(ctx, func(ctx context.Context) error {
		_, err := n.applied.server.GetBgp(ctx, &api.GetBgpRequest{})
		return err
	})
	if err != nil {
		close(sink.resume)
		n.t.Fatal(err)
	}
}

// The Sink may wait for a disk. GoBGP answers meanwhile, and the peer that is not read keeps its
// session.
func TestUpdateAloneWaitsInTheSink(t *testing.T) {
	const peer, hold = "127.0.0.186", 9
	n, f, sink := waitInSink(t, peer, hold)
	for end := time.Now().Add((hold + 2) * time.Second); time.Now().Before(end); {
		n.wantAnswer(sink)
		n.Counters()
		time.Sleep(100 * time.Millisecond)
	}
	close(sink.resume)
	f.announce("10.6.0.64/26", "192.0.2.201")
	n.wantHops("10.6.0.64/26", "192.0.2.201")
	if s := n.farState(peer); !s.Established || s.Flaps > 0 {
		t.Errorf("the session: %+v", s)
	}
}

// Nor does GoBGP wait for the goroutine of a peer that is removed meanwhile.
func TestPeerIsRemovedWhileItWaitsInTheSink(t *testing.T) {
	n, f, sink := waitInSink(t, "127.0.0.187", 90)
	f.announce("10.6.0.64/26", "192.0.2.201")
	n.plan.Peers = nil
	set(t, n)
	for range 10 {
		n.wantAnswer(sink)
		time.Sleep(100 * time.Millisecond)
	}
	close(sink.resume)
}

// GoBGP waits for the goroutines of a session that it ends. One of them may have read an UPDATE and
// be about to handle it.
func TestUpdatesAloneWhileThePeerIsRestarted(t *testing.T) {
	const peer = "127.0.0.173"
	n := newLab(t).node(64512)
	n.farPeer(peer, 64512)
	set(t, n)
	for i := range 10 {
		f := dialFar(t, n, peer, 64512, 90, true)
		eventually(t, "up", true, func() bool { return n.farState(peer).Established })
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for k := range 200 {
				f.announce("10.8.0.0/26", fmt.Sprintf("192.0.2.%d", 1+k))
				time.Sleep(100 * time.Microsecond)
			}
		}()
		time.Sleep(time.Duration(i) * 2 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		err := n.ask(ctx, func(ctx context.Context) error {
			n.restartPeer(ctx, first(peer), "a test")
			return nil
		})
		cancel()
		if err != nil {
			t.Fatal("restart ", i, ": ", err)
		}
		<-sent
		f.close()
	}
}

// Many peers at once send UPDATEs that each come alone, while sessions break and peers are
// restarted. Who asks GoBGP does not wait for an end of that, and what a peer said last counts.
func TestManyPeersSendUpdatesAlone(t *testing.T) {
	const peers = 12
	n := newLabAlone(t).node(64512)
	address := func(i int) string { return fmt.Sprintf("127.0.0.%d", 174+i) }
	for i := range peers {
		n.farPeer(address(i), 64512)
		n.plan.Peers[i].Client = true
	}
	n.plan.Policies.Reflects = true
	n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
	set(t, n)

	stop := make(chan struct{})
	var sending sync.WaitGroup
	live := make([]*far, peers)
	for i := range peers {
		live[i] = dialFar(t, n, address(i), 64512, 90, true, gracefulCap(false),
			packet.NewCapRouteRefresh())
		if i < 2 { // these two lose their sessions
			continue
		}
		sending.Go(func() {
			f, prefix := live[i], fmt.Sprintf("10.9.%d.0/26", i)
			for k := 0; ; k++ {
				select {
				case <-stop:
					f.announce(prefix, fmt.Sprintf("192.0.2.%d", 100+i))
					f.withdraw(fmt.Sprintf("10.10.%d.0/26", i))
					return
				default:
				}
				f.announce(prefix, fmt.Sprintf("198.51.100.%d", 1+k%200))
				f.announce(fmt.Sprintf("10.10.%d.0/26", i), "192.0.2.1")
				time.Sleep(200 * time.Microsecond) // what waits in a socket comes as a stream
				switch k % 64 {
				case 7:
					f.refresh()
				case 15:
					f.endOfRIB()
				case 31:
					f.withdraw(prefix)
				}
			}
		})
	}
	var longest time.Duration
	for i := range 30 {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		err := n.ask(ctx, func(ctx context.Context) error {
			if i%3 == 2 {
				n.restartPeer(ctx, first(address(0)), "a test")
			}
			return nil
		})
		n.Peers()
		cancel()
		if err != nil {
			t.Fatal("question ", i, ": ", err)
		}
		longest = max(longest, time.Since(began))
		if i%10 == 5 {
			live[1].close()
			live[1] = dialFar(t, n, address(1), 64512, 90, true, gracefulCap(true))
			live[1].endOfRIB()
		}
		time.Sleep(20 * time.Millisecond)
	}
	close(stop)
	sending.Wait()
	t.Log("an answer took at most ", longest)
	if longest > 5*time.Second {
		t.Error("an answer took ", longest)
	}
	for i := 2; i < peers; i++ {
		n.wantHops(fmt.Sprintf("10.9.%d.0/26", i), fmt.Sprintf("192.0.2.%d", 100+i))
		n.wantHops(fmt.Sprintf("10.10.%d.0/26", i))
		if s := n.farState(address(i)); !s.Established || s.Flaps > 0 {
			t.Errorf("the session with %s: %+v", address(i), s)
		}
	}
}
