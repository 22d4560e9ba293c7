// Package external decides what external configuration adds to the data plane: sources tell all
// they want as Ligato's items, Merge makes desired routes of them, and Judge says how each item
// stands. Both are pure. A Controller runs them whenever something changes. Adapters in
// sub-packages talk to clients; this package knows neither them nor BGP, Calico or a data plane.
package external
