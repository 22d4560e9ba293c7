package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata anew")

// lost is a fault as chaos draws it: packets sent all along, and none lost.
func lost() Chart {
	sent, lost := Series{Name: "sent"}, Series{Name: "lost: 0 of 900"}
	for i := range 30 {
		sent.Points = append(sent.Points, Point{float64(i) / 10, 300 + float64(i%3)})
		lost.Points = append(lost.Points, Point{float64(i) / 10, 0})
	}
	return Chart{
		Title: "An agent is killed & started again", Note: "on <vpptest>",
		Description: "Sent stays at 300 a second, lost at 0.",
		X:           Axis{Label: "seconds after the kill"},
		Y:           Axis{Label: "packets a second", Zero: true},
		Series:      []Series{sent, lost},
		Marks:       []Mark{{0, "killed"}, {0.05, "started again"}, {2.8, "all sessions are back"}},
	}
}

// rates is a comparison over decades.
func rates() Chart {
	points := func(y ...float64) (all []Point) {
		for i, x := range []float64{1e3, 1e4, 1e5}[:len(y)] {
			all = append(all, Point{x, y[i]})
		}
		return all
	}
	return Chart{
		Title: "Rate against routes",
		Note: "A note that is longer than the image is wide goes on in another line, which is " +
			"below the first and above the names of the lines",
		Description: "The agent is at nine tenths of the writer.",
		X:           Axis{Label: "routes", Log: true}, Y: Axis{Label: "routes a second", Log: true},
		Series: []Series{
			{"agent", points(90e3, 250e3, 320e3)}, {"writer", points(110e3, 280e3, 340e3)},
			{"one call per route", points(15e3, 16e3, 16.1e3)}, {"kernel", points(150e3, 160e3)},
		},
	}
}

// TestGolden: the same data give the same bytes. -update writes them; look at what has changed.
func TestGolden(t *testing.T) {
	for name, c := range map[string]Chart{"lost": lost(), "rates": rates()} {
		got, err := c.SVG()
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", name+".svg")
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is drawn otherwise; -update and look at it", file)
		}
		wellFormed(t, got)
	}
}

// wellFormed sees that a drawing is XML with a title and a description, and loads nothing.
func wellFormed(t *testing.T, svg []byte) {
	t.Helper()
	d, elements := xml.NewDecoder(bytes.NewReader(svg)), []string{}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		elements = append(elements, e.Name.Local)
		for _, a := range e.Attr {
			if strings.Contains(a.Name.Local, "href") {
				t.Errorf("%s refers to %s", e.Name.Local, a.Value)
			}
		}
	}
	if want := []string{"svg", "title", "desc", "style", "rect"}; !slices.Equal(
		elements[:len(want)], want) {
		t.Errorf("it begins with %v, want %v", elements[:len(want)], want)
	}
}

// TestZeroIsALine: what was measured as 0 is not on the frame, where nobody would see it.
func TestZeroIsALine(t *testing.T) {
	c := lost()
	svg, err := c.SVG()
	if err != nil {
		t.Fatal(err)
	}
	d := drawing{x: scaleOf(c.X, []float64{0, 2.9}), y: scaleOf(c.Y, []float64{0, 302})}
	d.top = 64 + 4*row // two series and two rows of marks
	if d.down(0) >= d.top+plotHeight {
		t.Errorf("0 is at %g, below the frame", d.down(0))
	}
	path := "M" + px(d.across(0)) + " " + px(d.down(0)) + "L" + px(d.across(2.9)) + " " +
		px(d.down(0)) + `"`
	if !strings.Contains(string(svg), path) {
		t.Errorf("no line %s from end to end", path)
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		axis   Axis
		values []float64
		want   []float64
	}{
		{Axis{}, []float64{3, 17}, []float64{2, 4, 6, 8, 10, 12, 14, 16, 18}},
		{Axis{Zero: true}, []float64{2999, 3001},
			[]float64{0, 500, 1000, 1500, 2000, 2500, 3000, 3500}},
		{Axis{Zero: true}, []float64{0}, []float64{0, 0.2, 0.4, 0.6, 0.8, 1}},
		{Axis{}, []float64{-1.2, 4}, []float64{-2, -1, 0, 1, 2, 3, 4}},
		{Axis{Log: true}, []float64{0.3, 3.5}, []float64{0.2, 0.5, 1, 2, 5}},
		{Axis{Log: true}, []float64{900, 1e6}, []float64{1e3, 1e4, 1e5, 1e6}},
		{Axis{Log: true}, []float64{1000}, []float64{1000, 2000}},
	} {
		if got := scaleOf(c.axis, c.values).ticks(); !slices.EqualFunc(got, c.want, near) {
			t.Errorf("%+v %v: ticks %v, want %v", c.axis, c.values, got, c.want)
		}
	}
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestNoLabelIsOverAnother(t *testing.T) {
	d := drawing{x: scaleOf(Axis{}, []float64{0, 10})}
	marks := []Mark{{0, "the first of them"}, {0.1, "the second"}, {9.9, "at the right end"},
		{10, "there, too"}}
	_, places := d.place(marks)
	for i, m := range marks {
		from, to := d.extent(m)
		if from < 0 || to > width {
			t.Errorf("%s goes from %g to %g", m.Label, from, to)
		}
		for j := range i {
			of, ot := d.extent(marks[j])
			if places[i] == places[j] && from < ot && of < to {
				t.Errorf("%s is over %s", m.Label, marks[j].Label)
			}
		}
	}
}

func TestWhatCannotBeDrawn(t *testing.T) {
	for want, change := range map[string]func(*Chart){
		"0 series":          func(c *Chart) { c.Series = nil },
		"5 series":          func(c *Chart) { c.Series = make([]Series, 5) },
		"no points":         func(c *Chart) { c.Series[1].Points = nil },
		"(0, 0)":            func(c *Chart) { c.Y.Log = true; c.Series = c.Series[1:] },
		"NaN":               func(c *Chart) { c.Series[0].Points[3].Y = math.NaN() },
		"+Inf":              func(c *Chart) { c.Marks[0].X = math.Inf(1) },
		"0.1 after 5":       func(c *Chart) { c.Series[0].Points[0].X = 5 },
		"0.05 after 3":      func(c *Chart) { c.Marks[0].X = 3 },
		"mark killed: the ": func(c *Chart) { c.X.Log, c.Series = true, rates().Series },
	} {
		c := lost()
		change(&c)
		if _, err := c.SVG(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestContrast: text has what WCAG 2.1 asks of it (1.4.3), and lines what it asks of graphics
// (1.4.11).
func TestContrast(t *testing.T) {
	for name, c := range map[string]theme{"light": light, "dark": dark} {
		for _, text := range []string{c.text, c.quiet} {
			if r := contrast(t, text, c.page); r < 4.5 {
				t.Errorf("%s: text %s has %.2f", name, text, r)
			}
		}
		for _, line := range c.lines {
			if r := contrast(t, line, c.page); r < 3 {
				t.Errorf("%s: line %s has %.2f", name, line, r)
			}
		}
	}
}

func contrast(t *testing.T, a, b string) float64 {
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// luminance is WCAG's relative luminance.
func luminance(t *testing.T, colour string) (sum float64) {
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		v := float64(n) / 255
		if v <= 0.04045 {
			sum += weight * v / 12.92
			continue
		}
		sum += weight * math.Pow((v+0.055)/1.055, 2.4)
	}
	return sum
}
