package grpc

import (
	"fmt"
	"testing"

	"vpp-route-agent/internal/external/proto/ligato/configurator"
	"vpp-route-agent/internal/external/proto/ligato/vpp"
	"vpp-route-agent/internal/route"
)

func upDown(n *configurator.NotifyResponse) string {
	s := n.GetNotification().GetVppNotification().GetInterface().GetState()
	return fmt.Sprint(n.GetNextIdx(), " ", s.GetName(), " ", s.GetOperStatus())
}

// notified reads as many notifications as are wanted, and compares them.
func (s *served) notified(t *testing.T, r *configurator.NotifyRequest, want ...string) {
	t.Helper()
	stream, err := configurator.NewConfiguratorServiceClient(s.conn).Notify(s.ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range want {
		n, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if got := upDown(n); got != w {
			t.Errorf("got %q, want %q", got, w)
		}
	}
}

func TestNotify(t *testing.T) {
	s := serve(t)
	links := func(all ...route.Interface) { s.fib.set(func() { s.fib.links = all }) }
	links(route.Interface{Name: "eth0", Up: true})
	s.notified(t, &configurator.NotifyRequest{}, "1 eth0 UP")
	links(route.Interface{Name: "eth0", Up: true}, route.Interface{Name: "memif1", Index: 7})
	s.notified(t, &configurator.NotifyRequest{}, "1 eth0 UP", "2 memif1 DOWN")
	links(route.Interface{Name: "eth0"}, route.Interface{Name: "memif1", Index: 8, Up: true})
	s.notified(t, &configurator.NotifyRequest{Idx: 2}, "3 memif1 DELETED", "4 eth0 DOWN",
		"5 memif1 UP")
	s.fib.set(func() { s.fib.away, s.fib.links = "VPP has stopped", nil })
	s.do(Change{Puts: puts(1)}) // is told that, and then all has been taken in
	s.fib.set(func() { s.fib.away = "" })
	s.notified(t, &configurator.NotifyRequest{Idx: 5}, "6 eth0 DELETED", "7 memif1 DELETED")
	memif1 := &vpp.Notification{Interface: &vpp.InterfaceNotification{
		State: &vpp.InterfaceState{Name: "memif1"}}}
	s.notified(t, &configurator.NotifyRequest{Filters: []*configurator.Notification{
		{Notification: &configurator.Notification_VppNotification{VppNotification: memif1}},
	}}, "2 memif1 DOWN", "3 memif1 DELETED", "5 memif1 UP", "7 memif1 DELETED")
}

// What nobody reads is not kept for ever, and a client that asks for it gets what there is.
func TestNotificationsAreBounded(t *testing.T) {
	n := newNotifications(true)
	for i := range 3 * maxNotifications {
		n.take([]route.Interface{{Name: "eth0", Up: i%2 == 0}})
	}
	all, at, _ := n.from(0)
	if len(all) != maxNotifications || at != 2*maxNotifications {
		t.Errorf("%d notifications from %d on", len(all), at)
	}
	if all, at, _ = n.from(5 * maxNotifications); len(all) != 0 || at != 3*maxNotifications {
		t.Errorf("%d notifications from %d on", len(all), at)
	}
	all, _, _ = n.from(at - 1)
	if s := all[0].GetLinuxNotification().GetInterface().GetState(); s.GetName() != "eth0" {
		t.Errorf("got %v", all[0])
	}
}
