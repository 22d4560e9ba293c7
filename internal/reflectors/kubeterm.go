package reflectors

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/kubernetes"
)

// readPause is between two looks at whether all is read.
const readPause = 20 * time.Millisecond

// kubeTerm is a term by a Lease. What it reads, a Follower keeps up to date.
type kubeTerm struct {
	store    *kubeStore
	term     string
	election *kubernetes.Election
	follower *kubernetes.Follower
	data     *kubeData
	// must is what has been written, by place: the version that has to be seen before anything is
	// decided; 0: it is to be gone. Owned by the leader.
	must map[string]uint64
}

// kubeData is what a Follower fills.
type kubeData struct {
	resources []kubernetes.Resource
	changed   chan struct{} // of size 1

	mu    sync.Mutex // guards what follows
	turn  int64      // our clock, which orders what was seen and what was asked
	now   *kubeObjects
	known *kubeObjects // as published; nil: not all is listed yet
	dirty bool
	// listed are the places of what the present list has had, or that changed during it
	listed   map[string]bool
	newest   uint64 // version
	restored bool   // from a backup
}

func newKubeTerm(s *kubeStore, id string, e *kubernetes.Election, log *slog.Logger) *kubeTerm {
	t := &kubeTerm{store: s, term: id, election: e, must: map[string]uint64{}, data: &kubeData{
		resources: append(s.resources(), kubernetes.Leases(s.Namespace)),
		changed:   make(chan struct{}, 1), now: newKubeObjects(),
	}}
	t.follower = kubernetes.NewFollower(s.Client, t.data, nil, t.data.publish, log)
	return t
}

func (d *kubeData) Resources() []kubernetes.Resource { return d.resources }

func (d *kubeData) Put(r kubernetes.Resource, object []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.turn++
	name, changed := d.now.put(r.Plural, object, d.turn, time.Now())
	d.dirty = d.dirty || changed
	if d.listed != nil {
		d.listed[kubePlace(r.Plural, name)] = true
	}
	if !changed && d.known != nil { // a Lease that was renewed is known at once
		if l, ok := d.now.leases[name]; ok && r.Plural == "leases" {
			d.known.leases[name] = l
		}
		if !d.dirty { // else what came with an earlier version may not be known yet
			d.known.versions[kubePlace(r.Plural, name)] = d.now.versions[kubePlace(r.Plural, name)]
		}
	}
}

func (d *kubeData) Delete(r kubernetes.Resource, object []byte) {
	var head kubeHead
	if json.Unmarshal(object, &head) != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dirty = d.now.delete(r.Plural, head.Metadata.Name) || d.dirty
}

func (d *kubeData) BeginList() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listed = map[string]bool{}
}

func (d *kubeData) EndList(r kubernetes.Resource) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range d.now.names(r.Plural) {
		if !d.listed[kubePlace(r.Plural, name)] {
			d.dirty = d.now.delete(r.Plural, name) || d.dirty
		}
	}
	d.listed = nil
}

func (d *kubeData) Changed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dirty
}

func (d *kubeData) publish(p kubernetes.Published) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known, d.dirty = d.now.clone(), false
	d.restored = d.restored || p.Version < d.newest
	d.newest = p.Version
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// tick is a turn of our clock that nothing has had.
func (d *kubeData) tick() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.turn++
	return d.turn
}

func (t *kubeTerm) id() string { return t.term }

var errNotAllRead = errors.New("not all of the Kubernetes API has been read yet")

func (t *kubeTerm) read(ctx context.Context, version string) (*reading, error) {
	ctx, cancel := context.WithTimeout(ctx, t.store.readTime)
	defer cancel()
	for {
		r, err := t.look(version)
		switch {
		case err == nil && r.pending != nil: // of a leader that was killed, or a command
			if t.must, err = t.store.finish(ctx, r.pending); err != nil {
				return nil, err
			}
			err = errNotAllRead
		case err == nil, errors.Is(err, errLeadLost), errors.Is(err, errNoSuchHistory):
			return r, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(readPause):
		}
	}
}

// look returns what is known now, if that is all, and has what this controller has written.
func (t *kubeTerm) look(version string) (*reading, error) {
	if !t.election.Leads() {
		return nil, errLeadLost
	}
	if s := t.follower.Status(); !s.Connected {
		return nil, errors.New(cmp.Or(s.Error, errNotAllRead.Error()))
	}
	d := t.data
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.restored:
		return nil, errNoSuchHistory
	case d.known == nil:
		return nil, errNotAllRead
	}
	for place, version := range t.must {
		is, there := d.known.versions[place]
		if is < version || there != (version != 0) {
			return nil, errNotAllRead
		}
	}
	clear(t.must)
	d.turn++
	return d.known.reading(version, d.turn, time.Now()), nil
}

// follow: time alone tells that an agent is gone, and its Lease that it is back.
func (t *kubeTerm) follow(ctx context.Context, changed func()) {
	every := time.NewTicker(lookAgain)
	defer every.Stop()
	var alive []string
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.data.changed:
			changed()
		case <-every.C:
			if now := t.data.alive(); !slices.Equal(now, alive) {
				alive = now
				changed()
			}
		}
	}
}

func (d *kubeData) alive() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil {
		return nil
	}
	return d.known.alive(time.Now())
}

func (t *kubeTerm) take(ctx context.Context, r *reading, s *reflector.Step) (bool, error) {
	if !t.election.Leads() {
		return false, errLeadLost
	}
	taken, written, err := t.store.take(ctx, r, &s.Goal, s.Writes)
	if written != nil {
		t.must = written
	}
	return taken, err
}

func (t *kubeTerm) note(ctx context.Context, r *reading, agents []string) error {
	if !t.election.Leads() {
		return errLeadLost
	}
	done, version, err := t.store.commit(ctx, r, nil, agents, nil)
	if done && version != 0 {
		t.must[kubePlace("configmaps", goalName)] = version
	}
	return err
}

func (t *kubeTerm) tell(ctx context.Context, s State) error {
	return t.election.Annotate(ctx, stateNote, s.encode())
}

// kubeQuestion is what the ConfigMap of the question has.
type kubeQuestion struct {
	ID       string          `json:"id"`
	Revision int64           `json:"revision"`
	Question json.RawMessage `json:"question"`
}

const questionField = "question"

func (t *kubeTerm) ask(ctx context.Context, q reflector.Question) (int64, error) {
	if !t.election.Leads() {
		return 0, errLeadLost
	}
	revision := t.data.tick() // before: what was seen till now is no answer to it
	at := t.store.configMap(questionName)
	data := map[string]string{questionField: string(encode(kubeQuestion{t.term, revision,
		q.Encode()}))}
	_, err := t.store.Client.Patch(ctx, at, encode(map[string]any{"data": data}))
	if kubernetes.IsNotFound(err) {
		_, err = t.store.Client.Create(ctx, at, encode(map[string]any{"apiVersion": "v1",
			"kind": "ConfigMap", "metadata": map[string]string{"name": questionName,
				"namespace": t.store.Namespace}, "data": data}))
	}
	return revision, err
}

func (t *kubeTerm) endQuestion(ctx context.Context) error {
	if !t.election.Leads() { // it may be another's question by now
		return errLeadLost
	}
	_, err := t.store.Client.Patch(ctx, t.store.configMap(questionName),
		encode(map[string]any{"data": nil}))
	if kubernetes.IsNotFound(err) {
		return nil
	}
	return err
}

// statuses are the questions to nodes with BIRD.
func (t *kubeTerm) statuses(key string) kubernetes.Resource {
	return t.store.resource("caliconodestatuses", strings.TrimPrefix(key, calico.NodeStatusPrefix))
}

func (t *kubeTerm) birds(ctx context.Context) (map[string][]byte, int64, error) {
	all := map[string][]byte{}
	revision := t.data.tick()
	_, err := t.store.Client.List(ctx, t.statuses(""), kubernetes.ListOptions{},
		func(_ string, objects []json.RawMessage) error {
			for _, o := range objects {
				var head kubeHead
				_ = json.Unmarshal(o, &head)
				key := calico.NodeStatusPrefix + head.Metadata.Name
				if strings.HasPrefix(key, reflector.BirdQuestionPrefix) {
					all[key] = o
				}
			}
			return nil
		})
	if kubernetes.IsNotFound(err) { // the kind is not installed
		return nil, revision, nil
	}
	return all, revision, err
}

func (t *kubeTerm) askBird(ctx context.Context, key string, question []byte) (int64, error) {
	if !t.election.Leads() {
		return 0, errLeadLost
	}
	var o struct {
		Metadata struct {
			Name        string            `json:"name"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(question, &o); err != nil {
		return 0, err
	}
	revision := t.data.tick()
	_, err := t.store.Client.Create(ctx, t.statuses(key), encode(map[string]any{
		"apiVersion": t.store.group, "kind": calico.KindCalicoNodeStatus, "metadata": o.Metadata,
		"spec": o.Spec}))
	return revision, err
}

func (t *kubeTerm) endBirds(ctx context.Context, keys []string) error {
	for _, key := range keys {
		err := t.store.Client.Delete(ctx, t.statuses(key), "")
		if err != nil && !kubernetes.IsNotFound(err) {
			return err
		}
	}
	return nil
}
