package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vpp-route-agent/internal/adminclient"
	"vpp-route-agent/internal/netlab"
)

const (
	nobody = 65534
	users  = "100" // a group that every Debian has; VPP wants to find its own in /etc/group
)

// TestAgentNeedsTwoCapabilities runs the agent as the systemd unit does, as a user who has
// NET_ADMIN and NET_BIND_SERVICE only and can get no more: it listens on port 179, and the kernel
// takes its routes.
func TestAgentNeedsTwoCapabilities(t *testing.T) {
	t.Parallel()
	l := newLab(t, "privileges")
	us := l.agentNode(t, "us", "10.0.0.2/24")
	nine := l.birdNode(t, "nine", "10.0.0.9/24", "10.0.0.2")
	nine.setBlocks(t, "10.1.0.64/26")
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	nine.start(t)
	us.startUnprivileged(t, "net_bind_service,net_admin", "--dataplane", "kernel",
		"--kernel-protocol", agentProtocol)
	us.awaitPeers(t, "10.0.0.9")
	us.awaitFIB(t, "-4", "10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.9")
	us.hasCapabilities(t, "0000000000001400")
}

// TestAgentThatMayNotRouteIsNotReady: without NET_ADMIN the kernel can be read, and takes no route.
func TestAgentThatMayNotRouteIsNotReady(t *testing.T) {
	t.Parallel()
	l := newLab(t, "powerless")
	us := l.agentNode(t, "us", "10.0.0.2/24")
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	us.startUnprivileged(t, "net_bind_service", "--dataplane", "kernel",
		"--kernel-protocol", agentProtocol)
	await(t, "the agent says what it may not do", func(ctx context.Context) error {
		s, err := us.agent.Status(ctx)
		if err != nil {
			return err
		}
		for _, c := range s.Conditions {
			if c.Name == "dataplane" && !c.OK &&
				strings.Contains(c.Message, "it refuses all 1 routes") &&
				strings.Contains(c.Message, "CAP_NET_ADMIN") && !s.Ready {
				return nil
			}
		}
		return fmt.Errorf("ready %t: %+v", s.Ready, s.Conditions)
	})
}

// TestAgentOnVPPNeedsOneCapability is the same with VPP, whose socket is its group's by the
// deployed fragment of startup.conf.
func TestAgentOnVPPNeedsOneCapability(t *testing.T) {
	t.Parallel()
	vpp := needVPP(t)
	l := newLab(t, "privilegesvpp")
	us := l.agentNode(t, "us", "10.0.0.2/24")
	nine := l.birdNode(t, "nine", "10.0.0.9/24", "10.0.0.2")
	nine.setBlocks(t, "10.1.0.64/26")
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	v := us.startVPP(t, vpp)
	nine.start(t)
	us.startUnprivileged(t, "net_bind_service", "--dataplane", "vpp", "--vpp-socket", v.APISocket())
	us.awaitPeers(t, "10.0.0.9")
	await(t, "VPP has the route", func(ctx context.Context) error {
		out, err := v.Command(ctx, "show ip fib 10.1.0.64/26")
		if err == nil &&
			(!strings.Contains(out, "vpp-route-agent") || !strings.Contains(out, "10.0.0.9")) {
			err = errors.New(out)
		}
		return err
	})
	us.hasCapabilities(t, "0000000000000400")
	s, err := us.agent.Status(t.Context())
	check(t, err)
	if s.FIB.Journal != "ok" {
		t.Errorf("journal: %s", s.FIB.Journal)
	}
}

// needVPP finds VPP's programs, or skips the test.
func needVPP(t *testing.T) netlab.VPPPrograms {
	t.Helper()
	vpp, err := netlab.FindVPP()
	if errors.Is(err, netlab.ErrNoVPP) {
		t.Skip(err)
	}
	check(t, err)
	return vpp
}

// startVPP runs a VPP beside the node's kernel, with an interface in the underlay. Its sockets are
// where the deployed fragment says, below the lab's folder, and its group is users.
func (n *agentNode) startVPP(t *testing.T, programs netlab.VPPPrograms) *netlab.VPP {
	t.Helper()
	n.openFolders(t)
	check(t, n.lab.Attach(n.lab.Underlay, netlab.End{Namespace: n.NS, Device: "uplink"}))
	raw, err := os.ReadFile("../../deploy/vpp/startup.conf")
	check(t, err)
	dir := filepath.Join(n.lab.Dir(), "vpp")
	fragment := string(raw)
	for _, change := range []struct{ from, to string }{
		{"/run/vpp/", dir + "/"}, {"gid vpp", "gid " + users},
		{"main-heap-size 2G", "main-heap-size 512M main-heap-page-size 4k"},
	} {
		if !strings.Contains(fragment, change.from) {
			t.Fatalf("startup.conf has no %q", change.from)
		}
		fragment = strings.ReplaceAll(fragment, change.from, change.to)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	check(t, os.Mkdir(dir, 0o711))
	v, err := n.lab.StartVPP(ctx, programs, n.NS, "vpp", netlab.VPPConfig{Args: fragment})
	check(t, err)
	_, err = v.Host(ctx, "uplink", pfx("10.0.0.102/24"))
	check(t, err)
	return v
}

// startUnprivileged runs the agent as nobody with these capabilities.
func (n *agentNode) startUnprivileged(t *testing.T, capabilities string, dataplane ...string) {
	t.Helper()
	n.openFolders(t)
	home := filepath.Join(n.lab.Dir(), n.name+".home")
	check(t, os.Mkdir(home, 0o755))
	check(t, os.Chown(home, nobody, nobody))
	n.agent.Socket = filepath.Join(home, "agent.sock")
	n.agent.Admin = adminclient.New(n.agent.Socket)
	n.agent.StateDir = filepath.Join(home, "state")
	only := "-all,+" + strings.ReplaceAll(capabilities, ",", ",+")
	n.agent.Wrap = []string{
		"setpriv", "--reuid", fmt.Sprint(nobody), "--regid", fmt.Sprint(nobody), "--groups", users,
		"--no-new-privs", "--inh-caps", only, "--ambient-caps", only, "--bounding-set", only,
	}
	n.agent.Dataplane = dataplane
	n.start(t)
}

// openFolders lets nobody pass to the binary and into the lab's folder.
func (n *agentNode) openFolders(t *testing.T) {
	t.Helper()
	for _, dir := range []string{filepath.Dir(programs.Agent), n.lab.Dir()} {
		check(t, os.Chmod(dir, 0o711))
	}
}

// hasCapabilities looks at what the kernel grants the agent: user nobody, and one set of
// capabilities as all it has and may ever get.
func (n *agentNode) hasCapabilities(t *testing.T, mask string) {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.agent.PID()))
	check(t, err)
	has := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		key, value, _ := strings.Cut(line, ":")
		has[key] = strings.Join(strings.Fields(value), " ")
	}
	if has["Uid"] != "65534 65534 65534 65534" || has["CapEff"] != mask || has["CapPrm"] != mask ||
		has["CapBnd"] != mask || has["NoNewPrivs"] != "1" {
		t.Errorf("Uid %s, CapEff %s, CapPrm %s, CapBnd %s, NoNewPrivs %s",
			has["Uid"], has["CapEff"], has["CapPrm"], has["CapBnd"], has["NoNewPrivs"])
	}
}
