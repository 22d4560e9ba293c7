package agent

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io/fs"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Listen opens the socket that name, as in "admin socket", is for root and its group only. A
// socket file that a killed agent left is replaced. One that another agent still listens on, and a
// file that is no socket, are errors. The socket's directory is made if it alone is missing.
func Listen(name, path string, log *slog.Logger) (l net.Listener, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}()
	switch err := os.Mkdir(filepath.Dir(path), 0o755); {
	case err == nil:
		log.Info("made the directory of the "+name, "path", filepath.Dir(path))
	case !errors.Is(err, fs.ErrExist):
		return nil, err
	}
	if err := removeDeadSocket(path); err != nil {
		return nil, err
	}
	if l, err = net.Listen("unix", path); err != nil {
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
	c, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		c.Close()
		return fmt.Errorf("another agent answers on %s", path)
	case !errors.Is(err, syscall.ECONNREFUSED): // EAGAIN: one that is stopped has a full queue
		return fmt.Errorf("another agent may use the socket: %w", err)
	}
	return os.Remove(path)
}

const (
	// readTimeout bounds the transfer of a request, also of a body that nobody reads.
	readTimeout = 10 * time.Second
	// writeTimeout bounds the transfer of an answer to the client.
	writeTimeout = time.Minute
)

// Serve answers HTTP on l until ctx ends. Slow clients are cut off, so that none holds a file
// descriptor of the agent. What goes wrong with connections is logged.
func Serve(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) error {
	s := server(h, readTimeout)
	s.ErrorLog = stdlog.New(httpErrors{log.With("listener", l.Addr().String())}, "", 0)
	s.ConnState = (&silent{at: map[net.Conn]*list.Element{}}).note
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

// maxSilent bounds the connections of a listener that have asked nothing, or nothing since their
// last answer. For one more the oldest is closed. So a probe, which asks at once, finds room among
// clients that never ask.
const maxSilent = 256

// silent has these connections.
type silent struct {
	mu    sync.Mutex
	order list.List // of net.Conn, the oldest first
	at    map[net.Conn]*list.Element
}

// note is http.Server's ConnState.
func (s *silent) note(c net.Conn, to http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(c)
	if to != http.StateNew && to != http.StateIdle {
		return
	}
	s.at[c] = s.order.PushBack(c)
	if s.order.Len() > maxSilent {
		oldest := s.order.Front().Value.(net.Conn)
		s.drop(oldest)
		go oldest.Close() // TLS may wait for the client
	}
}

func (s *silent) drop(c net.Conn) {
	if e := s.at[c]; e != nil {
		s.order.Remove(e)
		delete(s.at, c)
	}
}

// httpErrors takes the lines that net/http logs. Most are about what a client did wrong.
type httpErrors struct{ log *slog.Logger }

func (e httpErrors) Write(line []byte) (int, error) {
	text := strings.TrimPrefix(strings.TrimSpace(string(line)), "http: ")
	if panicked, ok := strings.CutPrefix(text, "panic serving "); ok {
		e.log.Error("answering a request panicked", "panic", panicked)
	} else {
		e.log.Warn("a connection could not be served", "err", text)
	}
	return len(line), nil
}

// server reads a request within a time. Go lifts that bound once the request has come, so that it
// ends no long answer.
func server(h http.Handler, read time.Duration) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: read / 2, ReadTimeout: read, WriteTimeout: writeTimeout,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
}
