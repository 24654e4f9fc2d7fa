//go:build !race

package cluster

// pace is 1 without the race detector.
const pace = 1
