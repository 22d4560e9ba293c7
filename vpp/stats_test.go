package vpp_test

import (
	"maps"
	"testing"
	"time"

	"go.fd.io/govpp/api"

	"vpp-route-agent/internal/route"
	"vpp-route-agent/vpp"
)

func TestStatsCountConnectionsAndRefusals(t *testing.T) {
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "connection", present)
	retval := int32(-171)
	s.Refuse(func(m api.Message) int32 {
		if isRoute("198.18.0.1/32")(m) {
			return retval
		}
		return 0
	})
	a.apply(hostRoutes(3)...)
	a.apply(hostRoutes(3)...)
	retval = -999
	a.apply(hostRoutes(3)...)
	s.DropConnections()
	a.awaitConnection(t, 2)
	got := a.Stats()
	if want := map[string]uint64{"invalid prefix length": 2,
		"VPP error -999": 1}; got.Connections != 2 || !maps.Equal(got.Refused, want) {
		t.Errorf("%+v, want 2 connections and %v", got, want)
	}
}

// VPP is asked now and then, and what it answered last is known when it is gone.
func TestStatsHaveTheLastContact(t *testing.T) {
	s := newServer(t)
	before := time.Now().Add(-time.Millisecond)
	none := runAgent(t, vpp.Config{Socket: s.Socket() + ".none"})
	a := runAgent(t, vpp.Config{Socket: s.Socket(), ReplyTimeout: 300 * time.Millisecond})
	a.await(t, "connection", present)
	first := a.Stats().LastContact
	if first.Before(before) {
		t.Errorf("contact at %v, not after %v", first, before)
	}
	if at := none.Stats().LastContact; !at.IsZero() {
		t.Errorf("contact at %v with nobody", at)
	}
	for deadline := time.Now().Add(patience); !a.Stats().LastContact.After(first); {
		if time.Now().After(deadline) {
			t.Fatal("no contact with an idle VPP")
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.Close()
	a.await(t, "loss", absent)
	if !a.Stats().LastContact.After(first) {
		t.Error("the last contact is forgotten")
	}
}

// In a table that somebody deleted a delete has nothing left to do, and a put waits for the table.
func TestTableDeletedBySomebodyElse(t *testing.T) {
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "connection", present)
	op := hostRoutes(1)[0]
	op.Route.Table = missingTable
	table := route.Table{TableID: op.Route.TableID(), Name: "ours"}
	if err := a.PutObject(t.Context(), table); err != nil {
		t.Fatal(err)
	}
	a.mustApply(t, op)
	s.RemoveTable(missingTable)
	op.Delete = true
	a.mustApply(t, op)
	op.Delete = false
	var refused error
	err := a.Apply(t.Context(), []route.Op{op}, func(_ int, err error) { refused = err })
	if err != nil || refused == nil {
		t.Errorf("a put into no table: %v, %v", refused, err)
	}
	if err := a.PutObject(t.Context(), table); err != nil {
		t.Fatal(err)
	}
	a.mustApply(t, op)
}
