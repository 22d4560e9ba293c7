package reflectors

import (
	"testing"
	"time"

	"vpp-route-agent/bgp/reflector"
)

func TestWhichAnswersCount(t *testing.T) {
	start := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	mesh, cover := reflector.Question{Mesh: true}, reflector.Question{Cover: "rr-1"}
	var a asking
	answer := func(q reflector.Question, revision int64) {
		a.hear("n1", reflector.Answer{Question: q, Revision: revision})
	}
	expect := func(what string, after int64, now time.Time, want ...int64) {
		t.Helper()
		var got []int64
		for _, x := range a.of("n1", after, now) {
			got = append(got, x.Revision)
		}
		if len(got) != len(want) {
			t.Fatalf("%s: %v, want %v", what, got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%s: %v, want %v", what, got, want)
			}
		}
	}
	answer(mesh, 10)
	expect("before anything was asked", 0, start)
	a.put(mesh, round{20, start})
	answer(mesh, 10) // another leader's question, or an older one
	answer(mesh, 21)
	expect("to no write of ours", 0, start)
	answer(mesh, 20)
	answer(mesh, 20)
	expect("the same answer once more", 0, start, 20)
	a.put(mesh, round{30, start.Add(2 * time.Second)})
	answer(mesh, 30)
	answer(mesh, 20) // it was read late
	expect("both", 0, start.Add(2*time.Second), 20, 30)
	expect("after a change that was seen at 25", 25, start.Add(2*time.Second), 30)
	expect("after the first is a minute old", 0, start.Add(61*time.Second), 30)
	a.put(cover, round{40, start.Add(3 * time.Second)})
	answer(cover, 40)
	expect("with that to the next gate", 0, start.Add(4*time.Second), 20, 30, 40)
	a.put(cover, round{50, start.Add(63 * time.Second)})
	answer(mesh, 30) // its round is forgotten
	expect("what is too old is dropped", 0, start.Add(4*time.Second), 40)
	a.changed()
	expect("after a change", 0, start.Add(63*time.Second))
}

func TestWhenAQuestionIsAskedAgain(t *testing.T) {
	start := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	mesh, cover := reflector.Question{Mesh: true}, reflector.Question{Cover: "rr-1"}
	nodes := []string{"n1", "n2"}
	var a asking
	expect := func(what string, q reflector.Question, want time.Time) {
		t.Helper()
		if got := a.due(q, nodes); !got.Equal(want) {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	expect("at first", mesh, time.Time{})
	for i := range int64(4) {
		at := start.Add(time.Duration(i) * 10 * time.Second)
		a.put(mesh, round{i, at})
		expect("while nobody has answered", mesh, at.Add(patience))
		a.hear("n1", reflector.Answer{Revision: i})
		expect("while one has not", mesh, at.Add(patience))
		a.hear("n2", reflector.Answer{Revision: i})
		pause := askAgain
		if i >= 2 {
			pause = askLater
		}
		expect("when all have", mesh, at.Add(pause))
	}
	expect("another question", cover, time.Time{})
	a.changed()
	expect("after a change", mesh, start.Add(30*time.Second).Add(askAgain))
	a.end()
	expect("after it was taken back", mesh, time.Time{})
}
