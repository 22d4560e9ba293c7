package reflectors

import (
	"context"
	"errors"
	"fmt"

	"vpp-route-agent/bgp/reflector"
)

// store is where agents, controllers and people keep what they tell each other, beside Calico's
// data.
type store interface {
	fmt.Stringer // "etcd"
	// compete has a controller lead when it is its turn, again and again until ctx ends. Then
	// another may lead at once.
	compete(context.Context, *Controller)
	// look reads all, as a controller of a version understands it.
	look(ctx context.Context, version string) (*reading, error)
	// change writes what a person wants; false: what it follows from has changed since it was
	// read, and nothing was written.
	change(context.Context, *reading, Changes) (done bool, err error)
	// explain turns an error into a sentence.
	explain(error) string
}

// term is a time in which a controller leads. Its methods fail with errLeadLost once another does.
type term interface {
	// id is that of all its questions, one after the other.
	id() string
	// read reads all, as a controller of a version understands it. Revisions grow with time.
	read(ctx context.Context, version string) (*reading, error)
	// follow calls changed when there is something new to read, until ctx ends.
	follow(ctx context.Context, changed func())
	// take writes a step; false: something that it depends on has changed since it was read, and
	// nothing was written.
	take(context.Context, *reading, *reflector.Step) (taken bool, err error)
	// note writes which nodes have had an agent, if that has not changed.
	note(ctx context.Context, r *reading, agents []string) error
	// tell writes the state for people.
	tell(context.Context, State) error
	// ask puts the one question to all agents, and returns the revision that answers repeat.
	ask(context.Context, reflector.Question) (revision int64, err error)
	endQuestion(context.Context) error
	// birds are the questions to nodes with BIRD, and the answers, by key.
	birds(context.Context) (all map[string][]byte, revision int64, err error)
	askBird(ctx context.Context, key string, question []byte) (revision int64, err error)
	endBirds(ctx context.Context, keys []string) error
}

var errLeadLost = errors.New("this controller leads no more: its key is gone")
