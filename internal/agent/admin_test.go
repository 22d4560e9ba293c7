package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// want has the FIB want n routes, of which it can program the even ones.
func (n *node) want(t *testing.T, count int) {
	t.Helper()
	n.dataplane.facts <- live
	var routes []route.Route
	for i := range count {
		prefix := netip.PrefixFrom(netip.AddrFrom4(
			[4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
		routes = append(routes, route.Route{Key: route.Key{Prefix: prefix},
			Paths: []route.Path{{NextHop: []netip.Addr{addr("192.168.4.3"),
				addr("192.0.2.1")}[i%2]}}})
	}
	n.agent.Want(route.Etcd, fib.Source{Routes: routes})
	time.Sleep(time.Minute)
	synctest.Wait()
}

func TestRoutesIsTheJSONOfOneList(t *testing.T) {
	for _, tc := range []struct {
		routes, want int
		query        string
	}{
		{0, 0, ""}, {1, 1, ""}, {3, 3, ""}, {1000, 1000, ""}, {1000, 1, "?prefix=10.0.1.9"},
		{3, 0, "?prefix=10.1.0.0/26"},
	} {
		inBubble(t, func(t *testing.T, n *node) {
			n.want(t, tc.routes)
			answer := httptest.NewRecorder()
			n.agent.AdminHandler().ServeHTTP(
				answer, httptest.NewRequest(http.MethodGet, "/v1/routes"+tc.query, nil))
			var list []RouteStatus
			if err := json.Unmarshal(answer.Body.Bytes(), &list); err != nil ||
				len(list) != tc.want || list == nil {
				t.Fatalf("%d routes%s: %d of %d, %v:\n%s", tc.routes, tc.query, len(list), tc.want,
					err, answer.Body)
			}
			var want bytes.Buffer
			enc := json.NewEncoder(&want)
			enc.SetIndent("", "  ")
			if err := enc.Encode(list); err != nil {
				t.Fatal(err)
			}
			if got := answer.Body.String(); got != want.String() ||
				answer.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%d routes%s:\n%s\nwant\n%s", tc.routes, tc.query, got, &want)
			}
		})
	}
}

// client takes nothing of its answer before it is told to.
type client struct {
	*httptest.ResponseRecorder
	take, done chan struct{}
	deadline   time.Time
}

func (c *client) SetWriteDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

func (c *client) Write(p []byte) (int, error) {
	<-c.take
	return c.ResponseRecorder.Write(p)
}

// ask asks h for routes until ctx ends.
func ask(ctx context.Context, h http.Handler, query string) *client {
	return askFor(ctx, h, "/v1/routes"+query)
}

func askFor(ctx context.Context, h http.Handler, path string) *client {
	c := &client{ResponseRecorder: httptest.NewRecorder(), take: make(chan struct{}),
		done: make(chan struct{})}
	go func() {
		defer close(c.done)
		h.ServeHTTP(c, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
	}()
	return c
}

// A listing of a million routes takes many megabytes: more than a few of them at a time would be
// more than a container has.
func TestListingsOfRoutesAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		a := n.agent.AdminHandler()
		n.want(t, 10)
		var deaf []*client
		for range listings {
			deaf = append(deaf, ask(t.Context(), a, ""))
		}
		synctest.Wait()
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		gone, waits := ask(brief, a, ""), ask(t.Context(), a, "?prefix=10.0.0.0/8")
		address := ask(t.Context(), a, "?prefix=10.1.0.1")
		close(address.take)
		<-address.done
		close(gone.take)
		close(waits.take)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		select {
		case <-gone.done:
		default:
			t.Error("a client that has gone still waits")
		}
		if gone.Body.Len() > 0 || waits.Body.Len() > 0 {
			t.Errorf("another listing was made while %d were not taken", listings)
		}
		close(deaf[0].take)
		<-deaf[0].done
		<-waits.done
		if waits.Body.Len() == 0 || waits.Body.String() != deaf[0].Body.String() {
			t.Errorf("after its wait: %s", waits.Body)
		}
		if left := time.Until(waits.deadline); left != writeTimeout {
			t.Errorf("a client that waited for its turn has %s for its answer, want %s", left,
				writeTimeout)
		}
		for _, c := range deaf[1:] {
			close(c.take)
			<-c.done
		}
	})
}

// A client that asks for all routes and reads none of them holds up nobody.
func TestReaderThatTakesNothingHoldsUpNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.want(t, 10)
		a := n.agent.AdminHandler()
		deaf := ask(t.Context(), a, "")
		synctest.Wait()
		for _, query := range []string{"", "?prefix=10.0.0.0/8", "?prefix=10.0.0.1"} {
			began := time.Now()
			other := ask(t.Context(), a, query)
			close(other.take)
			select {
			case <-other.done:
			case <-time.After(time.Second):
			}
			if waited := time.Since(began); waited > 0 || other.Body.Len() == 0 {
				t.Errorf("%q: %d bytes after %s", query, other.Body.Len(), waited)
			}
		}
		select {
		case <-deaf.done:
			t.Error("it has read")
		default:
		}
		close(deaf.take)
		<-deaf.done
	})
}

// Another host that asks for all routes and reads none of them holds up no local client.
func TestRemoteReaderHoldsUpNoLocalOne(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.want(t, 10)
		remote := ask(t.Context(), n.agent.QueryHandler(), "")
		synctest.Wait()
		began := time.Now()
		local := ask(t.Context(), n.agent.AdminHandler(), "")
		close(local.take)
		<-local.done
		if waited := time.Since(began); waited > 0 || local.Body.Len() == 0 {
			t.Errorf("a local client got %d bytes after %s", local.Body.Len(), waited)
		}
		select {
		case <-remote.done:
			t.Error("the other host has read")
		default:
		}
		close(remote.take)
		<-remote.done
	})
}

// Metrics and readiness each gather the whole state, and whoever can reach the listener can ask a
// thousand times at once.
func TestScrapesAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		h := n.agent.HealthHandler()
		for path, beyond := range map[string]int{
			"/metrics": http.StatusServiceUnavailable, "/readyz": 0, // waits
		} {
			var deaf []*client
			for range scrapes {
				deaf = append(deaf, askFor(t.Context(), h, path))
			}
			synctest.Wait()
			brief, cancel := context.WithTimeout(t.Context(), time.Second)
			more, live := askFor(brief, h, path), askFor(t.Context(), h, "/healthz")
			close(more.take)
			close(live.take)
			<-more.done
			<-live.done
			if refused := more.Code == beyond || beyond == 0 && more.Body.Len() == 0; !refused {
				t.Errorf("%s: one more got %d, %d bytes", path, more.Code, more.Body.Len())
			}
			if live.Body.String() != "ok\n" {
				t.Errorf("%s: /healthz answers %q", path, live.Body)
			}
			cancel()
			for _, c := range deaf {
				close(c.take)
				<-c.done
				if c.Body.Len() == 0 {
					t.Errorf("%s: nothing came", path)
				}
			}
		}
	})
}

// What cannot be programmed is named, ten of it, and keeps the revision from being settled.
func TestStatusNamesWhatIsNotSettled(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.want(t, 30)
		f := n.agent.Status().FIB
		if f.Settled >= f.Revision || len(f.Unsettled) != maxUnsettled || f.UnsettledMore != 5 {
			t.Fatalf("%+v", f)
		}
		first := f.Unsettled[0]
		if first.Prefix != netip.MustParsePrefix("10.0.0.1/32") || first.State != "unusable" ||
			first.Reason == "" {
			t.Errorf("%+v", first)
		}
		n.want(t, 1)
		if f := n.agent.Status().FIB; f.Settled != f.Revision || f.Unsettled != nil {
			t.Errorf("%+v", f)
		}
	})
}

// GET /v1/plan has what the agent works by: nothing before there is a plan, and while the datastore
// is locked what was there before.
func TestPlanIsThatInForce(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		ask := func() (code int, p CurrentPlan) {
			answer := httptest.NewRecorder()
			n.agent.AdminHandler().ServeHTTP(answer,
				httptest.NewRequest(http.MethodGet, "/v1/plan", nil))
			if answer.Code == http.StatusOK {
				if err := json.Unmarshal(answer.Body.Bytes(), &p); err != nil {
					t.Fatal(err)
				}
			}
			return answer.Code, p
		}
		if code, _ := ask(); code != http.StatusConflict {
			t.Errorf("before there is a plan: %d", code)
		}
		n.dataplane.facts <- live
		c := cluster()
		n.snapshots <- c
		time.Sleep(time.Second)
		synctest.Wait()
		check := func(what string) {
			t.Helper()
			code, p := ask()
			if code != http.StatusOK || p.Revision != 7 || len(p.Plan.Announcements) != 3 ||
				len(p.Plan.Peers) != 1 || p.Options.RouterID != "10.0.0.1" ||
				p.Plan.Speaker.RouterID != addr("10.0.0.1") {
				t.Errorf("%s: %d, %+v", what, code, p)
			}
		}
		check("planned")
		locked := cluster()
		locked.Revision, locked.DatastoreNotReady, locked.Nodes = 8, true, nil
		n.snapshots <- locked
		time.Sleep(time.Second)
		synctest.Wait()
		check("locked")
	}, func(c *Config) { c.BGP.RouterID = "10.0.0.1" })
}
