// Package reflector will hold the route-reflector controller: choosing reflectors and moving a
// cluster from mesh to reflectors and back without loss. Nothing of it is built yet; the package
// marks the place in the layout.
package reflector
