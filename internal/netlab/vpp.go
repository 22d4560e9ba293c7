package netlab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"
)

// VPPPrograms are VPP's daemon and CLI.
type VPPPrograms struct {
	VPP, Vppctl string
	Plugins     string // directory; "": where VPP itself looks
}

// ErrNoVPP means that this machine has no VPP. Tests and demo then run without and report it.
var ErrNoVPP = errors.New("no vpp on PATH and VPP_BIN is not set")

// FindVPP finds VPP by VPP_BIN and VPP_PLUGIN_PATH, or in PATH, and vppctl beside it.
func FindVPP() (VPPPrograms, error) {
	p := VPPPrograms{VPP: os.Getenv("VPP_BIN"), Plugins: os.Getenv("VPP_PLUGIN_PATH")}
	if p.VPP == "" {
		found, err := exec.LookPath("vpp")
		if err != nil {
			return VPPPrograms{}, ErrNoVPP
		}
		p.VPP = found
	}
	var err error
	if p.VPP, err = filepath.Abs(p.VPP); err != nil {
		return VPPPrograms{}, fmt.Errorf("netlab: %w", err)
	}
	p.Vppctl = filepath.Join(filepath.Dir(p.VPP), "vppctl")
	for _, path := range []string{p.VPP, p.Vppctl} {
		if _, err := exec.LookPath(path); err != nil {
			return VPPPrograms{}, fmt.Errorf("netlab: %w", err)
		}
	}
	return p, nil
}

// VPPConfig configures an instance. The zero value is usable.
type VPPConfig struct {
	Heap string // main heap; "": 512M, enough for about 100 000 routes
	Args string // further sections for startup.conf
}

// VPP is a VPP of a lab, single-threaded, without hugepages, DPDK or kernel modules.
type VPP struct {
	*Process
	lab      *Lab
	programs VPPPrograms
	name     string
	ns       *Namespace
}

// startup is VPP's startup.conf. Without poll-sleep-usec VPP would take a whole core. API segment
// and sockets are the instance's own. Only listed plugins are loaded: others look for hardware or
// are missing in a small build.
var startup = template.Must(template.New("startup.conf").Parse(`unix {
  nodaemon
  log {{.Dir}}/vpp.log
  cli-listen {{.CLI}}
  runtime-dir {{.Dir}}
  poll-sleep-usec 100
}
api-segment { prefix {{.Prefix}} }
socksvr { socket-name {{.API}} }
statseg { socket-name {{.Stats}} size 64M }
memory { main-heap-size {{.Heap}} main-heap-page-size 4k }
buffers { buffers-per-numa 4096 page-size 4k }
physmem { max-size 128m }
plugins {
{{- if .Plugins}}
  path {{.Plugins}}
{{- end}}
  plugin default { disable }
  plugin af_packet_plugin.so { enable }
  plugin ping_plugin.so { enable }
  plugin l3xc_plugin.so { enable }
  plugin vxlan_plugin.so { enable }
}
{{.More}}
`))

// StartVPP starts a VPP in a namespace and waits until its API and CLI answer. The name is unique
// in the lab.
func (l *Lab) StartVPP(ctx context.Context, programs VPPPrograms, n *Namespace, name string,
	c VPPConfig) (*VPP, error) {
	v := &VPP{lab: l, programs: programs, name: name, ns: n}
	if err := v.write(c); err != nil {
		return nil, fmt.Errorf("netlab: %w", err)
	}
	if err := v.Restart(ctx); err != nil {
		return nil, err
	}
	return v, nil
}

func (v *VPP) write(c VPPConfig) error {
	if c.Heap == "" {
		c.Heap = "512M"
	}
	if err := os.MkdirAll(v.dir(), 0o700); err != nil {
		return err
	}
	f, err := os.Create(v.config())
	if err != nil {
		return err
	}
	err = startup.Execute(f, map[string]string{
		"Dir": v.dir(), "CLI": v.CLISocket(), "API": v.APISocket(), "Stats": v.StatsSocket(),
		"Prefix": v.lab.prefix + "-" + v.name, "Heap": c.Heap, "Plugins": v.programs.Plugins,
		"More": c.Args,
	})
	return errors.Join(err, f.Close())
}

// Restart starts VPP again, with an empty FIB, and waits until it answers.
func (v *VPP) Restart(ctx context.Context) (err error) {
	for _, socket := range []string{v.CLISocket(), v.APISocket(), v.StatsSocket()} {
		os.Remove(socket) // of one that was killed
	}
	v.Process, err = v.lab.Start(Spec{Name: v.name, Namespace: v.ns, Path: v.programs.VPP,
		Args: []string{"-c", v.config()}})
	if err != nil {
		return err
	}
	return v.await(ctx, func() error {
		return errors.Join(listens(v.APISocket()), listens(v.CLISocket()))
	})
}

// listens returns nil if a UNIX socket accepts connections.
func listens(socket string) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	return conn.Close()
}

func (v *VPP) dir() string    { return filepath.Join(v.lab.dir, v.name) }
func (v *VPP) config() string { return filepath.Join(v.dir(), "startup.conf") }

// APISocket is where the binary API listens.
func (v *VPP) APISocket() string { return filepath.Join(v.dir(), "api.sock") }

// CLISocket is for `vppctl -s`.
func (v *VPP) CLISocket() string { return filepath.Join(v.dir(), "cli.sock") }

// StatsSocket is the socket of the statistics segment.
func (v *VPP) StatsSocket() string { return filepath.Join(v.dir(), "stats.sock") }

// Command runs a line of VPP's CLI and returns the output. VPP has no exit status: errors are text.
func (v *VPP) Command(ctx context.Context, line string) (string, error) {
	out, err := vppCommand(ctx, v.CLISocket(), line)
	if err != nil {
		return "", fmt.Errorf("netlab: %s: %s: %w", v.name, line, err)
	}
	return out, nil
}

// asVppctl is the telnet option by which vppctl names itself: VPP then ends each answer with a zero
// byte, and prints no prompt (src/vlib/unix/cli.c, unix_cli_process_telnet).
const asVppctl = "\xff\xfa\x18\x00vppctl\xff\xf0"

// vppCommand does what `vppctl LINE` does, but takes nothing for the answer that VPP says before
// it: a VPP that has read no option after a second greets first.
func vppCommand(ctx context.Context, socket, line string) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	in := bufio.NewReader(conn)
	var answer string
	for _, send := range []string{asVppctl + "\n", line + "\n"} { // an empty line is answered, too
		if _, err := io.WriteString(conn, send); err != nil {
			return "", err
		}
		if answer, err = in.ReadString(0); err != nil {
			return "", err
		}
	}
	return strings.ReplaceAll(strings.TrimSuffix(answer, "\x00"), "\r", ""), nil
}

// Configure runs lines that print nothing on success. Any output is an error.
func (v *VPP) Configure(ctx context.Context, lines ...string) error {
	for _, line := range lines {
		out, err := v.Command(ctx, line)
		if err != nil {
			return err
		}
		if out = strings.TrimSpace(out); out != "" {
			return fmt.Errorf("netlab: %s: %s: %s", v.name, line, out)
		}
	}
	return nil
}

// CreateHost attaches the namespace's device to VPP by AF_PACKET, as interface "host-DEVICE", which
// is down. Without a hardware address VPP chooses one.
func (v *VPP) CreateHost(ctx context.Context, device string, mac net.HardwareAddr) error {
	line := "create host-interface name " + device
	if mac != nil {
		line += " hw-addr " + mac.String()
	}
	out, err := v.Command(ctx, line)
	if out = strings.TrimSpace(out); err == nil && out != "host-"+device { // what it made
		err = fmt.Errorf("netlab: %s: %s: %s", v.name, line, out)
	}
	return err
}

// Host is CreateHost, and sets the interface up with addresses. It returns the interface's name.
// The device should have no address: the kernel sees the same packets.
func (v *VPP) Host(ctx context.Context, device string,
	addresses ...netip.Prefix) (name string, err error) {
	name = "host-" + device
	if err := v.CreateHost(ctx, device, nil); err != nil {
		return "", err
	}
	lines := []string{"set interface state " + name + " up"}
	for _, a := range addresses {
		lines = append(lines, "set interface ip address "+name+" "+a.String())
	}
	return name, v.Configure(ctx, lines...)
}
