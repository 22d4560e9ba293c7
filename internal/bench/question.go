package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/testcluster"
)

// mostDelay is how long a question may keep GoBGP from its other work, in ms.
const mostDelay = 50

// question has an agent that is a client of many reflectors answer a question of the reflector
// controller, and takes how long others wait for GoBGP meanwhile. Each reflector passes on a block
// of every client, as each does in the topology single: no other has more copies of a route.
func question(reflectors int) func(*lab) error {
	return func(l *lab) error {
		b, clients := l.b, l.nodes-reflectors
		resources := testcluster.NoMesh + testcluster.ToReflectors
		for i := range reflectors {
			resources += testcluster.ReflectorNode(fmt.Sprintf("peer-%d", i), clusterID,
				fmt.Sprintf("ipv4Address: %s/16", peerAddress(i)))
		}
		if err := l.apply(resources); err != nil {
			return err
		}
		n, err := l.startAgent("state", "--dataplane", "none", "--publish-status")
		if err != nil {
			return err
		}
		blocks := blockPrefixes(clients)
		all, err := l.meet(reflectors, func(int) []byte {
			var out []byte
			for i, block := range blocks {
				out = append(out, reflected(peerAddress(reflectors+i), block)...)
			}
			return append(out, endOfRIB...)
		}, func(int, []byte) {})
		defer all.close()
		if err := errors.Join(err, n.awaitEndOfRIB()); err != nil {
			return err
		}
		a := &asker{lab: l, node: n}
		if a.grpc, err = l.dialGoBGP(); err != nil {
			return err
		}
		defer a.grpc.Close()
		q := reflector.Question{Leave: "peer-0", Label: "role"}
		if _, err := a.ask(q); err != nil { // what is computed once
			return err
		}
		var took, used, delay, quiet series
		for range b.pick(5, 3) {
			answered, err := a.round(q, &took, &used, &delay, &quiet)
			if err != nil {
				return err
			}
			if c := answered.IPv4; c.Prefixes != clients || c.FewestCopies != reflectors-1 {
				return fmt.Errorf("the answer is %+v", c)
			}
		}
		name := fmt.Sprintf("question, %d reflectors, %d nodes", reflectors, l.nodes)
		note := fmt.Sprintf("%d paths", clients*reflectors)
		b.single(name+": others wait for GoBGP, at most", "ms", delay.median(),
			b.quiet(atMost(mostDelay)), fmt.Sprintf("%s; without a question %.3g", note,
				quiet.median()))
		b.single(name+": answer", "s", took.median(), noBudget, "")
		b.single(name+": CPU of the agent for it", "s", used.median(), noBudget, "")
		return all.alive()
	}
}

// reflected is a route of a client as a reflector passes it on (RFC 4456 §8).
func reflected(owner netip.Addr, prefix netip.Prefix) []byte {
	body := announce(owner, []netip.Prefix{prefix})[testcluster.HeaderLength:]
	id, cluster := owner.As4(), netip.MustParseAddr(clusterID).As4()
	more := append([]byte{0x80, 9, 4}, id[:]...) // ORIGINATOR_ID, CLUSTER_LIST
	more = append(append(more, 0x80, 10, 4), cluster[:]...)
	length := int(body[3])
	out := append([]byte{0, 0, 0, byte(length + len(more))}, body[4:4+length]...)
	return testcluster.AppendMessage(nil, testcluster.MsgUpdate,
		append(append(out, more...), body[4+length:]...))
}

// asker asks an agent through etcd, as a controller does.
type asker struct {
	lab  *lab
	node *node
	grpc *grpc.ClientConn // to its GoBGP
}

// dialGoBGP connects to GoBGP's API in the node's namespace.
func (l *lab) dialGoBGP() (*grpc.ClientConn, error) {
	dial := func(ctx context.Context, address string) (conn net.Conn, err error) {
		err = l.node.Do(func() (err error) {
			conn, err = (&net.Dialer{}).DialContext(ctx, "tcp4", address)
			return err
		})
		return conn, err
	}
	return grpc.NewClient("passthrough:///127.0.0.1:50051", grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// round asks once and takes what that costs, once more with others that wait for GoBGP, and has
// them wait as long without a question.
func (a *asker) round(q reflector.Question, took, used, delay, quiet *series) (
	answered reflector.Answer, err error) {
	before, err := a.node.CPUSeconds()
	if err != nil {
		return answered, err
	}
	start := time.Now()
	if answered, err = a.ask(q); err != nil {
		return answered, err
	}
	span := time.Since(start)
	after, err := a.node.CPUSeconds()
	if err != nil {
		return answered, err
	}
	asked, err := a.longestWait(func() error {
		_, err := a.ask(q)
		return err
	})
	if err != nil {
		return answered, err
	}
	unasked, err := a.longestWait(func() error { time.Sleep(span); return nil })
	const ms = float64(time.Millisecond)
	*took = append(*took, span.Seconds())
	*used = append(*used, after-before)
	*delay = append(*delay, float64(asked)/ms)
	*quiet = append(*quiet, float64(unasked)/ms)
	return answered, err
}

// ask puts the question and waits for its answer.
func (a *asker) ask(q reflector.Question) (answered reflector.Answer, err error) {
	const id = "bench"
	ctx := a.lab.b.ctx
	etcd := a.lab.Data.Client()
	put, err := etcd.Put(ctx, reflector.QuestionKey(id), string(q.Encode()))
	if err != nil {
		return answered, err
	}
	return answered, await(ctx, 2*time.Minute, pollInterval, func() error {
		got, err := etcd.Get(ctx, reflector.AnswerKey("node", id))
		switch {
		case err != nil:
			return err
		case len(got.Kvs) == 0:
			return errors.New("there is no answer")
		}
		if err := json.Unmarshal(got.Kvs[0].Value, &answered); err != nil {
			return err
		}
		if answered.Revision != put.Header.Revision {
			return errors.New("the answer is to an older question")
		}
		return nil
	})
}

// longestWait is the longest that a small request to GoBGP takes while do runs.
func (a *asker) longestWait(do func() error) (longest time.Duration, err error) {
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	client := api.NewGobgpApiClient(a.grpc)
	for {
		start := time.Now()
		if _, err := client.GetBgp(a.lab.b.ctx, &api.GetBgpRequest{}); err != nil {
			return 0, errors.Join(err, <-ended)
		}
		longest = max(longest, time.Since(start))
		select {
		case err := <-ended:
			return longest, err
		default:
		}
	}
}
