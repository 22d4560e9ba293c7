package netlab

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func findVPP(t *testing.T) VPPPrograms {
	t.Helper()
	p, err := FindVPP()
	if errors.Is(err, ErrNoVPP) {
		t.Skip(err)
	}
	check(t, err)
	return p
}

// TestVPPForwards pings from one workload to another through VPP.
func TestVPPForwards(t *testing.T) {
	programs := findVPP(t)
	l := newLab(t)
	ns := must[*Namespace](t)
	a, node, b := ns(l.Namespace("a")), ns(l.Namespace("node")), ns(l.Namespace("b"))
	for n, workload := range map[string]*Namespace{"1": a, "2": b} {
		check(t, l.Veth(
			End{Namespace: workload, Device: "eth0",
				Addresses: []netip.Prefix{pfx("10.0." + n + ".2/24"), pfx("fd00:" + n + "::2/64")}},
			End{Namespace: node, Device: "w" + n}))
		check(t, workload.AddRoute(pfx("0.0.0.0/0"), addr("10.0."+n+".1"), ""))
		check(t, workload.AddRoute(pfx("::/0"), addr("fd00:"+n+"::1"), ""))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	v, err := l.StartVPP(ctx, programs, node, "vpp", VPPConfig{})
	check(t, err)
	version, err := v.Command(ctx, "show version")
	check(t, err)
	t.Log(strings.TrimSpace(version))
	for _, n := range []string{"1", "2"} {
		name, err := v.Host(ctx, "w"+n, pfx("10.0."+n+".1/24"), pfx("fd00:"+n+"::1/64"))
		check(t, err)
		if name != "host-w"+n {
			t.Errorf("name %s", name)
		}
	}
	for _, to := range []string{"10.0.2.2", "fd00:2::2"} {
		rtt, err := a.Ping(ctx, addr(to))
		check(t, err)
		t.Logf("%s answered after %s", to, rtt)
	}
	if err := v.Configure(ctx, "set interface state host-nothing up"); err == nil {
		t.Error("a refused command is no error")
	}
	if _, err := v.Host(ctx, "nothing"); err == nil {
		t.Error("a device that is not there is no error")
	}
	check(t, v.Kill())
	check(t, v.Restart(ctx))
	fib, err := v.Command(ctx, "show ip fib")
	check(t, err)
	if strings.Contains(fib, "10.0.1.0/24") {
		t.Error("the FIB is not empty after a restart")
	}
	check(t, v.Kill()) // so that Close finds what a killed VPP leaves in shared memory
}

// TestVPPGreetsFirst has the CLI of a VPP that is behind: it greets before it reads.
func TestVPPGreetsFirst(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cli.sock")
	listener, err := net.Listen("unix", socket)
	check(t, err)
	defer listener.Close()
	served := make(chan error, 1)
	go func() {
		served <- func() error {
			conn, err := listener.Accept()
			if err != nil {
				return err
			}
			defer conn.Close()
			lines := bufio.NewScanner(conn)
			for _, say := range []string{
				"\xff\xfd\x18\r    _______    _\r\n __/ __/ _ \\  (_)\r\n\r\nvpp# ",
				"\x00", "vpp v25.10\r\nbuilt\r\n\x00",
			} {
				if _, err := io.WriteString(conn, say); err != nil {
					return err
				}
				lines.Scan()
			}
			return lines.Err()
		}()
	}()
	out, err := vppCommand(t.Context(), socket, "show version")
	if out != "vpp v25.10\nbuilt\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	check(t, <-served)
	listener.Close()
	if _, err := vppCommand(t.Context(), socket, "show version"); err == nil {
		t.Error("nobody answers, and that is no error")
	}
}
