package demo

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
)

// learnedChanges returns the changes so far of the speaker's routes; VPP keeps no such log.
func (n *node) learnedChanges(ctx context.Context) ([]string, error) {
	if n.changes == nil {
		return nil, nil
	}
	return n.changes.Changes(ctx, n.speaker.Protocol())
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
