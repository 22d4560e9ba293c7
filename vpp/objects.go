package vpp

import (
	"context"
	"errors"
	"fmt"

	"vpp-route-agent/internal/route"
)

// objectKind is how VPP keeps the objects of one kind. Each kind has a file of its own.
type objectKind struct {
	read   func(context.Context, *session, route.ObjectKey) (route.Object, error)
	put    func(context.Context, *session, route.Object) error
	remove func(context.Context, *session, route.ObjectKey) error
}

var objectKinds = map[route.ObjectKind]objectKind{
	route.AdminUp:          {readUp, putUp, removeUp},
	route.InterfaceAddress: {readAddress, putAddress, removeAddress},
	route.VRFTable:         {readTable, putTable, removeTable},
	route.StaticNeighbour:  {readNeighbour, putNeighbour, removeNeighbour},
	route.L2Connected:      {readL2CrossConnect, putL2CrossConnect, removeL2CrossConnect},
	route.L3Connected:      {readL3CrossConnect, putL3CrossConnect, removeL3CrossConnect},
	route.MadeLink:         {readMade, putMade, removeMade},
	route.InterfaceTable:   {readInTable, putInTable, removeInTable},

	route.TunnelEndpoint: {readEndpoint, putEndpoint, removeEndpoint},

	route.ProxyARPInterface: {readProxyARP, putProxyARP, removeProxyARP},
	route.ProxyARPAddresses: {readProxyARPRange, putProxyARPRange, removeProxyARPRange},
}

// Object implements fib.Dataplane.
func (v *VPP) Object(ctx context.Context, k route.ObjectKey) (o route.Object, err error) {
	err = v.withKind(k, func(l *session, kind objectKind) (err error) {
		o, err = kind.read(ctx, l, k)
		return err
	})
	return o, err
}

// PutObject implements fib.Dataplane.
func (v *VPP) PutObject(ctx context.Context, o route.Object) error {
	return v.withKind(o.Key(), func(l *session, kind objectKind) error {
		return changed(l, kind.put(ctx, l, o))
	})
}

// DeleteObject implements fib.Dataplane.
func (v *VPP) DeleteObject(ctx context.Context, k route.ObjectKey) error {
	return v.withKind(k, func(l *session, kind objectKind) error {
		return changed(l, kind.remove(ctx, l, k))
	})
}

func (v *VPP) withKind(k route.ObjectKey, do func(*session, objectKind) error) error {
	l, err := v.current()
	if err != nil {
		return err
	}
	kind, ok := objectKinds[k.Kind]
	if !ok {
		return fmt.Errorf("vpp: %s: unknown kind", k)
	}
	if err := do(l, kind); err != nil {
		return fmt.Errorf("vpp: %w", err)
	}
	return nil
}

// declined is why VPP is not asked to change an object.
type declined string

func (d declined) Error() string { return string(d) }

// changed marks an error that is no answer of VPP's, and has the facts read again.
func changed(l *session, err error) error {
	l.readSoon()
	if err == nil || errors.As(err, new(apiError)) || errors.As(err, new(declined)) ||
		errors.Is(err, route.ErrNoLink) {
		return err
	}
	return fmt.Errorf("%w: %w", route.ErrUnanswered, err)
}

// readSoon has the facts read again: VPP has no event for addresses.
func (l *session) readSoon() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}
