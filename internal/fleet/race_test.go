//go:build race

package fleet

// pace makes room for the race detector.
const pace = 3
