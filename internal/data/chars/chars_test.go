package chars

import "testing"

// The lists that searches go through are in order and do not overlap.
func TestTablesSorted(t *testing.T) {
	for i := range sets {
		last := rune(-1)
		for lo, hi := range Runs(1 << i) {
			if lo > hi || lo <= last {
				t.Errorf("class %d: the run from %#x to %#x is out of order", i, lo, hi)
			}
			last = hi
		}
		if last < 0 {
			t.Errorf("class %d has no code points", i)
		}
	}
	last := rune(-1)
	for _, run := range lowered {
		if run[0] > run[1] || (run[1]-run[0])%run[2] != 0 || run[0] <= last {
			t.Errorf("lowered: the run from %#x to %#x is out of order", run[0], run[1])
		}
		last = run[1]
	}
}
