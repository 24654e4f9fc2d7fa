package dataset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/gorbit-ml/gorbit/tfrecord"
)

// Sampling draws the records of an epoch with replacement, by their class. An epoch has as many draws as
// there are records: some records are drawn several times, others not at all.
//
// A record is drawn at each position independently of all others, by the seed, the epoch and the
// position alone. So a resume is exact, and the readers make no difference.
type Sampling struct {
	// Label are the names under which the class is looked up in records, the first one first: one
	// int64 from 0.
	Label []string
	// Of are the weights by class: the chance of a record is in proportion to that of its class. A
	// class beyond them has weight 1. nil means that every class is drawn equally often.
	Of []float64
}

const (
	// MaxClass is the greatest class of a record that Sampling knows.
	MaxClass = math.MaxUint16 - 3

	labelsSuffix = ".labels.index"
	fillsUp      = math.MaxUint16 - 1 // the measure of a record that only fills up a batch
	noClass      = math.MaxUint16     // that of one without a class
)

// String returns the sampling as a position has it.
func (s *Sampling) String() string {
	if s.Of == nil {
		return "balanced"
	}
	return "by class, " + spelled(s.Of)
}

// validate returns an error for the first field that makes no sense.
func (s *Sampling) validate(shuffle Shuffle) error {
	if len(s.Label) == 0 {
		return errors.New("sampling has no name of a label; expected that of the class in records")
	}
	if shuffle != ShuffleFull {
		return fmt.Errorf("records are sampled and the shuffle is %q; expected %q", shuffle, ShuffleFull)
	}
	for class, w := range s.Of {
		if !(w > 0 && w <= math.MaxFloat32) {
			return fmt.Errorf("sampling weight of class %d is %v; expected a finite number above 0", class, w)
		}
	}
	return nil
}

// measured says how the class of each record is found: the class plus 1, 0 for a damaged record.
func (s *Sampling) measured() measured {
	// Strings can always be written.
	key, _ := json.Marshal(s.Label)
	return measured{labelsSuffix, "labels", string(key), func() Measurer {
		decoder := tfrecord.NewDecoder(append(slices.Clone(s.Label), realExample)...)
		values := new(tfrecord.Values)
		return func(data []byte) (int, error) {
			if err := decoder.Decode(data, values); err != nil {
				return 0, err
			}
			if v := values.At(len(s.Label)); v.Kind == tfrecord.KindInt64 && len(v.Int64s) == 1 && v.Int64s[0] == 0 {
				return fillsUp, nil
			}
			for i := range s.Label {
				v := values.At(i)
				switch {
				case v.Kind == tfrecord.KindNone:
					continue
				case v.Kind == tfrecord.KindInt64 && len(v.Int64s) == 1 && v.Int64s[0] >= 0 && v.Int64s[0] <= MaxClass:
					return int(v.Int64s[0]) + 1, nil
				}
				break
			}
			return noClass, nil
		}
	}}
}

// realExample is the feature of records that is 0 in those that only fill up a batch.
const realExample = "is_real_example"

// sampler draws records by their class. It does not change, so that goroutines can share it.
type sampler struct {
	// records are the numbers of those that can be drawn, class after class. Class i of those that have
	// any begins at starts[i], and upTo[i] is the chance of it and those before it.
	records []uint32
	starts  []int
	upTo    []float64
}

// newSampler reads the classes of all records.
func newSampler(ctx context.Context, f *files, cfg Config) (*sampler, error) {
	if f.len() > math.MaxUint32 {
		return nil, fmt.Errorf("there are %d records; expected at most %d, because they are sampled", f.len(), uint32(math.MaxUint32))
	}
	classes, err := measure(ctx, f, cfg.Sampling.measured(), cfg.Logger)
	if err != nil {
		return nil, err
	}
	counts := make([]int, MaxClass+2)
	damaged := 0
	for n, c := range classes {
		switch {
		case c == noClass:
			id := f.find(int64(n))
			return nil, &RecordError{File: f.paths[id.File], Record: id.Record, Feature: cfg.Sampling.Label[0],
				Reason: fmt.Sprintf("is not one int64 of 0 to %d; expected the class of the record, because records are sampled by it", MaxClass)}
		case c == 0 && cfg.OnCorrupt != tfrecord.Skip:
			return nil, damageOf(f, cfg.Sampling.measured().measurers(), int64(n))
		case c == 0:
			damaged++
		case c != fillsUp:
			counts[c-1]++
		}
	}
	if damaged > 0 {
		cfg.Logger.Warn("damaged records are never drawn", "records", damaged)
	}
	s := gather(classes, counts, cfg.Sampling.Of)
	if len(s.records) == 0 {
		return nil, fmt.Errorf("%s: none of the %d records in %d file(s) can be drawn; expected at least one with a class", f.paths[0], f.len(), len(f.paths))
	}
	return s, nil
}

// damageOf returns the error of a damaged record.
func damageOf(f *files, m Measurer, n int64) error {
	id := f.find(n)
	data, err := f.sources[id.File].Record(int(id.Record), nil)
	if err == nil {
		_, err = m(data)
	}
	var framing *tfrecord.CorruptError
	if err == nil || errors.As(err, &framing) {
		return err
	}
	return &RecordError{File: f.paths[id.File], Record: id.Record, Reason: "is " + err.Error(), Err: err}
}

// gather returns the sampler of records with the given measures, of which counts[i] are of class i.
func gather(classes []uint16, counts []int, weights []float64) *sampler {
	s := new(sampler)
	next := make([]int, len(counts)) // where the next record of a class goes
	sum, total := 0.0, 0
	for class, n := range counts {
		next[class] = total
		if n == 0 {
			continue
		}
		w := 1.0
		switch {
		case weights == nil:
		case class < len(weights):
			w = weights[class] * float64(n)
		default:
			w = float64(n)
		}
		sum += w
		s.starts, s.upTo = append(s.starts, total), append(s.upTo, sum)
		total += n
	}
	for i := range s.upTo {
		s.upTo[i] /= sum
	}
	s.records = make([]uint32, total)
	for n, c := range classes {
		if c == 0 || c >= fillsUp {
			continue
		}
		s.records[next[c-1]] = uint32(n)
		next[c-1]++
	}
	return s
}

// at returns the record that is drawn at a position of an epoch.
func (s *sampler) at(seed uint64, epoch, position int64) int64 {
	r := NewRandom(seed, useSample, uint64(epoch), uint64(position))
	u := float64(r.next()>>11) / (1 << 53)
	class := min(sort.Search(len(s.upTo), func(i int) bool { return u < s.upTo[i] }), len(s.upTo)-1)
	end := len(s.records)
	if class+1 < len(s.starts) {
		end = s.starts[class+1]
	}
	start := s.starts[class]
	return int64(s.records[start+r.Below(end-start)])
}
