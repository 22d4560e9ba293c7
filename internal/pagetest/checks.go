package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// finding is what is wrong with a page, and the check that says so.
type finding struct{ check, text string }

func (f finding) String() string { return f.check + ": " + f.text }

// checks of what is on the screen, each of which broken pages must not pass. What a page does,
// "console", "CSP" and "request", tabs hear all along.
var checks = []struct {
	name string
	run  func(*tab) ([]string, error)
}{
	{"axe", axe},
	{"width", width},
	{"names", names},
	{"keyboard", keyboard},
	{"pointer", pointer},
	{"markup", markup},
}

// check runs the checks of these names, or with none all of them.
func (t *tab) check(chosen ...string) (all []finding, err error) {
	for _, c := range checks {
		if len(chosen) > 0 && !slices.Contains(chosen, c.name) {
			continue
		}
		found, err := c.run(t)
		if err != nil {
			return all, fmt.Errorf("%s: %w", c.name, err)
		}
		for _, text := range found {
			all = append(all, finding{c.name, text})
		}
	}
	return all, nil
}

// runAxe has each violation with the elements that it is about.
const runAxe = `axe.run(document, {
	runOnly: {type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']},
	resultTypes: ['violations'],
}).then(r => {
	if (r.passes.length === 0) throw new Error('no rule applies');
	return r.violations.map(v => v.id + ': ' + v.help + ': ' +
		v.nodes.slice(0, 3).map(n => n.html.slice(0, 200) + ' ' + n.any.concat(n.all, n.none).
			map(c => c.message)).join('; ') + ' (' + v.nodes.length + ')');
})`

// axe are violations of WCAG 2.1, levels A and AA. axe-core has a world of its own: it neither sees
// nor changes what the page's program has.
func axe(t *tab) (found []string, err error) {
	if t.axeIn == 0 {
		var tree struct {
			FrameTree struct{ Frame struct{ ID string } }
		}
		if err := t.call("Page.getFrameTree", nil, &tree); err != nil {
			return nil, err
		}
		var world struct{ ExecutionContextID int }
		err := t.call("Page.createIsolatedWorld", object{
			"frameId": tree.FrameTree.Frame.ID, "worldName": "axe",
		}, &world)
		if err != nil {
			return nil, err
		}
		if err := t.evalIn(world.ExecutionContextID, "void eval("+quote(t.b.axe)+")",
			nil); err != nil {
			return nil, err
		}
		t.axeIn = world.ExecutionContextID
	}
	return found, t.evalIn(t.axeIn, runAxe, &found)
}

// width is what makes a page scroll sideways.
func width(t *tab) (found []string, err error) {
	return found, t.eval(`(() => {
		const root = document.documentElement;
		if (root.scrollWidth <= root.clientWidth) return [];
		const wide = [...document.querySelectorAll('body *')].
			filter(e => e.getBoundingClientRect().right > root.clientWidth).slice(0, 3);
		return [root.scrollWidth + ' of ' + root.clientWidth + ' pixels: ' +
			wide.map(e => e.outerHTML.slice(0, 120)).join('; ')];
	})()`, &found)
}

// hostile is what peers and data say to become an element.
const hostile = "<img src=x onerror=alert(1)>"

// markup says whether a hostile text has become an element.
func markup(t *tab) (found []string, err error) {
	return found, t.eval(`[...document.querySelectorAll('img[src="x"], [onerror]')].
		map(e => e.outerHTML.slice(0, 200))`, &found)
}

// pointer are elements that look as if they could be clicked, and are no controls.
func pointer(t *tab) (found []string, err error) {
	return found, t.eval(`[...document.querySelectorAll('body *')].filter(e =>
		getComputedStyle(e).cursor === 'pointer' && !e.closest(
			'a[href], button, input, select, textarea, summary, label, [tabindex]')).
		slice(0, 3).map(e => e.outerHTML.slice(0, 200))`, &found)
}

// control is an element that can be used, in the accessibility tree.
type control struct {
	role, name string
	element    int // its number in the document
}

// roles of controls (WAI-ARIA 1.2 §5.3.2).
var roles = []string{"button", "checkbox", "combobox", "gridcell", "link", "listbox", "menuitem",
	"menuitemcheckbox", "menuitemradio", "radio", "scrollbar", "searchbox", "slider",
	"spinbutton", "switch", "tab", "textbox", "treeitem", "DisclosureTriangle"}

// controls are those that are not hidden, and whatever else can have the focus.
func (t *tab) controls() (all []control, err error) {
	var tree struct {
		Nodes []struct {
			Ignored          bool
			Role, Name       struct{ Value json.RawMessage }
			BackendDOMNodeID int
			Properties       []struct {
				Name  string
				Value struct{ Value json.RawMessage }
			}
		}
	}
	if err := t.call("Accessibility.getFullAXTree", nil, &tree); err != nil {
		return nil, err
	}
	for _, n := range tree.Nodes {
		if n.Ignored || n.BackendDOMNodeID == 0 {
			continue
		}
		c := control{element: n.BackendDOMNodeID}
		// a role may also be a number, and the name be missing
		json.Unmarshal(n.Role.Value, &c.role)
		json.Unmarshal(n.Name.Value, &c.name)
		is, focusable, disabled := slices.Contains(roles, c.role), false, false
		for _, p := range n.Properties {
			set := string(p.Value.Value) == "true"
			focusable = focusable || p.Name == "focusable" && set
			disabled = disabled || p.Name == "disabled" && set
		}
		if !is && focusable && c.role != "RootWebArea" {
			var target bool
			if target, err = t.target(c.element); err != nil {
				return nil, err
			}
			is = !target
		}
		if is && !disabled {
			all = append(all, c)
		}
	}
	return all, nil
}

// target says whether an element has the focus only when a program, a link or its parent gives it.
func (t *tab) target(element int) (bool, error) {
	var out struct {
		Node struct {
			NodeName   string
			Attributes []string // names and values in turn
		}
	}
	err := t.call("DOM.describeNode", object{"backendNodeId": element}, &out)
	for pair := range slices.Chunk(out.Node.Attributes, 2) {
		if pair[0] == "tabindex" && pair[1] == "-1" {
			return true, err
		}
	}
	return slices.Contains([]string{"DIALOG", "OPTION"}, out.Node.NodeName), err
}

// names are controls without an accessible name.
func names(t *tab) (found []string, err error) {
	all, err := t.controls()
	for _, c := range all {
		if strings.TrimSpace(c.name) == "" {
			found = append(found, c.role+" "+t.html(c.element))
		}
	}
	return found, err
}

// arrows lead from one to another of the controls of a group, of which Tab reaches one (the pattern
// of a roving tabindex).
var arrows = []string{"ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"}

// walk is a way through the controls by keys.
type walk struct {
	tab     *tab
	missing map[int]control // to which no key has led, by element
	reached []int           // the others, in order
}

// walk goes through the document with Tab, twice: a row may have moved behind the first.
func (t *tab) walk() (*walk, error) {
	all, err := t.controls()
	if err != nil {
		return nil, err
	}
	w := &walk{tab: t, missing: map[int]control{}}
	for _, c := range all {
		w.missing[c.element] = c
	}
	if err := t.eval("document.activeElement.blur()", nil); err != nil {
		return nil, err
	}
	// Behind the last control the focus leaves the document, and then comes to the first. Those
	// that are disabled and keep the focus all the same are not among all.
	begun := 0
	for range 2*len(all) + 2 {
		if len(w.missing) == 0 || begun > 2 {
			break
		}
		element, err := w.press("Tab")
		if err != nil {
			return nil, err
		}
		if len(w.reached) > 0 && element == w.reached[0] {
			begun++
		}
	}
	return w, nil
}

// press types a key, and returns the element that has the focus then.
func (w *walk) press(key string) (int, error) {
	if err := w.tab.press(key); err != nil {
		return 0, err
	}
	element, err := w.tab.focused()
	if _, is := w.missing[element]; is {
		delete(w.missing, element)
		w.reached = append(w.reached, element)
	}
	return element, err
}

// findings are the controls to which no key has led.
func (w *walk) findings() (found []string) {
	for element, c := range w.missing {
		found = append(found, fmt.Sprintf("no key leads to %s %q %s", c.role, c.name,
			w.tab.html(element)))
	}
	return found
}

// keyboard are controls to which neither Tab leads, nor arrow keys from where Tab has led.
func keyboard(t *tab) (found []string, err error) {
	w, err := t.walk()
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(w.reached) && len(w.missing) > 0; i++ {
		for _, key := range arrows {
			focus := object{"backendNodeId": w.reached[i]}
			if err := t.call("DOM.focus", focus, nil); err != nil {
				break // it is there no more
			}
			if _, err := w.press(key); err != nil {
				return nil, err
			}
		}
	}
	return w.findings(), nil
}

// focused is the number of the element that has the focus.
func (t *tab) focused() (int, error) {
	r, err := t.evaluate("document.activeElement", 0, false)
	if err != nil {
		return 0, err
	}
	var out struct{ Node struct{ BackendNodeID int } }
	err = t.call("DOM.describeNode", object{"objectId": r.ObjectID}, &out)
	return out.Node.BackendNodeID, err
}

// html is an element's beginning, for people.
func (t *tab) html(element int) string {
	var out struct{ OuterHTML string }
	if err := t.call("DOM.getOuterHTML", object{"backendNodeId": element}, &out); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%.200s", out.OuterHTML)
}
