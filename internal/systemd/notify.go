// Package systemd tells the service manager how this process is doing: that it runs, in one line what it does, and that its loop still
// turns (sd_notify(3), sd_watchdog_enabled(3)). It knows nothing of routes, decides nothing and does nothing outside a service manager.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Service is what there is to tell. Its functions are called from one goroutine; one that hangs keeps the watchdog hungry.
type Service struct {
	// Turned is when the loop that must not stand still last came round.
	Turned func() time.Time
	// Status is what `systemctl status` shows; line breaks become spaces.
	Status func() string
	// TakenOver is the cause of an end of Run's ctx that is no end of the service: a new process goes on under this one's number. nil: none does.
	TakenOver error
	Log       *slog.Logger
}

// lookInterval is how old the status may be that the service manager shows, and how long a new turn of the loop stays untold.
const lookInterval = time.Second

// Run says READY at once, since a service that waits for etcd or VPP is started and must not be killed for that, then each change of the
// status and, for the watchdog, that the loop turned. When ctx ends it says STOPPING and returns nil. When a new process takes over it says
// nothing: systemd ends a unit that said STOPPING within TimeoutStopSec, whoever says READY after that, and RELOADING would only have it wait
// for that READY. Where there is no service manager ($NOTIFY_SOCKET) it returns at once.
func Run(ctx context.Context, s Service) error {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return nil
	}
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("systemd: watchdog: %w", err)
	}
	n := notifier{Service: s, feedEvery: watchdog / 3}
	look := time.NewTicker(n.every())
	defer look.Stop()
	for {
		n.tell(time.Now())
		select {
		case <-ctx.Done():
			if !errors.Is(context.Cause(ctx), s.TakenOver) {
				n.send(daemon.SdNotifyStopping)
			}
			return nil
		case <-look.C:
		}
	}
}

// notifier remembers what the service manager knows.
type notifier struct {
	Service
	feedEvery time.Duration // 0: there is no watchdog
	ready     bool
	status    string
	fed       time.Time // when the watchdog last was
	turned    time.Time // the turn that it was fed for
	failing   bool
}

// every is short enough for the shortest watchdog.
func (n *notifier) every() time.Duration {
	if n.feedEvery > 0 {
		return min(lookInterval, n.feedEvery)
	}
	return lookInterval
}

// tell sends what is new. The watchdog is fed with a turn of the loop, and with each turn once: a loop that stands still starves it.
func (n *notifier) tell(now time.Time) {
	var news []string
	if !n.ready {
		n.ready = true
		news = append(news, daemon.SdNotifyReady)
	}
	if status := strings.Join(strings.Fields(n.Status()), " "); status != n.status {
		n.status = status
		news = append(news, "STATUS="+status)
	}
	if turned := n.Turned(); n.feedEvery > 0 && turned.After(n.turned) && now.Sub(n.fed) >= n.feedEvery {
		n.fed, n.turned = now, turned
		news = append(news, daemon.SdNotifyWatchdog)
	}
	if len(news) > 0 {
		n.send(strings.Join(news, "\n"))
	}
}

// send logs the first of several failures: the service manager may be restarting, and what was not told now is no reason to stop.
func (n *notifier) send(state string) {
	err := notify(state)
	if err != nil && !n.failing {
		n.Log.Warn("the service manager does not hear us", "err", err)
	}
	n.failing = err != nil
	if n.failing {
		n.ready, n.status, n.fed = false, "", time.Time{} // tell it again
	}
}

// sendWithin is how long a message may take.
const sendWithin = time.Second

// notify is sd_notify(3), with an end: a manager that does not read has room for a few messages, and holds up whoever sends one more.
func notify(state string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: os.Getenv("NOTIFY_SOCKET"), Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(sendWithin)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(state))
	return err
}
