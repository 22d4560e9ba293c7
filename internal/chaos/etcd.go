package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// memberRole is the argument that makes this program a member of an etcd cluster.
const memberRole = "etcd-member"

func serveMember(ctx context.Context, args []string) error {
	var o calicotest.MemberOptions
	if err := json.Unmarshal([]byte(strings.Join(args, " ")), &o); err != nil {
		return fmt.Errorf("usage: chaos %s OPTIONS, as JSON: %w", memberRole, err)
	}
	return calicotest.ServeMember(ctx, o)
}

// members is the number of etcd members: the smallest that survives the loss of one.
const members = 3

// etcdCluster is three etcds, processes in one namespace on the underlay, at 192.168.4.31 to .33.
type etcdCluster struct {
	*testcluster.Cluster // whose data are written from outside through the namespace
	self                 string
	ns                   *netlab.Namespace
	members              []*member
	// tokenTTL is how long members that are started from now on let an unused authentication token
	// live; 0: etcd's default.
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
func startEtcd(
	ctx context.Context, c *testcluster.Cluster, self, program string,
) (e *etcdCluster, err error) {
	e = &etcdCluster{Cluster: c, self: self, program: program}
	var addresses []netip.Prefix
	for i := range members {
		m := &member{
			name:    fmt.Sprintf("etcd-%d", i+1),
			address: netip.AddrFrom4([4]byte{192, 168, 4, byte(31 + i)}),
		}
		m.dir = filepath.Join(c.Dir(), m.name)
		e.members = append(e.members, m)
		addresses = append(addresses, netip.PrefixFrom(m.address, underlayNet.Bits()))
		c.Endpoints = append(c.Endpoints, m.client())
	}
	if e.ns, err = c.Machine("etcd", addresses...); err != nil {
		return nil, err
	}
	for _, m := range e.members {
		if err := e.start(m); err != nil {
			return nil, err
		}
	}
	if c.Data, err = calicotest.Dial(c.Endpoints, e.dial); err != nil {
		return nil, err
	}
	return e, e.answers(ctx, 30*time.Second)
}

// dial connects from inside the members' namespace.
func (e *etcdCluster) dial(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return testcluster.Dial(ctx, e.ns, "tcp", strings.TrimPrefix(address, "http://"))
}

func (e *etcdCluster) start(m *member) (err error) {
	var all []string
	for _, m := range e.members {
		all = append(all, m.name+"="+m.peer())
	}
	options, err := json.Marshal(calicotest.MemberOptions{
		Name: m.name, Dir: m.dir, Client: strings.TrimPrefix(m.client(), "http://"),
		Peer: strings.TrimPrefix(m.peer(), "http://"), Cluster: strings.Join(all, ","),
		Joining: m.joining, TokenTTL: e.tokenTTL,
	})
	if err != nil {
		return err
	}
	path, args := e.self, []string{memberRole, string(options)}
	if e.program != "" {
		path, args = e.program, m.flags(all)
	}
	m.process, err = e.Start(netlab.Spec{Name: m.name, Namespace: e.ns, Path: path, Args: args})
	return err
}

// flags are the arguments of etcd itself.
func (m *member) flags(all []string) []string {
	return []string{
		"--name", m.name, "--data-dir", m.dir, "--listen-client-urls", m.client(),
		"--advertise-client-urls", m.client(),
		"--listen-peer-urls", m.peer(), "--initial-advertise-peer-urls", m.peer(),
		"--initial-cluster", strings.Join(all, ","), "--log-level", "error",
	}
}

// answers waits until a quorum answers.
func (e *etcdCluster) answers(ctx context.Context, patience time.Duration) error {
	return netlab.Await(ctx, patience, "etcd answers", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := e.Data.Client().Get(ctx, "/calico/")
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

// restartIn kills all members, and starts them again on other folders than they had.
func (e *etcdCluster) restartIn(ctx context.Context, folder func(had string) string) error {
	if err := e.stop(); err != nil {
		return err
	}
	for _, m := range e.members {
		m.dir = folder(m.dir)
	}
	return e.startAgain(ctx)
}

// leader asks who leads.
func (e *etcdCluster) leader(ctx context.Context) (*member, error) {
	for _, m := range e.members {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		st, err := e.Data.Client().Status(ctx, m.client())
		cancel()
		if err == nil && st.Leader == st.Header.MemberId {
			return m, nil
		}
	}
	return nil, errors.New("no member of etcd leads")
}

// compact throws away the history up to now.
func (e *etcdCluster) compact(ctx context.Context) error {
	head, err := e.Data.Client().Get(ctx, "/calico/")
	if err != nil {
		return err
	}
	_, err = e.Data.Client().Compact(ctx, head.Header.Revision)
	return err
}

// replace throws a member's data away and adds it to the cluster as a new one.
func (e *etcdCluster) replace(ctx context.Context, m *member) error {
	list, err := e.Data.Client().MemberList(ctx)
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
			_, err := e.Data.Client().MemberRemove(ctx, known.ID)
			return err
		}); err != nil {
			return err
		}
	}
	if err := e.insist(ctx, "the new member is accepted", func(ctx context.Context) error {
		_, err := e.Data.Client().MemberAdd(ctx, []string{m.peer()})
		return err
	}); err != nil {
		return err
	}
	m.dir, m.joining = m.dir+"-new", true
	return e.start(m)
}

// insist repeats a change of the members, each time for a moment only: the client does not leave a
// member that is gone by itself.
func (e *etcdCluster) insist(
	ctx context.Context, what string, change func(context.Context) error,
) error {
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
