package generate

// token is a token of one sequence or of several: they are the ways from the leaves of a tree to its root.
type token struct {
	before *token // nil at the beginning
	id     int32
	slot   int32 // 0 until the model has computed the token, or is about to
	place  int   // in the sequence, from 0
	uses   int   // sequences that end here, and tokens that follow
}

// slots are those of a cache that no token has.
type slots struct{ free []int32 }

// newSlots returns the slots 1 to n; slot 0 is for padding. They are taken from the first on.
func newSlots(n int) *slots {
	s := &slots{make([]int32, n)}
	for i := range s.free {
		s.free[i] = int32(n - i)
	}
	return s
}

// take returns a slot. There is one, because a request enters only if there are all that it needs.
func (s *slots) take() int32 {
	slot := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return slot
}

// give takes back slots.
func (s *slots) give(slots ...int32) { s.free = append(s.free, slots...) }

// after returns a token that follows another, which is nil at the beginning. One sequence ends there.
func after(t *token, id int32) *token {
	next := &token{before: t, id: id, uses: 1}
	if t != nil {
		next.place = t.place + 1
		t.uses++
	}
	return next
}

// drop says that a sequence no longer ends at a token, and frees the slots of the tokens that no other
// sequence has.
func (s *slots) drop(t *token) {
	for t != nil {
		if t.uses--; t.uses > 0 {
			return
		}
		if t.slot != 0 {
			s.give(t.slot)
			t.slot = 0
		}
		t = t.before
	}
}

// ids returns the sequence that ends at a token.
func (t *token) ids() []int32 {
	out := make([]int32, t.place+1)
	for ; t != nil; t = t.before {
		out[t.place] = t.id
	}
	return out
}
