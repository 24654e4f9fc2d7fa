package dense

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/internal/buckets"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

var _ dataset.FittedLayout = Config{}

const (
	// maxBuckets is the most lengths of batches. On a TPU each has programs of its own.
	maxBuckets = 64
	// maxWaiting is the most records that may wait for a batch of their length. A position names them.
	maxWaiting = 1 << 16
)

// Lengths returns the lengths of batches on the open axis, ascending: Buckets and MaxLength.
func (c Config) Lengths() []int {
	return append(c.Buckets[:len(c.Buckets):len(c.Buckets)], c.MaxLength)
}

// validateBuckets checks the buckets, for batches of so many examples. open says whether a feature with
// an open axis is read.
func (c Config) validateBuckets(examples int, open bool) error {
	if len(c.Buckets) > 0 && c.MaxLength == 0 {
		return fmt.Errorf("the maximum length of an example is not set; expected one, because there are buckets of lengths %v", c.Buckets)
	}
	before := 0
	for _, length := range c.Buckets {
		if length <= before || length >= c.MaxLength {
			return fmt.Errorf("buckets of lengths are %v; expected ascending numbers of 1 to %d, below the maximum length of an example", c.Buckets, c.MaxLength-1)
		}
		before = length
	}
	switch {
	case len(c.Buckets) == 0:
	case !open:
		return fmt.Errorf("there are buckets of lengths %v, but no feature with an open axis is read from records; expected one", c.Buckets)
	case c.MaxLength > math.MaxUint16:
		return fmt.Errorf("maximum length of an example is %d; expected at most %d with buckets", c.MaxLength, math.MaxUint16)
	case len(c.Buckets) >= maxBuckets:
		return fmt.Errorf("there are %d buckets of lengths; expected at most %d", len(c.Buckets), maxBuckets-1)
	case (len(c.Buckets)+1)*examples > maxWaiting:
		return fmt.Errorf("%d buckets for batches of %d examples are too many; expected at most %d examples in all", len(c.Buckets)+1, examples, maxWaiting)
	}
	return nil
}

// Fit implements dataset.FittedLayout. The room of a record is its length, and its place the bucket of
// its batch.
func (c Config) Fit(examples int) *dataset.Fit {
	if len(c.Buckets) == 0 {
		return nil
	}
	p := newPlan(c)
	at := p.measured()
	key, err := json.Marshal([]any{p.fields[at].Names, p.specs[at].Shape})
	if err != nil {
		panic(err) // strings and numbers can always be written
	}
	lengths := p.cfg.Lengths()
	return &dataset.Fit{
		Key: string(key),
		Measurers: func() dataset.Measurer {
			a := newAssembler(p)
			a.decoder = tfrecord.NewSequenceDecoder(p.names...)
			return func(data []byte) (int, error) { return a.measure(at, data) }
		},
		Room: func(size int) int32 {
			if size > c.MaxLength && !c.Truncate {
				return 0 // an error once it is read
			}
			return int32(min(size, c.MaxLength))
		},
		Fillers: func() dataset.Filler { return &filler{lengths: lengths, most: examples} },
		Cells: func(places []int32) int64 {
			bucket := len(c.Buckets) // also without a place
			for _, place := range places {
				if place >= 0 {
					bucket = int(place)
					break
				}
			}
			return int64(examples) * int64(lengths[bucket])
		},
	}
}

// measured is the feature that the length of an example is taken from.
func (p *plan) measured() int {
	for j, s := range p.specs {
		if s.Make == "" && s.Open() >= 0 {
			return j
		}
	}
	panic("no feature has an open axis") // Validate
}

// measure returns the length of the feature j of a record, or 0 if the record is not as expected. It
// implements dataset.Measurer.
func (a *assembler) measure(j int, data []byte) (int, error) {
	if err := a.decoder.Decode(data, &a.values); err != nil {
		return 0, err
	}
	_, v, list, reason := a.fields[j].Find(&a.values)
	if reason != "" || v == nil {
		return 0, nil
	}
	length, reason := a.columns[j].Add(v, list)
	a.columns[j].Keep(0)
	if reason != "" {
		return 0, nil
	}
	return min(length, math.MaxUint16), nil
}

// filler makes batches of examples of similar lengths. It implements dataset.Filler.
type filler struct {
	lengths buckets.Lengths // of batches, ascending
	most    int             // examples of a batch
}

// Sees implements dataset.Filler. Among so many records, there are always enough for a batch of some
// bucket.
func (f *filler) Sees() int { return len(f.lengths)*(f.most-1) + 1 }

// Fill implements dataset.Filler. A batch is made of the first bucket for which enough examples wait.
// At the end of an epoch there is none: then one of the longest examples, which shorter ones fill up.
func (f *filler) Fill(lengths, places []int32) (full bool) {
	bucket, left := f.lengths.Next(lengths, f.most), f.most
	for i := range places {
		places[i] = -1
		if left > 0 && f.lengths.Of(lengths[i]) == bucket {
			places[i] = int32(bucket)
			left--
		}
	}
	for i := range places {
		if left > 0 && places[i] < 0 && f.lengths.Of(lengths[i]) < bucket {
			places[i] = int32(bucket)
			left--
		}
	}
	return left == 0
}

// AddAt implements dataset.PlacedAssembler.
func (a *assembler) AddAt(place int32, id dataset.RecordID, data []byte) *dataset.RecordError {
	n, labeled, truncated, longest := len(a.records), a.labeled, a.truncated, a.longest
	if err := a.Add(id, data); err != nil {
		return err
	}
	if n == 0 && place >= 0 {
		a.bucket = int(place)
	}
	if l, all := a.lengths[n], a.cfg.Lengths(); place < 0 || int(place) != a.bucket || a.bucket >= len(all) || l > all[a.bucket] {
		for _, c := range a.columns {
			c.Keep(n)
		}
		a.lengths, a.records, a.labeled, a.truncated, a.longest = a.lengths[:n], a.records[:n], labeled, truncated, longest
		return &dataset.RecordError{Reason: fmt.Sprintf("has length %d, and no room was kept for it; the file has changed while it was read", l)}
	}
	return nil
}
