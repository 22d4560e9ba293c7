// Package kernel is the Linux FIB as a data plane, over netlink. It implements fib.Dataplane and is
// the only importer of netlink for routes. Our routes carry our protocol number and one of our two
// metrics, in any table. No others are shown, replaced or deleted.
//
// The kernel has neither recursive next hops nor standby paths: with Facts.AttachedOnly the caller
// resolves next hops, and only paths of the best preference are programmed. It also drops routes
// without an event when an interface goes down (fib_sync_down_dev in net/ipv4/fib_semantics.c); the
// interface's new generation makes the caller put them again.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/route"
)

const (
	// DefaultProtocol is shown as proto by `ip route`. Felix has 80, BIRD 12, FRR 186 to 198.
	DefaultProtocol = 179
	// DefaultMetric separates our routes from others for the same prefix: the kernel keys routes by
	// prefix and metric, and replaces a foreign route with our metric. 1024 is the default of
	// Calico and IPv6.
	DefaultMetric = 1050
	// DefaultElevatedMetric is what BIRD programs for a migrating address (Calico's elevated route
	// priority). It is below Felix' 1024 for local workloads.
	DefaultElevatedMetric = 512
)

// Config identifies our routes. Changing a value orphans the routes of the old one.
type Config struct {
	Table    uint32 // the routing table that route.Key.Table 0 stands for; 0: main (254)
	Protocol uint8  // 0: DefaultProtocol
	Metric   uint32 // lower is preferred; 0: DefaultMetric
	// ElevatedMetric is for elevated keys and must be lower than Metric; 0: DefaultElevatedMetric,
	// or just below Metric if that is lower.
	ElevatedMetric uint32
	Namespace      string // path of a network namespace, such as /run/netns/blue; "": the caller's
	Log            *slog.Logger
}

// Dataplane is the FIB of one network namespace, usable from New to the end of Run.
type Dataplane struct {
	table    uint32
	protocol uint8
	metric   uint32
	elevated uint32 // metric of elevated keys
	log      *slog.Logger
	identity string
	version  string

	namespace string
	inode     inode
	cookie    uint64 // of the namespace, which the kernel uses once

	links  *netlink.Handle
	lookup *socket // one request at a time
	dump   *socket // likewise, for requests that take long
	watch  *watch
	facts  chan route.Facts
	list   func() ([]route.Interface, error) // listInterfaces, but in tests of a kernel that fails

	// listing serializes lists from the check for staleness to the store, so that no older list
	// replaces a newer one. Lock order: writing, listing, mu.
	listing sync.Mutex

	vteps vteps

	mu     sync.RWMutex // guards the following
	ifaces interfaces

	// writing is held while routes are changed, from choosing a route's form to recording it. It
	// guards the following; reduced may be read under mu alone.
	writing sync.Mutex
	writer  *socket
	reduced map[route.Key]reduced // guarded by mu for writing too
}

// New opens the kernel's FIB and begins to collect events. It changes nothing.
func New(c Config) (*Dataplane, error) {
	d := &Dataplane{
		table: c.Table, protocol: c.Protocol, metric: c.Metric, elevated: c.ElevatedMetric,
		log: c.Log, namespace: c.Namespace,
		facts: make(chan route.Facts), reduced: map[route.Key]reduced{},
	}
	d.list = d.listInterfaces
	if d.table == 0 {
		d.table = unix.RT_TABLE_MAIN
	}
	if d.protocol == 0 {
		d.protocol = DefaultProtocol
	}
	if d.metric == 0 {
		d.metric = DefaultMetric
	}
	if d.elevated == 0 {
		d.elevated = min(DefaultElevatedMetric, d.metric-1)
	}
	if d.elevated == 0 || d.elevated >= d.metric {
		return nil, fmt.Errorf("kernel: metric %d of elevated routes is not below %d and above 0",
			d.elevated, d.metric)
	}
	err := inNamespace(c.Namespace, d.open)
	if err == nil {
		err = d.refresh()
	}
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("kernel: %w", err)
	}
	return d, nil
}

// open makes the sockets, in the namespace of the calling thread, and identifies the kernel. It
// subscribes before any list, so that a change meanwhile is seen twice rather than never.
func (d *Dataplane) open() (err error) {
	if d.writer, err = openSocket(); err != nil {
		return err
	}
	if d.watch, err = newWatch(d.writer.port, d.clashing); err != nil {
		return err
	}
	if d.lookup, err = openSocket(); err != nil {
		return err
	}
	if d.dump, err = openSocket(); err != nil {
		return err
	}
	if d.links, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	var ns unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &ns); err != nil {
		return err
	}
	// The FIB survives us, and ends with the machine or the namespace.
	d.identity = fmt.Sprintf("%s netns %d proto %d metric %d elevated %d table %d",
		strings.TrimSpace(string(boot)), ns.Ino, d.protocol, d.metric, d.elevated, d.table)
	d.inode = inode{ns.Dev, ns.Ino}
	if d.cookie, err = d.writer.cookie(); err != nil {
		return err
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	d.version = "Linux " + unix.ByteSliceToString(name.Release[:])
	return nil
}

// Close releases the sockets. Nobody may use the data plane any more: a closed netlink.Handle makes
// its requests in the namespace of the calling thread.
func (d *Dataplane) Close() {
	for _, s := range []*socket{d.writer, d.lookup, d.dump} {
		if s != nil {
			s.Close()
		}
	}
	if d.watch != nil {
		d.watch.Close()
	}
	if d.links != nil {
		d.links.Close()
	}
}

// inNamespace runs f on a thread in the namespace at path.
func inNamespace(path string, f func() error) error {
	if path == "" {
		return f()
	}
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", path, err)
	}
	defer ns.Close()
	result := make(chan error, 1)
	go func() {
		// never unlocked: the thread ends with its goroutine, so that no other inherits the
		// namespace
		runtime.LockOSThread()
		if err := netns.Set(ns); err != nil {
			result <- fmt.Errorf("enter network namespace %s: %w", path, err)
			return
		}
		result <- f()
	}()
	return <-result
}

// Facts implements fib.Dataplane.
func (d *Dataplane) Facts() <-chan route.Facts { return d.facts }

// Run follows the kernel's events and publishes facts until ctx ends. Our routes stay.
func (d *Dataplane) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	following := make(chan error, 1)
	go func() { following <- d.watch.follow(ctx) }()

	f := follower{d: d}
	f.publish()
	for {
		out, next := f.news(d.facts)
		select {
		case out <- next:
			f.sent = next
		case <-d.watch.links:
			f.followLinks()
		case <-f.relist:
			f.followLinks()
		case <-d.watch.routes:
			f.arm()
		case <-f.changed:
			f.countChange()
		case err := <-following:
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("kernel: events: %w", err)
			}
			return nil
		}
	}
}

// errTable rejects the default table under its own number: a route must have one key.
var errTable = errors.New("the table is the default one and is called 0 here")

// kernelTable returns the kernel's number of one of our tables.
func (d *Dataplane) kernelTable(t uint32) (uint32, error) {
	switch t {
	case 0:
		return d.table, nil
	case d.table:
		return 0, errTable
	}
	return t, nil
}

// ourTable is the inverse of kernelTable.
func (d *Dataplane) ourTable(t uint32) uint32 {
	if t == d.table {
		return 0
	}
	return t
}

func (d *Dataplane) ours(e entry) bool {
	return e.protocol == d.protocol && (e.metric == d.metric || e.metric == d.elevated)
}

// clashing reports a foreign route whose metric the kernel would not distinguish from ours.
func (d *Dataplane) clashing(e entry) bool {
	return e.protocol != d.protocol && (e.metric == d.metric || e.metric == d.elevated)
}

// metricFor returns the metric of an entry of k.
func (d *Dataplane) metricFor(k route.Key) uint32 {
	if k.Elevated {
		return d.elevated
	}
	return d.metric
}
