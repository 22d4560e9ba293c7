package fib

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/internal/route"
)

// inTable is a drop route of a VRF.
func inTable(table uint32, s string) route.Route {
	return route.Route{Key: route.Key{Table: table, Prefix: pfx(s)}, Kind: route.Drop}
}

// keeps prints the calls of KeepTables since it was asked last, and the tables that are left.
func (r *running) keeps(t *testing.T, what string, want ...string) {
	t.Helper()
	r.dp.routes() // settles
	var got []string
	r.dp.state(func() {
		for _, k := range r.dp.keeps {
			got = append(got, fmt.Sprint(k))
		}
		r.dp.keeps = nil
	})
	check(t, what, got, want...)
}

func TestTablesAreKeptAsLongAsTheyAreUsed(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.SetRoutes(route.External, []route.Route{
			inTable(7, one), inTable(7, two), inTable(9, one), drop(one),
		})
		r.keeps(t, "before the sweep")
		r.AllowSweep()
		r.keeps(t, "an earlier process may have left some", "[7 9]")
		r.SetRoutes(route.External, []route.Route{inTable(7, one), inTable(9, one)})
		r.keeps(t, "one route less")
		r.SetRoutes(route.External, []route.Route{inTable(7, one)})
		r.keeps(t, "the last of its table", "[7]")
		r.dp.refuse[inTable(7, one).Key] = errors.New("busy")
		r.SetRoutes(route.External, nil)
		r.keeps(t, "its deletion is refused")
		r.dp.heal()
		time.Sleep(time.Minute)
		r.keeps(t, "and then it is not", "[]")
		if n := len(r.dp.tables); n != 0 {
			t.Errorf("%d tables are left", n)
		}
		r.dp.tell(node("b"))
		r.keeps(t, "another generation", "[]")
		r.dp.tell(route.Facts{Problem: "away"})
		r.SetRoutes(route.External, []route.Route{inTable(7, one)})
		synctest.Wait()
		r.SetRoutes(route.External, nil)
		r.keeps(t, "nobody to tell")
		r.dp.tell(node("b"))
		r.keeps(t, "back", "[]")
	})
}

func TestTablesWhereNextHopsAreLookedUpAreKept(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		paths := []route.Path{{NextHop: addr("192.0.2.1"), Table: 9}}
		r.SetRoutes(route.External, []route.Route{inTable(7, one), {Key: key(two), Paths: paths}})
		r.AllowSweep()
		r.keeps(t, "used", "[7 9]")
		r.SetRoutes(route.External, []route.Route{{Key: key(two), Paths: paths}})
		r.keeps(t, "one used", "[9]")
		r.Learn(pfx(three), via("10.0.0.2"))
		// by now it is reported that the next hop is of no use, and that is remembered
		time.Sleep(time.Minute)
		r.SetRoutes(route.External, nil)
		r.keeps(t, "not any more", "[]")
	})
}

func TestARemovalThatFailsIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.SetRoutes(route.External, []route.Route{inTable(7, one)})
		r.AllowSweep()
		r.keeps(t, "used", "[7]")
		r.dp.state(func() { r.dp.keepErr = errGone })
		r.SetRoutes(route.External, nil)
		time.Sleep(90 * time.Second)
		synctest.Wait()
		if n := len(r.dp.keeps); n < 3 || n > 5 {
			t.Errorf("%d attempts in 90 s, want one every 30 s or so", n)
		}
		r.dp.heal()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(r.dp.tables); n != 0 {
			t.Errorf("%d tables are left", n)
		}
	})
}
