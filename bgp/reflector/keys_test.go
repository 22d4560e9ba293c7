package reflector

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/calico"
)

// said is what an agent of 5000 nodes with very long names has to say at the worst.
func said(nodes int) Status {
	s := Status{
		Format: StatusFormat, Version: "v1", Digest: "0123456789abcdef", Wanted: 2 * nodes,
		Dataplane: "vpp", Draining: true,
	}
	for i := range nodes {
		name := fmt.Sprintf("%d.%s", i, strings.Repeat("long.", 49))
		s.Down = append(s.Down, Down{name, time.Unix(1e9, 999)})
		s.Reflectors = append(s.Reflectors, Session{Node: name, IPv6: true})
		s.SetDown(i)
	}
	return s
}

func hear(t testing.TB, key string, value []byte) Said {
	t.Helper()
	s, problem := Hear(key, value, "v1")
	if problem != nil {
		t.Fatalf("%+v", problem)
	}
	return s
}

func TestAStatusIsBounded(t *testing.T) {
	for _, nodes := range []int{0, 1, 3, 5, 100, 5000} {
		s := said(nodes)
		value := s.Encode()
		if len(value) > MaxValue {
			t.Errorf("%d nodes: %d bytes", nodes, len(value))
		}
		got := *hear(t, StatusKey("edge-7"), value).Status
		if len(got.Down)+got.DownMore != nodes || len(got.Reflectors)+got.ReflectorsMore != nodes {
			t.Errorf("%d nodes: %d and %d more are down, %d and %d more are reflectors", nodes,
				len(got.Down), got.DownMore, len(got.Reflectors), got.ReflectorsMore)
		}
		if nodes > 0 && (len(got.Down) == 0 || got.Down[0].Node != s.Down[0].Node) {
			t.Errorf("%d nodes: the first that is down is not there", nodes)
		}
		cut := got.DownMore > 0
		if len(got.DownBits) > 0 != cut || got.DownMoreSince.IsZero() == cut {
			t.Errorf("%d nodes, %d more: %d bytes of bits, since %s", nodes, got.DownMore,
				len(got.DownBits), got.DownMoreSince)
		}
		if len(s.Down) != nodes {
			t.Error("Encode changes what it encodes")
		}
	}
}

// The bits of more sessions than there is room for are left out.
func TestBitsWithoutRoom(t *testing.T) {
	s := said(100)
	s.SetDown(8*maxBits - 1)
	if got := *hear(t, StatusKey("a"), s.Encode()).Status; len(got.DownBits) != maxBits {
		t.Errorf("%d bytes of bits, want %d", len(got.DownBits), maxBits)
	}
	s.SetDown(8 * maxBits)
	if got := *hear(t, StatusKey("a"), s.Encode()).Status; got.DownBits != nil {
		t.Errorf("%d bytes of bits, want none", len(got.DownBits))
	}
}

func TestWhatIsSaidIsHeard(t *testing.T) {
	status := Status{
		Format: StatusFormat, Version: "v1", Digest: "d", Wanted: 3, Up: 2, Dataplane: "none",
		Down: []Down{{"edge-3", time.Unix(1e9, 0).UTC()}}, Reflectors: []Session{{Node: "rr-1"}},
	}
	answer := Answer{
		Format: StatusFormat, Version: "v1", Digest: "d", Revision: 7,
		Question: Question{Leave: "rr-1", Label: "l"},
		IPv4: Change{
			Prefixes: 2, Missing: 1, FewestCopies: 2, Examples: []string{"10.0.0.0/26"},
		},
	}
	if got := hear(t, StatusKey("edge-7"), status.Encode()); got.Node != "edge-7" ||
		!reflect.DeepEqual(*got.Status, status) || got.Answer != nil {
		t.Errorf("status: %+v", got)
	}
	if got := hear(t, AnswerKey("edge-7", "q1"), answer.Encode()); got.ID != "q1" ||
		!reflect.DeepEqual(*got.Answer, answer) || got.Status != nil {
		t.Errorf("answer: %+v", got)
	}
	for _, q := range []Question{{Cover: "rr-1"}, {Mesh: true}, answer.Question} {
		if got, err := DecodeQuestion(q.Encode()); err != nil || got != q {
			t.Errorf("question %+v: %+v, %v", q, got, err)
		}
	}
	if id := QuestionID(QuestionKey("q1")); id != "q1" {
		t.Errorf("id %q", id)
	}
}

// Of an agent of another version it is unknown what it has applied. Nobody may take its digest for
// a different one.
func TestAnotherVersionIsUnknownAndNotDifferent(t *testing.T) {
	other := said(1)
	other.Version = "v2"
	later := said(1)
	later.Format++
	for _, value := range []string{
		string(other.Encode()), string(later.Encode()),
		`{"format":2,"version":"v1","digest":{"of":"another kind"}}`,
		`{"format":1,"version":"v2","wanted":"many","new":1}`, `{}`,
	} {
		got := *hear(t, StatusKey("edge-7"), []byte(value)).Status
		if got.Digest != "" || got.Wanted != 0 || got.Down != nil {
			t.Errorf("%s: %+v", value, got)
		}
		w := &World{Version: "v1", Agents: map[string]Agent{"edge-7": {Status: got}}}
		if w.known("edge-7") || w.bird("edge-7") {
			t.Errorf("%s is known, or of BIRD", value)
		}
		answer := *hear(t, AnswerKey("edge-7", "q1"), []byte(value)).Answer
		if answer.Question != (Question{}) || answer.Digest != "" {
			t.Errorf("answer %s: %+v", value, answer)
		}
	}
}

func TestGarbageIsAProblemAndUnknown(t *testing.T) {
	const head = `{"format":1,"version":"v1"`
	long := head + `,"digest":"` + strings.Repeat("x", MaxValue) + `"}`
	for _, c := range []struct{ key, value, want string }{
		{StatusKey("edge-7"), "", "end of JSON"},
		{StatusKey("edge-7"), "null garbage", "invalid character"},
		{StatusKey("edge-7"), "[]", "cannot unmarshal"},
		{StatusKey("edge-7"), head + `}{}`, "invalid character"},
		{StatusKey("edge-7"), head + `,"wantd":1}`, `unknown field "wantd"`},
		{StatusKey("edge-7"), head + `,"wanted":1,"up":2}`, "cannot be"},
		{StatusKey("edge-7"), head + `,"downMore":-1}`, "cannot be"},
		{StatusKey("edge-7"), head + `,"down":[{"node":"a/b"}]}`, `"a/b" is no node`},
		{StatusKey("edge-7"), head + `,"reflectors":[{"up":true}]}`, `"" is no node`},
		{StatusKey("edge-7"), head + `,"digest":"<>"}`, "letters and digits"},
		{StatusKey("edge-7"), long, "bytes"},
		{AnswerKey("edge-7", "q1"), head + `,"ipv4":{"prefixes":1,"changed":2}}`, "cannot be"},
		{AnswerKey("edge-7", "q1"), head + `,"question":1}`, "cannot unmarshal"},
	} {
		said, problem := Hear(c.key, []byte(c.value), "v1")
		if problem == nil || problem.Key != c.key || !strings.Contains(problem.Err, "edge-7") ||
			!strings.Contains(problem.Err, c.want) {
			t.Errorf("%s %.80s: problem %+v, want %q", c.key, c.value, problem, c.want)
		}
		if said.Node != "edge-7" ||
			said.Status != nil && !reflect.DeepEqual(*said.Status, Status{}) ||
			said.Answer != nil && !reflect.DeepEqual(*said.Answer, Answer{}) {
			t.Errorf("%s %.80s: heard %+v", c.key, c.value, said)
		}
	}
	for _, key := range []string{
		"/other", NodesPrefix, NodesPrefix + "edge-7", NodesPrefix + "edge-7/other",
		NodesPrefix + "/status", NodesPrefix + "a/answers/", NodesPrefix + "a/answers/b/c",
	} {
		if said, problem := Hear(key, said(0).Encode(), "v1"); problem == nil ||
			!reflect.DeepEqual(said, Said{}) {
			t.Errorf("%s: %+v, %+v", key, said, problem)
		}
	}
}

func TestQuestionsThatCannotBeAnswered(t *testing.T) {
	long := strings.Repeat("a", 1000)
	for value, want := range map[string]string{
		``:                                                        "end of JSON",
		`{"format":2,"mesh":true}`:                                "format 2 is not understood",
		`{"format":1}`:                                            "one of cover, mesh",
		`{"format":1,"mesh":true,"cover":"a"}`:                    "one of cover, mesh",
		`{"format":1,"mesh":true,"label":"a"}`:                    "belongs to leave",
		`{"format":1,"mesh":true,"resets":true}`:                  "resets, which belongs to leave",
		`{"format":1,"mash":true}`:                                `unknown field "mash"`,
		`{"format":1,"cover":"A"}`:                                "no name of a node",
		`{"format":1,"leave":"` + long[:254] + `"}`:               "no name of a node",
		`{"format":1,"leave":"a","label":"a b"}`:                  "is not a label",
		`{"format":1,"leave":"a","label":"` + long + `"}`:         "is not a label",
		`{"format":1,"enter":"a","label":"l"}`:                    "have a clusterID",
		`{"format":1,"leave":"a","clusterID":"b"}`:                "have a clusterID",
		`{"format":1,"group":"1"}`:                                "either members or",
		`{"format":1,"group":"1","members":"a","reflectors":"1"}`: "either members or",
		`{"format":1,"mesh":true,"members":"a"}`:                  "either members or",
		`{"format":1,"group":"a","members":"a"}`:                  "no number",
		`{"format":1,"group":"1","reflectors":"1,"}`:              "no numbers",
		`{"format":1,"group":"1","members":"a,B"}`:                "no name of a node",
		`{"format":1,"group":"1","members":"` + long + `a"}`:      "members: 1001 bytes",
	} {
		if q, err := DecodeQuestion([]byte(value)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", value, q, err)
		}
	}
	for value, want := range map[string]string{
		`"enter":"a"`:               "enter is to have a clusterID",
		`"group":"1"`:               "either members or reflectors",
		`"mesh":true,"members":"a"`: "either members or reflectors",
		`"group":"1","members":"a","reflectors":"1"`:                "members or reflectors",
		`"group":"1,2","members":"a"`:                               "is no number",
		`"group":"1","reflectors":"1,'a'"`:                          "are no numbers",
		`"group":"1","members":"a,,b"`:                              "no name of a node",
		`"group":"1","members":"` + strings.Repeat("a,", 501) + `"`: "more than 1000",
	} {
		q, err := DecodeQuestion([]byte(`{"format":1,` + value + `}`))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", value, q, err)
		}
	}
	for _, key := range []string{"/other", QuestionsPrefix, QuestionsPrefix + "a/b"} {
		if id := QuestionID(key); id != "" {
			t.Errorf("%s: id %q", key, id)
		}
	}
}

func TestAnAnswerIsBounded(t *testing.T) {
	long := strings.Repeat("a", 253)
	q, err := DecodeQuestion(Question{Leave: long, Label: strings.Repeat("l", 512)}.Encode())
	if err != nil {
		t.Fatal(err)
	}
	most := Change{math.MaxInt, math.MaxInt, math.MaxInt, math.MaxInt, nil}
	for range 3 {
		most.Examples = append(most.Examples,
			strings.Repeat("ffff:", 7)+"ffff/128, of which there is one copy")
	}
	value := Answer{StatusFormat, strings.Repeat("v", 64), q, math.MaxInt64,
		strings.Repeat("f", 16), most, most}.Encode()
	if len(value) > MaxValue {
		t.Errorf("%d bytes", len(value))
	}
	hear(t, AnswerKey("edge-7", "q"), value)
}

// FuzzHear puts any value under any key. Nothing may panic; what has no problem and is understood
// is said again in the same words, and what has one is unknown.
func FuzzHear(f *testing.F) {
	for _, seed := range []string{
		string(said(0).Encode()), string(said(2).Encode()),
		string(Answer{
			Format: StatusFormat, Version: "v1", Question: Question{Mesh: true},
		}.Encode()),
		`{"format":1,"version":"v2"}`, `{"format":1,"version":"v1","up":-1}`, `[`,
		string(Question{Cover: "a"}.Encode()),
	} {
		f.Add(StatusKey("edge-7"), []byte(seed))
		f.Add(AnswerKey("edge-7", "q"), []byte(seed))
	}
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		said, problem := Hear(key, value, "v1")
		w := &World{Version: "v1", Agents: map[string]Agent{}}
		if said.Status != nil {
			w.Agents[said.Node] = Agent{Status: *said.Status}
		}
		switch {
		case problem != nil:
			if problem.Key != key || problem.Err == "" || w.known(said.Node) {
				t.Errorf("problem %+v, heard %+v", problem, said)
			}
		case (said.Status == nil) == (said.Answer == nil) || said.Node == "":
			t.Errorf("heard %+v", said)
		case said.Status != nil && w.known(said.Node):
			again, problem := Hear(key, said.Status.Encode(), "v1")
			if problem != nil || again.Status.Digest != said.Status.Digest ||
				again.Status.Up != said.Status.Up {
				t.Errorf("%+v, and again %+v: %+v", said.Status, again.Status, problem)
			}
		}
		if q, err := DecodeQuestion(value); err == nil {
			if again, err := DecodeQuestion(q.Encode()); err != nil || again != q {
				t.Errorf("question %+v, and again %+v, %v", q, again, err)
			}
		}
	})
}

// A question may be asked of a node of a cluster without a BGPConfiguration, and name a node that
// nobody knows.
func TestQuestionsOfAnyClusterAreAnswered(t *testing.T) {
	s := &calico.Snapshot{Nodes: map[string]calico.Node{"edge-7": {Name: "edge-7"}}}
	for _, q := range []Question{
		{Mesh: true}, {Leave: "no-node", Label: "l"}, {Cover: "no-node"},
		{Enter: "no-node", Label: "l", ClusterID: "1.2.3.4"}, {Group: "1", Members: "no-node"},
		{Group: "1", Reflectors: "1,2"},
	} {
		if left := q.Left("edge-7", s); len(left.peers) > 0 {
			t.Errorf("%+v: %v", q, left.peers)
		}
	}
}
