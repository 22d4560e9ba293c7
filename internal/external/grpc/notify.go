package grpc

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"vpp-route-agent/internal/external/proto/ligato/configurator"
	"vpp-route-agent/internal/external/proto/ligato/linux"
	"vpp-route-agent/internal/external/proto/ligato/vpp"
	"vpp-route-agent/internal/route"
)

// maxNotifications is how many are kept for clients that come, or come back, or are slow.
const maxNotifications = 1000

// notifications say what happened to interfaces. The first is number 0.
type notifications struct {
	isLinux bool

	mu   sync.Mutex // guards what follows
	last []route.Interface
	kept []*configurator.Notification // the newest
	next uint32                       // number of the next one
	more chan struct{}                // closed when there is one
}

func newNotifications(isLinux bool) *notifications {
	return &notifications{isLinux: isLinux, more: make(chan struct{})}
}

// take notes how interfaces differ from those of the last time.
func (n *notifications) take(now []route.Interface) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.next
	for _, i := range n.last {
		if j, ok := (route.Facts{Interfaces: now}).Interface(i.Name); !ok || j.Index != i.Index {
			n.add(i, vpp.InterfaceState_DELETED)
		}
	}
	for _, i := range now {
		was, ok := (route.Facts{Interfaces: n.last}).Interface(i.Name)
		switch {
		case ok && was.Index == i.Index && was.Up == i.Up:
		case i.Up:
			n.add(i, vpp.InterfaceState_UP)
		default:
			n.add(i, vpp.InterfaceState_DOWN)
		}
	}
	if n.last = now; n.next != before {
		close(n.more)
		n.more = make(chan struct{})
	}
}

// add notes the state of an interface; Linux' states have the same numbers.
func (n *notifications) add(i route.Interface, state vpp.InterfaceState_Status) {
	at, name := time.Now().Unix(), asText(i.Name)
	var out configurator.Notification
	if n.isLinux {
		out.Notification = &configurator.Notification_LinuxNotification{
			LinuxNotification: &linux.Notification{Interface: &linux.InterfaceNotification{
				Type: linux.InterfaceNotification_UPDOWN,
				State: &linux.InterfaceState{Name: name, InternalName: name,
					IfIndex: int32(i.Index), LastChange: at,
					OperStatus: linux.InterfaceState_Status(state)},
			}}}
	} else {
		out.Notification = &configurator.Notification_VppNotification{
			VppNotification: &vpp.Notification{Interface: &vpp.InterfaceNotification{
				Type: vpp.InterfaceNotification_UPDOWN,
				State: &vpp.InterfaceState{Name: name, InternalName: name, IfIndex: i.Index,
					LastChange: at, OperStatus: state},
			}}}
	}
	n.kept = append(n.kept, &out)
	n.next++
	if over := len(n.kept) - maxNotifications; over > 0 {
		n.kept = slices.Delete(n.kept, 0, over)
	}
}

// from returns what is kept from number first on, the number of the first of these, and what is
// closed when there is more.
func (n *notifications) from(first uint32) (all []*configurator.Notification, at uint32,
	more <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	oldest := n.next - uint32(len(n.kept))
	at = min(max(first, oldest), n.next)
	return slices.Clone(n.kept[at-oldest:]), at, n.more
}

// Notify is Ligato's: what happens to interfaces. A client that reads slowly misses what is not
// kept any more, and sees that by the numbers.
func (s *Server) Notify(r *configurator.NotifyRequest,
	stream configurator.ConfiguratorService_NotifyServer) error {
	for next := r.Idx; ; {
		all, at, more := s.source.notifications.from(next)
		for i, n := range all {
			if !passes(n, r.Filters) {
				continue
			}
			err := stream.Send(&configurator.NotifyResponse{NextIdx: at + uint32(i) + 1,
				Notification: n})
			if err != nil {
				return err
			}
		}
		next = at + uint32(len(all))
		select {
		case <-more:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// passes takes Ligato's filters: what one of them says, n says as well.
func passes(n *configurator.Notification, filters []*configurator.Notification) bool {
	return len(filters) == 0 ||
		slices.ContainsFunc(filters, func(f *configurator.Notification) bool {
			both := proto.Clone(n)
			proto.Merge(both, f)
			return proto.Equal(both, n)
		})
}
