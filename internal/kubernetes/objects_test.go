package kubernetes

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
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

// Pages of large objects have few of them.
func TestAPageIsBounded(t *testing.T) {
	for size, want := range map[int][]string{
		100: {"100", "500", "500"}, 300 << 10: {"100", "54", "54"}, 8 << 20: {"100", "1", "1"},
	} {
		object := `"` + strings.Repeat("x", size-2) + `"`
		var asked []string
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.URL.Query().Get("limit"))
			next := strings.TrimSuffix(fmt.Sprint(len(asked)), "3")
			fmt.Fprintf(w, `{"kind":"List","metadata":{"resourceVersion":"9","continue":%q},`+
				`"items":[%s,%s]}`, next, object, object)
		}))
		defer api.Close()
		c, err := NewClientFor(ClientConfig{Server: api.URL})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.List(t.Context(), Resource{Version: "v1", Plural: "nodes"}, ListOptions{},
			func(string, []json.RawMessage) error { return nil })
		if err != nil || !slices.Equal(asked, want) {
			t.Errorf("objects of %d bytes: %q, %v", size, asked, err)
		}
		c.Close()
	}
}
