package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/netlab"
)

// memberRole is the argument that makes this program a member of an etcd cluster.
const memberRole = "etcd-member"

func serveMember(ctx context.Context, args []string) error {
	var o calicotest.MemberOptions
	flags := flag.NewFlagSet(memberRole, flag.ContinueOnError)
	flags.StringVar(&o.Name, "name", "", "")
	flags.StringVar(&o.Dir, "dir", "", "")
	flags.StringVar(&o.Client, "client", "", "")
	flags.StringVar(&o.Peer, "peer", "", "")
	flags.StringVar(&o.Cluster, "cluster", "", "")
	flags.BoolVar(&o.Joining, "joining", false, "")
	flags.DurationVar(&o.TokenTTL, "token-ttl", 0, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return calicotest.ServeMember(ctx, o)
}

// members is the number of etcd members: the smallest that survives the loss of one.
const members = 3

// etcdCluster is three etcds, processes in one namespace on the underlay, at 192.168.4.31 to .33.
type etcdCluster struct {
	lab     *netlab.Lab
	self    string
	ns      *netlab.Namespace
	members []*member
	data    *calicotest.Cluster // writes from outside through the namespace
	// tokenTTL is how long members that are started from now on let an unused authentication token live; 0: etcd's default.
	tokenTTL time.Duration
	program  string // Debian's etcd for the members; "": this program's own
}

// member is one etcd.
type member struct {
	name    string
	address netip.Addr
	dir     string
	joining bool
	process *netlab.Process
}

func (m *member) client() string { return fmt.Sprintf("http://%s:2379", m.address) }
func (m *member) peer() string   { return fmt.Sprintf("http://%s:2380", m.address) }

// startEtcd starts three members of this program's own etcd, or of the program given.
func startEtcd(ctx context.Context, lab *netlab.Lab, self, program string, underlay *netlab.Namespace) (*etcdCluster, error) {
	e := &etcdCluster{lab: lab, self: self, program: program}
	var err error
	if e.ns, err = lab.Namespace("etcd"); err != nil {
		return nil, err
	}
	end := netlab.End{Namespace: e.ns, Device: "eth0"}
	for i := range members {
		m := &member{name: fmt.Sprintf("etcd-%d", i+1), address: netip.AddrFrom4([4]byte{192, 168, 4, byte(31 + i)})}
		m.dir = filepath.Join(lab.Dir(), m.name)
		e.members = append(e.members, m)
		end.Addresses = append(end.Addresses, netip.PrefixFrom(m.address, underlayNet.Bits()))
	}
	if err := lab.Attach(underlay, end); err != nil {
		return nil, err
	}
	if err := e.ns.FillChecksums("eth0"); err != nil {
		return nil, err
	}
	for _, m := range e.members {
		if err := e.start(m); err != nil {
			return nil, err
		}
	}
	if e.data, err = calicotest.Dial(e.endpoints(), e.dial); err != nil {
		return nil, err
	}
	return e, e.answers(ctx, 30*time.Second)
}

// dial connects from inside the members' namespace.
func (e *etcdCluster) dial(ctx context.Context, address string) (conn net.Conn, err error) {
	err = e.ns.Do(func() error {
		conn, err = (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", strings.TrimPrefix(address, "http://"))
		return err
	})
	return conn, err
}

func (e *etcdCluster) endpoints() (all []string) {
	for _, m := range e.members {
		all = append(all, m.client())
	}
	return all
}

func (e *etcdCluster) start(m *member) (err error) {
	var all []string
	for _, m := range e.members {
		all = append(all, m.name+"="+m.peer())
	}
	args := []string{
		memberRole, "-name", m.name, "-dir", m.dir, "-client", strings.TrimPrefix(m.client(), "http://"),
		"-peer", strings.TrimPrefix(m.peer(), "http://"), "-cluster", strings.Join(all, ","),
	}
	if m.joining {
		args = append(args, "-joining")
	}
	if e.tokenTTL > 0 {
		args = append(args, "-token-ttl", e.tokenTTL.String())
	}
	path := e.self
	if e.program != "" {
		path, args = e.program, m.flags(all)
	}
	m.process, err = e.lab.Start(netlab.Spec{Name: m.name, Namespace: e.ns, Path: path, Args: args})
	return err
}

// flags are the arguments of etcd itself.
func (m *member) flags(all []string) []string {
	return []string{
		"--name", m.name, "--data-dir", m.dir, "--listen-client-urls", m.client(), "--advertise-client-urls", m.client(),
		"--listen-peer-urls", m.peer(), "--initial-advertise-peer-urls", m.peer(), "--initial-cluster", strings.Join(all, ","), "--log-level", "error",
	}
}

// answers waits until a quorum answers.
func (e *etcdCluster) answers(ctx context.Context, patience time.Duration) error {
	return netlab.Await(ctx, patience, "etcd answers", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := e.data.Client().Get(ctx, "/calico/")
		return err
	})
}

// stop kills all members, or starts them again.
func (e *etcdCluster) stop() error {
	var errs []error
	for _, m := range e.members {
		errs = append(errs, m.process.Kill())
	}
	return errors.Join(errs...)
}

func (e *etcdCluster) startAgain(ctx context.Context) error {
	for _, m := range e.members {
		if err := e.start(m); err != nil {
			return err
		}
	}
	return e.answers(ctx, 30*time.Second)
}

// leader asks who leads.
func (e *etcdCluster) leader(ctx context.Context) (*member, error) {
	for _, m := range e.members {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		st, err := e.data.Client().Status(ctx, m.client())
		cancel()
		if err == nil && st.Leader == st.Header.MemberId {
			return m, nil
		}
	}
	return nil, errors.New("no member of etcd leads")
}

// compact throws away the history up to now.
func (e *etcdCluster) compact(ctx context.Context) error {
	head, err := e.data.Client().Get(ctx, "/calico/")
	if err != nil {
		return err
	}
	_, err = e.data.Client().Compact(ctx, head.Header.Revision)
	return err
}

// replace throws a member's data away and adds it to the cluster as a new one.
func (e *etcdCluster) replace(ctx context.Context, m *member) error {
	list, err := e.data.Client().MemberList(ctx)
	if err != nil {
		return err
	}
	if err := m.process.Kill(); err != nil {
		return err
	}
	for _, known := range list.Members {
		if known.Name != m.name {
			continue
		}
		if err := e.insist(ctx, "the old member goes", func(ctx context.Context) error {
			_, err := e.data.Client().MemberRemove(ctx, known.ID)
			return err
		}); err != nil {
			return err
		}
	}
	if err := e.insist(ctx, "the new member is accepted", func(ctx context.Context) error {
		_, err := e.data.Client().MemberAdd(ctx, []string{m.peer()})
		return err
	}); err != nil {
		return err
	}
	m.dir, m.joining = m.dir+"-new", true
	return e.start(m)
}

// insist repeats a change of the members, each time for a moment only: the client does not leave a member that is gone by itself.
func (e *etcdCluster) insist(ctx context.Context, what string, change func(context.Context) error) error {
	return netlab.Await(ctx, 30*time.Second, what, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
		defer cancel()
		return change(ctx)
	})
}

func (e *etcdCluster) signal(s syscall.Signal, which ...*member) (err error) {
	for _, m := range which {
		err = cmp.Or(err, m.process.Signal(s))
	}
	return err
}
