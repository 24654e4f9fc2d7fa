//go:build !race

package fleet

// pace is 1 without the race detector.
const pace = 1
