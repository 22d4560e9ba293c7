package reflectors

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/kube"
	"vpp-route-agent/internal/kubernetes"
)

// kubeStep is what a step writes besides the goal. It is written with the goal, in one write: from
// then on the step is taken, and whoever leads, or steers, does all of it before anything else. So
// it does not matter who is killed when.
type kubeStep struct {
	ID     string      `json:"id"`
	Writes []kubeWrite `json:"writes"`
}

// kubeWrite changes one object, if it is as it was when the step was decided. Content has a digest
// of what matters of it; "": there is no such object.
type kubeWrite struct {
	Plural string `json:"plural"`
	Name   string `json:"name"`
	Was    string `json:"was"`
	Will   string `json:"will"`
	// Body is a new object, or a merge patch.
	Body json.RawMessage `json:"body,omitempty"`
}

// maxStep bounds a step in bytes: a ConfigMap has at most 1 MiB.
const maxStep = 900 << 10

func contentOf(value []byte) string {
	if value == nil {
		return ""
	}
	sum := sha256.Sum256(value)
	return hex.EncodeToString(sum[:8])
}

func newID() string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // it never fails
	return hex.EncodeToString(id[:])
}

// get returns an object and the content of it that matters; nil: there is none.
func (s *kubeStore) get(ctx context.Context, r kubernetes.Resource) (object, value []byte,
	err error) {
	object, err = s.Client.Get(ctx, r)
	if kubernetes.IsNotFound(err) {
		return nil, nil, nil
	}
	if err == nil {
		_, value, err = kube.Resource(r.Plural, object)
	}
	return object, value, err
}

// newStep returns what writes are in Kubernetes; false: an object is not as a reading has it.
// Whatever adds a session comes first.
func (s *kubeStore) newStep(ctx context.Context, r *reading, writes []reflector.Write) (*kubeStep,
	bool, error) {
	had := map[calico.Key][]byte{}
	for _, o := range r.objects {
		had[o.Key] = o.Value
	}
	step := &kubeStep{ID: newID()}
	for _, w := range writes {
		k := kubeWrite{Plural: kube.Plural(w.Key.Kind), Name: w.Key.Name}
		object, value, err := s.get(ctx, s.resource(k.Plural, k.Name))
		if err != nil {
			return nil, false, err
		}
		if k.Was = contentOf(value); k.Was != contentOf(had[w.Key]) {
			return nil, false, nil
		}
		var body any
		switch {
		case w.Value == nil:
		case object == nil:
			body, err = rawJSON(kube.Create(s.group, w.Key, w.Value))
		default:
			body, err = kube.Change(k.Plural, object, w.Value)
		}
		if err == nil && body != nil {
			value, err = kube.Canonical(w.Key, w.Value)
			k.Will = contentOf(value)
		}
		if err == nil && body != nil {
			k.Body, err = json.Marshal(body)
		}
		if err != nil {
			return nil, false, err
		}
		step.Writes = append(step.Writes, k)
	}
	slices.SortStableFunc(step.Writes, func(a, b kubeWrite) int { return a.order() - b.order() })
	return step, true, nil
}

func rawJSON(text []byte, err error) (json.RawMessage, error) { return text, err }

// order: a new BGPPeer comes before another leaves its nodes to it, and goes after that.
func (w kubeWrite) order() int {
	switch "" {
	case w.Was:
		return 0
	case w.Will:
		return 2
	}
	return 1
}

// commit writes a goal, or which agents there are, and the step with it. From then on it is taken.
// false: the goal has been written since.
func (s *kubeStore) commit(ctx context.Context, r *reading, goal *reflector.Goal, noted []string,
	step *kubeStep) (done bool, version uint64, err error) {
	data := map[string]string{}
	if goal != nil {
		data[goalField] = string(goal.Encode())
		data[revisionField] = strconv.FormatInt(r.goalRevision+1, 10)
	}
	if noted != nil {
		data[agentsField] = string(encodeAgents(noted))
	}
	if step != nil && len(step.Writes) > 0 {
		data[stepField] = string(encode(step))
	}
	if len(data[stepField]) > maxStep {
		return false, 0, fmt.Errorf("it changes %d bytes, and a ConfigMap has room for %d",
			len(data[stepField]), maxStep)
	}
	var object json.RawMessage
	if r.config == "" {
		object, err = s.Client.Create(ctx, s.goal(), encode(map[string]any{"apiVersion": "v1",
			"kind": "ConfigMap", "metadata": map[string]string{"name": goalName,
				"namespace": s.Namespace}, "data": data}))
	} else {
		object, err = s.Client.Patch(ctx, s.goal(), encode(map[string]any{
			"metadata": map[string]string{"resourceVersion": r.config}, "data": data}))
	}
	if kubernetes.IsConflict(err) || kubernetes.IsNotFound(err) && r.config != "" {
		return false, 0, nil
	}
	return err == nil, versionOf(object), err
}

// errStepInvalid is for a step that the API server refuses for good.
var errStepInvalid = errors.New("the API server does not take it, and it is given up")

// finish does a step, whoever has begun it, and returns the versions of what it has written. What
// others have changed meanwhile stays as they want it, as if they had come after the step.
func (s *kubeStore) finish(ctx context.Context, step *kubeStep) (written map[string]uint64,
	err error) {
	written = map[string]uint64{}
	var invalid error
	for _, w := range step.Writes {
		pending, err := s.do(ctx, step, w, written)
		if kubernetes.IsInvalid(err) {
			invalid = fmt.Errorf("%w: %w", errStepInvalid, err)
			break
		}
		if err != nil || !pending {
			return written, err
		}
	}
	version, err := s.end(ctx, step)
	if version != 0 {
		written[kubePlace("configmaps", goalName)] = version
	}
	return written, errors.Join(invalid, err)
}

// do does one write. It is false once another has finished the step: an object may then be as it
// was before by a later one. That is asked after the object was read, and what is written compares
// its version, so a step is done once, however long whoever does it stands still.
func (s *kubeStore) do(ctx context.Context, step *kubeStep, w kubeWrite,
	written map[string]uint64) (pending bool, err error) {
	at := s.resource(w.Plural, w.Name)
	for {
		object, value, err := s.get(ctx, at)
		if err != nil {
			return false, err
		}
		pending, _, err := s.isPending(ctx, step)
		if err != nil || !pending {
			return false, err
		}
		switch contentOf(value) {
		case w.Was:
		case w.Will:
			return true, nil
		default:
			s.log.Warn("it has been changed by another, and stays so", "object", at.String())
			return true, nil
		}
		object, err = s.apply(ctx, at, w, object)
		if kubernetes.IsConflict(err) || kubernetes.IsNotFound(err) && w.Was != "" {
			continue
		}
		if v := versionOf(object); err == nil && (v != 0) == (w.Will != "") {
			written[kubePlace(w.Plural, w.Name)] = v
		}
		return true, err
	}
}

// apply does a write to an object as it was read.
func (s *kubeStore) apply(ctx context.Context, at kubernetes.Resource, w kubeWrite,
	object []byte) ([]byte, error) {
	var head kubeHead
	_ = json.Unmarshal(object, &head)
	version := head.Metadata.ResourceVersion
	switch {
	case w.Will == "":
		return nil, s.Client.Delete(ctx, at, version)
	case w.Was == "":
		return s.Client.Create(ctx, at, w.Body)
	}
	var patch map[string]any
	if err := json.Unmarshal(w.Body, &patch); err != nil {
		return nil, err
	}
	meta, _ := patch["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		patch["metadata"] = meta
	}
	meta["resourceVersion"] = version
	return s.Client.Patch(ctx, at, encode(patch))
}

func versionOf(object []byte) uint64 {
	var head kubeHead
	_ = json.Unmarshal(object, &head)
	n, _ := strconv.ParseUint(head.Metadata.ResourceVersion, 10, 64)
	return n
}

// isPending reports whether a step is not finished, and the version of the ConfigMap that says so.
func (s *kubeStore) isPending(ctx context.Context, step *kubeStep) (bool, string, error) {
	object, err := s.Client.Get(ctx, s.goal())
	if kubernetes.IsNotFound(err) {
		return false, "", nil
	}
	if err != nil {
		return false, "", err
	}
	var head kubeHead
	var is kubeStep
	_ = json.Unmarshal(object, &head)
	_ = json.Unmarshal([]byte(head.Data[stepField]), &is)
	return is.ID == step.ID, head.Metadata.ResourceVersion, nil
}

// end notes that a step is done, and returns the version of the ConfigMap then.
func (s *kubeStore) end(ctx context.Context, step *kubeStep) (uint64, error) {
	for {
		pending, version, err := s.isPending(ctx, step)
		if err != nil || !pending {
			return 0, err
		}
		object, err := s.Client.Patch(ctx, s.goal(), encode(map[string]any{
			"metadata": map[string]string{"resourceVersion": version},
			"data":     map[string]any{stepField: nil}}))
		if !kubernetes.IsConflict(err) {
			return versionOf(object), err
		}
	}
}

// take takes a step, if nothing that it follows from has changed since it was read.
func (s *kubeStore) take(ctx context.Context, r *reading, goal *reflector.Goal,
	writes []reflector.Write) (taken bool, written map[string]uint64, err error) {
	now, err := s.list(ctx, s.resources())
	if err != nil || !now.same(r) {
		return false, nil, err
	}
	step, same, err := s.newStep(ctx, r, writes)
	if err != nil || !same {
		return false, nil, err
	}
	r.config = now.config.version
	taken, version, err := s.commit(ctx, r, goal, nil, step)
	if err != nil || !taken {
		return false, nil, err
	}
	written = map[string]uint64{}
	if len(step.Writes) > 0 {
		written, err = s.finish(ctx, step)
	}
	if place := kubePlace("configmaps", goalName); written[place] == 0 && version != 0 {
		written[place] = version
	}
	return true, written, err
}
