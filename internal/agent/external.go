package agent

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"vpp-route-agent/internal/route"
)

// External is external configuration as the agent shows it. Its functions may be called at any
// time.
type External struct {
	Sources func() []ExternalSource
	Items   func() []ExternalItem
	// History lists the last changes, the oldest first.
	History func() []ExternalEvent
	// Owner names the source that has a route.
	Owner func(route.Key) string
	// Backup: its routes stand behind those of BGP.
	Backup bool
}

// ExternalSource is how one source of external configuration stands.
type ExternalSource struct {
	Name      string `json:"name"`
	Connected bool   `json:"connected"`
	Synced    bool   `json:"synced"` // it has told all that it wants
	// Revision is the source's own number for what is in use, and Observed the last for which its
	// clients have been answered.
	Revision int64  `json:"revision"`
	Observed int64  `json:"observed"`
	Error    string `json:"error,omitempty"`
	// AnswerProblem says why clients are not told how their items stand.
	AnswerProblem string `json:"answerProblem,omitempty"`
	// Listens is where its clients call, of a source that is called.
	Listens string `json:"listens,omitempty"`
	// Stale: what is in use is the copy on disk, written at AsOf.
	Stale  bool           `json:"stale"`
	AsOf   *time.Time     `json:"asOf,omitempty"`
	Kept   string         `json:"kept"` // the copy on disk: "ok" or "degraded: " and why
	Items  int            `json:"items"`
	States map[string]int `json:"states"` // items by state, of every state
}

// ExternalItem is how one item stands.
type ExternalItem struct {
	Source   string   `json:"source"`
	Key      string   `json:"key"`
	State    string   `json:"state"`   // in Ligato's words
	Details  []string `json:"details"` // what is missing or wrong
	Attempts int      `json:"attempts,omitempty"`
	Revision int64    `json:"revision"` // of the source, when the present value came
	// LastGood: the present value is refused, and the last good one is in use.
	LastGood bool `json:"lastGood,omitempty"`
}

// ExternalEvent is a change of external configuration.
type ExternalEvent struct {
	Sources  []string  `json:"sources"` // that changed
	Revision int64     `json:"revision"`
	At       time.Time `json:"at"`
	Put      int       `json:"put"` // items
	Deleted  int       `json:"deleted"`
	// Answered is when the data plane had answered for all items; absent: it has not yet.
	Answered *time.Time `json:"answered,omitempty"`
}

var errNoExternal = errors.New("external configuration is off; --external of the agent turns it on")

// serveExternalHistory lists the last changes.
func (a *Agent) serveExternalHistory(*http.Request) (any, error) {
	if a.cfg.External == nil {
		return nil, errNoExternal
	}
	return a.cfg.External.History(), nil
}

// serveExternal lists the items whose key has ?key= in it.
func (a *Agent) serveExternal(r *http.Request) (any, error) {
	if a.cfg.External == nil {
		return nil, errNoExternal
	}
	out := []ExternalItem{}
	part := r.URL.Query().Get("key")
	for _, i := range a.cfg.External.Items() {
		if strings.Contains(i.Key, part) {
			out = append(out, i)
		}
	}
	return out, nil
}

// externalOwner names the source of a route of origin External.
func (a *Agent) externalOwner(k route.Key, origin route.Origin) string {
	if a.cfg.External == nil || origin != route.External {
		return ""
	}
	return a.cfg.External.Owner(k)
}
