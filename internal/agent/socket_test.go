package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/testlog"
)

func TestListenTakesTheNameOfNothingButADeadSocket(t *testing.T) {
	dir := t.TempDir()
	file := func(t *testing.T, path string) {
		if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dead := func(t *testing.T, path string) {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
	}
	live := func(t *testing.T, path string) {
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	// one of an agent that does not run, with as many clients as the kernel lets wait
	stopped := func(t *testing.T, path string) {
		socket := func() int {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { unix.Close(fd) })
			return fd
		}
		l, name := socket(), &unix.SockaddrUnix{Name: path}
		if err := errors.Join(unix.Bind(l, name), unix.Listen(l, 1)); err != nil {
			t.Fatal(err)
		}
		for unix.Connect(socket(), name) == nil {
		}
	}
	link := func(t *testing.T, path string) {
		file(t, path+".target")
		if err := os.Symlink(path+".target", path); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, path string
		before     func(*testing.T, string)
		refusal    string
	}{
		{"nothing", "nothing", nil, ""},
		{"a directory is missing", "run/agent.sock", nil, ""},
		{"two are", "var/run/agent.sock", nil, "no such file or directory"},
		{"a dead socket", "dead", dead, ""},
		{"one that answers", "live", live, "another agent answers"},
		{"one that does not answer", "stopped", stopped, "another agent may use"},
		{"a file", "file", file, "is no socket"},
		{"a link to a file", "link", link, "is no socket"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(dir, c.path)
			if c.before != nil {
				c.before(t, path)
			}
			before, _ := os.Lstat(path)
			l, err := Listen("admin socket", path, slog.New(slog.DiscardHandler))
			if c.refusal == "" {
				if err != nil {
					t.Fatal(err)
				}
				l.Close()
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.refusal) {
				t.Errorf("got %v", err)
			}
			if after, err := os.Lstat(path); before != nil &&
				(err != nil || !os.SameFile(before, after)) {
				t.Errorf("%s is not what it was: %v", path, err)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "var")); !os.IsNotExist(err) {
		t.Errorf("made parents: %v", err)
	}
	if info, err := os.Stat(filepath.Join(dir, "run")); err != nil ||
		info.Mode().Type() != fs.ModeDir {
		t.Errorf("%v, %v", info, err)
	}
}

// A body that does not come ends the connection, whether or not the handler reads it. One that came
// leaves the answer all the time it takes, and the connection is used again.
func TestABodyComesInTimeOrNotAtAll(t *testing.T) {
	const within = 200 * time.Millisecond
	slow := func(t *testing.T) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				if _, err := io.ReadAll(r.Body); err != nil {
					http.Error(w, err.Error(), http.StatusBadRequest)
					return
				}
			}
			select {
			case <-r.Context().Done():
				t.Errorf("%s: ended: %v", r.Method, r.Context().Err())
			case <-time.After(3 * within):
				fmt.Fprintln(w, "ok")
			}
		}
	}
	quick := func(*testing.T) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }
	}
	for _, tc := range []struct {
		name    string
		h       func(*testing.T) http.HandlerFunc
		request string
		want    string // of what is answered
		stays   bool
	}{
		{"not read", quick, "GET / HTTP/1.1\r\nContent-Length: 9\r\n", "200 OK", false},
		{"read", slow, "POST / HTTP/1.1\r\nContent-Length: 9\r\n", "400 Bad Request", false},
		{"in chunks", slow, "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
			"400 Bad Request", false},
		{"none", slow, "GET / HTTP/1.1\r\n", "200 OK", true},
		{"it came", slow, "POST / HTTP/1.1\r\nContent-Length: 0\r\n", "200 OK", true},
		{"all of it", slow, "POST / HTTP/1.1\r\nContent-Length: 2\r\nHost: x\r\n\r\nhi",
			"200 OK", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, accepted := net.Pipe()
				l := &oneConn{conn: accepted, closed: make(chan struct{})}
				s := server(tc.h(t), within)
				served := make(chan error)
				go func() { served <- s.Serve(l) }()
				defer func() { c.Close(); s.Close(); <-served }()
				text := tc.request
				if !strings.Contains(text, "Host:") {
					text += "Host: x\r\n\r\n"
				}
				_ = c.SetDeadline(time.Now().Add(20 * time.Second))
				fmt.Fprint(c, text)
				in := bufio.NewReader(c)
				got, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, got.Body)
				if got.Status != tc.want {
					t.Errorf("%s, want %s", got.Status, tc.want)
				}
				_ = c.SetReadDeadline(time.Now().Add(5 * within))
				_, err = in.ReadByte()
				if stays := errors.Is(err, os.ErrDeadlineExceeded); stays != tc.stays {
					t.Errorf("then %v; the connection is to stay: %t", err, tc.stays)
				}
			})
		})
	}
}

// oneConn is a listener that accepts one connection, and then waits for its end.
type oneConn struct {
	conn   net.Conn
	closed chan struct{}
	close  sync.Once
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error { l.close.Do(func() { close(l.closed) }); return nil }

func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// TestSilentClientsMakeRoom: clients that connect and ask nothing keep no others out, and take few
// file descriptors.
func TestSilentClientsMakeRoom(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- Serve(ctx, l, http.NotFoundHandler(), testlog.New(t))
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	var all []net.Conn
	for range maxSilent + 20 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		all = append(all, c)
	}
	client := http.Client{Timeout: 10 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get("http://" + l.Addr().String() + "/healthz")
	if err != nil {
		t.Fatalf("who asks is kept out: %v", err)
	}
	r.Body.Close()
	_ = all[0].SetReadDeadline(time.Now().Add(readTimeout / 4))
	if _, err := all[0].Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the oldest connection of %d: %v", len(all), err)
	}
}

// TestPanicOfAHandlerIsLogged: as an error of ours, and not as one of the client.
func TestPanicOfAHandlerIsLogged(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var out testlog.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- Serve(ctx, l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			panic("no map")
		}), slog.New(slog.NewTextHandler(&out, nil)))
	}()
	if r, err := http.Get("http://" + l.Addr().String()); err == nil {
		r.Body.Close()
		t.Error("there was an answer")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if text := out.String(); !strings.Contains(text, "level=ERROR") ||
		!strings.Contains(text, "no map") || !strings.Contains(text, "listener=127.0.0.1:") {
		t.Errorf("the log has %q", text)
	}
}
