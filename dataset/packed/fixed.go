package packed

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/internal/buckets"
)

// Shape is the shape of the features of a batch with fixed rows.
type Shape struct {
	Rows, RowLength int
	Examples        int // places on the axis of examples; unused ones weigh 0
}

// Shape returns the shape of each of n micro-batches of a batch with fixed rows, and the zero Shape
// if Rows is 0; with Buckets, the largest. If the rows cannot be shared evenly, some micro-batches have an empty row.
func (c Config) Shape(n int) Shape {
	if c.Rows == 0 {
		return Shape{}
	}
	c = c.withDefaults()
	rows := (c.Rows + n - 1) / n
	return Shape{rows, c.RowLength, rows * c.RowExamples}
}

const (
	// maxFixedRow is the maximum length of fixed rows: sizes of records have 16 bits.
	maxFixedRow = math.MaxUint16
	// defaultShare is the number of positions for each example of a row, by default.
	defaultShare = 8
)

// validateFixed checks the settings of fixed rows, for batches of at most a given number of
// examples.
func (c Config) validateFixed(examples int) error {
	switch {
	case c.Rows < 0:
		return fmt.Errorf("number of rows is %d; expected 0 (as many as a batch needs) or more", c.Rows)
	case c.RowExamples < 0 || c.RowExamples > c.RowLength:
		return fmt.Errorf("most examples of a row are %d; expected 0 (one for every %d positions) to %d, the row length", c.RowExamples, defaultShare, c.RowLength)
	case c.Rows == 0 && len(c.Buckets) > 0:
		return fmt.Errorf("there are buckets of rows of %v tokens, but the number of rows is not fixed; expected none", c.Buckets)
	case c.Rows == 0 && c.RowExamples > 0:
		return fmt.Errorf("most examples of a row are %d, but the number of rows is not fixed; expected 0", c.RowExamples)
	case c.Rows == 0:
		return nil
	case c.Packing == PackFirstFit:
		return fmt.Errorf("packing is %q, which does not fix the number of rows; expected %q or %q", c.Packing, PackBestFit, PackNone)
	case c.Targets != nil:
		return errors.New("there are targets, and the number of rows is fixed; expected rows that are not, because a row holds the same examples on both sides")
	case c.Masking != nil && c.Masking.Given:
		return errors.New("masked tokens are given, and the number of rows is fixed; expected rows that are not, because any number of tokens of a record may be masked")
	case c.RowLength > maxFixedRow:
		return fmt.Errorf("row length is %d tokens; expected at most %d for a fixed number of rows", c.RowLength, maxFixedRow)
	case int64(c.Rows)*int64(c.RowLength) > math.MaxInt32:
		return fmt.Errorf("%d rows of %d tokens are too large: positions must be below 2^31", c.Rows, c.RowLength)
	case c.Rows > examples:
		return fmt.Errorf("a batch has %d rows and at most %d examples; expected no more rows than examples", c.Rows, examples)
	}
	return c.validateBuckets(examples)
}

// Fit implements dataset.FittedLayout.
func (c Config) Fit(examples int) *dataset.Fit {
	if c.Rows < 1 {
		return nil
	}
	c = c.withDefaults()
	key, err := json.Marshal([][]string{c.Features.InputIDs, c.Features.Mask, c.Features.Real})
	if err != nil {
		panic(err) // strings can always be written
	}
	limit := c.limit()
	return &dataset.Fit{
		Key:       string(key),
		Measurers: func() dataset.Measurer { return newRecords(&c, nil, nil).measure },
		Room: func(size int) int32 {
			if size > limit && !c.Truncate {
				return 0 // an error once it is read
			}
			return int32(min(size, limit))
		},
		Fillers: func() dataset.Filler { return newFiller(c, examples) },
		Cells: func(places []int32) int64 {
			bucket := len(c.Buckets) // also without a place
			for _, place := range places {
				if place >= 0 {
					bucket, _ = placeOf(place)
					break
				}
			}
			return int64(c.Rows) * int64(c.lengths()[bucket])
		},
	}
}

// measure returns the number of tokens of a record, and 0 if it only fills up a batch or is not as
// expected. It implements dataset.Measurer.
func (r *records) measure(data []byte) (int, error) {
	if err := r.decoder.Decode(data, &r.values); err != nil {
		return 0, err
	}
	if _, v, reason := r.numbers(r.yes); reason != "" || len(v) == 1 && v[0] == 0 {
		return 0, nil
	}
	_, ids, reason := r.numbers(r.ids)
	if reason != "" {
		return 0, nil
	}
	_, mask, reason := r.numbers(r.mask)
	switch {
	case reason != "" || mask != nil && len(mask) != len(ids):
		return 0, nil
	case mask == nil:
		return len(ids), nil
	}
	n := 0
	for _, m := range mask {
		n += int(m & 1)
	}
	return n, nil
}

// lookAhead is the number of waiting examples among which the rest of a row is chosen.
const lookAhead = 48

// filler fills fixed rows. It implements dataset.Filler.
type filler struct {
	rows, each int             // each is the most examples of a row
	most       int             // examples of a batch
	lengths    buckets.Lengths // of rows

	after []int32 // by example that waits, the next one, or -1

	// For the search of sums: the examples that are tried, and reach[k] has the sums of k of them;
	// last[k][s] is the example that the sum s ends with.
	tried []int32
	reach [][2]uint64
	last  [][tightRoom]uint8
}

func newFiller(c Config, examples int) *filler {
	each := c.RowExamples
	if c.Packing == PackNone {
		each = 1
	}
	f := &filler{rows: min(c.Rows, examples), each: each, most: min(examples, c.Rows*each), lengths: c.lengths()}
	// No more examples than that fit after the first one of a row when the search begins.
	depth := min(each, tightRoom)
	f.reach, f.last = make([][2]uint64, depth+1), make([][tightRoom]uint8, depth+1)
	return f
}

// Sees implements dataset.Filler. Among so many records, there are always enough for a batch of some
// bucket.
func (f *filler) Sees() int { return len(f.lengths)*(f.most-1) + 1 + lookAhead }

// Fill implements dataset.Filler. Each row begins with the example that waits longest, so none
// waits for long. Of the next ones, those follow whose lengths fill the row best.
func (f *filler) Fill(lengths, rows []int32) (full bool) {
	bucket := len(f.lengths) - 1
	if bucket > 0 {
		bucket = f.lengths.Next(lengths, f.most)
	}
	full = f.fill(lengths, rows, bucket)
	for i, row := range rows {
		if row >= 0 {
			rows[i] = placeIn(bucket, row)
		}
	}
	return full
}

// fill chooses from the examples that fit into the rows of a bucket.
func (f *filler) fill(lengths, rows []int32, bucket int) (full bool) {
	n, length := len(lengths), f.lengths[bucket]
	f.after = resize(f.after, n+1)
	last := int32(0) // the place after the last example
	for i, l := range lengths {
		if int(l) <= length {
			f.after[last], last = int32(i), int32(i)+1
		}
	}
	f.after[last] = -1
	for i := range rows {
		rows[i] = -1
	}
	left := f.most
	for r := range f.rows {
		begin := f.first(lengths, bucket)
		first := f.after[begin]
		if first < 0 {
			return false
		}
		take := func(before int32) {
			i := f.after[before]
			rows[i] = int32(r)
			f.after[before] = f.after[i+1]
			left--
		}
		// Every later row gets an example.
		most := min(f.each, left-(f.rows-r-1))
		room := length - int(lengths[first])
		take(begin)
		taken := 1
		for before, seen := int32(0), 0; room >= tightRoom && taken < most && seen < lookAhead; seen++ {
			i := f.after[before]
			if i < 0 {
				break
			}
			if l := int(lengths[i]); l <= room {
				room -= l
				take(before)
				taken++
			} else {
				before = i + 1
			}
		}
		if room > 0 && room < tightRoom && taken < most {
			f.search(lengths, room, most-taken, func(i int32) { rows[i] = int32(r); left-- })
			f.unlink(rows)
		}
	}
	return true
}

// unlink drops the examples that were taken from the list of those that wait, as far as a search
// goes.
func (f *filler) unlink(rows []int32) {
	before := int32(0)
	for range lookAhead {
		i := f.after[before]
		if i < 0 {
			return
		}
		if rows[i] >= 0 {
			f.after[before] = f.after[i+1]
		} else {
			before = i + 1
		}
	}
}

// search takes at most a given number of the next examples whose lengths have the greatest sum that
// fits into the room, which is below tightRoom. Sums are bits of two words. The longest examples are
// tried first, until the room is filled to the last position: short ones that are left over fill later
// rows more easily. Of equally long ones, the first comes first.
func (f *filler) search(lengths []int32, room, most int, take func(i int32)) {
	most = min(most, len(f.reach)-1)
	upTo := [2]uint64{^uint64(0), 0}
	if room < 63 {
		upTo[0] = 1<<(room+1) - 1
	} else {
		upTo[1] = 1<<(room-63) - 1
	}
	clear(f.reach)
	f.reach[0][0] = 1
	f.sort(lengths, room)
	deepest, best, bestOf := 0, 0, 0
	for number, i := range f.tried {
		if best == room {
			break
		}
		l := int(lengths[i])
		for k := min(deepest, most-1); k >= 0; k-- {
			from, to := f.reach[k], &f.reach[k+1]
			var sums [2]uint64
			if l < 64 {
				sums = [2]uint64{from[0] << l, from[1]<<l | from[0]>>(64-l)}
			} else {
				sums[1] = from[0] << (l - 64)
			}
			sums[0] &= upTo[0] &^ to[0]
			sums[1] &= upTo[1] &^ to[1]
			if sums[0]|sums[1] == 0 {
				continue
			}
			deepest = max(deepest, k+1)
			to[0] |= sums[0]
			to[1] |= sums[1]
			top := bits.Len64(sums[0]) - 1
			if sums[1] != 0 {
				top = bits.Len64(sums[1]) + 63
			}
			if top > best {
				best, bestOf = top, k+1
			}
			for word, set := range sums {
				for ; set != 0; set &= set - 1 {
					f.last[k+1][64*word+bits.TrailingZeros64(set)] = uint8(number)
				}
			}
		}
	}
	for ; bestOf > 0; bestOf-- {
		i := f.tried[f.last[bestOf][best]]
		best -= int(lengths[i])
		take(i)
	}
}

// sort sets f.tried to those of the next examples that fit into a room below tightRoom, the longest
// first, equal ones in their own order.
func (f *filler) sort(lengths []int32, room int) {
	var at [tightRoom + 1]int32 // by length, the examples that are longer
	for i, seen := f.after[0], 0; i >= 0 && seen < lookAhead; i, seen = f.after[i+1], seen+1 {
		if l := int(lengths[i]); l <= room {
			at[l-1]++
		}
	}
	sum := int32(0)
	for l := room; l >= 0; l-- {
		sum, at[l] = sum+at[l], sum
	}
	f.tried = resize(f.tried, int(sum))
	for i, seen := f.after[0], 0; i >= 0 && seen < lookAhead; i, seen = f.after[i+1], seen+1 {
		if l := int(lengths[i]); l <= room {
			f.tried[at[l-1]] = i
			at[l-1]++
		}
	}
}

// AddAt implements dataset.PlacedAssembler.
func (a *assembler) AddAt(where int32, id dataset.RecordID, data []byte) *dataset.RecordError {
	n := len(a.lengths)
	if err := a.Add(id, data); err != nil || len(a.lengths) == n {
		return err
	}
	l := a.lengths[n]
	bucket, row := placeOf(where)
	if len(a.used) == 0 {
		a.used, a.seqs = zeros(a.used, a.cfg.Rows), zeros(a.seqs, a.cfg.Rows)
		a.bucket = bucket
	}
	if where < 0 || bucket != a.bucket || bucket > len(a.cfg.Buckets) || int(row) >= a.cfg.Rows || int(a.used[row]+l) > a.cfg.lengths()[bucket] || int(a.seqs[row]) == a.cfg.RowExamples {
		a.start -= int(l)
		a.dropExample()
		a.keep(n)
		return &dataset.RecordError{Reason: fmt.Sprintf("has %d tokens, and no room was kept for them; the file has changed while it was read", l)}
	}
	a.seqs[row]++
	a.packer.places = append(a.packer.places[:n], place{row: row, start: a.used[row], seq: a.seqs[row]})
	a.used[row] += l
	return nil
}

// packFixed puts the examples that were added without places into the fixed rows.
func (a *assembler) packFixed() string {
	c := a.cfg
	rows, _ := a.packer.pack(c.Packing, a.lengths, c.RowLength, true)
	if most := c.Rows * c.RowExamples; rows > c.Rows || len(a.lengths) > most {
		return fmt.Sprintf("a batch of %d examples needs %d rows; expected at most %d rows and %d examples", len(a.lengths), rows, c.Rows, most)
	}
	if a.extras != nil && a.extras.masks != nil {
		if reason := a.extras.masks.checkPlaces(c); reason != "" {
			return reason
		}
	}
	a.bucket = len(c.Buckets)
	return ""
}

// divideFixed makes n micro-batches of the same shape of a batch with fixed rows. Row i is in
// micro-batch i modulo n, so that the last batch of an epoch is spread as well.
func (c Config) divideFixed(b *dataset.Batch, n int) ([]*dataset.Batch, error) {
	examples, err := spans(b)
	if err != nil {
		return nil, err
	}
	shape := c.Shape(n)
	part := c
	part.Rows = shape.Rows
	a := newAssembler(&part, new(pool))
	out := make([]*dataset.Batch, n)
	from, err := a.source(b, examples)
	if err != nil {
		return nil, err
	}
	numbers := rowNumbers(examples, b.RowLength)
	for m := range out {
		a.Reset()
		a.packer.places = a.packer.places[:0]
		for e, s := range examples {
			row := s.from / b.RowLength
			if row%n != m {
				continue
			}
			a.copy(from, e)
			a.packer.places = append(a.packer.places, place{row: int32(row / n), start: int32(s.from % b.RowLength), seq: numbers[e]})
		}
		out[m] = a.lay(shape.Rows, b.RowLength, shape.Examples)
		out[m].PartOf(b)
	}
	return out, nil
}

// rowNumbers returns the number of each example among those of its row, from 1.
func rowNumbers(examples []span, length int) []int32 {
	order := make([]int, len(examples))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return examples[i].from - examples[j].from })
	numbers := make([]int32, len(examples))
	row, number := -1, int32(0)
	for _, e := range order {
		if own := examples[e].from / length; own != row {
			row, number = own, 0
		}
		number++
		numbers[e] = number
	}
	return numbers
}
