package calico

import (
	"log/slog"
	"strings"
)

// maxProblem bounds what is said of an item, in bytes: it may quote a value of 1.5 MiB, and is in
// the log, in each answer of status and on its page.
const maxProblem = 1000

// shortened cuts the end of a text that is too long.
func shortened(text string) string {
	if len(text) <= maxProblem {
		return text
	}
	return strings.ToValidUTF8(text[:maxProblem], "") + "…"
}

// NamedProblems are the problems of a source that were logged, by key. The zero value is ready for
// use, by one goroutine.
type NamedProblems struct{ named map[string]string }

// Log logs each problem when it appears, changes or is gone.
func (n *NamedProblems) Log(problems []Problem, log *slog.Logger) {
	now := make(map[string]string, len(problems))
	for _, p := range problems {
		now[p.Key] = p.Err
		if n.named[p.Key] != p.Err {
			log.Warn("an item of Calico's data cannot be used", "resource", p.Resource,
				"key", p.Key, "err", p.Err)
		}
	}
	for key := range n.named {
		if _, still := now[key]; !still {
			log.Info("an item of Calico's data is in order again, or gone", "key", key)
		}
	}
	n.named = now
}
