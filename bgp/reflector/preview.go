package reflector

import (
	"maps"
	"slices"
	"time"
)

// Preview is what a migration comes to if every gate opens.
type Preview struct {
	To     Mode          `json:"to"`
	Choice Choice        `json:"choice"`
	Steps  []PreviewStep `json:"steps"`
	// Obstacles are what a person must change before the migration; Steps end where they are met.
	Obstacles []string `json:"obstacles"`
	// Loss says which packets the migration loses, so that it needs Goal.AcceptLoss; "": none.
	Loss string `json:"loss,omitempty"`
	// Birds are the nodes with BIRD, which are asked through calico-node.
	Birds  []string `json:"birds"`
	Before Sessions `json:"before"`
	After  Sessions `json:"after"`
}

// PreviewStep is a step, and which resources it writes.
type PreviewStep struct {
	Does   string   `json:"does"`
	Writes []string `json:"writes"`
}

// Sessions counts those between Calico nodes, each once, and the most that one node has.
type Sessions struct {
	Total           int `json:"total"`
	MostAtReflector int `json:"mostAtReflector"`
	MostAtOther     int `json:"mostAtOther"`
}

// NewPreview takes the steps to a goal on paper. The error says which fields of its Config cannot
// be followed.
func NewPreview(w *World, g Goal) (Preview, error) {
	r, err := g.Config.parse()
	if err != nil {
		return Preview{}, err
	}
	c := choose(w, r, w.deadNodes(r))
	p := Preview{
		To: g.target(), Choice: c, Steps: []PreviewStep{}, Obstacles: []string{},
		Loss: w.lossOf(g.target(), c), Birds: w.only(w.bird), Before: w.sessions(),
	}
	g.AcceptLoss, g.Since = true, w.Now
	preview := *w
	w = &preview
	w.preview = true
	for {
		d := Next(w, g)
		if d.Wait != nil {
			p.Obstacles = append(p.Obstacles, d.Wait.What)
		}
		if d.Step == nil {
			p.After = w.sessions()
			return p, nil
		}
		p.Steps = append(p.Steps, PreviewStep{d.Step.Does, resourcesOf(d.Step.Writes)})
		g = d.Step.Goal
		w = w.after(d.Step.Writes)
	}
}

func resourcesOf(writes []Write) []string {
	all := []string{}
	for _, w := range writes {
		all = append(all, w.Key.Resource())
	}
	return all
}

// lossOf is what a migration loses beside BIRD.
func (w *World) lossOf(to Mode, c Choice) string {
	switch to {
	case Reflectors:
		return w.lossThere(c)
	case Mesh:
		return w.lossBack(w.leaving())
	}
	return ""
}

// after returns the World once the writes are in etcd.
func (w *World) after(writes []Write) *World {
	objects := maps.Clone(w.objects)
	for _, wr := range writes {
		if delete(objects, wr.Key); wr.Value != nil {
			objects[wr.Key] = Object{wr.Key, wr.Value, 1}
		}
	}
	out := Read(slices.Collect(maps.Values(objects)))
	out.Now, out.Connected, out.Version = w.Now.Add(time.Second), w.Connected, w.Version
	out.Agents, out.Kubernetes, out.preview = w.Agents, w.Kubernetes, w.preview
	out.obstacles = w.obstacles // the steps to come are among those that were evaluated
	return out
}

func (w *World) sessions() (s Sessions) {
	ends := 0
	for _, node := range w.names {
		n := 0
		for _, p := range w.peersOf(node) {
			if p.CalicoNode != "" {
				n++
			}
		}
		ends += n
		if w.isReflector(node) {
			s.MostAtReflector = max(s.MostAtReflector, n)
		} else {
			s.MostAtOther = max(s.MostAtOther, n)
		}
	}
	s.Total = ends / 2
	return s
}
