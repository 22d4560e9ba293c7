package kubernetes

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// What an API server asks for is bounded, and nonsense is none.
func TestRetryAfter(t *testing.T) {
	for header, want := range map[string]time.Duration{"": 0, "30": 30 * time.Second, "0": 0,
		"-1": 0, "soon": 0, "301": longestAfter, "9223372036854775807": longestAfter} {
		for _, body := range []string{"", "{", `{"kind":"Status","details":7}`} {
			e := refusal("list", "nodes", &http.Response{StatusCode: http.StatusTooManyRequests,
				Header: http.Header{"Retry-After": {header}},
				Body:   io.NopCloser(strings.NewReader(body))})
			if e.RetryAfter != want || e.Status != http.StatusTooManyRequests {
				t.Errorf("%q, %q: %+v", header, body, e)
			}
			if after := retryAfter(e); after < want || after > 2*want {
				t.Errorf("%q: a pause of %s", header, after)
			}
		}
	}
}
