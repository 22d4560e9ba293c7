// Package systemd reports to the service manager that this process is ready, its status in one
// line, and that its main loop makes progress (sd_notify(3), sd_watchdog_enabled(3)). Without a
// service manager it does nothing.
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

// Service is what is reported. Its functions are called from one goroutine: while one of them
// blocks, the watchdog is not fed.
type Service struct {
	// Turned returns when the main loop last completed a turn.
	Turned func() time.Time
	// Status is shown by `systemctl status`. Line breaks become spaces.
	Status func() string
	// TakenOver is the cause with which Run's ctx ends when a new process continues the service
	// under the same PID; nil if that cannot happen.
	TakenOver error
	Log       *slog.Logger
}

// lookInterval bounds the delay of a new status, and of feeding the watchdog.
const lookInterval = time.Second

// Run sends READY at once, since the agent may wait for etcd or VPP, then status changes and the
// watchdog's keep-alives. When ctx ends it sends STOPPING, except when a new process takes over:
// after STOPPING systemd ends the unit within TimeoutStopSec despite a later READY.
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
		n.notify(time.Now())
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

// notifier holds what was last sent to the service manager.
type notifier struct {
	Service
	feedEvery time.Duration // 0: there is no watchdog
	ready     bool
	status    string
	fed       time.Time // when the watchdog last was
	turned    time.Time // the turn that it was fed for
	failing   bool
}

// every is short enough for the watchdog's timeout.
func (n *notifier) every() time.Duration {
	if n.feedEvery > 0 {
		return min(lookInterval, n.feedEvery)
	}
	return lookInterval
}

// notify sends what is new. It feeds the watchdog once per turn of the loop: a loop that stands
// still is not reported as alive.
func (n *notifier) notify(now time.Time) {
	var news []string
	if !n.ready {
		n.ready = true
		news = append(news, daemon.SdNotifyReady)
	}
	if status := strings.Join(strings.Fields(n.Status()), " "); status != n.status {
		n.status = status
		news = append(news, "STATUS="+status)
	}
	if turned := n.Turned(); n.feedEvery > 0 && turned.After(n.turned) &&
		now.Sub(n.fed) >= n.feedEvery {
		n.fed, n.turned = now, turned
		news = append(news, daemon.SdNotifyWatchdog)
	}
	if len(news) > 0 {
		n.send(strings.Join(news, "\n"))
	}
}

// send logs the first of several failures. The service manager may be restarting, which is no
// reason to stop.
func (n *notifier) send(state string) {
	err := notify(state)
	if err != nil && !n.failing {
		n.Log.Warn("the service manager cannot be reached", "err", err)
	}
	n.failing = err != nil
	if n.failing {
		n.ready, n.status, n.fed = false, "", time.Time{} // all is sent again
	}
}

// sendWithin bounds the sending of one message.
const sendWithin = time.Second

// notify is sd_notify(3) with a timeout: a service manager that does not read blocks the sender
// after a few messages.
func notify(state string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: os.Getenv("NOTIFY_SOCKET"),
		Net: "unixgram"})
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
