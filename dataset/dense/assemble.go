package dense

import (
	"fmt"
	"slices"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/internal/columns"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// assembler collects the examples of one batch. It is reused from batch to batch.
type assembler struct {
	*plan
	decoder *tfrecord.Decoder // nil in one that is given no records
	values  tfrecord.Values
	columns []columns.Column // one for each of the plan's specs
	absent  []int            // the features that a record does not have

	lengths            []int // of the examples, on the open axis
	longest            int   // of them
	bucket             int   // of the batch, with Buckets
	records            []dataset.RecordID
	labeled, truncated int
	lent               bool // the memory of the columns is that of the last batch
}

func newAssembler(p *plan) *assembler {
	a := &assembler{plan: p, lent: true}
	for _, s := range p.specs {
		a.columns = append(a.columns, columns.New(s))
	}
	a.Reset()
	return a
}

// Reset implements dataset.Assembler.
func (a *assembler) Reset() {
	var memory []dataset.Feature
	if a.lent {
		memory, a.lent = a.pool.Take(), false
	}
	for j, c := range a.columns {
		if memory == nil {
			c.Begin(nil)
		} else {
			c.Begin(&memory[j])
		}
	}
	a.lengths, a.records = a.lengths[:0], a.records[:0]
	a.labeled, a.truncated, a.longest, a.bucket = 0, 0, 0, len(a.cfg.Buckets)
}

// Add implements dataset.Assembler.
func (a *assembler) Add(id dataset.RecordID, data []byte) *dataset.RecordError {
	if err := a.decoder.Decode(data, &a.values); err != nil {
		return &dataset.RecordError{Reason: "is " + err.Error(), Err: err}
	}
	n := len(a.records)
	length, feature, reason := a.read(data)
	if reason == "" {
		length, feature, reason = a.limit(length)
	}
	if reason != "" {
		for _, c := range a.columns {
			c.Keep(min(n, c.Len()))
		}
		return &dataset.RecordError{Feature: feature, Reason: reason}
	}
	labeled := true
	for _, j := range a.absent {
		x := a.specs[j].Pad
		if a.specs[j].Role == dataset.Weight {
			x = 1
		} else {
			labeled = false
		}
		a.columns[j].Fill(length, x)
	}
	if labeled {
		a.labeled++
	}
	a.fillMade(length, length)
	a.lengths, a.records = append(a.lengths, length), append(a.records, id)
	a.longest = max(a.longest, length)
	return nil
}

// read adds the values of a record to the columns. It returns the example's length on the open axis, or
// the feature that is not as expected and what is wrong with it.
func (a *assembler) read(data []byte) (length int, feature, reason string) {
	length, first := -1, ""
	a.absent = a.absent[:0]
	for j, s := range a.specs {
		if s.Make != "" {
			continue
		}
		name, v, list, reason := a.fields[j].Find(&a.values)
		switch {
		case reason != "":
			return 0, name, reason
		case v == nil && (s.Role == dataset.Weight || s.Role == dataset.Label && a.cfg.Labels == dataset.LabelsOptional):
			a.absent = append(a.absent, j)
			continue
		case v == nil:
			return 0, name, columns.Missing(a.fields[j].Names, data)
		}
		own, reason := a.columns[j].Add(v, list)
		if reason == "" && s.Role == dataset.Weight {
			reason = columns.CheckWeights(v)
		}
		switch {
		case reason != "":
			return 0, name, reason
		case s.Open() < 0:
		case own == 0:
			return 0, name, "has no values; expected at least one"
		case length < 0:
			length, first = own, name
		case own != length:
			return 0, name, fmt.Sprintf("has length %d; expected %d, as feature %q has", own, length, first)
		}
	}
	return max(length, 1), first, ""
}

// limit shortens the example that was read to the maximum length.
func (a *assembler) limit(length int) (int, string, string) {
	most := a.cfg.MaxLength
	if !a.open || most == 0 || length <= most {
		return a.fits(length)
	}
	for j, s := range a.specs {
		switch {
		case s.Make != "" || s.Open() < 0 || slices.Contains(a.absent, j):
		case !a.cfg.Truncate:
			return 0, a.fields[j].Names[0], fmt.Sprintf("has length %d, more than the limit of %d", length, most)
		default:
			a.columns[j].Head(most)
		}
	}
	a.truncated++
	return a.fits(most)
}

// maxBatchBytes, 4 GiB, is the most memory of a feature that is padded. Without a maximum length, one long
// example among many would take any amount.
const maxBatchBytes = 1 << 32

// fits refuses an example whose length would make the batch too large.
func (a *assembler) fits(length int) (int, string, string) {
	if !a.open {
		return length, "", ""
	}
	longest := max(a.longest, length)
	for j, s := range a.specs {
		if s.Open() < 0 {
			continue
		}
		bytes := float64(s.DType.Size()) * float64(len(a.lengths)+1) * float64(longest)
		for _, d := range s.Shape {
			bytes *= float64(max(d, 1))
		}
		if bytes > maxBatchBytes && s.Make == "" {
			return 0, a.fields[j].Names[0], fmt.Sprintf("has length %d, in a batch whose longest has %d: padded to that, %d examples take %.3g bytes; expected at most %.3g; set a maximum length", length, longest, len(a.lengths)+1, bytes, float64(maxBatchBytes))
		}
	}
	return length, "", ""
}

// fillMade adds an example to the columns that are made from lengths: of a length on the open axis,
// which says how many values it has.
func (a *assembler) fillMade(length, values int) {
	for j, s := range a.specs {
		switch s.Make {
		case MakeMask:
			a.columns[j].Fill(length, float64(min(values, 1)))
		case MakeLength:
			a.columns[j].Fill(1, float64(values))
		}
	}
}

// addEmpty adds an example of weight 0.
func (a *assembler) addEmpty() {
	for j, s := range a.specs {
		switch {
		case s.Make != "":
		case s.Role == dataset.Weight:
			a.columns[j].Fill(1, 0)
		default:
			a.columns[j].Fill(1, s.Pad)
		}
	}
	a.fillMade(1, 1)
	a.lengths = append(a.lengths, 1)
}

// Batch implements dataset.Assembler.
func (a *assembler) Batch() *dataset.Batch {
	return a.lay(a.cfg.Examples)
}

// lay returns a batch of the examples, and of examples of weight 0 up to n, or one if there is none.
func (a *assembler) lay(n int) *dataset.Batch {
	examples, values, pairs := len(a.records), 0, int64(0)
	longest := 1
	for _, l := range a.lengths {
		longest = max(longest, l)
		values, pairs = values+l, pairs+int64(l)*int64(l)
	}
	if a.open && a.cfg.FixedLength {
		longest = a.cfg.Lengths()[a.bucket]
	}
	for len(a.lengths) < max(n, 1) {
		a.addEmpty()
	}
	b := &struct {
		dataset.Batch
		lease lease
	}{lease: lease{pool: &a.pool, lengths: slices.Clone(a.lengths[:examples]), bucket: a.bucket}}
	b.lease.memory = make([]dataset.Feature, len(a.columns))
	for j, c := range a.columns {
		if a.specs[j].Open() >= 0 {
			b.lease.memory[j] = c.Pad(len(a.lengths), longest)
		} else {
			b.lease.memory[j] = c.Stack(len(a.lengths), 0)
		}
	}
	a.lent = true
	b.Batch = dataset.Batch{
		Features:  slices.Clone(b.lease.memory),
		Examples:  examples,
		Labeled:   a.labeled,
		Truncated: a.truncated,
		Rows:      len(a.lengths),
		Records:   slices.Clone(a.records),
		Lease:     &b.lease,
	}
	if a.open {
		b.Tokens, b.Pairs, b.RowLength, b.Lengths = values, pairs, longest, b.lease.lengths
	}
	return &b.Batch
}

// lease is the memory of a batch's features.
type lease struct {
	pool    *columns.Pool
	memory  []dataset.Feature // nil once it was returned
	lengths []int             // of the examples, on the open axis
	bucket  int               // of the batch, with Buckets
}

// Release implements dataset.Lease.
func (l *lease) Release() {
	if l.memory != nil {
		l.pool.Put(l.memory)
		l.memory = nil
	}
}
