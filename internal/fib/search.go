package fib

import (
	"slices"

	"vpp-route-agent/internal/route"
)

// Search counts the routes, in any table, that match, and returns the first of those after a key,
// by key. What match is shown has no Reason. The table is walked a piece at a time, and is locked
// while match runs.
func (e *Engine) Search(after route.Key, most int, match func(Entry) bool) (
	first []Entry, count int) {
	keys, count := e.firstKeys(after, most, func(x *entry, _ route.Key) bool {
		shown := e.show(x, false)
		return shown.State != Any && match(shown) // Any: it is wanted elevated instead
	})
	first, _ = e.Find(keys)
	return first, count
}

// firstKeys counts the routes that match, and returns the keys of the first of those after a key.
// A route that is moved in the table meanwhile may count twice (see walk), but is returned once.
func (e *Engine) firstKeys(after route.Key, most int, match func(*entry, route.Key) bool) (
	keys []route.Key, count int) {
	e.walk(func(x *entry) {
		if x.isObject() {
			return
		}
		k := x.key()
		if !match(x, k) {
			return
		}
		count++
		if route.CompareKeys(k, after) <= 0 || len(keys) == most &&
			(most == 0 || route.CompareKeys(k, keys[most-1]) >= 0) {
			return
		}
		if at, twice := slices.BinarySearchFunc(keys, k, route.CompareKeys); !twice {
			keys = slices.Insert(keys, at, k)
			keys = keys[:min(len(keys), most)]
		}
	})
	return keys, count
}
