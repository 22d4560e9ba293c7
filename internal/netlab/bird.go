package netlab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// BirdPrograms are BIRD's daemons: 1.6, of which calico-node's BIRD is a fork, or 2.
type BirdPrograms struct {
	Version     string
	Bird, Bird6 string // one for each address family
	Birdc       string
	Env         []string
}

// birdVersion is the version whose configuration language BirdConfig uses. 2.x differs.
const birdVersion = "1.6."

// FindBird returns the BIRD in PATH if its version fits, or unpacks Debian's package below dir.
func FindBird(ctx context.Context, dir string) (BirdPrograms, error) {
	if p, ok := installedBird(ctx); ok {
		return p, nil
	}
	pkg, err := Unpack(ctx, dir, "bird", birdVersion)
	if err != nil {
		return BirdPrograms{}, err
	}
	p := BirdPrograms{Version: pkg.Version, Env: pkg.Env()}
	return p, pkg.programs(ctx, map[string]*string{
		"bird": &p.Bird, "bird6": &p.Bird6, "birdc": &p.Birdc,
	})
}

// FindBird2 unpacks Debian's BIRD 2, for routers outside of Calico, below dir. One daemon has both
// address families.
func FindBird2(ctx context.Context, dir string) (BirdPrograms, error) {
	pkg, err := Unpack(ctx, dir, "bird2", "2.")
	if err != nil {
		return BirdPrograms{}, err
	}
	p := BirdPrograms{Version: pkg.Version, Env: pkg.Env()}
	err = pkg.programs(ctx, map[string]*string{"bird": &p.Bird, "birdc": &p.Birdc})
	p.Bird6 = p.Bird
	return p, err
}

func installedBird(ctx context.Context) (p BirdPrograms, ok bool) {
	for name, path := range map[string]*string{"bird": &p.Bird, "bird6": &p.Bird6,
		"birdc": &p.Birdc} {
		var err error
		if *path, err = exec.LookPath(name); err != nil {
			return BirdPrograms{}, false
		}
	}
	// "BIRD version 1.6.8"
	out, err := exec.CommandContext(ctx, p.Bird, "--version").CombinedOutput()
	words := strings.Fields(string(out))
	if err != nil || len(words) == 0 {
		return BirdPrograms{}, false
	}
	p.Version = words[len(words)-1]
	return p, strings.HasPrefix(p.Version, birdVersion)
}

// Bird is a BIRD node of a lab.
type Bird struct {
	*Process
	lab      *Lab
	programs BirdPrograms
	name     string
	ns       *Namespace
	program  string
}

// StartBird starts BIRD as calico-node does, in restart recovery (-R), and waits until it answers.
// The name is unique in the lab.
func (l *Lab) StartBird(ctx context.Context, programs BirdPrograms, n *Namespace, name string,
	c BirdConfig) (*Bird, error) {
	program := programs.Bird
	if c.Address.Is6() {
		program = programs.Bird6
	}
	return l.startBird(ctx, &Bird{lab: l, programs: programs, name: name, ns: n, program: program},
		c.String())
}

// StartBirdText is StartBird with a configuration in the language of the programs' version.
func (l *Lab) StartBirdText(ctx context.Context, programs BirdPrograms, n *Namespace, name,
	text string) (*Bird, error) {
	return l.startBird(ctx, &Bird{lab: l, programs: programs, name: name, ns: n,
		program: programs.Bird}, text)
}

func (l *Lab) startBird(ctx context.Context, b *Bird, text string) (*Bird, error) {
	if err := b.write(text); err != nil {
		return nil, err
	}
	if err := b.Restart(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *Bird) write(text string) error {
	if err := os.WriteFile(b.ConfigPath(), []byte(text), 0o600); err != nil {
		return fmt.Errorf("netlab: %w", err)
	}
	return nil
}

// Restart starts BIRD again and waits until it answers.
func (b *Bird) Restart(ctx context.Context) (err error) {
	os.Remove(b.Socket()) // of one that was killed
	b.Process, err = b.lab.Start(Spec{
		Name: b.name, Namespace: b.ns, Path: b.program, Env: b.programs.Env,
		Args: []string{"-f", "-R", "-c", b.ConfigPath(), "-s", b.Socket(), "-P",
			filepath.Join(b.lab.dir, b.name+".pid")},
	})
	if err != nil {
		return err
	}
	return b.await(ctx, func() error { // the socket is there before the configuration is read
		_, err := b.Command(ctx, "show status")
		return err
	})
}

// ConfigPath is the configuration file.
func (b *Bird) ConfigPath() string { return filepath.Join(b.lab.dir, b.name+".conf") }

// Socket is the control socket, for `birdc -s`.
func (b *Bird) Socket() string { return filepath.Join(b.lab.dir, b.name+".ctl") }

// Reconfigure loads a new configuration into a running BIRD, as confd does.
func (b *Bird) Reconfigure(ctx context.Context, c BirdConfig) error {
	if err := b.write(c.String()); err != nil {
		return err
	}
	_, err := b.Command(ctx, "configure")
	return err
}

// Command sends one birdc command and returns the lines of the reply without their codes.
func (b *Bird) Command(ctx context.Context, command string) ([]string, error) {
	lines, err := birdCommand(ctx, b.Socket(), command)
	if err != nil {
		return nil, fmt.Errorf("netlab: %s: %s: %w", b.name, command, err)
	}
	return lines, nil
}

func birdCommand(ctx context.Context, socket, command string) ([]string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	in := bufio.NewScanner(conn)
	if _, err := birdReply(in); err != nil { // the greeting
		return nil, err
	}
	if _, err := fmt.Fprintln(conn, command); err != nil {
		return nil, err
	}
	return birdReply(in)
}

// birdReply reads a reply of BIRD's control protocol: lines of a four-digit code, "-" if more
// follow or " " at the last, and text. A leading space or "+" continues the code before. Codes from
// 8000 are errors.
func birdReply(in *bufio.Scanner) (lines []string, err error) {
	for in.Scan() {
		line := in.Text()
		if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "+") {
			lines = append(lines, line[1:])
			continue
		}
		if len(line) < 5 || line[4] != ' ' && line[4] != '-' {
			return nil, fmt.Errorf("not a reply: %q", line)
		}
		if line[0] >= '8' {
			return nil, errors.New(line[5:])
		}
		if line[5:] != "" {
			lines = append(lines, line[5:])
		}
		if line[4] == ' ' {
			return lines, nil
		}
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	return nil, errors.New("connection closed")
}

// BirdProtocol is one line of `show protocols`.
type BirdProtocol struct {
	Name, Kind string // "Mesh_10_0_0_2", "BGP"
	State      string // "up", "start", "down"
	Since      string // of the state, the time of day: "11:28:36"
	Info       string // for BGP the session's state: "Established"
}

// Protocols returns `show protocols`.
func (b *Bird) Protocols(ctx context.Context) ([]BirdProtocol, error) {
	lines, err := b.Command(ctx, "show protocols")
	if err != nil {
		return nil, err
	}
	return parseProtocols(lines), nil
}

func parseProtocols(lines []string) (found []BirdProtocol) {
	for _, line := range lines {
		words := strings.Fields(line) // name, protocol, table, state, since, info…
		if len(words) < 5 || words[0] == "name" {
			continue
		}
		found = append(found, BirdProtocol{Name: words[0], Kind: words[1], State: words[3],
			Since: words[4], Info: strings.Join(words[5:], " ")})
	}
	return found
}

// AwaitEstablished waits until every BGP session is up.
func (b *Bird) AwaitEstablished(ctx context.Context) error {
	return b.await(ctx, func() error {
		protocols, err := b.Protocols(ctx)
		for _, p := range protocols {
			if p.Kind == "BGP" && p.Info != "Established" {
				return fmt.Errorf("%s is %s %s", p.Name, p.State, p.Info)
			}
		}
		return err
	})
}

// BirdRoute is one route of `show route all`.
type BirdRoute struct {
	Prefix    netip.Prefix
	Protocol  string // that brought it
	Best      bool
	NextHop   netip.Addr // BGP.next_hop; zero for others
	LocalPref string     // BGP.local_pref
	Origin    string     // BGP.origin: "IGP"
	ASPath    string     // BGP.as_path
	// Communities are BGP.community: "(64512,77) (64512,78)". String does not have them.
	Communities string
}

// String is one line: prefix, next hop, LOCAL_PREF, origin and AS path.
func (r BirdRoute) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s via %s %s %s %s",
		r.Prefix, r.NextHop, r.LocalPref, r.Origin, r.ASPath))
}

// Routes returns `show route all` for a selection such as "protocol Mesh_10_0_0_2" or "for
// 10.1.0.0/26"; "" selects all.
func (b *Bird) Routes(ctx context.Context, selection string) ([]BirdRoute, error) {
	lines, err := b.Command(ctx, strings.TrimSpace("show route all "+selection))
	if err != nil {
		return nil, err
	}
	return parseRoutes(lines), nil
}

// parseRoutes parses birdc's output: for each route a line "PREFIX via ADDRESS on IFACE [PROTOCOL
// TIME] * (PREFERENCE…)", with a blank prefix for further routes of the same prefix, and lines with
// attributes.
func parseRoutes(lines []string) (found []BirdRoute) {
	var prefix netip.Prefix
	for _, line := range lines {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok &&
			strings.HasPrefix(name, "BGP.") && len(found) > 0 {
			last := &found[len(found)-1]
			switch name {
			case "BGP.next_hop":
				last.NextHop, _ = netip.ParseAddr(strings.Fields(value)[0])
			case "BGP.local_pref":
				last.LocalPref = value
			case "BGP.origin":
				last.Origin = value
			case "BGP.as_path":
				last.ASPath = value
			case "BGP.community":
				last.Communities = value
			}
			continue
		}
		_, rest, ok := strings.Cut(line, "[")
		if !ok {
			continue
		}
		if p, err := netip.ParsePrefix(strings.Fields(line)[0]); err == nil {
			prefix = p
		}
		origin, flags, _ := strings.Cut(rest, "]")
		words := strings.Fields(origin)
		if len(words) == 0 {
			continue
		}
		found = append(found, BirdRoute{Prefix: prefix, Protocol: words[0],
			Best: strings.HasPrefix(strings.TrimSpace(flags), "*")})
	}
	return found
}
