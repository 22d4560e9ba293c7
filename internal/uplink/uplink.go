// Package uplink keeps one interface of the data plane up and with the addresses that it shall have, also after a restart of VPP. It owns
// the addresses that it has set, and remembers which these are; it removes no other. It does not publish them, makes no routes and
// creates no interface.
package uplink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"vpp-route-agent/internal/route"
)

// Port is what a data plane lets us do with its interfaces; packages vpp and internal/kernel provide it. Calls fail at once while the data
// plane is away.
type Port interface {
	// Link reads an interface, by name or index, as it is now.
	Link(ctx context.Context, nameOrIndex string) (route.Link, error)
	SetUp(ctx context.Context, index uint32) error
	// AddAddress succeeds also if the address is there, with that length; RemoveAddress also if it is not.
	AddAddress(ctx context.Context, index uint32, a netip.Prefix) error
	RemoveAddress(ctx context.Context, index uint32, a netip.Prefix) error
}

// Config says which interface gets which addresses.
type Config struct {
	Port      Port
	Interface string // name or index
	Addresses []netip.Prefix
	StateDir  string // where we remember what we have set
	Log       *slog.Logger
}

const (
	// interval is how late a change by other hands, or a restart of VPP, is noticed.
	interval = time.Second
	// askTimeout bounds one look, on a data plane that hangs.
	askTimeout = 10 * time.Second
	// rounds bounds how often a link is read again after it was changed: the kernel removes an address along with another one.
	rounds = 4
)

// Uplink is the interface. Run does the work; the other methods may be called from any goroutine.
type Uplink struct {
	cfg   Config
	path  string
	ready chan struct{} // closed when all was as wanted for the first time

	// Of Run's goroutine:
	record    *record // nil: not read yet
	unwritten error   // why the record is not on disk

	mu    sync.Mutex // guards what follows
	state State
}

// State is how the uplink stood when it was looked at last.
type State struct {
	OK      bool
	Problem string // why not, or a remark
}

// New returns an Uplink that does nothing until Run.
func New(cfg Config) *Uplink {
	return &Uplink{
		cfg: cfg, path: filepath.Join(cfg.StateDir, "uplink.json"), ready: make(chan struct{}),
		state: State{Problem: "not looked at yet"},
	}
}

// Ready is closed once the interface has been up with all its addresses.
func (u *Uplink) Ready() <-chan struct{} { return u.ready }

// State returns how the uplink stands.
func (u *Uplink) State() State {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state
}

// Run looks at the interface each second and sets what is missing, until ctx ends. The interface stays as it is then.
func (u *Uplink) Run(ctx context.Context) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		u.note(u.look(ctx))
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
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
	case now == was:
	case !now.OK:
		u.cfg.Log.Warn("the uplink is not as it should be", "interface", u.cfg.Interface, "err", err)
	default:
		u.cfg.Log.Info("the uplink is up", "interface", u.cfg.Interface, "addresses", u.cfg.Addresses)
	}
	if now.OK {
		select {
		case <-u.ready:
		default:
			close(u.ready)
		}
	}
}

// look brings the interface to what is wanted. nil: it is.
func (u *Uplink) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	for range rounds {
		link, err := u.cfg.Port.Link(ctx, u.cfg.Interface)
		if err != nil {
			return err
		}
		u.know(link.Identity)
		if err := u.leave(ctx, link); err != nil {
			return err
		}
		todo := steps(u.cfg.Addresses, link, u.record.on(link.Name, link.Index))
		if len(todo) == 0 {
			u.forgetLost(link)
			if !link.Up {
				return fmt.Errorf("uplink: %s has no carrier", link.Name)
			}
			return nil
		}
		for _, s := range todo {
			if err := u.take(ctx, link, s); err != nil {
				return err
			}
		}
	}
	return errors.New("uplink: somebody changes the interface as fast as we do")
}

// know makes the record that of this life of the data plane.
func (u *Uplink) know(identity string) {
	if u.record == nil {
		r, err := readRecord(u.path)
		if err != nil {
			u.cfg.Log.Warn("what an earlier run has set is not known and stays", "err", err)
		}
		u.record = &r
	}
	if u.record.Identity != identity {
		u.remember(record{Identity: identity})
	}
}

// remember goes on in memory where the disk fails: a node without its uplink is worse off than one that takes an address of its own for
// somebody else's after its next start.
func (u *Uplink) remember(r record) {
	u.record = &r
	err := r.write(u.path)
	if err != nil && u.unwritten == nil {
		u.cfg.Log.Warn("what is set on the uplink cannot be remembered over a restart", "err", err)
	}
	u.unwritten = err
}

// leave removes what we have set on an interface that was the uplink before.
func (u *Uplink) leave(ctx context.Context, now route.Link) error {
	for _, s := range u.record.elsewhere(now.Name, now.Index) {
		old, err := u.cfg.Port.Link(ctx, s.Interface)
		if err != nil && !errors.Is(err, route.ErrNoLink) {
			return err
		}
		if err == nil && old.Index == s.Index && old.Name == s.Interface {
			if err := u.cfg.Port.RemoveAddress(ctx, s.Index, s.Address); err != nil {
				return err
			}
			u.cfg.Log.Info("address removed from what was the uplink before", "interface", s.Interface, "address", s.Address)
		}
		u.remember(u.record.without(s))
	}
	return nil
}

func (u *Uplink) take(ctx context.Context, link route.Link, s step) error {
	entry := setting{link.Name, link.Index, s.address}
	switch s.verb {
	case setUp:
		u.cfg.Log.Info("bringing the uplink up", "interface", link.Name)
		return u.cfg.Port.SetUp(ctx, link.Index)
	case add:
		u.remember(u.record.with(entry))
		u.cfg.Log.Info("address set", "interface", link.Name, "address", s.address)
		return u.cfg.Port.AddAddress(ctx, link.Index, s.address)
	case remove:
		if err := u.cfg.Port.RemoveAddress(ctx, link.Index, s.address); err != nil {
			return err
		}
		u.cfg.Log.Info("earlier address removed", "interface", link.Name, "address", s.address)
		u.remember(u.record.without(entry))
	}
	return nil
}

// forgetLost drops from the record what is not on the interface any more: who removed it may set it again, and then it is theirs.
func (u *Uplink) forgetLost(link route.Link) {
	for _, a := range u.record.on(link.Name, link.Index) {
		if !slices.Contains(link.Addresses, a) {
			u.remember(u.record.without(setting{link.Name, link.Index, a}))
		}
	}
}
