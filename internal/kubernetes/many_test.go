package kubernetes

import (
	"log/slog"
	"reflect"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Of Nodes that come and go by thousands there is a copy for each reader, not one for each of them.
func TestManyNodes(t *testing.T) {
	n := NewNodes(nil, slog.New(slog.DiscardHandler))
	s := (*nodeStore)(n)
	node := func(i int) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i)}}
	}
	s.Replace(nil, "")
	for i := range 3000 {
		s.Add(node(i))
	}
	read := n.Known()
	copies := 0
	last := reflect.ValueOf(read.Nodes).Pointer()
	for i := range 3000 {
		s.Delete(node(i))
		n.mu.Lock()
		if now := reflect.ValueOf(n.known.Nodes).Pointer(); now != last {
			copies, last = copies+1, now
		}
		n.mu.Unlock()
	}
	if len(read.Nodes) != 3000 {
		t.Errorf("what was read has %d Nodes now", len(read.Nodes))
	}
	now := n.Known()
	if len(now.Nodes) != 0 || now.Version != read.Version+3000 || copies != 1 {
		t.Errorf("%d Nodes, version %d after %d, %d copies", len(now.Nodes), now.Version,
			read.Version, copies)
	}
}
