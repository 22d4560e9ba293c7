package vpp

import (
	"context"
	"maps"
	"sync"

	"go.fd.io/govpp/binapi/interface_types"

	"vpp-route-agent/internal/route"
)

// survivors are objects of kinds that VPP 25.10 keeps when their interface is deleted. It takes
// them for those of the next interface with that index, where they forward nothing until they have
// been deleted and made again. It knows what this session has put. The zero value is ready to use.
type survivors struct {
	mu sync.Mutex
	on map[route.ObjectKey]map[string]linkID // by anywhere, then by interface
}

// linkID tells an interface from another that had its index.
type linkID struct{ index, generation uint32 }

func (l *session) findLinkID(ctx context.Context, name string) (linkID, error) {
	index, _, err := l.findLink(ctx, name)
	return linkID{index, l.gone.count(index)}, err
}

// anywhere is k without its interface.
func anywhere(k route.ObjectKey) route.ObjectKey {
	k.Interface = ""
	return k
}

// put notes that k is on an interface. What had its name on an earlier one with the index is not.
func (s *survivors) put(k route.ObjectKey, on linkID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	like := s.on[anywhere(k)]
	maps.DeleteFunc(like, func(_ string, was linkID) bool { return was.isInWay(on) })
	if s.on == nil {
		s.on = map[route.ObjectKey]map[string]linkID{}
	}
	if like == nil {
		like = map[string]linkID{}
		s.on[anywhere(k)] = like
	}
	like[k.Interface] = on
}

// isInWay reports whether an interface had the index of another one before.
func (l linkID) isInWay(now linkID) bool { return l.index == now.index && l != now }

func (s *survivors) removed(k route.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	like := s.on[anywhere(k)]
	if delete(like, k.Interface); len(like) == 0 {
		delete(s.on, anywhere(k))
	}
}

// removedFrom notes that all objects of a kind were deleted from interfaces, and from those that
// had their indexes before.
func (s *survivors) removedFrom(on []interface_types.InterfaceIndex, kind route.ObjectKind) {
	indexes := map[uint32]bool{}
	for _, index := range on {
		indexes[uint32(index)] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.on, func(k route.ObjectKey, like map[string]linkID) bool {
		maps.DeleteFunc(like, func(_ string, was linkID) bool {
			return indexes[was.index] && k.Kind == kind
		})
		return len(like) == 0
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
	for name, was := range s.on[anywhere(k)] {
		if name == k.Interface && was != now || was.isInWay(now) {
			were = append(were, was)
		}
	}
	return were
}
