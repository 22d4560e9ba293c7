package netlab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// FRRPrograms are FRR's daemons for a BGP router.
type FRRPrograms struct {
	Version     string
	Zebra, Bgpd string
	Vtysh       string
	Env         []string
}

// FindFRR unpacks Debian's package below dir. It ignores an installed FRR, whose daemons need
// directories of the user "frr" and may be running.
func FindFRR(ctx context.Context, dir string) (FRRPrograms, error) {
	pkg, err := Unpack(ctx, dir, "frr", "")
	if err != nil {
		return FRRPrograms{}, err
	}
	p := FRRPrograms{Version: pkg.Version, Env: pkg.Env()}
	return p, pkg.programs(ctx, map[string]*string{
		"zebra": &p.Zebra, "bgpd": &p.Bgpd, "vtysh": &p.Vtysh,
	})
}

// FRRConfig is the configuration of each daemon in FRR's own language, since routers differ.
type FRRConfig struct {
	BGP   string // bgpd.conf
	Zebra string // zebra.conf; "" will do
	// Keep is how long a starting zebra leaves the previous run's routes in the kernel for bgpd to
	// renew; 0: not at all.
	Keep time.Duration
}

// FRR is a running router of a lab: zebra, which owns the kernel's routes, and bgpd.
type FRR struct {
	lab         *Lab
	programs    FRRPrograms
	name        string
	ns          *Namespace
	keep        time.Duration
	zebra, bgpd *Process
}

// StartFRR starts zebra and bgpd in a namespace and waits until both answer. The name is unique in
// the lab.
func (l *Lab) StartFRR(ctx context.Context, programs FRRPrograms, n *Namespace, name string,
	c FRRConfig) (*FRR, error) {
	f := &FRR{lab: l, programs: programs, name: name, ns: n, keep: c.Keep}
	if err := f.write(c); err != nil {
		return nil, fmt.Errorf("netlab: %w", err)
	}
	if err := f.Restart(ctx); err != nil {
		return nil, err
	}
	return f, nil
}

// frrGroup is compiled into FRR: its daemons exit unless this group exists with their user.
const frrGroup = "frrvty:x:65533:root\n"

func (f *FRR) write(c FRRConfig) error {
	if err := os.MkdirAll(f.dir(), 0o700); err != nil {
		return err
	}
	groups, err := os.ReadFile("/etc/group")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(f.path("group"), append(bytes.TrimRight(groups, "\n"), "\n"+frrGroup...),
			0o644),
		os.WriteFile(f.path("bgpd.conf"), []byte(c.BGP), 0o600),
		os.WriteFile(f.path("zebra.conf"), []byte(c.Zebra), 0o600))
}

func (f *FRR) dir() string             { return filepath.Join(f.lab.dir, f.name) }
func (f *FRR) path(name string) string { return filepath.Join(f.dir(), name) }

// Restart starts both daemons again and waits until they answer.
func (f *FRR) Restart(ctx context.Context) (err error) {
	var keep []string
	if f.keep > 0 {
		keep = []string{"-K", fmt.Sprint(int(f.keep.Seconds()))}
	}
	if f.zebra, err = f.start(ctx, "zebra", f.programs.Zebra, keep...); err != nil {
		return err
	}
	f.bgpd, err = f.start(ctx, "bgpd", f.programs.Bgpd)
	return err
}

func (f *FRR) start(ctx context.Context, daemon, program string, more ...string) (*Process, error) {
	socket := f.path(daemon + ".vty")
	os.Remove(socket) // of one that was killed
	p, err := f.lab.Start(Spec{
		Name: f.name + "-" + daemon, Namespace: f.ns, Path: program, Env: f.programs.Env,
		Binds: []Bind{{Source: f.path("group"), Target: "/etc/group"}},
		Args: append([]string{"-u", "root", "-g", "root", "-P", "0", "-f", f.path(daemon + ".conf"),
			"-i", f.path(daemon + ".pid"),
			"-z", f.path("zserv.api"), "--vty_socket", f.dir(), "--log", "stdout"}, more...),
	})
	if err != nil {
		return nil, err
	}
	return p, p.await(ctx, func() error {
		_, err := frrCommand(ctx, socket, "show version")
		return err
	})
}

// Stop ends both daemons: bgpd sends a NOTIFICATION, and zebra removes BGP's routes from the
// kernel.
func (f *FRR) Stop() error { return errors.Join(f.bgpd.Stop(), f.zebra.Stop()) }

// Kill kills both daemons; the routes stay in the kernel. zebra is first, or it would see bgpd end.
func (f *FRR) Kill() error { return errors.Join(f.zebra.Kill(), f.bgpd.Kill()) }

// Command runs lines of bgpd's command line and returns their output.
func (f *FRR) Command(ctx context.Context, lines ...string) (string, error) {
	return f.command(ctx, "bgpd", lines)
}

// Zebra runs lines of zebra's command line, such as "show ip route".
func (f *FRR) Zebra(ctx context.Context, lines ...string) (string, error) {
	return f.command(ctx, "zebra", lines)
}

// Configure runs lines in bgpd's "configure terminal".
func (f *FRR) Configure(ctx context.Context, lines ...string) error {
	_, err := f.Command(ctx, append([]string{"configure terminal"}, lines...)...)
	return err
}

func (f *FRR) command(ctx context.Context, daemon string, lines []string) (string, error) {
	out, err := frrCommand(ctx, f.path(daemon+".vty"), lines...)
	if err != nil {
		return out, fmt.Errorf("netlab: %s: %w", f.name, err)
	}
	return out, nil
}

// frrCommand implements vtysh's protocol (vtysh/vtysh.c, vtysh_client_run): a line ends with a zero
// byte, a reply with three and the status. vtysh itself would authenticate us by PAM.
func frrCommand(ctx context.Context, socket string, lines ...string) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	in := bufio.NewReader(conn)
	all := ""
	for _, line := range append([]string{"enable"}, lines...) {
		if _, err := conn.Write(append([]byte(line), 0)); err != nil {
			return all, err
		}
		text, status, err := frrReply(in)
		all += text
		if err != nil {
			return all, fmt.Errorf("%s: %w", line, err)
		}
		if status != frrSuccess && status != frrSuccessDaemon {
			return all, fmt.Errorf("%s: status %d: %s", line, status, strings.TrimSpace(text))
		}
	}
	return all, nil
}

// CMD_SUCCESS and CMD_SUCCESS_DAEMON, lib/command.h.
const frrSuccess, frrSuccessDaemon = 0, 10

// frrReply reads up to three zero bytes and the status after them.
func frrReply(in *bufio.Reader) (text string, status byte, err error) {
	var b bytes.Buffer
	for {
		c, err := in.ReadByte()
		if err != nil {
			return b.String(), 0, err
		}
		b.WriteByte(c)
		if bytes.HasSuffix(b.Bytes(), []byte{0, 0, 0}) {
			status, err = in.ReadByte()
			return string(b.Bytes()[:b.Len()-3]), status, err
		}
	}
}

// Sessions returns the states of the BGP sessions by peer address, such as "Established".
func (f *FRR) Sessions(ctx context.Context) (map[string]string, error) {
	out, err := f.Command(ctx, "show bgp summary json")
	if err != nil {
		return nil, err
	}
	states, err := parseFRRSummary(out)
	if err != nil {
		return nil, fmt.Errorf("netlab: %s: show bgp summary: %w", f.name, err)
	}
	return states, nil
}

// parseFRRSummary merges the address families, as a session may carry both.
func parseFRRSummary(text string) (map[string]string, error) {
	var families map[string]struct {
		Peers map[string]struct {
			State string `json:"state"`
		} `json:"peers"`
	}
	if err := json.Unmarshal([]byte(text), &families); err != nil {
		return nil, err
	}
	states := map[string]string{}
	for _, family := range families {
		for peer, p := range family.Peers {
			states[peer] = p.State
		}
	}
	return states, nil
}

// AwaitEstablished waits until every BGP session is up.
func (f *FRR) AwaitEstablished(ctx context.Context) error {
	return f.bgpd.await(ctx, func() error {
		states, err := f.Sessions(ctx)
		if err != nil {
			return err
		}
		for peer, state := range states {
			if state != "Established" {
				return fmt.Errorf("%s is %s", peer, state)
			}
		}
		return nil
	})
}

// FRRPath is bgpd's path of a prefix.
type FRRPath struct {
	Prefix   string
	Peer     string // whose it is; "(unspec)": the router's own
	Stale    bool   // announced before a restart
	NextHops []string
	ASPath   string
}

// String returns the path on one line: "10.1.0.0/26 via 10.0.0.2 64512".
func (p FRRPath) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s via %s %s", p.Prefix, strings.Join(p.NextHops, " "),
		p.ASPath))
}

// Paths returns all unicast paths of a family, "ipv4" or "ipv6", unordered.
func (f *FRR) Paths(ctx context.Context, family string) (all []FRRPath, err error) {
	out, err := f.Command(ctx, "show bgp "+family+" unicast json")
	if err != nil {
		return nil, err
	}
	var table struct {
		Routes map[string][]struct {
			Path     string
			PeerID   string `json:"peerId"`
			Stale    bool
			Nexthops []struct{ IP string }
		}
	}
	if err := json.Unmarshal([]byte(out), &table); err != nil {
		return nil, fmt.Errorf("netlab: %s: %w: %s", f.name, err, out)
	}
	for prefix, paths := range table.Routes {
		for _, p := range paths {
			path := FRRPath{Prefix: prefix, Peer: p.PeerID, Stale: p.Stale, ASPath: p.Path}
			for _, n := range p.Nexthops {
				path.NextHops = append(path.NextHops, n.IP)
			}
			all = append(all, path)
		}
	}
	return all, nil
}
