package statuspage

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// beatEvery is how long a stream is silent at most. The page takes an agent that says nothing
	// for 12 s for one that does not answer.
	beatEvery = 5 * time.Second
	// defaultPatience is how long a client may take to read what it is sent.
	defaultPatience = 10 * time.Second
)

// serveEvents sends what changes, as server-sent events: "state" with what differs from the event
// before, in the first all there is; "beat" now and then. Of a client that reads slowly no event
// waits: it gets the newest state when it has read the one before.
func (p *Page) serveEvents(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead {
		return
	}
	if why := p.views.enter(); why != "" {
		w.Header().Set("Retry-After", "10")
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	defer p.views.leave()
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	send := func(write func(io.Writer)) error {
		if err := control.SetWriteDeadline(time.Now().Add(p.patience)); err != nil {
			return err
		}
		b := bufio.NewWriterSize(w, 16<<10)
		write(b)
		if err := b.Flush(); err != nil {
			return err
		}
		return control.Flush()
	}
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	sent := uint64(0)
	for due := true; ; {
		v, looked, renewed, running := p.views.latest()
		var err error
		switch {
		case !running:
			return
		case v != nil && v.number > sent:
			err = send(func(to io.Writer) { v.since(sent, looked, to) })
			sent = v.number
		case due:
			err = send(func(to io.Writer) {
				fmt.Fprintf(to, "event: beat\ndata: {%s}\n\n", times(looked))
			})
		}
		if err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-renewed:
			due = false
		case <-beat.C:
			due = true
		}
	}
}

// times are now and when the agent was last looked at, in milliseconds since 1970; 0: never.
func times(looked time.Time) string {
	at := int64(0)
	if !looked.IsZero() {
		at = looked.UnixMilli()
	}
	return fmt.Sprintf(`"now":%d,"looked":%d`, time.Now().UnixMilli(), at)
}

// since writes an event of what has changed after the look of that number; 0: of everything.
func (v *view) since(sent uint64, looked time.Time, to io.Writer) {
	fmt.Fprintf(to, "event: state\ndata: {%s", times(looked))
	if v.summaryChanged > sent {
		fmt.Fprintf(to, `,"summary":%s`, v.summary)
	}
	all := v.peersReplaced > sent
	fmt.Fprintf(to, `,"all":%t,"peers":[`, all)
	separator := ""
	for _, p := range v.peers {
		if all || p.changed > sent {
			fmt.Fprintf(to, "%s%s", separator, p.text)
			separator = ","
		}
	}
	fmt.Fprint(to, "]}\n\n")
}
