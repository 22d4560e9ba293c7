package demo

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"vpp-route-agent/internal/netlab"
)

// changeLog is what a kernel itself says about its routes: the lines of `ip monitor route`, which runs for as long as the lab.
type changeLog struct{ process *netlab.Process }

func watchChanges(lab *netlab.Lab, n *node) (*changeLog, error) {
	p, err := lab.Start(netlab.Spec{Name: n.name + "-routes", Namespace: n.ns, Path: "ip", Args: []string{"-4", "-N", "monitor", "route"}})
	return &changeLog{p}, err
}

// lines returns the changes so far of routes with that protocol number.
func (c *changeLog) lines(number string) ([]string, error) {
	text, err := os.ReadFile(c.process.LogPath())
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(text)) {
		if line = strings.Join(strings.Fields(line), " "); strings.Contains(line+" ", " proto "+number+" ") {
			found = append(found, line)
		}
	}
	return found, nil
}

// changes returns how often the BGP speaker has changed the kernel's routes so far.
func (k *kernelFIB) changes() ([]string, error) { return k.log.lines(k.protocol.number) }

// onlyDeleted notes whether the only change in the kernel of n after the first before was that the route to p went.
func (r *report) onlyDeleted(n *node, before int, p netip.Prefix) error {
	k, ok := n.fib.(*kernelFIB)
	if !ok {
		return nil // VPP keeps no such log
	}
	all, err := k.changes()
	if err != nil {
		return err
	}
	changes := all[before:]
	good := len(changes) == 1 && strings.HasPrefix(changes[0], "Deleted "+p.String()+" ")
	detail := "ip monitor: " + strings.Join(changes, "; ")
	if good {
		detail = "ip monitor: Deleted " + p.String()
	}
	r.check(good, fmt.Sprintf("the kernel of %s saw one change of a learned route, no more", n.name), detail)
	return nil
}

// changesSoFar is where onlyDeleted begins to count.
func (n *node) changesSoFar() (int, error) {
	k, ok := n.fib.(*kernelFIB)
	if !ok {
		return 0, nil
	}
	all, err := k.changes()
	return len(all), err
}
