package heap

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Numbers come out in order, whatever order they came in, and however often the first one is replaced.
func TestOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 200 {
		var h Heap[uint64]
		var want []uint64
		for range n {
			x := uint64(r.IntN(n))
			want = append(want, x)
			h.Push(x, x)
			slices.Sort(want)
			switch r.IntN(4) {
			case 0:
				if got := h.Pop(); got != want[0] {
					t.Fatalf("got %d of %v", got, want)
				}
				want = want[1:]
			case 1:
				want[0] = uint64(r.IntN(n))
				h.Replace(want[0], want[0])
				slices.Sort(want)
			}
		}
		for _, x := range want {
			if got := h.Pop(); got != x {
				t.Fatalf("got %d, want %d", got, x)
			}
		}
		if len(h) > 0 {
			t.Fatalf("%v are left", h)
		}
	}
}
