package reflectors

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"vpp-route-agent/bgp/reflector"
)

const (
	// leastPause and mostPause bound the time between two readings of the datastore.
	leastPause = 200 * time.Millisecond
	mostPause  = 2 * time.Second
	// lookAgain is when a decision is made anew that may depend on time alone.
	lookAgain = time.Second
	// statePause is the shortest time between two writes of the state.
	statePause = time.Second
)

// leader decides and writes while a controller leads. What it knows besides that begins with it:
// since when it is connected, which agents it has lost since, and the answers to its questions.
type leader struct {
	*Controller
	term  term
	began time.Time
	// goalSeen is when the goal was first seen as it is.
	goalSeen time.Time

	last  *reading
	world *reflector.World // of last.objects
	epoch int64            // the revision at which a change of these was seen
	lost  map[string]time.Time
	asking
	birds
	fromKubernetes kubernetesSet

	state, told State
	toldAt      time.Time
	waiting     time.Time         // since when; zero: for nothing
	named       map[string]string // problems that were logged, by key
}

// lead works until an error.
func (l *leader) lead(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	changed := make(chan struct{}, 1)
	watching.Go(func() { l.follow(ctx, changed) })
	defer l.leave(ctx)
	stale, timer := true, time.NewTimer(0)
	defer timer.Stop()
	pause := leastPause
	for {
		began := time.Now()
		next, err := l.turn(ctx, stale)
		if err != nil {
			return err
		}
		l.update(func(s *ControllerStatus) { s.Leads = true })
		if stale { // a large cluster takes long to read
			pause = min(max(leastPause, 5*time.Since(began)), mostPause)
		}
		stale = false
		timer.Reset(max(0, time.Until(next)))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
			stale = true
		case <-timer.C:
			continue
		}
		timer.Reset(time.Until(began.Add(pause)))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		select { // one reading sees all that has come meanwhile
		case <-changed:
		default:
		}
	}
}

// follow tells of changes.
func (l *leader) follow(ctx context.Context, changed chan<- struct{}) {
	tell := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { l.term.follow(ctx, tell) })
	all.Go(func() { l.followKubernetes(ctx, tell) })
}

// turn decides once and does what follows. It returns when to decide again at the latest.
func (l *leader) turn(ctx context.Context, stale bool) (next time.Time, err error) {
	if stale || l.last == nil {
		if err := l.look(ctx); err != nil {
			return next, err
		}
		stale = true
	}
	if noted, err := l.noteAgents(ctx); err != nil || noted {
		return time.Now().Add(leastPause), err // on a conflict the watch is behind
	}
	if err := l.hearBirds(ctx); err != nil {
		return next, err
	}
	d := l.decide(time.Now())
	if d.Step != nil && !stale { // only time has brought it: is the rest as it was?
		if err := l.look(ctx); err != nil {
			return next, err
		}
		d = l.decide(time.Now())
	}
	if d.Step != nil {
		return l.take(ctx, d.Step)
	}
	next = time.Now().Add(lookAgain)
	if d.Wait != nil && len(d.Wait.Birds) > 0 {
		due, err := l.askBirds(ctx, d.Wait.Birds)
		if err != nil {
			return next, err
		}
		next = earlier(next, due)
	} else if err := l.endBirds(ctx); err != nil {
		return next, err
	}
	switch {
	case d.Wait != nil && d.Wait.Ask != nil:
		due, err := l.ask(ctx, d.Wait)
		if err != nil {
			return next, err
		}
		next = earlier(next, due)
	case d.Wait == nil || d.Wait.Person:
		if err := l.endQuestion(ctx); err != nil {
			return next, err
		}
	}
	l.state.Goal = l.last.goalRevision
	if d.Wait != nil {
		l.waitFor(d.Wait.What, d.Wait.Person)
	} else {
		l.state.Done, l.state.Waits, l.state.Person, l.waiting = d.Done, "", false, time.Time{}
	}
	return next, l.tell(ctx)
}

// waitFor notes what the next step waits for.
func (l *leader) waitFor(what string, person bool) {
	l.state.Done, l.state.Waits, l.state.Person = "", what, person
	if l.waiting.IsZero() {
		l.waiting = time.Now()
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// look reads the datastore.
func (l *leader) look(ctx context.Context) error {
	r, err := l.term.read(ctx, l.version)
	if err != nil {
		return err
	}
	now := time.Now()
	if l.last != nil && (r.cluster != l.last.cluster || r.revision < l.last.revision) {
		return errNoSuchHistory
	}
	if l.world == nil || l.last == nil || !maps.Equal(r.revisions(), l.last.revisions()) {
		l.world, l.epoch = reflector.Read(r.objects), r.revision
		l.asking.changed()
		l.birds.changed()
	}
	if l.last == nil || l.last.goalRevision != r.goalRevision {
		l.goalSeen = now
	}
	l.last = r
	l.update(func(s *ControllerStatus) {
		s.Undone = r.goal.Undo != "" && r.goal.Undo != reflector.Aborted
	})
	l.nameProblems()
	agents := map[string]reflector.Agent{}
	for _, node := range r.known() {
		status, there := r.statuses[node]
		switch {
		case there:
			delete(l.lost, node)
		case l.lost[node].IsZero():
			l.lost[node] = now
		}
		agents[node] = reflector.Agent{Status: status.Status, Lost: l.lost[node]}
		for _, a := range r.answers[node] {
			if a.id == l.term.id() {
				l.asking.hear(node, a.Answer)
			}
		}
	}
	l.world.Version, l.world.Connected, l.world.Agents = l.version, l.began, agents
	l.world.GoalSeen = l.goalSeen
	return nil
}

// decide is what Next says now. An answer from before the agent's status changed does not count,
// nor does one from before a resource did.
func (l *leader) decide(now time.Time) reflector.Decision {
	if err := l.last.problem(); err != nil {
		return reflector.Decision{Wait: &reflector.Wait{What: err.Error(), Person: true}}
	}
	l.world.Now = now
	l.consult(now)
	for node, a := range l.world.Agents {
		a.Answers = l.asking.of(node, max(l.epoch, l.last.statuses[node].revision), now)
		l.world.Agents[node] = a
	}
	l.world.Birds = l.birds.of(l.epoch, now)
	return reflector.Next(l.world, l.last.goal)
}

// noteAgents notes which nodes have had an agent, once there is a goal.
func (l *leader) noteAgents(ctx context.Context) (noted bool, err error) {
	known := l.last.known()
	mode := cmp.Or(l.last.goal.Mode, reflector.Observe)
	if mode == reflector.Observe || l.last.problem() != nil ||
		slices.Equal(known, l.last.agents) {
		return false, nil
	}
	err = l.term.note(ctx, l.last, known)
	l.last = nil
	return true, err
}

// take writes a step, unless something that it depends on has changed. Then all is read anew.
func (l *leader) take(ctx context.Context, s *reflector.Step) (next time.Time, err error) {
	taken, err := l.term.take(ctx, l.last, s)
	l.last = nil
	switch {
	case err != nil:
		return next, fmt.Errorf("%s: %w", s.Does, err)
	case !taken:
		l.log.Info("not taken, since something it depends on has changed", "step", s.Does)
		l.waitFor("Nodes, BGPPeers, BGPConfigurations or the goal to stay as they were read, for "+
			"the step: "+s.Does, false)
		return time.Now().Add(leastPause), l.tell(ctx)
	}
	l.log.Info("step taken", "step", s.Does)
	l.state.Last, l.state.LastAt, l.waiting = s.Does, time.Now(), time.Time{}
	l.update(func(st *ControllerStatus) { st.Steps++ })
	return time.Now(), errors.Join(l.endQuestion(ctx), l.endBirds(ctx))
}

// ask puts a question, if it is time, and returns when to put it next.
func (l *leader) ask(ctx context.Context, w *reflector.Wait) (due time.Time, err error) {
	nodes := slices.DeleteFunc(slices.Clone(w.Nodes), func(n string) bool {
		_, isAgent := l.world.Agents[n]
		return !isAgent
	})
	if due := l.asking.due(*w.Ask, nodes); time.Now().Before(due) {
		return due, nil
	}
	at := time.Now() // before: an answer is no older than its question
	revision, err := l.term.ask(ctx, *w.Ask)
	if err != nil {
		return due, err
	}
	l.asking.put(*w.Ask, round{revision, at})
	return l.asking.due(*w.Ask, nodes), nil
}

// endQuestion takes the question back, which has agents delete their answers.
func (l *leader) endQuestion(ctx context.Context) error {
	if !l.asked {
		return nil
	}
	err := l.term.endQuestion(ctx)
	l.end()
	return err
}

// tell writes the state for people, if it has changed.
func (l *leader) tell(ctx context.Context) error {
	l.update(func(s *ControllerStatus) { s.State, s.Waiting = l.state, l.waiting })
	if l.state == l.told || time.Since(l.toldAt) < statePause {
		return nil
	}
	if l.state.Waits != l.told.Waits && l.state.Waits != "" {
		l.log.Debug("waiting", "for", l.state.Waits)
	}
	err := l.term.tell(ctx, l.state)
	l.told, l.toldAt = l.state, time.Now()
	return err
}

func (s State) encode() string { return string(encode(s)) }

func encodeAgents(nodes []string) []byte { return encode(nodes) }

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("reflectors: " + err.Error()) // it is made of texts, numbers and times
	}
	return text
}

// nameProblems logs each problem of what agents say when it appears or changes.
func (l *leader) nameProblems() {
	now := map[string]string{}
	for _, p := range l.last.problems {
		now[p.Key] = p.Err
		if l.named[p.Key] != p.Err {
			l.log.Warn("an agent cannot be understood", "key", p.Key, "err", p.Err)
		}
	}
	l.named = now
}
