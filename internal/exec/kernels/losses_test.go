package kernels_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
)

// TestTokenLosses checks rows that no model may have in a training: of equal logits, of numbers that
// are none, and without weight. All other rows are in the tests of package strategy.
func TestTokenLosses(t *testing.T) {
	if err := kernels.Register(); err != nil {
		t.Fatal(err)
	}
	defer kernels.Use("")
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, instructions := range []string{"avx512", "avx2", "neon", "generic"} {
		t.Run(instructions, func(t *testing.T) {
			if err := kernels.Use(instructions); err != nil {
				t.Skip(err)
			}
			for _, width := range []int64{1, 3, 16, 37} {
				equal, wild, large := make([]float32, width), make([]float32, width), make([]float32, width)
				for i := range wild {
					wild[i], large[i] = nan, 3e38
				}
				large[0] = -inf
				rows := slices.Concat(equal, equal, wild, wild, large)
				labels, weights := []int32{0, int32(width - 1), 0, 0, int32(width - 1)}, []float32{2, 2, 0, 1, 0}
				got, err := tokenLosses(t, rows, labels, weights)
				if err != nil {
					t.Fatal(err)
				}
				losses, right, slopes := flat(got[0]), flat(got[1]), flat(got[2])
				want := 2 * math.Log(float64(width))
				if math.Abs(float64(losses[0])-want) > 1e-5 || losses[1] != losses[0] || losses[2] != 0 || losses[3] == losses[3] || losses[4] != 0 {
					t.Errorf("width %d: losses %v; expected twice %v, 0, none and 0", width, losses, want)
				}
				// The first of the largest logits is the answer.
				if right[0] != 2 || width > 1 && right[1] != 0 || right[2] != 0 || right[4] != 0 {
					t.Errorf("width %d: weights of right answers %v", width, right)
				}
				for i, slope := range slopes {
					row := i / int(width)
					if none := slope != slope; none != (row == 3) || (row == 2 || row == 4) && slope != 0 {
						t.Errorf("width %d: the gradient of row %d is %v", width, row, slope)
					}
				}
			}
			for _, label := range []int32{-1, 5} {
				if _, err := tokenLosses(t, make([]float32, 5), []int32{label}, []float32{1}); err == nil || !strings.Contains(err.Error(), "a label is no row of the vocabulary") {
					t.Errorf("label %d of 5: %v", label, err)
				}
			}
		})
	}
}

func tokenLosses(t *testing.T, logits []float32, labels []int32, weights []float32) ([]*tf.Tensor, error) {
	t.Helper()
	c := &calls{b: t, graph: tf.NewGraph()}
	rows := int64(len(labels))
	in := []tf.Input{c.shaped(logits, rows, int64(len(logits))/rows), c.constant(labels), c.constant(weights), c.constant(float32(0.25))}
	op := c.add(tf.OpSpec{Type: "GorbitTokenLosses", Input: in})
	session := c.session()
	defer session.Close()
	return session.Run(nil, []tf.Output{op.Output(0), op.Output(1), op.Output(2)}, nil)
}
