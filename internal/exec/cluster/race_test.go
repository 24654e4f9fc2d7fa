//go:build race

package cluster

// pace makes room for the race detector.
const pace = 3
