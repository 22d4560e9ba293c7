package netlab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Namespace is a network namespace of a lab, safe for concurrent use.
type Namespace struct {
	lab    *Lab
	short  string
	file   *os.File // the bind mount, open: keeps the namespace usable by descriptor
	handle *netlink.Handle
	ports  atomic.Int32 // made so far, of a segment
}

// Namespace makes a namespace with its loopback up, and without IPv6 duplicate address detection,
// so that addresses are usable at once.
func (l *Lab) Namespace(name string) (*Namespace, error) {
	n := &Namespace{lab: l, short: name}
	if err := n.create(); err != nil {
		return nil, fmt.Errorf("netlab: namespace %s: %w", n.Name(), err)
	}
	l.mu.Lock()
	l.namespaces = append(l.namespaces, n)
	l.mu.Unlock()
	return n, nil
}

func (n *Namespace) create() (err error) {
	err = withNetnsDir(func() error {
		if err := prepareNetnsDir(); err != nil {
			return err
		}
		return bindNewNamespace(n.Path())
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.remove())
		}
	}()
	if n.file, err = os.Open(n.Path()); err != nil {
		return err
	}
	if n.handle, err = netlink.NewHandleAt(netns.NsHandle(n.file.Fd()),
		unix.NETLINK_ROUTE); err != nil {
		return err
	}
	if err := n.SetLink("lo", true); err != nil {
		return err
	}
	for _, key := range []string{"net.ipv6.conf.all.accept_dad",
		"net.ipv6.conf.default.accept_dad"} {
		// a kernel without IPv6
		if err := n.Sysctl(key, "0"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// bindNewNamespace makes a network namespace and binds it to path, as `ip netns add` does.
func bindNewNamespace(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	f.Close()
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := unix.Mount("/proc/thread-self/ns/net", path, "none", unix.MS_BIND,
			""); err != nil {
			return fmt.Errorf("mount: %w", err)
		}
		return nil
	})
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// onThread runs f on an OS thread that ends with it, so that its namespaces cannot leak.
func onThread(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked
		err := errors.New("netlab: function ended its goroutine")
		defer func() { result <- err }()
		err = f()
	}()
	return <-result
}

// remove deletes the links, which would otherwise survive in a shell that holds the namespace, then
// the namespace's name.
func (n *Namespace) remove() error {
	if n.handle != nil {
		if links, err := n.handle.LinkList(); err == nil {
			for _, link := range links {
				if link.Type() == "veth" || link.Type() == "bridge" {
					n.handle.LinkDel(link) // a veth's peer may have taken it along already
				}
			}
		}
		n.handle.Close()
	}
	if n.file != nil {
		n.file.Close()
	}
	return removeNetns(n.Path())
}

// Name is the name for `ip netns exec`.
func (n *Namespace) Name() string { return n.lab.prefix + "-" + n.short }

// Short is the name given to Lab.Namespace.
func (n *Namespace) Short() string { return n.short }

// Path is the file that names the namespace.
func (n *Namespace) Path() string { return filepath.Join(runNetns, n.Name()) }

// Do runs f on a thread in the namespace. Sockets and netlink handles that f opens stay in it;
// goroutines that f starts are outside.
func (n *Namespace) Do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("netlab: enter %s: %w", n.Name(), err)
		}
		return f()
	})
}

// Become replaces this process by a program in a namespace of the lab with this directory: the
// terminal, signals and the exit status are the program's.
func Become(dir, namespace, path string, args, env []string) error {
	name := filepath.Join(runNetns, filepath.Base(dir)+"-"+namespace)
	return onThread(func() error {
		f, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("netlab: %w", err)
		}
		defer f.Close()
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("netlab: enter %s: %w", name, err)
		}
		if err := unix.Exec(path, append([]string{filepath.Base(path)}, args...), env); err != nil {
			return fmt.Errorf("netlab: run %s: %w", path, err)
		}
		return nil
	})
}

// Handle is a shared netlink handle in the namespace, closed with the lab.
func (n *Namespace) Handle() *netlink.Handle { return n.handle }

// FD is the namespace's descriptor for netlink subscriptions, valid until the lab is closed.
func (n *Namespace) FD() netns.NsHandle { return netns.NsHandle(n.file.Fd()) }

// Sysctl sets a variable by its dotted name.
func (n *Namespace) Sysctl(key, value string) error {
	path := filepath.Join("/proc/sys", strings.ReplaceAll(key, ".", "/"))
	return n.Do(func() error { // /proc/sys/net shows the namespace of the thread that opens it
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("netlab: sysctl %s: %w", key, err)
		}
		_, err = f.WriteString(value)
		return errors.Join(err, f.Close())
	})
}

// Forward makes the namespace a router for IPv4 and IPv6.
func (n *Namespace) Forward() error {
	for _, key := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		if err := n.Sysctl(key, "1"); err != nil {
			return err
		}
	}
	return nil
}
