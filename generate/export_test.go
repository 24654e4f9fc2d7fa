package generate

// Free returns the number of slots that no token has.
func (s *Scheduler) Free() int { return len(s.slots.free) }
