package interop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

var findBgpdump = sync.OnceValues(func() (netlab.Package, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	return netlab.Unpack(ctx, packages, "bgpdump", "1.")
})

// TestMRT has BIRD, FRR and a speaker that sends nonsense say something, and Debian's bgpdump and
// the gobgp command read what the agent has recorded of it.
func TestMRT(t *testing.T) {
	t.Parallel()
	bgpdump, err := findBgpdump()
	if err != nil {
		t.Skip(err)
	}
	t.Attr("part", "bgpdump "+bgpdump.Version)
	const torAS4 = 4_200_000_001
	l := newLab(t, "mrt")
	us := l.agentNode(t, "us", "10.0.0.2/24", "fd00::2/64")
	nine := l.birdNode(t, "nine", "10.0.0.9/24", "10.0.0.2")
	far := l.rawSpeaker(t, "far", "10.0.0.3/24", 65003, 0)
	community := []string{"exit", "route-map OUT permit 10", "set community 65001:7",
		"set large-community 4200000001:1:2"}
	l.frrRouter(t, "tor", torAS4, "10.0.0.1/24", slices.Concat(frrPeer("10.0.0.2", asNumber),
		[]string{"network 10.99.0.0/24 route-map OUT"}, community)...)
	tor6 := l.frrRouter(t, "tor6", torAS4, "fd00::7/64", slices.Concat(
		frrPeer("fd00::2", asNumber), []string{"address-family ipv6 unicast",
			"neighbor fd00::2 activate", "network fd99::/64"})...)
	l.apply(t, testcluster.Peer("tor", "10.0.0.1", torAS4, "")+
		testcluster.Peer("tor6", "fd00::7", torAS4, "")+
		testcluster.Peer("far", "10.0.0.3", 65003, ""))
	nine.setBlocks(t, "10.1.64.0/26")
	nine.start(t)
	us.start(t)
	peers := []string{"10.0.0.1", "10.0.0.3", "10.0.0.9", "fd00::7"}
	us.awaitPeers(t, peers...)
	far.awaitSession(t)
	far.update(t, nil, []byte(origin+asPath+nextHop), pfx("10.1.210.0/26"))
	us.awaitFIB(t, "-4", "10.1.64.0/26 via 10.0.0.9", "10.1.210.0/26 via 10.0.0.3",
		"10.99.0.0/24 via 10.0.0.1")
	us.awaitFIB(t, "-6", "fd99::/64 via fd00::7")
	nine.config.Blocks = nil
	nine.reconfigure(t)
	far.update(t, nil, []byte("\x40\x01\x01\x07"+asPath+nextHop), pfx("10.1.210.0/26")) // ORIGIN 7
	check(t, tor6.Configure(t.Context(), fmt.Sprintf("router bgp %d", uint32(torAS4)),
		"address-family ipv6 unicast", "no network fd99::/64"))
	us.awaitFIB(t, "-6")
	us.awaitFIB(t, "-4", "10.99.0.0/24 via 10.0.0.1")

	want := []string{
		`BGP4MP_ET|T|STATE|10.0.0.1|4200000001|5|6`,
		`BGP4MP_ET|T|STATE|fd00::7|4200000001|5|6`,
		`BGP4MP_ET|T|A|fd00::7|4200000001|fd99::/64|4200000001|IGP|fd00::7|0|0||NAG||`,
		`BGP4MP_ET|T|W|fd00::7|4200000001|fd99::/64`,
		`BGP4MP_ET|T|A|10.0.0.1|4200000001|10.99.0.0/24|4200000001|IGP|10.0.0.1|0|0|65001:7|NAG||`,
		`BGP4MP_ET_AP|T|A|10.0.0.9|64512|10.1.64.0/26|ID||IGP|10.0.0.9|2147482623|0||NAG||`,
		`BGP4MP_ET_AP|T|W|10.0.0.9|64512|10.1.64.0/26|ID`,
		`BGP4MP_ET|T|A|10.0.0.3|65003|10.1.210.0/26|65003|IGP|10.0.0.3|0|0||NAG||`,
		// as it was received: the agent took it for a withdrawal
		`BGP4MP_ET|T|A|10.0.0.3|65003|10.1.210.0/26|65003|INCOMPLETE|10.0.0.3|0|0||NAG||`,
	}
	var text string // what bgpdump prints
	await(t, "all is on disk", func(ctx context.Context) (err error) {
		if text, err = us.mrt(ctx, bgpdump, us.agent.StateDir); err != nil {
			return err
		}
		got := strings.Split(steadyMRT(text), "\n")
		for _, line := range want {
			if !slices.Contains(got, line) {
				return fmt.Errorf("bgpdump does not print %s of\n%s", line, text)
			}
		}
		return nil
	})

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	t.Run("a dump that is cut anywhere is read up to there", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "cut.mrt")
		whole := us.mrtFile(t)
		for n := 0; n < len(whole); n += 1 + len(whole)/60 {
			check(t, os.WriteFile(file, whole[:n], 0o600))
			cut, err := us.bgpdump(ctx, bgpdump, file)
			check(t, err)
			if !strings.HasPrefix(text, cut) {
				t.Fatalf("cut at byte %d of %d it is\n%s", n, len(whole), cut)
			}
		}
	})
	t.Run("gobgp reads it", func(t *testing.T) {
		for _, flags := range [][]string{nil, {"--whole-seconds"}} {
			file := filepath.Join(t.TempDir(), "all.mrt")
			check(t, os.WriteFile(file, us.mrtFile(t, flags...), 0o600))
			out, err := us.NS.Run(ctx, programs.gobgp, "-d", "mrt", "inject", "global", file)
			check(t, err)
			for _, want := range []string{
				`BGP4MP_MSG_AS4: PeerAS [4200000001] LocalAS [64512] InterfaceIndex [0] ` +
					`PeerIP [fd00::7] LocalIP [fd00::2]`,
				`BGP4MP_MSG_AS4_ADDPATH: PeerAS [64512] LocalAS [64512] InterfaceIndex [0] ` +
					`PeerIP [10.0.0.9] LocalIP [10.0.0.2]`,
			} {
				if !strings.Contains(string(out), want) || strings.Contains(string(out), "failed") {
					t.Errorf("gobgp does not print %s of\n%s", want, out)
				}
			}
		}
	})
	t.Run("of one peer", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "one.mrt")
		check(t, os.WriteFile(file, us.mrtFile(t, "--peer", "10.0.0.3", "--since", "1h"), 0o600))
		one, err := us.bgpdump(ctx, bgpdump, file)
		check(t, err)
		if n := strings.Count(one, "|10.0.0.3|"); n < 3 || n < strings.Count(one, "\n") {
			t.Errorf("bgpdump prints\n%s", one)
		}
	})
}

// mrt is what bgpdump prints of all that was recorded, as the agent's files have it: no command of
// ours is needed.
func (n *agentNode) mrt(ctx context.Context, bgpdump netlab.Package, stateDir string) (string,
	error) {
	files, err := filepath.Glob(filepath.Join(stateDir, "recorder", "updates", "*.mrt"))
	if err == nil && len(files) != 1 {
		err = fmt.Errorf("the files are %v", files)
	}
	if err != nil {
		return "", err
	}
	return n.bgpdump(ctx, bgpdump, files[0])
}

func (n *agentNode) bgpdump(ctx context.Context, p netlab.Package, file string) (string, error) {
	out, err := n.NS.Run(ctx, "env", append(p.Env(), filepath.Join(p.Root, "usr/bin/bgpdump"),
		"-q", "-m", file)...)
	return string(out), err
}

// mrtFile is what the agent's command writes.
func (n *agentNode) mrtFile(t *testing.T, flags ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := n.NS.Run(ctx, programs.Agent,
		append([]string{"mrt", "--state-dir", n.agent.StateDir}, flags...)...)
	check(t, err)
	return out
}

// steadyMRT replaces times and path identifiers, which the sender has chosen.
func steadyMRT(text string) string {
	text = regexp.MustCompile(`\|\d+\.\d{6}\|`).ReplaceAllString(text, "|T|")
	return regexp.MustCompile(`(_AP.*/\d+)\|\d+`).ReplaceAllString(text, "$1|ID")
}
