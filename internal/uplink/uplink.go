// Package uplink keeps one interface of the data plane up, with its configured addresses, also
// after a restart of VPP. It records the addresses that it has set, and removes no others. It does
// not publish them, and creates neither routes nor interfaces.
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

// Port is the part of a data plane that configures interfaces, provided by vpp and internal/kernel.
// Calls fail at once while the data plane is absent.
type Port interface {
	// Link returns the current state of an interface by name or index.
	Link(ctx context.Context, nameOrIndex string) (route.Link, error)
	SetUp(ctx context.Context, index uint32) error
	// AddAddress succeeds if the address exists with that length. RemoveAddress succeeds if it does
	// not.
	AddAddress(ctx context.Context, index uint32, a netip.Prefix) error
	RemoveAddress(ctx context.Context, index uint32, a netip.Prefix) error
}

// Config is the interface and its addresses.
type Config struct {
	Port      Port
	Interface string // name or index
	Addresses []netip.Prefix
	StateDir  string // where we remember what we have set
	Log       *slog.Logger
}

const (
	// interval bounds how late an outside change, or a restart of VPP, is noticed.
	interval = time.Second
	// askTimeout bounds one reconciliation with a data plane that hangs.
	askTimeout = 10 * time.Second
	// rounds bounds how often a link is read again after a change: the kernel may remove further
	// addresses along with one.
	rounds = 4
)

// Uplink configures the interface. Run does the work. All other methods are safe for concurrent
// use.
type Uplink struct {
	cfg   Config
	path  string
	ready chan struct{} // closed when all was as wanted for the first time

	// Owned by Run's goroutine:
	record    *record // nil: not read yet
	unwritten error   // why the record is not on disk

	mu    sync.Mutex // guards what follows
	state State
}

// State is the result of the last reconciliation.
type State struct {
	OK      bool
	Problem string // why not, or a remark
}

// New returns an Uplink that does nothing before Run.
func New(cfg Config) *Uplink {
	return &Uplink{
		cfg: cfg, path: filepath.Join(cfg.StateDir, "uplink.json"), ready: make(chan struct{}),
		state: State{Problem: "not looked at yet"},
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

// Run reconciles the interface every second until ctx ends. It leaves the interface as it is then.
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
		}
	}
}

// look reconciles the interface. It returns nil once the interface is as desired.
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
	return errors.New("uplink: another program changes the interface as fast as we do")
}

// know starts a new record if the data plane has a new generation.
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

// remember continues in memory when the disk fails: losing the uplink is worse than taking our own
// address for a foreign one after the next start.
func (u *Uplink) remember(r record) {
	u.record = &r
	err := r.write(u.path)
	if err != nil && u.unwritten == nil {
		u.cfg.Log.Warn("what is set on the uplink cannot be remembered over a restart", "err", err)
	}
	u.unwritten = err
}

// leave removes our addresses from an interface that was the uplink before.
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
			u.cfg.Log.Info("address removed from what was the uplink before", "interface",
				s.Interface, "address", s.Address)
		}
		u.remember(u.record.without(s))
	}
	return nil
}

func (u *Uplink) take(ctx context.Context, link route.Link, s step) error {
	entry := setting{link.Name, link.Index, s.address}
	switch s.verb {
	case setUp:
		if err := u.cfg.Port.SetUp(ctx, link.Index); err != nil {
			return err
		}
		u.cfg.Log.Info("interface set up", "interface", link.Name)
	case add:
		u.remember(u.record.with(entry))
		if err := u.cfg.Port.AddAddress(ctx, link.Index, s.address); err != nil {
			return err
		}
		u.cfg.Log.Info("address set", "interface", link.Name, "address", s.address)
	case remove:
		if err := u.cfg.Port.RemoveAddress(ctx, link.Index, s.address); err != nil {
			return err
		}
		u.cfg.Log.Info("earlier address removed", "interface", link.Name, "address", s.address)
		u.remember(u.record.without(entry))
	}
	return nil
}

// forgetLost drops addresses that are gone from the record: whoever removed one may set it again
// and then owns it.
func (u *Uplink) forgetLost(link route.Link) {
	for _, a := range u.record.on(link.Name, link.Index) {
		if !slices.Contains(link.Addresses, a) {
			u.remember(u.record.without(setting{link.Name, link.Index, a}))
		}
	}
}
