package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	mdLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	mdHeading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	mdPlain   = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
	mdTarget  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// TestLinks follows every link from page to page, and to the headings that they name.
func TestLinks(t *testing.T) {
	var pages []string
	for _, pattern := range []string{
		"../*.md", "../docs/*.md", "../docs/decisions/*.md", "../labs/*.md", "../labs/*/*.md",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d pages, %v", pattern, len(found), err)
		}
		pages = append(pages, found...)
	}
	followed := 0
	for _, page := range pages {
		for _, m := range mdLink.FindAllStringSubmatch(string(read(t, page)), -1) {
			file, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(m[1], "://") {
				continue
			}
			followed++
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s: %v", page, m[1], err)
				continue
			}
			if heading != "" && !slices.Contains(anchors(string(read(t, target))), heading) {
				t.Errorf("%s: %s has no heading for #%s", page, target, heading)
			}
		}
	}
	if followed < 50 {
		t.Errorf("only %d links followed", followed)
	}
}

// anchors makes of headings what GitHub makes of them.
func anchors(page string) []string {
	var out []string
	for _, m := range mdHeading.FindAllStringSubmatch(page, -1) {
		plain := mdPlain.ReplaceAllString(
			strings.ToLower(strings.TrimSpace(mdTarget.ReplaceAllString(m[1], "$1"))), "")
		out = append(out, strings.ReplaceAll(plain, " ", "-"))
	}
	return out
}

// TestDrawings draws each image of the documentation from its text again.
func TestDrawings(t *testing.T) {
	texts, err := filepath.Glob("../docs/images/*.txt")
	if err != nil || len(texts) == 0 {
		t.Fatalf("%d texts, %v", len(texts), err)
	}
	for _, text := range texts {
		drawn, err := exec.Command("../docs/images/draw", text).Output()
		image := strings.TrimSuffix(text, ".txt") + ".svg"
		if err != nil || string(drawn) != string(read(t, image)) {
			t.Errorf("%s is not what draw makes of %s (%v)", image, text, err)
		}
	}
}
