package external

import (
	"fmt"
	"slices"
	"strings"
)

// State is how an item stands, with the numbers of Ligato's ValueState.
type State uint8

const (
	Nonexistent   State = 0
	Unimplemented State = 2  // a model or field that the agent does not carry out
	Removed       State = 3  // its item was deleted, and the data plane has acknowledged that
	Configured    State = 4  // the data plane has acknowledged it
	Pending       State = 7  // something is missing that may come
	Invalid       State = 8  // the item itself is wrong
	Failed        State = 9  // the agent refuses it as things are
	Retrying      State = 10 // the data plane refused it, and is asked again
)

// States are those that an item can have which is wanted.
var States = []State{Configured, Pending, Retrying, Failed, Invalid, Unimplemented}

func (s State) String() string {
	switch s {
	case Nonexistent:
		return "NONEXISTENT"
	case Unimplemented:
		return "UNIMPLEMENTED"
	case Removed:
		return "REMOVED"
	case Configured:
		return "CONFIGURED"
	case Pending:
		return "PENDING"
	case Invalid:
		return "INVALID"
	case Failed:
		return "FAILED"
	case Retrying:
		return "RETRYING"
	}
	return fmt.Sprintf("STATE_%d", uint8(s))
}

// Problem is why an item is refused; the zero Problem: it is not.
type Problem struct {
	State  State // Invalid, Unimplemented, or Failed where a policy refuses it
	Detail string
}

func (p Problem) ok() bool { return p == Problem{} }

func invalid(format string, args ...any) Problem {
	return Problem{Invalid, cut(fmt.Sprintf(format, args...))}
}

func unimplemented(format string, args ...any) Problem {
	return Problem{Unimplemented, cut(fmt.Sprintf(format, args...))}
}

// maxDetail bounds in bytes what is said of a problem, which may quote a client's text.
const maxDetail = 1000

func cut(detail string) string {
	if len(detail) <= maxDetail {
		return detail
	}
	return strings.ToValidUTF8(detail[:maxDetail], "") + "…"
}

// Verdict is how one item of one source stands.
type Verdict struct {
	Source, Key string
	// Canonical is the key in its normal spelling, for items that have one.
	Canonical string
	State     State
	// Details say what is missing or wrong, for people.
	Details []string
	// Unfinished: the data plane has not answered yet. It is Pending until then.
	Unfinished bool
	// LastGood: the item's present value is refused, and its last good one is in use.
	LastGood bool
	// Attempts counts how often the data plane refused it, at least: it may be twice as often.
	Attempts int
	// Revision is Item.Revision.
	Revision int64
}

// Equal reports whether both say the same.
func (v Verdict) Equal(o Verdict) bool {
	return v.Source == o.Source && v.Key == o.Key && v.Canonical == o.Canonical &&
		v.State == o.State && v.Unfinished == o.Unfinished && v.LastGood == o.LastGood &&
		v.Attempts == o.Attempts && v.Revision == o.Revision &&
		slices.Equal(v.Details, o.Details)
}
