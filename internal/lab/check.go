package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"vpp-route-agent/internal/netlab"
)

// checker walks through a README on a lab that is up.
type checker struct {
	net       network
	walk      *walk
	dataplane string // "vpp" or "kernel"
	update    bool
	out       io.Writer
	// tour: outputs are compared by tourShape, commands may fail, and what is for both data planes
	// is written as VPP's nodes print it
	tour bool
}

const (
	pollEvery = 300 * time.Millisecond
	patience  = 90 * time.Second // with a command that looks, until it shows what it shall
	// settled is how long an output must stay as it is to be taken for a new page.
	settled = 6 * time.Second
)

// errShape is that a command shows something else than the page.
var errShape = errors.New("shows something else than the page does")

// run does all steps, in their order: what one does the next one needs. The first that fails ends
// it.
func (c *checker) run(ctx context.Context) error {
	outputs := map[int]string{}
	for i, s := range c.walk.steps {
		if s.only != "" && s.only != c.dataplane {
			continue
		}
		start := time.Now()
		prompt, waits := "$", "until it shows what the page shows"
		if s.once {
			prompt, waits = "#", "for its end"
		}
		done := netlab.WhenSlow(func() {
			fmt.Fprintf(c.out, "   … %s%s %s  waiting %s\n", s.node, prompt, s.line, waits)
		})
		out, err := c.step(ctx, s)
		done()
		mark := "✓"
		if err != nil {
			mark = "✗"
		}
		fmt.Fprintf(c.out, "   %s %s%s %s  %.1f s\n",
			mark, s.node, prompt, s.line, time.Since(start).Seconds())
		if err != nil {
			return fmt.Errorf("%s:%d: %s: %w", c.walk.file, s.at, s.line, err)
		}
		if c.writes(s) {
			outputs[i] = out
		}
	}
	if len(outputs) == 0 {
		return nil
	}
	return c.walk.rewrite(outputs)
}

// writes says whether the page takes over what a step prints now. What is for both data planes is
// as the kernel's nodes print it, in labs.
func (c *checker) writes(s step) bool {
	both := "kernel"
	if c.tour {
		both = "vpp"
	}
	return c.update && (s.only == c.dataplane || s.only == "" && c.dataplane == both)
}

// ask runs the command of a step once. In the tour one that fails says so in its output.
func (c *checker) ask(ctx context.Context, s step) (string, error) {
	out, err := c.net.run(ctx, s.node, s.line)
	var exit *exec.ExitError
	if c.tour && errors.As(err, &exit) && exit.Exited() && ctx.Err() == nil {
		return fmt.Sprintf("%s\n%s%d", tidy(out), exitLine, exit.ExitCode()), nil
	}
	return tidy(out), err
}

func (c *checker) step(ctx context.Context, s step) (string, error) {
	if s.once {
		text, err := c.ask(ctx, s)
		if err != nil {
			return text, fmt.Errorf("%w: %s", err, text)
		}
		return text, c.compare(s, text)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	last, since := "", time.Now()
	for {
		text, failed := c.ask(ctx, s)
		if shape(text) != shape(last) {
			since = time.Now()
		}
		last = text
		as := c.asShown(s, text)
		if failed == nil && (as || c.writes(s) && c.newPage(s, text, since)) {
			return text, nil
		}
		select {
		case <-ctx.Done():
			return text, errors.Join(failed, c.difference(s, text))
		case <-time.After(pollEvery):
		}
	}
}

// newPage says whether an output that is another than the page's, since then, is to be written.
func (c *checker) newPage(s step, text string, since time.Time) bool {
	if c.tour {
		return strings.Contains(text, s.shows)
	}
	return time.Since(since) > settled
}

// asShown says whether an output has the shape that the page shows.
func (c *checker) asShown(s step, text string) bool {
	return c.shape(text) == c.shape(c.walk.shown(s)) && strings.Contains(text, s.shows)
}

func (c *checker) shape(text string) string {
	if c.tour {
		return tourShape(text)
	}
	return shape(text)
}

func (c *checker) compare(s step, text string) error {
	if c.writes(s) || c.asShown(s, text) {
		return nil
	}
	return c.difference(s, text)
}

// difference shows both, line by line, by what must be the same.
func (c *checker) difference(s step, now string) error {
	if !strings.Contains(now, s.shows) {
		return fmt.Errorf("%w: %q is not in it:\n%s", errShape, s.shows, now)
	}
	var b strings.Builder
	want := strings.Split(c.shape(c.walk.shown(s)), "\n")
	got := strings.Split(c.shape(now), "\n")
	for i := range max(len(want), len(got)) {
		w, g := lineAt(want, i), lineAt(got, i)
		if w == g {
			fmt.Fprintf(&b, "    %s\n", g)
			continue
		}
		if i < len(want) {
			fmt.Fprintf(&b, "  - %s\n", w)
		}
		if i < len(got) {
			fmt.Fprintf(&b, "  + %s\n", g)
		}
	}
	return fmt.Errorf("%w (- page, + now):\n%s", errShape, b.String())
}

func lineAt(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return ""
}
