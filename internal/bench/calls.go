package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"go.fd.io/govpp/adapter/socketclient"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/core"
)

// calls writes routes one by one through GoVPP's service client, as other agents do.
type calls struct {
	conn *core.Connection
	path fib_types.FibPath
}

func connectCalls(socket string, link uint32, next netip.Addr) (*calls, error) {
	conn, err := core.Connect(socketclient.NewVppClient(socket))
	if err != nil {
		return nil, err
	}
	c := &calls{conn: conn, path: fib_types.FibPath{SwIfIndex: link, Weight: 1}}
	c.path.Nh.Address = ip_types.AddressUnionIP4(next.As4())
	return c, nil
}

func (c *calls) program(
	ctx context.Context, prefixes []netip.Prefix, add bool,
) (time.Duration, error) {
	client := ip.NewServiceClient(c.conn)
	began := time.Now()
	for _, p := range prefixes {
		req := &ip.IPRouteAddDelV2{IsAdd: add, Route: ip.IPRouteV2{
			Prefix: ip_types.Prefix{Len: 32,
				Address: ip_types.Address{Un: ip_types.AddressUnionIP4(p.Addr().As4())}},
		}}
		if add {
			req.Route.Paths = []fib_types.FibPath{c.path}
		}
		if _, err := client.IPRouteAddDelV2(ctx, req); err != nil {
			return 0, fmt.Errorf("one call per route: %s: %w", p, err)
		}
	}
	return time.Since(began), nil
}

func (c *calls) close() { c.conn.Disconnect() }
