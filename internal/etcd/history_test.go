package etcd

import (
	"errors"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Changes that come in while a probe's answer is on its way do not make it an answer from the past.
func TestHistoryIsHeldAgainstWhatTheProbeKnew(t *testing.T) {
	f := &Follower{cluster: 7, term: 3, revision: 676, probed: 670}
	for _, tc := range []struct {
		name string
		head pb.ResponseHeader
		same bool
	}{
		{"overtaken by a change", pb.ResponseHeader{ClusterId: 7, RaftTerm: 3, Revision: 675},
			true},
		{"from before the probe", pb.ResponseHeader{ClusterId: 7, RaftTerm: 3, Revision: 669},
			false},
		{"another term", pb.ResponseHeader{ClusterId: 7, RaftTerm: 2, Revision: 680}, false},
		{"another cluster", pb.ResponseHeader{ClusterId: 8, RaftTerm: 3, Revision: 680}, false},
	} {
		if err := f.sameHistory(&tc.head, f.probed); (err == nil) != tc.same || err != nil &&
			!errors.Is(err, errRestored) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
