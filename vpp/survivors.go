package vpp

import (
	"context"
	"maps"
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

// put notes that k is on an interface. What had its name on an earlier one with the index is not.
func (s *survivors) put(k route.ObjectKey, on linkID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range s.inWay(k, on) {
		delete(s.on, key)
	}
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

// removedFrom notes that all objects of a kind were deleted from the interface with that index, and
// from those that had it before.
func (s *survivors) removedFrom(index uint32, kind route.ObjectKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.on, func(k route.ObjectKey, on linkID) bool {
		return on.index == index && k.Kind == kind
	})
}

// isOrphan reports whether what VPP has as k was put on an interface that is gone.
func (s *survivors) isOrphan(k route.ObjectKey, now linkID) bool {
	return len(s.orphans(k, now)) > 0
}

// orphans returns these interfaces: k was on them, or they had the index.
func (s *survivors) orphans(k route.ObjectKey, now linkID) (were []linkID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range s.inWay(k, now) {
		were = append(were, s.on[key])
	}
	return were
}

// inWay is orphans by what was put there. The caller has locked.
func (s *survivors) inWay(k route.ObjectKey, now linkID) (keys []route.ObjectKey) {
	for key, was := range s.on {
		if was != now && (key == k ||
			was.index == now.index && key.Kind == k.Kind && key.Name == k.Name) {
			keys = append(keys, key)
		}
	}
	return keys
}
