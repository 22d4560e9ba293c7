package secrets

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/kubernetes"
)

// Kube looks up passwords in Kubernetes Secrets. The first lookup of a Secret starts a list and
// watch of that Secret alone, so that RBAC can be limited to these names. Lookups never block: a
// password is unknown until the API server has answered, and stays while it is down. Safe for
// concurrent use.
type Kube struct {
	client    *kubernetes.Client
	namespace string // of the Secrets; Calico's resources do not name one
	log       *slog.Logger
	wake      chan struct{} // of size 1: there is a secret without a watch
	// pause is the shortest pause between two lists of a Secret, longestPause the longest.
	pause, longestPause time.Duration

	mu      sync.Mutex
	secrets map[string]*secret // by name; entries stay
}

// secret is the state of one Secret.
type secret struct {
	followed bool
	data     map[string][]byte // nil: it does not exist, or nothing is known
	problem  error             // why data is nil, or cannot be brought up to date
}

var (
	errNotAnswered = errors.New("the Kubernetes API has not answered yet")
	errNotThere    = errors.New("it does not exist")
)

// NewKube returns a Kube that reads nothing before Run, which closes client.
func NewKube(client *kubernetes.Client, namespace string, log *slog.Logger) *Kube {
	return &Kube{
		client: client, namespace: namespace, log: log, wake: make(chan struct{}, 1),
		pause: time.Second, longestPause: 30 * time.Second, secrets: map[string]*secret{},
	}
}

// Lookup returns the password as it is stored, without the final line end, or a one-line reason why
// there is none.
func (k *Kube) Lookup(ref calico.SecretKeyRef) (string, error) {
	if err := checkRef(ref); err != nil {
		return "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	s, ok := k.secrets[ref.Name]
	if !ok {
		s = &secret{problem: errNotAnswered}
		k.secrets[ref.Name] = s
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
	if s.data == nil {
		return "", fmt.Errorf("secret %s/%s: %w", k.namespace, ref.Name, s.problem)
	}
	raw, ok := s.data[ref.Key]
	password := withoutLineEnd(raw)
	switch {
	case !ok:
		return "", fmt.Errorf("secret %s/%s has no key %s", k.namespace, ref.Name, ref.Key)
	case password == "":
		return "", fmt.Errorf("secret %s/%s, key %s: %w", k.namespace, ref.Name, ref.Key,
			errEmpty)
	}
	return password, nil
}

// Run follows the Secrets that are looked up until ctx ends.
func (k *Kube) Run(ctx context.Context) error {
	var followers sync.WaitGroup
	defer k.client.Close()
	defer followers.Wait()
	for {
		for _, name := range k.takeNew() {
			followers.Go(func() { k.follow(ctx, name) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		}
	}
}

func (k *Kube) takeNew() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var names []string
	for name, s := range k.secrets {
		if !s.followed {
			s.followed = true
			names = append(names, name)
		}
	}
	return names
}

// follow lists and watches one Secret until ctx ends. The API server ends each watch after minutes.
func (k *Kube) follow(ctx context.Context, name string) {
	pause := k.pause
	for {
		err := k.listAndWatch(ctx, name)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			k.failed(name, err)
			pause = min(2*pause, k.longestPause)
		} else {
			pause = k.pause
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// failed records why a Secret cannot be read. Its last content is kept.
func (k *Kube) failed(name string, err error) {
	k.mu.Lock()
	s := k.secrets[name]
	logged := s.problem != nil && s.problem.Error() == err.Error()
	s.problem = err
	k.mu.Unlock()
	if !logged {
		k.log.Warn("a Secret cannot be read; what is known of it stays in use", "secret",
			k.namespace+"/"+name, "err", err)
	}
}

// found records the contents of a Secret, nil if it does not exist.
func (k *Kube) found(name string, data map[string][]byte) {
	k.mu.Lock()
	s := k.secrets[name]
	changed := (s.data == nil) != (data == nil) || !maps.EqualFunc(s.data, data, bytes.Equal)
	s.data, s.problem = data, nil
	if data == nil {
		s.problem = errNotThere
	}
	k.mu.Unlock()
	if changed {
		k.log.Info("a Secret has changed", "secret", k.namespace+"/"+name, "exists",
			data != nil)
	}
}

// contents is what is read of a Secret.
type contents struct {
	Data map[string][]byte `json:"data"`
}

// errUnreadable replaces errors of the JSON decoder, which may quote a password.
var errUnreadable = errors.New("the answer of the Kubernetes API cannot be read")

// read records what an object says.
func (k *Kube) read(name string, object []byte) error {
	var c contents
	if json.Unmarshal(object, &c) != nil {
		return errUnreadable
	}
	if c.Data == nil { // it exists, and is empty
		c.Data = map[string][]byte{}
	}
	k.found(name, c.Data)
	return nil
}

// listAndWatch reads a Secret and follows it until the watch ends, or its version has expired. The
// caller lists again then.
func (k *Kube) listAndWatch(ctx context.Context, name string) error {
	r := kubernetes.Resource{Version: "v1", Plural: "secrets", Namespace: k.namespace, Name: name}
	exists := false
	version, err := k.client.List(ctx, r, kubernetes.ListOptions{},
		func(_ string, objects []json.RawMessage) error {
			for _, o := range objects {
				exists = true
				if err := k.read(name, o); err != nil {
					return err
				}
			}
			return nil
		})
	if err != nil {
		return err
	}
	if !exists {
		k.found(name, nil)
	}
	err = k.client.Watch(ctx, r, version, func() {}, func(e kubernetes.Event) error {
		switch {
		case e.Deleted:
			k.found(name, nil)
		case e.Object != nil:
			return k.read(name, e.Object)
		}
		return nil
	})
	if kubernetes.IsGone(err) {
		return nil
	}
	return err
}
