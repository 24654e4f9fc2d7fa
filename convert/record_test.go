package convert

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/gorbit-ml/gorbit/tfrecord"
)

// A recorder's Examples are those of tfrecord.AppendExample, whatever the size of their
// numbers and of the lengths in them.
func TestRecorder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var rec recorder
	numbers := []int64{0, 1, 127, 128, 16383, 16384, 1<<21 - 1, 1 << 21, 1 << 40, 1<<63 - 1}
	for range 3000 {
		n := 2 + rng.IntN(2<<rng.IntN(12))
		second := rng.IntN(n)
		number, label := numbers[rng.IntN(len(numbers))], min(numbers[rng.IntN(len(numbers))], 1<<31)-1
		ids, segments := make([]int32, n), make([]int64, n)
		for i := range ids {
			ids[i] = int32(rng.IntN(1 << rng.IntN(25)))
			if i >= n-second {
				segments[i] = 1
			}
		}
		wide := make([]int64, n)
		for i, id := range ids {
			wide[i] = int64(id)
		}
		features := []tfrecord.Feature{
			tfrecord.Int64Feature(ExampleID, number), tfrecord.Int64Feature(InputIDs, wide...),
			tfrecord.Int64Feature(SegmentIDs, segments...),
		}
		if label >= 0 {
			features = append(features, tfrecord.Int64Feature(LabelIDs, label))
		}
		want, err := tfrecord.AppendExample(nil, features...)
		if err != nil {
			t.Fatal(err)
		}
		var a answer
		if label >= 0 {
			a = answer{form: labelled, labels: []int32{int32(label)}}
		}
		if got := rec.example(number, ids, second, a); !bytes.Equal(got, want) {
			t.Fatalf("number %d, label %d, %d ids, %d of them of the second segment: got % x, want % x", number, label, n, second, got, want)
		}
	}
}
