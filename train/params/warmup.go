package params

import (
	"math"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/dataset"
)

// growth returns the batch sizes of train.batch_warmup, by the records that the steps before take.
func (t Train) growth() (dataset.Growth, error) {
	if t.BatchWarmup == "" {
		return nil, nil
	}
	var out dataset.Growth
	before := int64(0) // the step of the stage before
	for word := range strings.SplitSeq(t.BatchWarmup, ",") {
		word = strings.TrimSpace(word)
		at, of, _ := strings.Cut(word, ":")
		step, err := strconv.ParseInt(strings.TrimSpace(at), 10, 64)
		size, bad := strconv.Atoi(strings.TrimSpace(of))
		n := len(out)
		switch {
		case err != nil || bad != nil || step < 0 || size < 1 || step > math.MaxInt32:
			return nil, Errorf("train.batch_warmup", "has %q; expected STEP:SIZE, such as 1000:64", word)
		case n == 0 && step != 0:
			return nil, Errorf("train.batch_warmup", "begins with %q; expected the size of the first step, such as 0:8", word)
		case n == 0:
			out = append(out, dataset.Stage{Size: size})
		case step <= before || size <= out[n-1].Size:
			return nil, Errorf("train.batch_warmup", "has %q after %d:%d; expected a later step and a larger size", word, before, out[n-1].Size)
		default:
			out = append(out, dataset.Stage{Records: out[n-1].Records + (step-before)*int64(out[n-1].Size), Size: size})
		}
		before = step
	}
	if last := out[len(out)-1].Size; last != t.BatchSize {
		return nil, Errorf("train.batch_warmup", "ends with size %d and train.batch_size is %d; expected the sizes to grow to train.batch_size", last, t.BatchSize).And("train.batch_size")
	}
	return out, nil
}
