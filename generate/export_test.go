package generate

// Free returns the number of slots that no token has, and that no token of a source has.
func (s *Scheduler) Free() (tokens, sources int) { return len(s.slots.free), len(s.sources.free) }
