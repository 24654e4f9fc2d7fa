package convert

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/gorbit-ml/gorbit/tfrecord"
)

// TestSides holds the records of sources and targets against what package tfrecord writes.
func TestSides(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var r recorder
	for number := range int64(50) {
		var ids [2][]int32
		var wide [2][]int64
		for side := range ids {
			for range 1 + random.IntN(300) {
				id := random.Int32N(1 << (1 + random.IntN(23)))
				ids[side], wide[side] = append(ids[side], id), append(wide[side], int64(id))
			}
		}
		want, err := tfrecord.AppendExample(nil, tfrecord.Int64Feature(ExampleID, number), tfrecord.Int64Feature(InputIDs, wide[0]...), tfrecord.Int64Feature(TargetIDs, wide[1]...))
		if err != nil {
			t.Fatal(err)
		}
		if got := r.sides(number, ids[0], ids[1]); !bytes.Equal(got, want) {
			t.Fatalf("record %d differs", number)
		}
	}
}
