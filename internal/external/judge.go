package external

import (
	"fmt"
	"net/netip"
	"slices"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// mustPrefix is for messages that passed check.
func mustPrefix(text string) netip.Prefix {
	p, _ := route.Normalize(netip.MustParsePrefix(text))
	return p
}

// Facts is how the data plane stands to a plan.
type Facts struct {
	// Away says why the data plane does not answer; "": it does.
	Away string
	// Entries are those of Plan.Keys, in their order, and then those of routes that were deleted;
	// Objects are all objects; nil: the plan has not been taken in yet.
	Entries, Objects []fib.Entry
	// Interfaces are those of the data plane, by name.
	Interfaces []route.Interface
}

// Judge returns a verdict for each item, by rank of its source, then by key.
func Judge(p Plan, f Facts) []Verdict {
	j := newJudge(p, f)
	out := make([]Verdict, len(p.items))
	EachInParallel(len(out), func(i int) { out[i] = j.item(&p.items[i]) })
	return out
}

// judge is a plan and its facts, by key.
type judge struct {
	plan    Plan
	away    string
	taken   bool                    // the plan, by the FIB
	entries []fib.Entry             // of plan.Routes
	gone    map[route.Key]fib.Entry // of routes that were deleted
	objects map[route.ObjectKey]fib.Entry
	tables  map[route.TableID]route.ObjectKey // those that are wanted
	made    map[string]route.ObjectKey        // interfaces that are wanted, by name
	// leaving are interfaces and addresses of ours that are not wanted any more, by interface.
	leaving map[string][]fib.Entry
	links   route.Facts // of Interfaces alone
}

func newJudge(p Plan, f Facts) judge {
	j := judge{plan: p, away: f.Away, taken: f.Entries != nil, entries: f.Entries,
		gone:    make(map[route.Key]fib.Entry),
		objects: make(map[route.ObjectKey]fib.Entry),
		tables:  make(map[route.TableID]route.ObjectKey),
		made:    make(map[string]route.ObjectKey),
		leaving: make(map[string][]fib.Entry), links: route.Facts{Interfaces: f.Interfaces}}
	for _, e := range f.Entries[min(len(p.Routes), len(f.Entries)):] {
		k := e.Key
		k.Elevated = false
		j.gone[k] = e
	}
	for _, e := range f.Objects {
		j.objects[e.Object] = e
		if k := e.Object; e.State == fib.Deleting &&
			(k.Kind == route.InterfaceAddress || k.Kind == route.MadeLink) {
			j.leaving[k.Interface] = append(j.leaving[k.Interface], e)
		}
	}
	for _, o := range p.Objects {
		switch o := o.(type) {
		case route.Table:
			j.tables[o.TableID] = o.Key()
		case route.Link:
			j.made[o.Name] = o.Key()
		}
	}
	return j
}

// departed says how an item stands that its source does not want any more.
func (j judge) departed(p *planned) Verdict {
	v := Verdict{Source: p.source, Key: p.item.Key, Revision: p.item.Revision, State: Pending,
		Canonical: p.item.Canonical}
	e, wanted := j.gone[p.key], j.plan.Owner(p.key) != ""
	if !p.isRoute {
		e = j.leavingOf(p)
	}
	switch {
	case j.away != "":
		v.say(j.away)
	case !j.taken, e.State == fib.Pending, e.State == fib.Deleting, e.State == fib.Held:
		v.Unfinished = true
		v.say("it is being deleted")
	case !wanted && e.Origin == route.External:
		v.say(e.Reason.String()) // the guard holds the deletion
	default: // it is gone, or what others want is there
		v.State = Removed
		return v
	}
	if e.Error != "" {
		v.say(e.Error)
	}
	return v
}

// leavingOf returns an object of an item that is not gone yet; the zero Entry: all are.
func (j judge) leavingOf(p *planned) fib.Entry {
	for _, o := range p.objects {
		if e := j.objects[o.Key()]; e.State == fib.Deleting || e.State == fib.Held {
			return e
		}
	}
	return fib.Entry{}
}

func (j judge) item(p *planned) Verdict {
	v := Verdict{Source: p.source, Key: p.item.Key, Revision: p.item.Revision,
		Canonical: p.item.Canonical}
	switch {
	case !p.item.Problem.ok():
		v.State, v.LastGood = p.item.Problem.State, p.item.Message != nil
		v.say(p.item.Problem.Detail)
	case !p.problem.ok():
		v.State = p.problem.State
		v.say(p.problem.Detail)
	case len(p.missing) > 0:
		v.State, v.Details = Pending, slices.Clone(p.missing)
	case j.away != "":
		v.State = Pending
		v.say(j.away)
	case p.isRoute:
		j.route(&v, p)
	default:
		j.itemOfObjects(&v, p)
	}
	return v
}

const notAcknowledged = "the data plane has not acknowledged it yet"

// itemOfObjects: an item stands as the worst of its objects.
func (j judge) itemOfObjects(v *Verdict, p *planned) {
	v.State = Configured
	for _, why := range p.refused {
		v.add(Verdict{State: Failed, Details: []string{why}})
	}
	if !j.taken {
		v.add(Verdict{State: Pending, Unfinished: true, Details: []string{notAcknowledged}})
		return
	}
	if j.lacks(p.link) && !p.isMade() {
		why := "there is no interface " + p.link
		for _, o := range p.objects {
			if e := j.objects[o.Key()]; e.Unread {
				why = e.Error // such as a namespace that cannot be entered
			}
		}
		v.add(Verdict{State: Pending, Details: []string{why}})
		return
	}
	for i, o := range p.objects {
		of := j.object(o.Key())
		if link, ok := o.(route.Link); ok && of.State != Configured && j.lacks(link.Parent) {
			of = Verdict{State: Pending, Details: []string{"there is no interface " + link.Parent}}
		}
		if v.add(of); i == 0 && p.isMade() && of.State != Configured {
			return
		}
	}
	for _, e := range j.leaving[p.link] {
		v.add(Verdict{State: Pending, Unfinished: true,
			Details: []string{e.Object.String() + " is being deleted"}})
	}
}

// lacks reports whether an interface, if it is named, is not there.
func (j judge) lacks(name string) bool {
	_, ok := j.links.Interface(name)
	return name != "" && !ok
}

// severity orders the states of an item's parts.
var severity = []State{Configured, Pending, Retrying, Failed}

// maxDetails bounds what is said of an item: an interface may have thousands of addresses.
const maxDetails = 20

// add takes in how a part of the item stands. What makes the state is named.
func (v *Verdict) add(part Verdict) {
	worse := slices.Index(severity, part.State) > slices.Index(severity, v.State)
	if worse {
		v.State = part.State
	}
	for _, d := range part.Details {
		switch n := len(v.Details); {
		case slices.Contains(v.Details, d):
		case n < maxDetails:
			v.say(d)
		default:
			if n == maxDetails {
				v.say("and more")
			}
			if worse {
				v.Details[maxDetails-1] = d
			}
		}
	}
	v.Unfinished = v.Unfinished || part.Unfinished
	v.Attempts = max(v.Attempts, part.Attempts)
}

// object goes by what the FIB says of the object.
func (j judge) object(k route.ObjectKey) Verdict {
	v := Verdict{State: Pending}
	if link, ok := j.made[k.Interface]; ok && link != k {
		if of := j.object(link); of.State != Configured {
			v.Unfinished = of.Unfinished
			v.say("there is no interface %s yet", k.Interface)
			return v
		}
	}
	switch e := j.objects[k]; {
	case e.State == fib.Programmed, e.State == fib.Shadowed && isShared(k):
		v.State = Configured
	case e.State == fib.Shadowed:
		v.State = Failed
		v.say("another program has made %s", e.By)
	case e.State == fib.Failed:
		if v.refused(e); j.obstacle(k) != "" {
			v.State, v.Details = Failed, []string{j.obstacle(k)}
		}
	case e.Error != "":
		v.say(e.Error)
	default:
		v.Unfinished = true
		v.say(notAcknowledged)
	}
	return v
}

// isShared: what another program has done serves us as well, and is left to it.
func isShared(k route.ObjectKey) bool {
	return k.Kind == route.AdminUp || k.Kind == route.InterfaceAddress
}

// obstacle names the address of another program because of which the data plane refuses one.
func (j judge) obstacle(k route.ObjectKey) string {
	a, err := route.AddressOf(k)
	if err != nil {
		return ""
	}
	if on, _ := j.links.Interface(k.Interface); a.Table == 0 {
		a.Table = on.Table // where it is, an item without a table leaves it
	}
	for _, i := range j.links.Interfaces {
		for _, p := range i.Addresses {
			other := route.Address{Interface: i.Name, Address: p, Table: i.Table}
			if a.Excludes(other.Key()) {
				return overlap(a, other)
			}
		}
	}
	return ""
}

func (j judge) route(v *Verdict, p *planned) {
	for _, id := range p.needs() {
		if of := j.object(j.tables[id]); of.State != Configured {
			v.State, v.Unfinished = Pending, of.Unfinished
			v.say("there is no %v yet", id)
			return
		}
	}
	if link, ok := j.made[p.path.Interface]; ok {
		_, there := j.links.Interface(p.path.Interface)
		if of := j.object(link); of.State != Configured || !there {
			v.State, v.Unfinished = Pending, of.Unfinished || of.State == Configured
			v.say("there is no interface %s yet", p.path.Interface)
			return
		}
	}
	e := fib.Entry{}
	if j.taken {
		e = j.entries[p.group.at]
	}
	p.judgeRoute(v, e)
}

func (v *Verdict) say(format string, args ...any) {
	if len(args) > 0 {
		format = fmt.Sprintf(format, args...)
	}
	v.Details = append(v.Details, format)
}

// judgeRoute goes by what the FIB says of the prefix.
func (p *planned) judgeRoute(v *Verdict, e fib.Entry) {
	v.State = Pending
	if e.State == fib.Any || e.State == fib.Pending || e.State == fib.Deleting ||
		e.State == fib.Held {
		v.Unfinished = true
		v.say(notAcknowledged)
		return
	}
	if e.Origin != route.External {
		v.say("a route of origin %v goes first", e.Origin)
		return
	}
	switch e.State {
	case fib.Programmed:
		if e.Reason != (fib.Reason{}) && !p.isAmong(e.Paths) {
			v.refuse(e.Reason)
			return
		}
		v.State = Configured
	case fib.Shadowed:
		v.say("a route of %s goes first in the data plane", e.By)
	case fib.Failed:
		v.refused(e)
	case fib.Drifted:
		v.State = Retrying
		v.say("another program changed it in the data plane")
	case fib.Unusable:
		v.refuse(e.Reason)
	}
}

// refused: the data plane has refused it.
func (v *Verdict) refused(e fib.Entry) {
	if v.State, v.Attempts = Retrying, e.Attempts; e.GivenUp {
		v.State = Failed
		v.say("%s (refused %d times, and tried again when it is changed, or deleted and put "+
			"again)", e.Error, e.Attempts)
		return
	}
	v.say(e.Error)
}

func (v *Verdict) refuse(why fib.Reason) {
	if !why.Waits() {
		v.State = Failed
	}
	v.say(why.String())
}

// isAmong reports whether the path of p is one of those that are programmed. They have interfaces
// where p leaves them open.
func (p *planned) isAmong(paths []route.Path) bool {
	return p.kind != route.Via || slices.ContainsFunc(paths, func(q route.Path) bool {
		return p.path.NextHop == q.NextHop &&
			(p.path.Interface == "" || p.path.Interface == q.Interface)
	})
}
