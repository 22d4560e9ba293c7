package demo

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"vpp-route-agent/internal/netlab"
)

// changeLog is what a kernel itself says about its routes: the lines of `ip monitor route`, which
// runs for as long as the lab.
type changeLog struct {
	process *netlab.Process
	marks   int // set so far
}

func (d *demo) watchChanges(n *node) (*changeLog, error) {
	p, err := d.Start(netlab.Spec{Name: n.Name + "-routes", Namespace: n.NS, Path: "ip",
		Args: []string{"-4", "monitor", "route"}})
	return &changeLog{process: p}, err
}

// learnedChanges returns the changes so far of the speaker's routes; VPP keeps no such log.
func (n *node) learnedChanges(ctx context.Context) (found []string, err error) {
	if n.changes == nil {
		return nil, nil
	}
	text, err := n.changes.read(ctx, n.NS)
	for line := range strings.Lines(text) {
		line = strings.Join(strings.Fields(line), " ")
		if strings.Contains(line+" ", " proto "+n.speaker.Protocol()+" ") {
			found = append(found, line)
		}
	}
	return found, err
}

// read returns the log of all that has happened in ns. The program that writes it may be behind:
// a route to an address for documentation (RFC 5737) comes and goes, and is waited for.
func (c *changeLog) read(ctx context.Context, ns *netlab.Namespace) (text string, err error) {
	c.marks++
	mark := fmt.Sprintf("198.51.100.%d", c.marks)
	for _, verb := range []string{"add", "del"} {
		if _, err := ns.Run(ctx, "ip", "route", verb, "unreachable", mark); err != nil {
			return "", err
		}
	}
	err = await(ctx, settlePatience, func(context.Context) error {
		log, err := os.ReadFile(c.process.LogPath())
		text = string(log)
		return held(strings.Contains(text, "Deleted unreachable "+mark+" "), err)
	})
	return text, err
}

// onlyDeleted notes whether the only change in the kernel of n after the first before was that the
// route to p went.
func (r *report) onlyDeleted(ctx context.Context, n *node, before int, p netip.Prefix) error {
	all, err := n.learnedChanges(ctx)
	if err != nil || n.changes == nil {
		return err
	}
	changes := all[before:]
	good := len(changes) == 1 && strings.HasPrefix(changes[0], "Deleted "+p.String()+" ")
	detail := "ip monitor: " + strings.Join(changes, "; ")
	if good {
		detail = "ip monitor: Deleted " + p.String()
	}
	r.check(good, fmt.Sprintf("the kernel of %s saw one change of a learned route, no more",
		n.Name),
		detail)
	return nil
}
