// Package external will hold external configuration sources (gRPC, etcd) and what they want of the
// FIB. Nothing of it is built yet; the package marks the place in the layout. route.External is the
// origin that its routes will have.
package external
