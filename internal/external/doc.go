// Package external will hold external configuration sources (gRPC, etcd) and what they want of the
// FIB. Nothing of it is built yet; the package marks the place in the layout. docs/design.md says
// where its parts go.
package external
