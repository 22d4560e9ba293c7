package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"
)

// session is one of an agent's, by the agent's node and the peer.
type session struct {
	node string
	peer netip.Addr
}

// sessions is when each session of the agents came up: the zero Time while it is down.
func (c *cluster) sessions(ctx context.Context) (map[session]time.Time, error) {
	since := map[session]time.Time{}
	for _, n := range c.agents() {
		s, err := n.agent().Status(ctx)
		if err != nil {
			return nil, err
		}
		for _, p := range s.BGP.Peers {
			at := time.Time{}
			if p.Established && p.Since != nil {
				at = *p.Since
			}
			since[session{n.Name, p.Address}] = at
		}
	}
	return since, nil
}

// sessionsKept sees that no session has gone down since before, but for those touched.
func (c *cluster) sessionsKept(
	ctx context.Context, before map[session]time.Time, touched map[session]bool,
) error {
	after, err := c.sessions(ctx)
	if err != nil {
		return err
	}
	for s, was := range before {
		if is, known := after[s]; !touched[s] && (!known || !is.Equal(was)) {
			return fmt.Errorf(
				"the session of %s with %s went down without a cause: up since %s, before since %s",
				s.node, s.peer, is, was)
		}
	}
	return nil
}
