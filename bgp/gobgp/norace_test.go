//go:build !race

package gobgp

const raceEnabled = false
