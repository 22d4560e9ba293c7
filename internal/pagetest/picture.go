package main

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"time"

	"vpp-route-agent/internal/agent"
)

// pictures are taken of each view, if they are asked for. They are of an agent in service, whose
// last start was some time ago.
func (h *harness) pictures(s *scene) error {
	if h.images == "" {
		return nil
	}
	err := s.until(h.ctx, "the agent is ready", func(now agent.Status) error {
		if !now.Ready || time.Since(now.Started) < time.Minute {
			return fmt.Errorf("%+v", now.Conditions)
		}
		return nil
	})
	if err != nil {
		return err
	}
	origin, err := h.browser.reach(s.agent)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(h.images, 0o755); err != nil {
		return err
	}
	for _, x := range []struct {
		name, view string
		screen     screen
	}{
		{"peers", views[0], desk}, {"routes", views[1], desk}, {"explain", views[2], desk},
		{"rates", views[3], desk}, {"conditions", views[4], desk},
		{"dark", views[0], night}, {"phone", views[0], phone},
	} {
		if err := h.picture(origin, "page-"+x.name+".png", x.view, x.screen); err != nil {
			return err
		}
	}
	return nil
}

func (h *harness) picture(origin, name, view string, s screen) error {
	t, err := h.browser.open(h.ctx, s)
	if err != nil {
		return err
	}
	defer t.close()
	if err := t.load(origin, view); err != nil {
		return err
	}
	// a view may be painted before the summary above it
	if err := t.await("the summary is there", "document.querySelector('.tile')"); err != nil {
		return err
	}
	var shot struct{ Data []byte }
	if err := t.call("Page.captureScreenshot", object{"format": "png"}, &shot); err != nil {
		return err
	}
	small, err := withPalette(shot.Data)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(h.images, name), small, 0o644)
}

// withPalette has a picture's 256 most frequent colours only, which makes it a third as large.
func withPalette(shot []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		return nil, err
	}
	count := map[color.RGBA]int{}
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(from.At(x, y)).(color.RGBA) }
	b := from.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			count[at(x, y)]++
		}
	}
	var colours []color.RGBA
	for c := range count {
		colours = append(colours, c)
	}
	slices.SortFunc(colours, func(a, b color.RGBA) int { return count[b] - count[a] })
	var palette color.Palette
	for _, c := range colours[:min(256, len(colours))] {
		palette = append(palette, c)
	}
	index := map[color.RGBA]uint8{}
	for c := range count {
		index[c] = uint8(palette.Index(c))
	}
	to := image.NewPaletted(b, palette)
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			to.SetColorIndex(x, y, index[at(x, y)])
		}
	}
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to)
	return out.Bytes(), err
}
