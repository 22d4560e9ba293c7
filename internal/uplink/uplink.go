// Package uplink wants one interface of the data plane up, with its configured addresses, and says
// how they stand. The FIB engine sets them, sees that they stay, and removes what was set for an
// earlier configuration. The package does not publish them, and creates neither routes nor
// interfaces.
package uplink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// Config is the interface and its addresses.
type Config struct {
	FIB       *fib.Engine
	Want      func(fib.Source) // hands over what source route.Uplink wants
	Dataplane string           // in messages
	Interface string           // name or index
	Addresses []netip.Prefix
	StateDir  string // where an earlier release has left its record
	Log       *slog.Logger
}

// Uplink follows the interface. Run does the work. All other methods are safe for concurrent use.
type Uplink struct {
	cfg   Config
	ready chan struct{} // closed when all was as wanted for the first time

	// Owned by Run's goroutine:
	name   string // of the interface; "" until the data plane has shown it
	wanted []route.Object

	mu    sync.Mutex // guards what follows
	state State
}

// State is how the interface stood last.
type State struct {
	OK      bool
	Problem string // why not, or a remark
}

// New returns an Uplink that does nothing before Run.
func New(cfg Config) *Uplink {
	return &Uplink{
		cfg: cfg, ready: make(chan struct{}), state: State{Problem: "not looked at yet"},
	}
}

// Ready is closed once the interface has been up with all its addresses.
func (u *Uplink) Ready() <-chan struct{} { return u.ready }

// State returns the current state.
func (u *Uplink) State() State {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state
}

// Run follows the interface until ctx ends. It leaves the interface as it is then.
func (u *Uplink) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-u.cfg.FIB.ObjectsChanged():
			u.note(u.look())
		}
	}
}

func (u *Uplink) note(err error) {
	now := State{OK: err == nil}
	if err != nil {
		now.Problem = err.Error()
	}
	u.mu.Lock()
	was := u.state
	u.state = now
	u.mu.Unlock()
	switch {
	case now == was, errors.Is(err, errNotYet):
	case !now.OK:
		u.cfg.Log.Warn("the uplink is not as it should be", "interface", u.cfg.Interface, "err",
			err)
	default:
		u.cfg.Log.Info("the uplink is up", "interface", u.cfg.Interface, "addresses",
			u.cfg.Addresses)
	}
	if now.OK {
		select {
		case <-u.ready:
		default:
			close(u.ready)
			os.Remove(recordOf(u.cfg.StateDir)) // the engine knows by now
		}
	}
}

// look hands over what is wanted once the data plane has the interface: until then what an earlier
// run has set stays. It returns nil if the interface is as wanted.
func (u *Uplink) look() error {
	f := u.cfg.FIB.Facts()
	if f.Identity == "" {
		return errors.New(cmp.Or(f.Problem, "the data plane is away"))
	}
	i := route.FindLink(u.cfg.Interface, f.Interfaces)
	if i < 0 {
		return fmt.Errorf("%s: %w %s", u.cfg.Dataplane, route.ErrNoLink, u.cfg.Interface)
	}
	link := f.Interfaces[i]
	if u.name != link.Name {
		u.want(link.Name)
	}
	if err := u.unsettled(); err != nil {
		return err
	}
	if !link.Up {
		return fmt.Errorf("uplink: %s has no carrier", link.Name)
	}
	return nil
}

func (u *Uplink) want(name string) {
	u.name, u.wanted = name, []route.Object{route.Up{Interface: name}}
	for _, a := range u.cfg.Addresses {
		u.wanted = append(u.wanted, route.Address{Interface: name, Address: a})
	}
	u.cfg.Want(fib.Source{Objects: u.wanted, Complete: true})
}

// errNotYet is for what the data plane has not answered yet. Each start goes through it, so it is
// not logged.
var errNotYet = errors.New("not set yet")

// unsettled returns why something wanted is not there.
func (u *Uplink) unsettled() error {
	for _, w := range u.wanted {
		switch e := u.cfg.FIB.FindObject(w.Key()); {
		case e.Error != "":
			return errors.New(e.Error)
		case e.State == fib.Any, e.State == fib.Pending:
			return fmt.Errorf("uplink: %s is %w", w.Key(), errNotYet)
		case !e.State.IsAcknowledged():
			return fmt.Errorf("uplink: %s is %s", w.Key(), e.State)
		}
	}
	return nil
}
