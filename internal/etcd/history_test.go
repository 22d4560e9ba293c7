package etcd

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"vpp-route-agent/internal/settle"
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
		err := f.sameHistory(&tc.head, f.probed, f.term)
		if (err == nil) != tc.same || err != nil && !errors.Is(err, errRestored) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// A list that took long was begun in a term that is over. That is an election, not a restore.
func TestListAcrossAnElection(t *testing.T) {
	f := &Follower{data: &keys{}, log: slog.Default(), grace: newGrace(time.Second),
		known: map[Range]*keyRange{}, cluster: 1, term: 6, revision: 100}
	w := widened{revision: 100, term: 5, found: map[*keyRange][]*mvccpb.KeyValue{}}
	w.head = &pb.ResponseHeader{ClusterId: 1, Revision: 100, RaftTerm: 5}
	if err := f.takeList(w, settle.New()); err != nil {
		t.Error(err)
	}
	w.head.RaftTerm = 4
	if err := f.takeList(w, settle.New()); !errors.Is(err, errRestored) {
		t.Errorf("a lower term than before the list: %v", err)
	}
}
