package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// RouteStatus is one prefix that somebody wants in the FIB, or that is there: what `routes -o json` prints.
type RouteStatus struct {
	Prefix netip.Prefix `json:"prefix"`
	Table  uint32       `json:"table"`
	// Elevated: it goes before what the node itself has for the prefix (a live migration).
	Elevated bool         `json:"elevated,omitempty"`
	Origin   string       `json:"origin"`
	Kind     string       `json:"kind"`
	Paths    []PathStatus `json:"paths"`
	State    string       `json:"state"`
	Since    time.Time    `json:"since"`            // in this state
	Reason   string       `json:"reason,omitempty"` // why it is not programmed, or a path is left out
}

// PathStatus is one way of a route.
type PathStatus struct {
	NextHop   string `json:"nextHop,omitempty"`
	Interface string `json:"interface,omitempty"`
	Weight    uint8  `json:"weight"`
}

// serveRoutes tells what the FIB engine knows, by prefix: all of it, or what lies inside ?prefix= or covers it, since both decide where a
// packet to it goes. Without a data plane there is nothing to tell. Of a million routes the list alone takes hundreds of megabytes, so only
// one is held at a time, and no copy of it: others wait for as long as their clients do, but for who asks about one address.
func (a *Agent) serveRoutes(w http.ResponseWriter, r *http.Request) {
	var within netip.Prefix
	if text := r.URL.Query().Get("prefix"); text != "" {
		p, err := ParsePrefixOrAddr(text)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		within = p
	}
	if !within.IsSingleIP() {
		select {
		case a.listing <- struct{}{}:
			defer func() { <-a.listing }()
		case <-r.Context().Done():
			return
		}
		// The time that it waited is not its client's. A writer that is no connection has no deadline.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	}
	var entries []fib.Entry
	if a.cfg.FIB != nil {
		entries = a.cfg.FIB.Entries(within)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = writeRoutes(w, entries) // the client went away: nobody is left to tell
}

// writeRoutes writes what writeJSON would of the list of all of them.
func writeRoutes(w io.Writer, entries []fib.Entry) error {
	b := bufio.NewWriterSize(w, 64<<10)
	separator := "[\n  "
	for _, e := range entries {
		text, err := json.MarshalIndent(routeStatus(e), "  ", "  ")
		if err != nil {
			return err
		}
		b.WriteString(separator)
		separator = ",\n  "
		if _, err := b.Write(text); err != nil {
			return err
		}
	}
	if len(entries) == 0 {
		b.WriteString("[]\n")
	} else {
		b.WriteString("\n]\n")
	}
	return b.Flush()
}

func routeStatus(e fib.Entry) RouteStatus {
	r := RouteStatus{
		Prefix: e.Key.Prefix, Table: e.Key.Table, Elevated: e.Key.Elevated, Origin: e.Origin.String(), Kind: e.Kind.String(), Paths: []PathStatus{},
		State: e.State.String(), Since: e.Since, Reason: whyNot(e),
	}
	for _, p := range e.Paths {
		ps := PathStatus{Interface: p.Interface, Weight: p.Weight}
		if p.NextHop.IsValid() {
			ps.NextHop = p.NextHop.String()
		}
		r.Paths = append(r.Paths, ps)
	}
	return r
}

// whyNot says why a route does not forward as wanted, or not along all its paths.
func whyNot(e fib.Entry) string {
	switch {
	case e.Error != "":
		return e.Error
	case e.Found != "":
		return "the data plane has " + e.Found
	case e.By != "":
		return "hidden by a route of " + e.By
	}
	return e.Reason.String()
}

// AuditStatus is what `audit -o json` prints.
type AuditStatus struct {
	Listed    int             `json:"listed"`
	Compared  int             `json:"compared"`
	Missing   int             `json:"missing"`
	Different int             `json:"different"`
	Extra     int             `json:"extra"`
	Hidden    int             `json:"hidden"`
	Repair    bool            `json:"repair"`
	Findings  []FindingStatus `json:"findings"`
}

// FindingStatus is one route that the data plane does not have as it acknowledged it.
type FindingStatus struct {
	Prefix   netip.Prefix `json:"prefix"`
	Table    uint32       `json:"table"`
	Elevated bool         `json:"elevated,omitempty"`
	Drift    string       `json:"drift"`
	Want     string       `json:"want,omitempty"`
	Found    string       `json:"found,omitempty"`
	By       string       `json:"by,omitempty"`
}

// Audit compares all routes of ours with the data plane, by one listing.
func (a *Agent) Audit(ctx context.Context) (AuditStatus, error) {
	if a.cfg.FIB == nil {
		return AuditStatus{}, errors.New("there is no data plane to audit")
	}
	r, err := a.cfg.FIB.Audit(ctx)
	if err != nil {
		return AuditStatus{}, err
	}
	out := AuditStatus{r.Listed, r.Compared, r.Missing, r.Different, r.Extra, r.Hidden, r.Repair, []FindingStatus{}}
	for _, f := range r.Findings {
		fs := FindingStatus{Prefix: f.Key.Prefix, Table: f.Key.Table, Elevated: f.Key.Elevated, Drift: f.Drift.String(), By: f.By}
		if f.Want.Prefix.IsValid() {
			fs.Want = f.Want.String()
		}
		if f.Found.Prefix.IsValid() {
			fs.Found = f.Found.String()
		}
		out.Findings = append(out.Findings, fs)
	}
	return out, nil
}

// AdminHandler serves the admin API: JSON over HTTP on a unix socket. GET /v1/status and /v1/routes?prefix=P; POST /v1/audit,
// /v1/guard/release, /v1/drain?wait=D&stay=B&until-idle=RATE and /v1/drain/cancel.
func (a *Agent) AdminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, a.Status()) })
	mux.HandleFunc("GET /v1/routes", a.serveRoutes)
	mux.HandleFunc("POST /v1/audit", func(w http.ResponseWriter, r *http.Request) {
		report, err := a.Audit(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		writeJSON(w, report)
	})
	mux.HandleFunc("POST /v1/guard/release", func(w http.ResponseWriter, _ *http.Request) {
		if a.cfg.FIB == nil {
			http.Error(w, "there is no data plane", http.StatusConflict)
			return
		}
		held := a.Status().FIB.Guard
		a.cfg.FIB.ReleaseGuard()
		writeJSON(w, held)
	})
	mux.HandleFunc("POST /v1/drain", a.serveDrain)
	mux.HandleFunc("POST /v1/drain/cancel", func(w http.ResponseWriter, _ *http.Request) {
		status, err := a.CancelDrain()
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		writeJSON(w, status)
	})
	return mux
}

func (a *Agent) serveDrain(w http.ResponseWriter, r *http.Request) {
	wait, err := time.ParseDuration(r.URL.Query().Get("wait"))
	if err != nil {
		http.Error(w, "wait: "+err.Error(), http.StatusBadRequest)
		return
	}
	o := DrainOptions{Wait: wait, Stay: r.URL.Query().Get("stay") == "true"}
	if text := r.URL.Query().Get("until-idle"); text != "" {
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil {
			http.Error(w, "until-idle: "+err.Error(), http.StatusBadRequest)
			return
		}
		o.UntilIdle = &rate
	}
	status, err := a.Drain(o)
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	writeJSON(w, status)
}

// ParsePrefixOrAddr takes a prefix, or an address as its /32 or /128.
func ParsePrefixOrAddr(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return route.HostPrefix(a), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is neither a prefix nor an address", text)
	}
	norm, ok := route.Normalize(p)
	if !ok {
		return netip.Prefix{}, fmt.Errorf("%q is an IPv4-mapped prefix that is shorter than /96", text)
	}
	return norm, nil
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // the client went away: nobody is left to tell
}

// ListenAdmin opens the admin socket, for root and its group only. A socket file that a killed
// agent left is replaced. One that another agent still answers on, and a file that is no socket,
// are errors. The socket's directory is made if it alone is missing.
func ListenAdmin(path string, log *slog.Logger) (net.Listener, error) {
	l, err := listenAdmin(path, log)
	if err != nil {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	return l, nil
}

func listenAdmin(path string, log *slog.Logger) (net.Listener, error) {
	switch err := os.Mkdir(filepath.Dir(path), 0o755); {
	case err == nil:
		log.Info("made the directory of the admin socket", "path", filepath.Dir(path))
	case !errors.Is(err, fs.ErrExist):
		return nil, err
	}
	if err := removeDeadSocket(path); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o660); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func removeDeadSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is there and is no socket", path)
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return fmt.Errorf("another agent answers on %s", path)
	}
	return os.Remove(path)
}

// writeTimeout is for how long an answer may be on its way to the client.
const writeTimeout = time.Minute

// Serve answers HTTP on l until ctx ends. Slow clients are cut off: nobody may hold the agent's file descriptors.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: writeTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		s.Close()
	})
	err := s.Serve(l)
	if !stop() {
		<-done
		return nil
	}
	return err
}
