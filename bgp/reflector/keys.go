package reflector

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"vpp-route-agent/internal/calico"
)

// Agents and the controller talk to each other by keys of etcd. An agent writes its status and its
// answers below a prefix of its own, under a lease; the controller writes questions.
const (
	NodesPrefix     = "/vpp-route-agent/nodes/"
	QuestionsPrefix = "/vpp-route-agent/questions/"

	statusName = "status"
	answersDir = "answers/"
)

// Keys of the controllers. They outlive them, but for those that begin with LeaderPrefix.
const (
	// GoalKey has the Goal; without it the goal is Observe.
	GoalKey = "/vpp-route-agent/reflectors/goal"
	// AgentsKey has the names of the nodes that have had an agent, as a JSON list: one that is cut
	// off from etcd would look like a node with BIRD to a controller that starts then.
	AgentsKey = "/vpp-route-agent/reflectors/agents"
	// LeaderPrefix and a slash begin the keys of the controllers, under their leases. The oldest
	// leads.
	LeaderPrefix = "/vpp-route-agent/reflectors/leader"
)

// MaxValue bounds a status and an answer in etcd, in bytes, however large the cluster is.
const MaxValue = 2048

// maxMembers bounds the names in a question, in bytes: an answer repeats them.
const maxMembers = 1000

// maxGoal bounds what is read of a goal, in bytes.
const maxGoal = 64 << 10

// maxListed bounds each list of a status before MaxValue does, maxBits leaves lists some room.
const (
	maxListed = 64
	maxBits   = 1000 // bytes, for 8000 sessions
)

// OwnPrefix begins all keys of the agent of a node.
func OwnPrefix(node string) string { return NodesPrefix + node + "/" }

// StatusKey is where the agent of a node publishes its Status.
func StatusKey(node string) string { return OwnPrefix(node) + statusName }

// AnswerKey is where the agent of a node answers the question id.
func AnswerKey(node, id string) string { return OwnPrefix(node) + answersDir + id }

// QuestionKey is where the question id is asked.
func QuestionKey(id string) string { return QuestionsPrefix + id }

// QuestionID returns the id of a question from its key; "" if that is none of a question.
func QuestionID(key string) string {
	id, ok := strings.CutPrefix(key, QuestionsPrefix)
	if !ok || !idForm.MatchString(id) {
		return ""
	}
	return id
}

var (
	// nodeForm is the form of every Calico resource name, as far as it keeps keys apart.
	nodeForm = regexp.MustCompile(`^[a-z0-9][-a-z0-9.]{0,252}$`)
	wordForm = regexp.MustCompile(`^[a-z0-9]{0,64}$`)
	// numbersForm is that of the numbers of reflectors, and of one group.
	numbersForm = regexp.MustCompile(`^[1-9][0-9]{0,8}(,[1-9][0-9]{0,8}){0,99}$`)
	idForm      = regexp.MustCompile(`^[-A-Za-z0-9._]{1,64}$`)
)

// Said is what one key of an agent says: a status or an answer.
type Said struct {
	Node   string
	Status *Status
	ID     string // of the question that Answer is to
	Answer *Answer
}

// Hear reads a key below NodesPrefix and its value, for a controller of this version. What an agent
// of another format or version says is not understood: of it only these two are returned. The same
// is unknown where a value is garbage, which is a problem as well.
func Hear(key string, value []byte, version string) (Said, *calico.Problem) {
	bad := func(format string, args ...any) *calico.Problem {
		return &calico.Problem{Key: key, Err: fmt.Sprintf(format, args...)}
	}
	node, name, _ := strings.Cut(strings.TrimPrefix(key, NodesPrefix), "/")
	id, isAnswer := strings.CutPrefix(name, answersDir)
	switch {
	case !strings.HasPrefix(key, NodesPrefix) || !nodeForm.MatchString(node),
		name != statusName && !isAnswer, isAnswer && !idForm.MatchString(id):
		return Said{}, bad("it is no key of an agent")
	case isAnswer:
		a, err := decodeAnswer(value, version)
		said := Said{Node: node, ID: id, Answer: &a}
		if err != nil {
			return said, bad("the answer of %s cannot be read: %v", node, err)
		}
		return said, nil
	}
	s, err := decodeStatus(value, version)
	said := Said{Node: node, Status: &s}
	if err != nil {
		return said, bad("the status of %s cannot be read: %v", node, err)
	}
	return said, nil
}

// Encode is a status as etcd has it. Of lists that have no room it counts the rest.
func (s Status) Encode() []byte {
	bits := s.DownBits
	s.DownBits = nil
	// Those that are not complete come first: what has no room after one that is, is complete.
	s.Reflectors = slices.Clone(s.Reflectors)
	slices.SortStableFunc(s.Reflectors, func(a, b Session) int {
		return rank(a.complete()) - rank(b.complete())
	})
	s.cut(maxListed, maxListed)
	for {
		if s.DownMore > 0 && len(bits) <= maxBits {
			s.DownBits = bits
		}
		text := encode(s)
		if len(text) <= MaxValue {
			return text
		}
		down, reflectors := len(s.Down), len(s.Reflectors)
		if down > reflectors {
			s.cut(down-1, reflectors)
		} else {
			s.cut(down, reflectors-1)
		}
	}
}

func rank(last bool) int {
	if last {
		return 1
	}
	return 0
}

// cut shortens the lists.
func (s *Status) cut(down, reflectors int) {
	if n := len(s.Down) - down; n > 0 {
		for _, d := range s.Down[down:] {
			if d.Since.After(s.DownMoreSince) {
				s.DownMoreSince = d.Since
			}
		}
		s.Down, s.DownMore = s.Down[:down], s.DownMore+n
	}
	if n := len(s.Reflectors) - reflectors; n > 0 {
		s.Reflectors, s.ReflectorsMore = s.Reflectors[:reflectors], s.ReflectorsMore+n
	}
}

// Encode is an answer as etcd has it. The forms of its texts keep it within MaxValue.
func (a Answer) Encode() []byte { return encode(a) }

// asked is a question as etcd has it.
type asked struct {
	Format int `json:"format"`
	Question
}

// Encode is a question as etcd has it.
func (q Question) Encode() []byte { return encode(asked{StatusFormat, q}) }

// Encode is a goal as etcd has it.
func (g Goal) Encode() []byte { return encode(g) }

// DecodeGoal reads what Encode has written; no value is the zero Goal. Unknown fields are errors: a
// controller of an older version must not take half a goal for a whole one.
func DecodeGoal(value []byte) (g Goal, err error) {
	if len(value) == 0 {
		return Goal{}, nil
	}
	if len(value) > maxGoal {
		return Goal{}, fmt.Errorf("it has %d bytes; at most %d", len(value), maxGoal)
	}
	if err := strict(value, &g); err != nil {
		return Goal{}, err
	}
	switch g.Mode {
	case "", Observe, Reflectors, Mesh:
		return g, nil
	}
	return Goal{}, fmt.Errorf("mode %.64q is unknown", g.Mode)
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("reflector: " + err.Error()) // it is made of texts, numbers and times
	}
	return text
}

// DecodeQuestion reads what Encode has written. An error says why an agent cannot answer.
func DecodeQuestion(value []byte) (Question, error) {
	var h head
	if err := json.Unmarshal(value, &h); err != nil {
		return Question{}, err
	}
	if h.Format != StatusFormat {
		return Question{}, fmt.Errorf("format %d is not understood", h.Format)
	}
	var a asked
	if err := strict(value, &a); err != nil {
		return Question{}, err
	}
	if err := a.check(); err != nil {
		return Question{}, err
	}
	return a.Question, nil
}

// check says what is wrong with a question that may come from anybody.
func (q Question) check() error {
	forms := 0
	for _, is := range []bool{
		q.Cover != "", q.Mesh, q.Leave != "", q.Enter != "", q.Group != "",
	} {
		if is {
			forms++
		}
	}
	node := q.Cover + q.Leave + q.Enter
	switch {
	case forms != 1:
		return errors.New("it is to have one of cover, mesh, leave, enter and group")
	case q.Label != "" && q.Leave+q.Enter == "":
		return errors.New("it has a label, which belongs to leave and enter")
	case q.Resets && q.Leave == "":
		return errors.New("it has resets, which belongs to leave")
	case (q.ClusterID != "") != (q.Enter != ""):
		return errors.New("enter is to have a clusterID, and nothing else is")
	case !q.Mesh && q.Group == "" && !nodeForm.MatchString(node):
		return fmt.Errorf("%.64q is no name of a node", node)
	case q.Label != "" && !isLabel(q.Label):
		return fmt.Errorf("label: %.64q is not a label", q.Label)
	case q.Group == "" && q.Members+q.Reflectors == "":
		return nil
	case q.Group == "" || (q.Members == "") == (q.Reflectors == ""):
		return errors.New("a group is to have either members or reflectors")
	case !numbersForm.MatchString(q.Group) || strings.Contains(q.Group, ","):
		return fmt.Errorf("group: %.64q is no number", q.Group)
	case q.Members == "" && !numbersForm.MatchString(q.Reflectors):
		return fmt.Errorf("reflectors: %.64q are no numbers", q.Reflectors)
	case len(q.Members) > maxMembers:
		return fmt.Errorf("members: %d bytes, more than %d", len(q.Members), maxMembers)
	}
	for _, m := range strings.Split(q.Members, ",") {
		if q.Members != "" && !nodeForm.MatchString(m) {
			return fmt.Errorf("members: %.64q is no name of a node", m)
		}
	}
	return nil
}

func decodeStatus(value []byte, version string) (Status, error) {
	var s Status
	head, ok, err := understand(value, version, &s)
	switch {
	case err != nil:
		return Status{}, err
	case !ok:
		return Status{Format: head.Format, Version: head.Version}, nil
	case min(s.Up, s.Wanted-s.Up, s.DownMore, s.ReflectorsMore, s.Drifted, s.Refused) < 0:
		return Status{}, errNegative
	case !wordForm.MatchString(s.Digest) || !wordForm.MatchString(s.Dataplane):
		return Status{}, errors.New("digest and dataplane are words of letters and digits")
	}
	for _, d := range s.Down {
		if !nodeForm.MatchString(d.Node) {
			return Status{}, fmt.Errorf("down: %q is no node", d.Node)
		}
	}
	for _, r := range s.Reflectors {
		if !nodeForm.MatchString(r.Node) {
			return Status{}, fmt.Errorf("reflectors: %q is no node", r.Node)
		}
	}
	return s, nil
}

func decodeAnswer(value []byte, version string) (Answer, error) {
	var a Answer
	head, ok, err := understand(value, version, &a)
	switch {
	case err != nil:
		return Answer{}, err
	case !ok:
		return Answer{Format: head.Format, Version: head.Version}, nil
	}
	for _, c := range []Change{a.IPv4, a.IPv6} {
		if min(c.Prefixes-c.Changed, c.Missing, c.Changed, c.FewestCopies) < 0 {
			return Answer{}, errNegative
		}
	}
	return a, nil
}

var errNegative = errors.New("it counts what cannot be")

// head says how the rest of a value is to be read.
type head struct {
	Format  int
	Version string
}

// understand reads a value into v, if it has our format and the version; else its head alone.
func understand(value []byte, version string, v any) (h head, ok bool, err error) {
	if len(value) > MaxValue {
		return h, false, fmt.Errorf("it has %d bytes, more than %d", len(value), MaxValue)
	}
	if err := json.Unmarshal(value, &h); err != nil {
		return head{}, false, err
	}
	if h != (head{StatusFormat, version}) {
		return h, false, nil
	}
	return h, true, strict(value, v)
}

// strict reads one JSON object without unknown fields.
func strict(value []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something follows the object")
	}
	return nil
}
