package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// theme are the colours of a kind of page.
type theme struct {
	page, text, quiet, grid string
	lines                   [4]string // Okabe and Ito's, the fourth darker on light pages
}

var (
	light = theme{
		page: "#ffffff", text: "#1f2328", quiet: "#59636e", grid: "#d1d9e0",
		lines: [4]string{"#0072b2", "#d55e00", "#00855f", "#aa3377"},
	}
	dark = theme{
		page: "#0d1117", text: "#e6edf3", quiet: "#9198a1", grid: "#30363d",
		lines: [4]string{"#56b4e9", "#e69f00", "#2bbf96", "#e58fc0"},
	}
)

// styles tell lines apart without colour: how they are dashed, and the shape on them, drawn around
// a point.
var styles = [4]struct{ dash, shape string }{
	{"", "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z"},
	{"8 4", "m-4 -4h8v8h-8z"},
	{"2 4", "m0 -5l5 9h-10z"},
	{"10 4 2 4", "m0 -5l5 5l-5 5l-5 -5z"},
}

// In pixels, of an image that is as wide as a page on GitHub at most.
const (
	width       = 800.0
	plotHeight  = 280.0
	margin      = 14.0
	left, right = 86.0, 28.0 // of the frame
	inset       = 12.0       // between frame and values, so that a line at 0 is a line
	row         = 20.0       // of text
	letter      = 7.5        // a letter's width, at most, on average
	shapes      = 7          // on a line, about
)

// drawing is an SVG that grows.
type drawing struct {
	bytes.Buffer
	x, y scale
	top  float64 // of the frame
}

// SVG draws the chart.
func (c Chart) SVG() ([]byte, error) {
	if err := c.objection(); err != nil {
		return nil, err
	}
	var xs, ys []float64
	for _, s := range c.Series {
		for _, p := range s.Points {
			xs, ys = append(xs, p.X), append(ys, p.Y)
		}
	}
	for _, m := range c.Marks {
		xs = append(xs, m.X)
	}
	d := &drawing{x: scaleOf(c.X, xs), y: scaleOf(c.Y, ys)}
	rows, places := d.place(c.Marks)
	note := wrapped(c.Note)
	legend := float64(2+len(note))*row + 4
	d.top = legend + float64(len(c.Series)+rows)*row
	d.head(c, d.top+plotHeight+3*row)
	d.text(margin, row+4, "start", "title", c.Title)
	for i, line := range note {
		d.text(margin, float64(2+i)*row+2, "start", "quiet", line)
	}
	for i, s := range c.Series {
		d.legend(i, legend+float64(i)*row, s.Name)
	}
	d.grid(c)
	for i, m := range c.Marks {
		d.mark(m, places[i])
	}
	for i, s := range c.Series {
		d.line(i, s)
	}
	d.WriteString("</svg>\n")
	return d.Bytes(), nil
}

func (d *drawing) printf(format string, args ...any) { fmt.Fprintf(d, format, args...) }

// head writes what a reader does not see, and the page: an image does not always know whether the
// page around it is light or dark, so it brings its own.
func (d *drawing) head(c Chart, height float64) {
	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%s" `+
		`role="img" aria-labelledby="title desc">`+"\n", px(width), px(height), px(width))
	d.printf("<title id=\"title\">%s</title>\n<desc id=\"desc\">%s</desc>\n<style>\n",
		escaped(c.Title), escaped(c.Description))
	d.WriteString("text { font: 13px 'DejaVu Sans', Verdana, Arial, sans-serif }\n" +
		".title { font-size: 15px; font-weight: bold }\n" +
		"path { fill: none; stroke-width: 2 }\n" +
		".grid, .mark { stroke-width: 1 }\n.mark { stroke-dasharray: 3 3 }\n")
	d.WriteString(light.rules() + "@media (prefers-color-scheme: dark) {\n" + dark.rules() + "}\n")
	d.printf("</style>\n<rect class=\"page\" width=\"%s\" height=\"%s\" rx=\"6\"/>\n",
		px(width), px(height))
}

func (t theme) rules() string {
	var b strings.Builder
	fmt.Fprintf(&b, ".page { fill: %s }\ntext { fill: %s }\n.quiet { fill: %s }\n",
		t.page, t.text, t.quiet)
	fmt.Fprintf(&b, ".grid { stroke: %s }\n.mark { stroke: %s }\n", t.grid, t.quiet)
	for i, colour := range t.lines {
		fmt.Fprintf(&b, ".line%d { stroke: %s }\n.shape%d { fill: %s; stroke: none }\n",
			i, colour, i, colour)
	}
	return b.String()
}

func (d *drawing) text(x, y float64, anchor, class, text string) {
	d.printf("<text x=\"%s\" y=\"%s\" text-anchor=\"%s\" class=\"%s\">%s</text>\n",
		px(x), px(y), anchor, class, escaped(text))
}

func (d *drawing) legend(i int, y float64, name string) {
	d.stroke(i, fmt.Sprintf("M%s %sh44", px(margin), px(y-4)))
	d.shape(i, margin+22, y-4)
	d.text(margin+56, y, "start", "text", name)
}

// grid draws the frame, the axes' names, and a line and a number at each tick.
func (d *drawing) grid(c Chart) {
	bottom := d.top + plotHeight
	for _, v := range d.y.ticks() {
		y := d.down(v)
		d.printf("<path class=\"grid\" d=\"M%s %sH%s\"/>\n", px(left), px(y), px(width-right))
		d.text(left-8, y+4, "end", "quiet", number(v))
	}
	for _, v := range d.x.ticks() {
		x := d.across(v)
		d.printf("<path class=\"grid\" d=\"M%s %sV%s\"/>\n", px(x), px(d.top), px(bottom))
		d.text(x, bottom+row, "middle", "quiet", number(v))
	}
	d.text((left+width-right)/2, bottom+2*row+4, "middle", "text", c.X.Label)
	d.printf("<g transform=\"translate(%s %s) rotate(-90)\">\n", px(margin+12),
		px(d.top+plotHeight/2))
	d.text(0, 0, "middle", "text", c.Y.Label)
	d.WriteString("</g>\n")
}

// across and down are the places of values in the image.
func (d *drawing) across(v float64) float64 {
	return left + inset + d.x.at(v)*(width-left-right-2*inset)
}

func (d *drawing) down(v float64) float64 {
	return d.top + plotHeight - inset - d.y.at(v)*(plotHeight-2*inset)
}

// place finds a row for each mark's label, so that none is over another; rows count from the frame
// upwards. Marks further to the left go higher, so that no line crosses a label.
func (d *drawing) place(marks []Mark) (rows int, places []int) {
	places = make([]int, len(marks))
	var begins []float64 // by row
	for i := len(marks) - 1; i >= 0; i-- {
		from, to := d.extent(marks[i])
		at := 0
		for at < len(begins) && to+letter > begins[at] {
			at++
		}
		if at == len(begins) {
			begins = append(begins, 0)
		}
		begins[at], places[i] = from, at
	}
	return len(begins), places
}

// extent is from where to where a mark's label goes, which stays in the image.
func (d *drawing) extent(m Mark) (from, to float64) {
	from, long := d.across(m.X), letter*float64(utf8.RuneCountInString(m.Label))
	from = max(min(from, width-4-long), 4)
	return from, from + long
}

func (d *drawing) mark(m Mark, place int) {
	y := d.top - 8 - float64(place)*row
	d.printf("<path class=\"mark\" d=\"M%s %sV%s\"/>\n", px(d.across(m.X)), px(y+4),
		px(d.top+plotHeight))
	from, _ := d.extent(m)
	d.text(from, y, "start", "text", m.Label)
}

// line draws a series: what lies straight between its neighbours is left out, and shapes are at
// each of a few points or spread over many.
func (d *drawing) line(i int, s Series) {
	var b strings.Builder
	command := "M"
	for j, p := range s.Points {
		if j > 0 && j < len(s.Points)-1 && s.Points[j-1].Y == p.Y && s.Points[j+1].Y == p.Y {
			continue
		}
		fmt.Fprintf(&b, "%s%s %s", command, px(d.across(p.X)), px(d.down(p.Y)))
		command = "L"
	}
	d.stroke(i, b.String())
	each := max(1, len(s.Points)/shapes)
	// The shapes of lines that lie on each other are not.
	for j := each * i / len(styles); j < len(s.Points); j += each {
		d.shape(i, d.across(s.Points[j].X), d.down(s.Points[j].Y))
	}
}

func (d *drawing) stroke(i int, path string) {
	d.printf("<path class=\"line%d\" stroke-dasharray=\"%s\" d=\"%s\"/>\n", i,
		nonempty(styles[i].dash), path)
}

func (d *drawing) shape(i int, x, y float64) {
	d.printf("<path class=\"shape%d\" d=\"M%s %s%s\"/>\n", i, px(x), px(y), styles[i].shape)
}

// wrapped breaks a text into lines that fit.
func wrapped(text string) (lines []string) {
	for _, word := range strings.Fields(text) {
		last := len(lines) - 1
		if last >= 0 && letter*float64(utf8.RuneCountInString(lines[last]+" "+word)) <=
			width-2*margin {
			lines[last] += " " + word
			continue
		}
		lines = append(lines, word)
	}
	return lines
}

func nonempty(dash string) string {
	if dash == "" {
		return "none"
	}
	return dash
}

// px prints a length in tenths of a pixel, however the processor rounds what is behind them.
func px(v float64) string {
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}

func escaped(s string) string {
	var b bytes.Buffer
	if err := xml.EscapeText(&b, []byte(s)); err != nil {
		panic("plot: " + err.Error()) // a Buffer takes all
	}
	return b.String()
}
