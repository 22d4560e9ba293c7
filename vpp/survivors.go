package vpp

import (
	"context"
	"sync"

	"vpp-route-agent/internal/route"
)

// survivors are objects of kinds that VPP 25.10 keeps when their interface is deleted. It takes
// them for those of the next interface with that index, where they forward nothing until they have
// been deleted and made again. It knows what this session has put. The zero value is ready to use.
type survivors struct {
	mu sync.Mutex
	on map[route.ObjectKey]linkID
}

// linkID tells an interface from another that had its index.
type linkID struct{ index, generation uint32 }

func (l *session) findLinkID(ctx context.Context, name string) (linkID, error) {
	index, _, err := l.findLink(ctx, name)
	return linkID{index, l.gone.count(index)}, err
}

func (s *survivors) put(k route.ObjectKey, on linkID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on == nil {
		s.on = map[route.ObjectKey]linkID{}
	}
	s.on[k] = on
}

func (s *survivors) removed(k route.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.on, k)
}

// isOrphan reports whether k was put on an interface that is gone.
func (s *survivors) isOrphan(k route.ObjectKey, now linkID) bool {
	_, ok := s.orphan(k, now)
	return ok
}

// orphan returns that interface.
func (s *survivors) orphan(k route.ObjectKey, now linkID) (was linkID, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, ok = s.on[k]
	return was, ok && was != now
}
