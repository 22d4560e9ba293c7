// This file is vpp-route-agent's, not GoBGP's.

package apiutil

import (
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// MarshalPathAttributes converts attributes for the API and for watchers, without those that cannot
// be converted: GoBGP would panic on some, and show a path without any attribute for others. The
// path itself goes on with all of them.
func MarshalPathAttributes(attrs []bgp.PathAttributeInterface) ([]*anypb.Any, error) {
	if all, ok := marshal(attrs); ok {
		return all, nil
	}
	out := make([]*anypb.Any, 0, len(attrs))
	for i := range attrs {
		if one, ok := marshal(attrs[i : i+1]); ok {
			out = append(out, one...)
		}
	}
	return out, nil
}

func marshal(attrs []bgp.PathAttributeInterface) (out []*anypb.Any, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	out, err := marshalPathAttributesUnguarded(attrs)
	return out, err == nil
}
