package reflectors

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico"
)

const (
	// birdPause is between two readings of answers that are waited for.
	birdPause = 300 * time.Millisecond
	// mostBirds are asked at a time: an answer has BIRD's whole table.
	mostBirds = 9
	// birdPatience is how long an answer is waited for. calico-node asks each BIRD several times,
	// for 2 s each.
	birdPatience = 20 * time.Second
	// birdMaxAge is how long an answer counts, or birdShare for each node if that is longer: all
	// have to be asked twice within it, and 1000 take minutes.
	birdMaxAge = 5 * time.Minute
	birdShare  = time.Second
	// A node is asked again after a time that doubles from askAgain to askBirdLater, or after
	// askSilent if it has not answered.
	askBirdLater = 15 * time.Second
	askSilent    = time.Minute
)

// birds are the questions to nodes with BIRD, and the answers. They do no I/O. Whoever leads anew
// begins with empty ones.
type birds struct {
	patience time.Duration // birdPatience

	open   map[string]birdQuestion // by key
	nodes  map[string]*birdNode
	serial int
	// swept: what an earlier controller has left is gone.
	swept bool
	// garbled are the keys whose values cannot be read, which was logged.
	garbled map[string]bool
}

type birdQuestion struct {
	node string
	round
}

type birdNode struct {
	asked  time.Time // last
	count  int       // of answers since the last change
	silent bool
	heard  []heardBird
}

type heardBird struct {
	round
	answer calico.NodeStatus
}

// changed notes that what the answers are about has changed: no earlier one counts.
func (b *birds) changed() {
	for _, n := range b.nodes {
		n.heard, n.count = nil, 0
	}
}

// put notes that a node was asked.
func (b *birds) put(key, node string, r round) {
	if b.open == nil {
		b.open, b.nodes = map[string]birdQuestion{}, map[string]*birdNode{}
	}
	b.open[key] = birdQuestion{node, r}
	if b.nodes[node] == nil {
		b.nodes[node] = &birdNode{}
	}
	b.nodes[node].asked = r.at
}

// hear takes what there is under a key, and reports whether the key may go: it is answered, or
// nobody's who asks now.
func (b *birds) hear(key string, s calico.NodeStatus) (done bool) {
	q, ours := b.open[key]
	if !ours || !s.Answered {
		return !ours && reflector.IsBirdQuestion(s)
	}
	n := b.nodes[q.node]
	n.silent = false
	n.count++
	if last := len(n.heard) - 1; last >= 0 && slices.Equal(n.heard[last].answer.Routes, s.Routes) {
		s.Routes = n.heard[last].answer.Routes // a table is large
	}
	n.heard = append(n.heard[max(0, len(n.heard)-1):], heardBird{q.round, s}) // a gate needs two
	return true
}

// giveUp returns the questions that have waited too long. Their nodes count as silent.
func (b *birds) giveUp(now time.Time) (keys []string) {
	for key, q := range b.open {
		if now.Sub(q.at) >= b.patience {
			b.nodes[q.node].silent = true
			keys = append(keys, key)
		}
	}
	return keys
}

// gone notes that keys are not there any more.
func (b *birds) gone(keys []string) {
	for _, k := range keys {
		delete(b.open, k)
	}
}

// due returns which of some nodes are to be asked now, the longest not asked first, and when to
// look again.
func (b *birds) due(nodes []string, now time.Time) (ask []string, next time.Time) {
	next = now.Add(askSilent)
	asked := map[string]bool{}
	for _, q := range b.open {
		asked[q.node] = true
	}
	var waiting []string
	for _, n := range nodes {
		switch at := b.nodes[n].due(); {
		case asked[n]:
		case at.After(now):
			next = earlier(next, at)
		default:
			waiting = append(waiting, n)
		}
	}
	slices.SortStableFunc(waiting, func(x, y string) int {
		return b.nodes[x].due().Compare(b.nodes[y].due())
	})
	return waiting[:min(len(waiting), max(0, mostBirds-len(b.open)))], next
}

// due is when a node is to be asked.
func (n *birdNode) due() time.Time {
	switch {
	case n == nil:
		return time.Time{}
	case n.silent:
		return n.asked.Add(askSilent)
	case n.count == 0:
		return n.asked
	}
	return n.asked.Add(min(askAgain<<min(n.count-1, 8), askBirdLater))
}

// of is what is known of the nodes: answers to questions that were put after a revision, and not
// too long ago.
func (b *birds) of(after int64, now time.Time) map[string]reflector.Bird {
	all := map[string]reflector.Bird{}
	maxAge := max(birdMaxAge, time.Duration(len(b.nodes))*birdShare)
	for name, n := range b.nodes {
		n.heard = slices.DeleteFunc(n.heard, func(h heardBird) bool {
			return h.revision <= after || now.Sub(h.at) > maxAge
		})
		bird := reflector.Bird{Silent: n.silent}
		for _, h := range n.heard {
			bird.Answers = append(bird.Answers, h.answer)
		}
		all[name] = bird
	}
	return all
}

// hearBirds reads the answers, and deletes them. The first time it deletes what an earlier
// controller has left: what calico-node has answered is under no lease.
func (l *leader) hearBirds(ctx context.Context) error {
	if len(l.open) == 0 && (l.swept || l.last.goalRevision == 0 || !l.last.hasBird()) {
		return nil
	}
	answers, revision, err := l.term.birds(ctx)
	if err != nil {
		return err
	}
	var done []string
	there, garbled := map[string]bool{}, map[string]bool{}
	for key, value := range answers {
		there[key] = true
		s, err := calico.DecodeNodeStatus(value)
		if err != nil {
			if garbled[key] = true; !l.garbled[key] {
				l.log.Warn("an answer of calico-node cannot be read", "key", key, "err", err)
			}
			continue
		}
		if l.birds.hear(key, s) {
			done = append(done, key)
		}
	}
	l.swept, l.garbled = true, garbled
	for key, q := range l.open {
		if !there[key] && q.revision <= revision { // a person has deleted it
			l.birds.gone([]string{key})
		}
	}
	return l.deleteBirds(ctx, done)
}

// askBirds asks those of some nodes whose turn it is, and returns when to look again.
func (l *leader) askBirds(ctx context.Context, nodes []string) (next time.Time, err error) {
	if err := l.deleteBirds(ctx, l.giveUp(time.Now())); err != nil {
		return next, err
	}
	ask, next := l.birds.due(nodes, time.Now())
	for _, node := range ask {
		l.serial++
		name, at := fmt.Sprintf("%s-%d", l.term.id(), l.serial), time.Now()
		key := reflector.BirdQuestionPrefix + name
		revision, err := l.term.askBird(ctx, key, reflector.BirdQuestion(name, node, l.name, at))
		if err != nil {
			return next, err
		}
		l.birds.put(key, node, round{revision, at})
	}
	if len(l.open) > 0 {
		next = earlier(next, time.Now().Add(birdPause))
	}
	return next, nil
}

// endBirds takes back all questions to nodes with BIRD.
func (l *leader) endBirds(ctx context.Context) error {
	return l.deleteBirds(ctx, slices.Collect(maps.Keys(l.open)))
}

// deleteBirds deletes questions.
func (l *leader) deleteBirds(ctx context.Context, keys []string) error {
	slices.Sort(keys)
	for some := range slices.Chunk(keys, maxDeleted) {
		if err := l.term.endBirds(ctx, some); err != nil {
			return err
		}
		l.birds.gone(some)
	}
	return nil
}

// leave takes questions to nodes with BIRD back before another controller leads.
func (l *leader) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := l.endBirds(ctx); err != nil {
		l.log.Debug("questions to nodes with BIRD are left to the next controller", "err", err)
	}
}

// maxDeleted is below etcd's limit of 128 operations in a transaction.
const maxDeleted = 100
