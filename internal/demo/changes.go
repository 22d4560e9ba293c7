package demo

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"vpp-route-agent/internal/netlab"
)

// changeLog is what a kernel itself says about its routes: the lines of `ip monitor route`, which
// runs for as long as the lab.
type changeLog struct{ process *netlab.Process }

func (d *demo) watchChanges(n *node) (*changeLog, error) {
	p, err := d.Start(netlab.Spec{Name: n.Name + "-routes", Namespace: n.NS, Path: "ip",
		Args: []string{"-4", "monitor", "route"}})
	return &changeLog{p}, err
}

// learnedChanges returns the changes so far of the speaker's routes; VPP keeps no such log.
func (n *node) learnedChanges() (found []string, err error) {
	if n.changes == nil {
		return nil, nil
	}
	text, err := os.ReadFile(n.changes.process.LogPath())
	for line := range strings.Lines(string(text)) {
		line = strings.Join(strings.Fields(line), " ")
		if strings.Contains(line+" ", " proto "+n.speaker.Protocol()+" ") {
			found = append(found, line)
		}
	}
	return found, err
}

// onlyDeleted notes whether the only change in the kernel of n after the first before was that the
// route to p went.
func (r *report) onlyDeleted(n *node, before int, p netip.Prefix) error {
	all, err := n.learnedChanges()
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
