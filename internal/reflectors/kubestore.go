package reflectors

import (
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"vpp-route-agent/bgp/reflector"
	calicokubernetes "vpp-route-agent/internal/calico/kubernetes"
	"vpp-route-agent/internal/kubernetes"
)

// KubernetesConfig says how the Kubernetes datastore is reached, and where in it agents and
// controllers meet.
type KubernetesConfig struct {
	Client *kubernetes.Client
	// Group is the API group of Calico's data, "crd.projectcalico.org/v1"; "": the one that there
	// is.
	Group string
	// Namespace has the Leases and ConfigMaps of agents and controllers.
	Namespace string
}

func (c KubernetesConfig) configMap(name string) kubernetes.Resource {
	return kubernetes.Resource{Version: "v1", Plural: "configmaps", Namespace: c.Namespace,
		Name: name}
}

func (c KubernetesConfig) goal() kubernetes.Resource { return c.configMap(goalName) }

func (c KubernetesConfig) lease(name string) kubernetes.Resource {
	r := kubernetes.Leases(c.Namespace)
	r.Name = name
	return r
}

// kubeStore is a store in the Kubernetes API: a step is written to one object after the other.
type kubeStore struct {
	KubernetesConfig
	group    string // found
	leadTime time.Duration
	readTime time.Duration // after which a leader that cannot read all says why
	log      *slog.Logger  // of whoever uses it
}

func newKubeStore(c KubernetesConfig, log *slog.Logger) *kubeStore {
	return &kubeStore{KubernetesConfig: c, group: c.Group, log: log, leadTime: leadTime,
		readTime: readTimeout}
}

func (*kubeStore) String() string { return "the Kubernetes API" }

func (*kubeStore) explain(err error) string { return err.Error() }

func (s *kubeStore) findGroup(ctx context.Context) (err error) {
	if s.group == "" {
		s.group, err = calicokubernetes.FindGroup(ctx, s.Client)
	}
	return err
}

func (s *kubeStore) resource(plural, name string) kubernetes.Resource {
	if plural == "nodes" {
		return kubernetes.Resource{Version: "v1", Plural: plural, Name: name}
	}
	group, version, _ := strings.Cut(s.group, "/")
	return kubernetes.Resource{Group: group, Version: version, Plural: plural, Name: name}
}

// resources are Calico's and the goal, beginning with a small one.
func (s *kubeStore) resources() []kubernetes.Resource {
	return []kubernetes.Resource{s.resource("clusterinformations", ""), s.resource("nodes", ""),
		s.resource("bgppeers", ""), s.resource("bgpconfigurations", ""), s.goal()}
}

// list reads resources as they are now in etcd.
func (s *kubeStore) list(ctx context.Context, resources []kubernetes.Resource) (*kubeObjects,
	error) {
	all, now := newKubeObjects(), time.Now()
	for _, r := range resources {
		_, err := s.Client.List(ctx, r, kubernetes.ListOptions{},
			func(_ string, objects []json.RawMessage) error {
				for _, o := range objects {
					all.put(r.Plural, o, 0, now)
				}
				return nil
			})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (s *kubeStore) look(ctx context.Context, version string) (*reading, error) {
	if err := s.findGroup(ctx); err != nil {
		return nil, err
	}
	all, err := s.list(ctx, append(s.resources(), kubernetes.Leases(s.Namespace)))
	if err != nil {
		return nil, err
	}
	return all.reading(version, 0, time.Now()), nil
}

func (s *kubeStore) change(ctx context.Context, r *reading, c Changes) (bool, error) {
	if r.pending != nil { // whoever began it may be gone
		_, err := s.finish(ctx, r.pending)
		return false, err
	}
	if len(c.Adopted) > 0 {
		taken, _, err := s.take(ctx, r, c.Goal, c.Adopted)
		return taken, err
	}
	if c.Goal != nil || c.Noted != nil {
		done, _, err := s.commit(ctx, r, c.Goal, c.Noted, nil)
		return done, err
	}
	step, same, err := s.newStep(ctx, r, []reflector.Write{{Key: c.Node.Key, Value: c.Node.Value}})
	if err != nil || !same {
		return false, err
	}
	at := s.resource(step.Writes[0].Plural, step.Writes[0].Name)
	object, value, err := s.get(ctx, at)
	if err != nil || contentOf(value) != step.Writes[0].Was {
		return false, err
	}
	_, err = s.apply(ctx, at, step.Writes[0], object)
	if kubernetes.IsConflict(err) {
		return false, nil
	}
	return err == nil, err
}

// firstRetry and lastRetry bound the pause after a failure, half of which is random.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 15 * time.Second
)

func (s *kubeStore) compete(ctx context.Context, c *Controller) {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		began := time.Now()
		err := s.attempt(ctx, c)
		if ctx.Err() != nil {
			return
		}
		c.failed(s.explain(err))
		if time.Since(began) > lastRetry {
			wait = firstRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait/2 + rand.N(wait/2)):
		}
	}
}

// attempt waits to lead, and leads, until an error.
func (s *kubeStore) attempt(ctx context.Context, c *Controller) error {
	if err := s.findGroup(ctx); err != nil {
		return err
	}
	id := newID()
	e := kubernetes.NewElection(s.Client, s.lease(leaderName), c.name+"_"+id, s.leadTime)
	t := newKubeTerm(s, id, e, s.log)
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		_ = t.endQuestion(ctx) // or the next leader does
		if err := e.Release(ctx); err != nil {
			c.log.Warn("no other controller leads until our Lease ends", "ttl", s.leadTime,
				"err", err)
		}
	}()
	if err := e.Acquire(ctx, c.waits); err != nil {
		return err
	}
	ctx, lose := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer lose(nil)
	running.Go(func() { lose(e.Hold(ctx)) })
	running.Go(func() { _ = t.follower.Run(ctx) })
	if err := t.endQuestion(ctx); err != nil { // of a leader that was killed
		return err
	}
	err := c.leads(ctx, t)
	if why := context.Cause(ctx); why != nil {
		return why
	}
	return err
}
