package dataset

import (
	"fmt"
	"slices"
)

// Take restricts a set to some of its records: the first ones of the permutation that ShuffleFull
// draws in the first epoch with the seed, in the order of the files. The zero value takes all.
type Take struct {
	Records int64
	Seed    uint64
}

// validate returns an error unless the number makes sense.
func (t Take) validate() error {
	if t.Records < 0 {
		return fmt.Errorf("number of records to take is %d; expected 0 (all) or more", t.Records)
	}
	return nil
}

// take keeps some of the records. They are numbered anew, and their ids stay.
func (f *files) take(t Take) {
	n := f.len()
	if t.Records == 0 || t.Records >= n {
		return
	}
	o := newOrder(ShuffleFull, n, t.Seed, 0)
	f.taken = o.draw(nil, 0, 0, t.Records)
	slices.Sort(f.taken)
}
