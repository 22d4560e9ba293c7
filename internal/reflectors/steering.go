package reflectors

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/etcd"
	"vpp-route-agent/internal/kubernetes"
)

// View is what the datastore has about reflectors; etcd as of one revision.
type View struct {
	// World has the agents' status. Nobody's answers are in it.
	World *reflector.World
	Goal  reflector.Goal
	// GoalRevision is 0 without a goal; BadGoal says why Goal is not what the datastore has.
	GoalRevision int64
	BadGoal      error
	Controllers  []State // the one that leads is the first
	// Stray are keys in the election that have no lease, so that no controller has written them.
	// Nobody leads while one is the oldest.
	Stray []string

	// Noted are the nodes that have had an agent, as AgentsKey has them.
	Noted []string
	read  *reading
}

// Leader is the controller that leads; false: there is none.
func (v View) Leader() (State, bool) {
	if len(v.Controllers) == 0 || !v.Controllers[0].Leads {
		return State{}, false
	}
	return v.Controllers[0], true
}

// Reached reports whether the leader is done with the goal. What was undone is not reached.
func (v View) Reached() bool {
	s, ok := v.Leader()
	return ok && s.Done != "" && s.Goal == v.GoalRevision && v.Goal.Undo == ""
}

// Consult lets Nodes of Kubernetes count, by name.
func (v View) Consult(nodes map[string]kubernetes.Node) { v.World.SetKubernetes(nodesOf(nodes)) }

// Changes are what a person's command writes, in etcd in one transaction.
type Changes struct {
	Goal  *reflector.Goal   // nil: it stays
	Node  *reflector.Object // with the revision that it was read with
	Noted []string          // nil: they stay
	// Adopted are resources, which follow from all that the view has: nothing of Calico's that a
	// controller reads may have changed since.
	Adopted []reflector.Write
}

// Patience is how long a Desk waits for the datastore: once to look, and once to write.
const Patience = 15 * time.Second

// Desk is where a person looks at a controller's work, and steers it. It needs no controller.
type Desk struct {
	store    store
	version  string
	patience time.Duration // Patience
}

// NewDesk checks c. It does not connect.
func NewDesk(c etcd.Config, version string) (*Desk, error) {
	store, err := newEtcdStore(c, "to read or write what the reflectors commands do; "+
		"docs/security.md lists it")
	return &Desk{store, version, Patience}, err
}

// NewKubernetesDesk returns a Desk for the Kubernetes datastore.
func NewKubernetesDesk(c KubernetesConfig, version string) *Desk {
	return &Desk{newKubeStore(c, slog.New(slog.DiscardHandler)), version, Patience}
}

// Kubernetes is the API server of the Kubernetes datastore; nil: it is etcd.
func (d *Desk) Kubernetes() *kubernetes.Client {
	if s, ok := d.store.(*kubeStore); ok {
		return s.Client
	}
	return nil
}

// Explain turns an error into a sentence.
func (d *Desk) Explain(err error) string { return d.store.explain(err) }

// Look reads everything once.
func (d *Desk) Look(ctx context.Context) (View, error) {
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	r, err := d.store.look(ctx, d.version)
	if err != nil {
		return View{}, err
	}
	w := reflector.Read(r.objects)
	w.Now, w.Version = time.Now(), d.version
	for _, node := range r.known() {
		a := reflector.Agent{Status: r.statuses[node].Status}
		if _, there := r.statuses[node]; !there {
			a.Lost = w.Now.Add(-time.Hour) // nobody knows since when
		}
		w.Agents[node] = a
	}
	states, stray := []State{}, []string{}
	for _, s := range r.states {
		switch {
		case !s.leased:
			stray = append(stray, s.key)
		case s.Name != "":
			states = append(states, s)
		}
	}
	return View{
		World: w, Goal: r.goal, GoalRevision: r.goalRevision, BadGoal: r.badGoal,
		Controllers: states, Stray: stray, Noted: r.agents, read: r,
	}, nil
}

// errContended is for a change that others' changes have always overtaken.
var errContended = errors.New("others change the same all the time; nothing was written")

// Change writes what change makes of a view, for which it may take its time. It compares the
// revisions that change has seen, and begins anew when another has written meanwhile.
func (d *Desk) Change(ctx context.Context, change func(View) (Changes, error)) error {
	for range 5 {
		v, err := d.Look(ctx)
		if err != nil {
			return err
		}
		wanted, err := change(v)
		if err != nil {
			return err
		}
		if done, err := d.write(ctx, v.read, wanted); err != nil || done {
			return err
		}
	}
	return errContended
}

func (d *Desk) write(ctx context.Context, r *reading, c Changes) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	return d.store.change(ctx, r, c)
}
