package kernel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/route"
)

const (
	// lookInterval is how often it is looked whether namespaces come and go: nothing reports that.
	lookInterval = 500 * time.Millisecond
	// forgetAfter is how long one is looked for that no object has named any more.
	forgetAfter = time.Minute
)

// Namespaces is the kernel with all network namespaces that objects are in, see route.InNamespace.
// The FIB is that of the first; in the others there are objects alone. A namespace is held open
// while its path leads to it.
type Namespaces struct {
	*Dataplane
	log   *slog.Logger
	proto uint8
	facts chan route.Facts
	wake  chan struct{} // of size one: the named ones have changed

	mu    sync.Mutex // guards named; locked before namespace.mu
	named map[string]*namespace
}

// namespace is one that objects have named.
type namespace struct {
	path string

	mu    sync.RWMutex // guards what follows; held for reading while plane is used
	plane *Dataplane   // nil: there is none
	facts route.Facts
	stop  func() // ends Run of plane; nil: it does not run
	err   error  // why there is no plane
	asked time.Time
}

// noNamespace says that a namespace is missing, and with it all interfaces in it.
type noNamespace struct{ path string }

func (e noNamespace) Error() string {
	return "kernel: there is no network namespace " + e.path
}

func (e noNamespace) Is(target error) bool { return target == route.ErrNoLink }

// NewNamespaces returns the kernel with the FIB that c says. It opens the namespaces of these
// interfaces, as far as they are there, so that its first facts have them.
func NewNamespaces(c Config, interfaces []string) (*Namespaces, error) {
	d, err := New(c)
	if err != nil {
		return nil, err
	}
	n := &Namespaces{Dataplane: d, log: c.Log, proto: d.protocol, facts: make(chan route.Facts),
		wake: make(chan struct{}, 1), named: map[string]*namespace{}}
	for _, name := range interfaces {
		if path, _ := route.SplitNamespace(name); path != "" {
			n.at(path)
		}
	}
	return n, nil
}

// Close releases all namespaces, which nobody may use any more.
func (n *Namespaces) Close() {
	for _, s := range n.named {
		s.close(nil)
	}
	n.Dataplane.Close()
}

// Facts implements fib.Dataplane.
func (n *Namespaces) Facts() <-chan route.Facts { return n.facts }

// Run follows the events of all namespaces until ctx ends.
func (n *Namespaces) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	own := make(chan error, 1)
	wait.Go(func() { own <- n.Dataplane.Run(ctx) })
	defer func() {
		cancel()
		wait.Wait()
	}()
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	var first route.Facts
	var out chan<- route.Facts
	for {
		facts := first
		facts.Elsewhere = n.elsewhere()
		select {
		case err := <-own:
			return err
		case first = <-n.Dataplane.Facts():
			out = n.facts
		case out <- facts:
			out = nil
		case <-n.wake:
			if n.start(ctx, &wait); first.Identity != "" {
				out = n.facts
			}
		case <-look.C:
			n.lookAgain()
		}
	}
}

// start follows the namespaces that are new.
func (n *Namespaces) start(ctx context.Context, wait *sync.WaitGroup) {
	for _, s := range n.all() {
		s.mu.Lock()
		if d := s.plane; d != nil && s.stop == nil {
			c, stop := context.WithCancel(ctx)
			s.stop = stop
			wait.Go(func() { n.ended(s, d, d.Run(c)) })
			wait.Go(func() { n.follow(c, s, d) })
		}
		s.mu.Unlock()
	}
}

// ended is called when Run of d has ended. A namespace whose events fail is given up, and opened
// again when it is looked for. When all of Run ends it stays in use until Close.
func (n *Namespaces) ended(s *namespace, d *Dataplane, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plane != d { // it was given up before
		d.Close()
		return
	}
	s.stop()
	s.stop = nil
	if err != nil {
		n.log.Warn("network namespace", "path", s.path, "err", err)
		s.giveUp(err)
		signal(n.wake)
	}
}

func (n *Namespaces) follow(ctx context.Context, s *namespace, d *Dataplane) {
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-d.Facts():
			s.mu.Lock()
			if s.plane == d {
				s.facts = f
			}
			s.mu.Unlock()
			signal(n.wake)
		}
	}
}

// all returns the named ones, by path.
func (n *Namespaces) all() []*namespace {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.SortedFunc(maps.Values(n.named), func(a, b *namespace) int {
		return cmp.Compare(a.path, b.path)
	})
}

// elsewhere lists the interfaces in named namespaces.
func (n *Namespaces) elsewhere() (all []route.Interface) {
	for _, s := range n.all() {
		s.mu.RLock()
		if s.plane != nil {
			for _, i := range s.facts.Interfaces {
				i.Name, i.Index = route.InNamespace(s.path, i.Name), s.plane.unique(i.Index)
				all = append(all, i)
			}
		}
		s.mu.RUnlock()
	}
	slices.SortFunc(all, func(a, b route.Interface) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// unique tells the index of an interface from those in an earlier namespace at the same path.
func (d *Dataplane) unique(index uint32) uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, d.cookie, index)
	return h.Sum32()
}

// at returns the namespace at a path, and opens it if nobody has asked for it before.
func (n *Namespaces) at(path string) *namespace {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.named[path]
	if s == nil {
		s = &namespace{path: path}
		n.named[path] = s
		n.look(s)
	}
	s.mu.Lock()
	s.asked = time.Now()
	s.mu.Unlock()
	return s
}

// lookAgain opens namespaces that have come, and closes those that have gone.
func (n *Namespaces) lookAgain() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for path, s := range n.named {
		n.look(s)
		s.mu.RLock()
		if s.plane == nil && time.Since(s.asked) > forgetAfter {
			delete(n.named, path)
		}
		s.mu.RUnlock()
	}
}

// look opens or closes one. The caller holds n.mu.
func (n *Namespaces) look(s *namespace) {
	id, err := namespaceAt(s.path)
	s.mu.RLock()
	same := s.plane != nil && err == nil && s.plane.inode == id
	s.mu.RUnlock()
	if same {
		return
	}
	if s.close(err) {
		signal(n.wake)
	}
	if err != nil {
		return
	}
	d, err := n.open(s.path, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plane, s.err = d, err; d != nil {
		s.facts = d.currentFacts()
		signal(n.wake)
	}
}

// open opens a namespace that has no other name.
func (n *Namespaces) open(path string, id inode) (*Dataplane, error) {
	if id == n.inode {
		return nil, fmt.Errorf("kernel: network namespace %s is the agent's own", path)
	}
	for other, s := range n.named {
		s.mu.RLock()
		double := s.plane != nil && s.plane.inode == id
		s.mu.RUnlock()
		if double {
			return nil, fmt.Errorf("kernel: network namespace %s is %s", path, other)
		}
	}
	d, err := New(Config{Namespace: path, Protocol: n.proto, Log: n.log})
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w: other network namespaces need CAP_SYS_ADMIN", err)
	}
	return d, err
}

// close gives a namespace up, and reports whether it was open.
func (s *namespace) close(why error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.giveUp(why)
}

// giveUp is close for who holds mu.
func (s *namespace) giveUp(why error) bool {
	was := s.plane
	switch s.err = why; {
	case was == nil:
		return false
	case s.stop != nil:
		s.stop() // then it is closed
	default:
		was.Close()
	}
	s.plane, s.stop, s.facts = nil, nil, route.Facts{}
	return true
}

// inode identifies a namespace as long as it is there.
type inode struct{ device, number uint64 }

// namespaceAt says which namespace a path leads to. Nothing else is opened: that could block.
func namespaceAt(path string) (inode, error) {
	var fs unix.Statfs_t
	var file unix.Stat_t
	err := unix.Statfs(path, &fs)
	if err == nil {
		err = unix.Stat(path, &file)
	}
	switch {
	case errors.Is(err, unix.ENOENT), err == nil && fs.Type != unix.NSFS_MAGIC:
		return inode{}, noNamespace{path}
	case err != nil:
		return inode{}, fmt.Errorf("kernel: network namespace %s: %w", path, err)
	}
	return inode{file.Dev, file.Ino}, nil
}

// in has do use the namespaces that interfaces are in.
func (n *Namespaces) in(do func(planes ...*Dataplane) error, interfaces ...string) error {
	spaces := make([]*namespace, len(interfaces)) // nil: the first
	for i, name := range interfaces {
		if path, _ := route.SplitNamespace(name); path != "" {
			spaces[i] = n.at(path) // which locks, so that none is held yet
		}
	}
	planes := make([]*Dataplane, len(interfaces))
	for i, s := range spaces {
		if s == nil {
			planes[i] = n.Dataplane
			continue
		}
		if !slices.Contains(spaces[:i], s) {
			s.mu.RLock()
			defer s.mu.RUnlock()
		}
		if planes[i] = s.plane; s.plane == nil {
			return cmp.Or[error](s.err, noNamespace{s.path}) // or another takes its place
		}
	}
	return do(planes...)
}

// Object implements fib.Dataplane.
func (n *Namespaces) Object(ctx context.Context, k route.ObjectKey) (o route.Object, err error) {
	err = n.in(func(planes ...*Dataplane) (err error) {
		o, err = planes[0].Object(ctx, k)
		return err
	}, k.Interface)
	return o, err
}

// PutObject implements fib.Dataplane.
func (n *Namespaces) PutObject(ctx context.Context, o route.Object) error {
	if v, ok := o.(route.VethEnd); ok {
		return n.in(func(planes ...*Dataplane) error {
			return wrap(putVethEnd(planes[0], planes[1], v), "kernel: make interface %s", v.Name)
		}, v.Name, v.Peer)
	}
	return n.in(func(planes ...*Dataplane) error { return planes[0].PutObject(ctx, o) },
		o.Key().Interface)
}

// DeleteObject implements fib.Dataplane.
func (n *Namespaces) DeleteObject(ctx context.Context, k route.ObjectKey) error {
	err := n.in(func(planes ...*Dataplane) error { return planes[0].DeleteObject(ctx, k) },
		k.Interface)
	if errors.As(err, &noNamespace{}) {
		return nil // it went with its namespace
	}
	return err
}
