package main

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"vpp-route-agent/internal/external/proto/ligato/configurator"
	"vpp-route-agent/internal/external/proto/ligato/vpp"
	"vpp-route-agent/internal/external/proto/ligato/vpp/l3"
)

var callsCommand = verbs(map[string]command{
	"start": callsStart, "stop": callsStop, "kept": callsKept,
})

// caller puts one route after the other into the agent by gRPC, and each again until the agent
// acknowledges it.
type caller struct {
	socket string
	cancel context.CancelFunc
	done   sync.WaitGroup

	// owned by run until done
	acknowledged []netip.Prefix
	refused      int           // calls
	longest      time.Duration // between two acknowledgements
	err          error         // no client would try again after it
}

// calls start: a client calls $WORK/external.sock all the time.
func callsStart(sc *script, _ []string) (string, error) {
	if sc.caller != nil {
		return "", usage("a client calls already")
	}
	ctx, cancel := context.WithCancel(context.Background())
	sc.caller = &caller{socket: sc.path("external.sock"), cancel: cancel}
	sc.caller.done.Go(func() { sc.caller.run(ctx) })
	return "", nil
}

// ofAStart is how many times as long as a program takes to start a hand-over may last.
const ofAStart = 20

// calls stop DURATION: every call was acknowledged at last, none later than that after the one
// before, or than a hand-over may last on a busy machine.
func callsStop(sc *script, args []string) (string, error) {
	if sc.caller == nil || len(args) != 1 {
		return "", usage("calls stop DURATION, after calls start")
	}
	most, err := time.ParseDuration(args[0])
	if err != nil {
		return "", usage("%v", err)
	}
	c := sc.caller
	c.stop()
	cmd, began := exec.Command("vpp-route-agent", "version"), time.Now()
	cmd.Env = append(slices.Clip(sc.env.Vars), "GORACE="+raceOptions)
	if err := cmd.Run(); err != nil {
		return "", err
	}
	start := time.Since(began)
	most = max(most, ofAStart*start)
	said := fmt.Sprintf("%d routes acknowledged, %d calls refused, the longest pause %v; "+
		"a program starts in %v\n", len(c.acknowledged), c.refused,
		c.longest.Round(time.Millisecond), start.Round(time.Millisecond))
	if c.err != nil || c.longest > most || len(c.acknowledged) == 0 {
		return "", fmt.Errorf("%s%v", said, c.err)
	}
	return said, nil
}

// calls kept: VPP has all routes that were acknowledged.
func callsKept(sc *script, _ []string) (string, error) {
	if sc.caller == nil {
		return "", usage("calls kept, after calls stop")
	}
	has := map[netip.Prefix]bool{}
	for _, r := range sc.vpp.server.Routes("vpp-route-agent") {
		has[r.Key.Prefix] = true
	}
	for _, p := range sc.caller.acknowledged {
		if !has[p] {
			return "", fmt.Errorf("%v was acknowledged, and VPP has it not", p)
		}
	}
	return "", nil
}

func (c *caller) stop() {
	c.cancel()
	c.done.Wait()
}

func (c *caller) run(ctx context.Context) {
	last := time.Now()
	for i := 0; ctx.Err() == nil; {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 64, byte(i >> 8), byte(i)}), 32)
		err := c.put(ctx, prefix)
		c.longest = max(c.longest, time.Since(last))
		switch {
		case err == nil:
			c.acknowledged = append(c.acknowledged, prefix)
			last = time.Now()
			i++
		case ctx.Err() != nil:
		case status.Code(err) != codes.Unavailable:
			c.err = err
			return
		default:
			c.refused++
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func (c *caller) put(ctx context.Context, p netip.Prefix) error {
	conn, err := grpc.NewClient("unix:"+c.socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	route := &l3.Route{DstNetwork: p.String(), NextHopAddr: "10.9.0.7"}
	_, err = configurator.NewConfiguratorServiceClient(conn).Update(ctx,
		&configurator.UpdateRequest{Update: &configurator.Config{
			VppConfig: &vpp.ConfigData{Routes: []*l3.Route{route}}}})
	return err
}
