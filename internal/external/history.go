package external

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
)

// maxHistory bounds how many changes are remembered.
const maxHistory = 200

// Event is a change of what an adapter's sources want.
type Event struct {
	Adapter  string
	Revision int64    // the adapter's number
	Sources  []string // those that changed
	At       time.Time
	// Put and Deleted count items.
	Put, Deleted int
	// Answered is when the data plane had answered for all items; zero: it has not yet.
	Answered time.Time
}

// History returns the last changes, the oldest first.
func (c *Controller) History() []Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.history)
}

// remember notes what a new snapshot changes. The caller holds mu.
func (c *Controller) remember(adapter string, before *Snapshot, now Snapshot, at time.Time) {
	e := Event{Adapter: adapter, Revision: now.Revision, At: at}
	if before == nil {
		before = &Snapshot{}
	}
	old := map[string]Source{}
	for _, s := range before.Sources {
		old[s.Name] = s
	}
	for _, s := range now.Sources {
		put, deleted := difference(old[s.Name].Items, s.Items)
		if e.Put, e.Deleted = e.Put+put, e.Deleted+deleted; put+deleted > 0 {
			e.Sources = append(e.Sources, s.Name)
		}
		delete(old, s.Name)
	}
	for _, s := range old {
		if e.Deleted += len(s.Items); len(s.Items) > 0 {
			e.Sources = append(e.Sources, s.Name)
		}
	}
	if len(e.Sources) == 0 {
		return
	}
	slices.Sort(e.Sources)
	c.history = append(c.history, e)
	if len(c.history) > maxHistory {
		c.history = slices.Clone(c.history[len(c.history)-maxHistory:])
	}
}

func difference(before, now map[string]Item) (put, deleted int) {
	for key, item := range now {
		old, there := before[key]
		if !there || old.Problem != item.Problem || !proto.Equal(old.Message, item.Message) {
			put++
		}
	}
	for key := range before {
		if _, there := now[key]; !there {
			deleted++
		}
	}
	return put, deleted
}

// answeredUpTo notes that the data plane has answered. The caller holds mu.
func (c *Controller) answeredUpTo(adapter string, revision int64, at time.Time) {
	for i := range c.history {
		e := &c.history[i]
		if e.Adapter == adapter && e.Revision <= revision && e.Answered.IsZero() {
			e.Answered = at
		}
	}
}
