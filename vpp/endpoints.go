package vpp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"vpp-route-agent/internal/route"
)

// Endpoints of tunnels are TEIB entries of an IPIP interface (ipip.go), or interfaces of VPP's each
// (vxlan.go).

func readEndpoint(ctx context.Context, l *session, k route.ObjectKey) (route.Object, error) {
	want, err := route.EndpointOf(k)
	switch {
	case err != nil:
		return nil, err
	case route.EncapBy(k.Interface) == route.VXLAN:
		return readVXLANEndpoint(ctx, l, want)
	}
	return readTEIBEndpoint(ctx, l, want)
}

func putEndpoint(ctx context.Context, l *session, o route.Object) error {
	return applyOne(ctx, l, route.ObjectOp{Key: o.Key(), Put: o})
}

func removeEndpoint(ctx context.Context, l *session, k route.ObjectKey) error {
	return applyOne(ctx, l, route.ObjectOp{Key: k})
}

func applyOne(ctx context.Context, l *session, op route.ObjectOp) (err error) {
	l.applyEndpoints(ctx, []route.ObjectOp{op}, func(_ int, e error) { err = e })
	return err
}

// Objects implements fib.Bulk: the interfaces of tunnels that have our mark, or the endpoints on
// them.
func (v *VPP) Objects(ctx context.Context, kind route.ObjectKind) ([]route.Object, error) {
	l, err := v.current()
	if err != nil {
		return nil, err
	}
	links, err := readDetails(ctx, l.conn)
	switch {
	case err != nil:
		return nil, fmt.Errorf("vpp: %w", err)
	case kind == route.MadeLink:
		return tunnelLinks(links), nil
	case kind != route.TunnelEndpoint:
		return nil, nil
	}
	one, err := l.teibEndpoints(ctx, links)
	if err != nil {
		return nil, fmt.Errorf("vpp: %w", err)
	}
	other, err := l.vxlanEndpoints(ctx, links)
	return slices.Concat(one, other), wrap(err, "vpp")
}

// ApplyObjects implements fib.Bulk.
func (v *VPP) ApplyObjects(ctx context.Context, ops []route.ObjectOp,
	done func(i int, err error)) {
	l, err := v.current()
	for i := range ops {
		if err != nil {
			done(i, err)
		}
	}
	if err == nil {
		l.applyEndpoints(ctx, ops, func(i int, err error) {
			done(i, wrap(err, "vpp"))
		})
	}
}

// endpointOp is one op; done is called once.
type endpointOp struct {
	end  route.Endpoint // of one that goes the key alone
	put  bool
	done func(error)
}

// applyEndpoints changes endpoints, those of a kind in few writes.
func (l *session) applyEndpoints(ctx context.Context, ops []route.ObjectOp,
	done func(i int, err error)) {
	var teib, vxlan []endpointOp
	for i, op := range ops {
		end, err := route.EndpointOf(op.Key)
		if e, ok := op.Put.(route.Endpoint); ok {
			end = e
		}
		x := endpointOp{end: end, put: op.Put != nil, done: func(err error) {
			done(i, wrap(err, "change %s", op.Key))
		}}
		switch {
		case err != nil:
			x.done(err)
		case route.EncapBy(end.Interface) == route.VXLAN:
			vxlan = append(vxlan, x)
		default:
			teib = append(teib, x)
		}
	}
	if len(teib) > 0 {
		l.applyTEIB(ctx, teib)
	}
	if len(vxlan) > 0 {
		l.applyVXLAN(ctx, vxlan)
	}
}

// answer is what VPP says to a request that changes something.
type answer struct {
	index uint32 // of the interface that a request has made
	err   error  // of VPP, or ErrUnanswered
}

// manyRequests go in one write.
const manyRequests = 2048

// change sends requests, many at once, and returns the answer to each.
func change(ctx context.Context, c *conn, reqs []request) (out []answer) {
	for some := range slices.Chunk(reqs, manyRequests) {
		out = append(out, changeSome(ctx, c, some)...)
	}
	return out
}

// changeSome reads of each reply how it begins: with the return value, and then perhaps an index.
func changeSome(ctx context.Context, c *conn, reqs []request) []answer {
	out, answered := make([]answer, len(reqs)), make([]bool, len(reqs))
	_, err := c.call(ctx, reqs, func(i int, _ uint16, msg []byte) error {
		if len(msg) < replyPrefix+4 {
			return fmt.Errorf("%s was answered by %d bytes", reqs[i].GetMessageName(), len(msg))
		}
		answered[i] = true
		out[i].err = vppError(int32(binary.BigEndian.Uint32(msg[replyPrefix:])))
		if len(msg) >= replyPrefix+8 {
			out[i].index = binary.BigEndian.Uint32(msg[replyPrefix+4:])
		}
		return nil
	})
	if err != nil { // the reader may still be in the handler
		out = make([]answer, len(reqs))
	}
	for i := range out {
		switch {
		case err != nil:
			out[i].err = fmt.Errorf("%w: %w", route.ErrUnanswered, err)
		case !answered[i]:
			out[i].err = fmt.Errorf("%w: VPP left request %d of %d unanswered",
				route.ErrUnanswered, i, len(reqs))
		}
	}
	return out
}

// outcomeOf is the first error of answers but those that do not matter.
func outcomeOf(answers []answer, but ...apiError) error {
	for _, a := range answers {
		if a.err != nil && !slices.ContainsFunc(but, func(e apiError) bool {
			return errors.Is(a.err, e)
		}) {
			return a.err
		}
	}
	return nil
}
