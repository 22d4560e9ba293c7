// Package plot draws measurements as SVG for the documentation: lines over two axes, legible on
// light and on dark pages, told apart without colour, with a title and a description for who cannot
// see them. The same chart gives the same bytes.
//
// It knows nothing of what was measured. For plotting libraries see the commit that added it.
package plot

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
)

// Chart is one drawing.
type Chart struct {
	Title       string
	Note        string // on what it was measured
	Description string // what is to be seen, in words
	X, Y        Axis
	Series      []Series // as many as there are styles, at most
	Marks       []Mark   // in the order of X
}

// Axis is a direction with a unit.
type Axis struct {
	Label string // with the unit
	Log   bool   // values must be greater than 0
	Zero  bool   // the axis has the 0, whatever the values are; not with Log
}

// Series is one line, its points in the order of X.
type Series struct {
	Name   string
	Points []Point
}

// Point is one measured value.
type Point struct{ X, Y float64 }

// Mark is something that happened at X.
type Mark struct {
	X     float64
	Label string
}

// objection says why a chart cannot be drawn.
func (c Chart) objection() error {
	if len(c.Series) == 0 || len(c.Series) > len(styles) {
		return fmt.Errorf("%d series, want 1 to %d", len(c.Series), len(styles))
	}
	for _, s := range c.Series {
		if len(s.Points) == 0 {
			return fmt.Errorf("%s: no points", s.Name)
		}
		for i, p := range s.Points {
			if !c.X.has(p.X) || !c.Y.has(p.Y) {
				return fmt.Errorf("%s: the axes do not have (%g, %g)", s.Name, p.X, p.Y)
			}
			if i > 0 && p.X < s.Points[i-1].X {
				return fmt.Errorf("%s: %g after %g", s.Name, p.X, s.Points[i-1].X)
			}
		}
	}
	for i, m := range c.Marks {
		if !c.X.has(m.X) {
			return fmt.Errorf("mark %s: the axis does not have %g", m.Label, m.X)
		}
		if i > 0 && m.X < c.Marks[i-1].X {
			return fmt.Errorf("mark %s: %g after %g", m.Label, m.X, c.Marks[i-1].X)
		}
	}
	return nil
}

func (a Axis) has(v float64) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && (!a.Log || v > 0)
}

// Write draws charts into a folder, each under its name with the ending .svg. One that cannot be
// drawn does not keep the others from it.
func Write(folder string, charts map[string]Chart) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	var errs []error
	for name, c := range charts {
		svg, err := c.SVG()
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name+".svg"), svg, 0o644)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("plot %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
