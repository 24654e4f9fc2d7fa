package params

import (
	"math"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/dataset"
)

// stage is a size from a step on.
type stage struct {
	step int64
	size int
}

// stages returns the sizes of a param that grow with the steps, from the first step on. "" has none.
func stages(param, text string) (out []stage, err error) {
	if text == "" {
		return nil, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		at, of, _ := strings.Cut(word, ":")
		step, err := strconv.ParseInt(strings.TrimSpace(at), 10, 64)
		size, bad := strconv.Atoi(strings.TrimSpace(of))
		n := len(out)
		switch {
		case err != nil || bad != nil || step < 0 || size < 1 || step > math.MaxInt32:
			return nil, Errorf(param, "has %q; expected STEP:SIZE, such as 1000:64", word)
		case n == 0 && step != 0:
			return nil, Errorf(param, "begins with %q; expected the size of the first step, such as 0:8", word)
		case n > 0 && (step <= out[n-1].step || size <= out[n-1].size):
			return nil, Errorf(param, "has %q after %d:%d; expected a later step and a larger size", word, out[n-1].step, out[n-1].size)
		}
		out = append(out, stage{step, size})
	}
	return out, nil
}

// growth returns the batch sizes of train.batch_warmup, by the records that the steps before take.
func (t Train) growth() (out dataset.Growth, err error) {
	all, err := stages("train.batch_warmup", t.BatchWarmup)
	for i, s := range all {
		next := dataset.Stage{Size: s.size}
		if i > 0 {
			next.Records = out[i-1].Records + (s.step-all[i-1].step)*int64(all[i-1].size)
		}
		out = append(out, next)
	}
	if n := len(all); n > 0 && all[n-1].size != t.BatchSize {
		return nil, Errorf("train.batch_warmup", "ends with size %d and train.batch_size is %d; expected the sizes to grow to train.batch_size", all[n-1].size, t.BatchSize).And("train.batch_size")
	}
	return out, err
}

// RowLengths returns the length of the rows of a step, counted from 0, by train.length_warmup; nil without
// it. It is valid once CheckLengths is.
func (p Params) RowLengths() func(step int64) int {
	all, err := stages("train.length_warmup", p.Train.LengthWarmup)
	if err != nil || len(all) == 0 {
		return nil
	}
	return func(step int64) int {
		length := all[0].size
		for _, s := range all[1:] {
			if s.step <= step {
				length = s.size
			}
		}
		return length
	}
}

// CheckLengths checks train.length_warmup for rows of data.row_length tokens, which is known by then.
func (p Params) CheckLengths() error {
	all, err := stages("train.length_warmup", p.Train.LengthWarmup)
	if err != nil || len(all) == 0 {
		return err
	}
	row := p.Data.RowLength
	for _, s := range all {
		if row%s.size != 0 {
			return Errorf("train.length_warmup", "has the length %d and rows have %d tokens; expected lengths that divide data.row_length", s.size, row).And("data.row_length")
		}
	}
	if last := all[len(all)-1].size; last != row {
		return Errorf("train.length_warmup", "ends with length %d and data.row_length is %d; expected the lengths to grow to data.row_length", last, row).And("data.row_length")
	}
	return nil
}
