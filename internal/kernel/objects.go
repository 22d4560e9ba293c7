package kernel

import (
	"context"
	"fmt"

	"vpp-route-agent/internal/route"
)

// objectKind is how Linux keeps the objects of one kind. Each kind has a file of its own.
type objectKind struct {
	read   func(*Dataplane, route.ObjectKey) (route.Object, error)
	put    func(*Dataplane, route.Object) error
	remove func(*Dataplane, route.ObjectKey) error
}

var objectKinds = map[route.ObjectKind]objectKind{
	route.AdminUp:          {readUp, putUp, leaveUp},
	route.InterfaceAddress: {readAddress, putAddress, removeAddress},
	route.StaticNeighbour:  {readNeighbour, putNeighbour, removeNeighbour},
	route.MadeLink:         {readMade, putMade, removeMade},
	route.TunnelEndpoint:   {readVTEP, putVTEP, removeVTEP},
	route.KernelRoute:      {readLinuxRoute, putLinuxRoute, removeLinuxRoute},
}

// Object implements fib.Dataplane.
func (d *Dataplane) Object(_ context.Context, k route.ObjectKey) (o route.Object, err error) {
	err = withKind(k, func(kind objectKind) (err error) {
		o, err = kind.read(d, k)
		return err
	})
	return o, err
}

// PutObject implements fib.Dataplane.
func (d *Dataplane) PutObject(_ context.Context, o route.Object) error {
	return withKind(o.Key(), func(kind objectKind) error { return kind.put(d, o) })
}

// DeleteObject implements fib.Dataplane.
func (d *Dataplane) DeleteObject(_ context.Context, k route.ObjectKey) error {
	return withKind(k, func(kind objectKind) error { return kind.remove(d, k) })
}

func withKind(k route.ObjectKey, do func(objectKind) error) error {
	kind, ok := objectKinds[k.Kind]
	if !ok {
		return fmt.Errorf("kernel: %s: unknown kind", k)
	}
	if err := do(kind); err != nil {
		return fmt.Errorf("kernel: %w", err)
	}
	return nil
}
