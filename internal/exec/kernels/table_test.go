package kernels_test

import (
	"fmt"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
)

// BenchmarkNextProducts measures products of some rows with a matrix and with a table of words.
func BenchmarkNextProducts(b *testing.B) {
	if err := kernels.Register(); err != nil {
		b.Fatal(err)
	}
	for _, sizes := range [][2]int64{{256, 1024}, {256, 8000}, {576, 49152}} {
		for _, rows := range []int64{1, 4, 16, 128} {
			for _, op := range []string{"GorbitNextProduct", "GorbitNextProductTransposed"} {
				shape := []int64{sizes[0], sizes[1]}
				if op != "GorbitNextProduct" {
					shape = []int64{sizes[1], sizes[0]}
				}
				b.Run(fmt.Sprintf("%s/%dx%dx%d", op, rows, sizes[0], sizes[1]), func(b *testing.B) {
					c := &calls{b: b, graph: tf.NewGraph()}
					c.call(op, c.full([]int64{rows, sizes[0]}, 1), c.noise(shape))
					c.run(b)
					b.ReportMetric(2*float64(rows*sizes[0]*sizes[1])*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
					b.ReportMetric(4*float64(sizes[0]*sizes[1])*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
				})
			}
		}
	}
}

// BenchmarkNextLayers measures products of some rows with many matrices, one after the other, as the layers of a
// model have them: the caches of the processor do not hold all.
func BenchmarkNextLayers(b *testing.B) {
	if err := kernels.Register(); err != nil {
		b.Fatal(err)
	}
	for _, model := range []struct {
		layers       int
		width, inner int64
	}{{8, 256, 1024}, {12, 576, 1536}} {
		for _, rows := range []int64{1, 2, 4, 8, 16} {
			b.Run(fmt.Sprintf("%dx%dx%d", rows, model.width, model.inner), func(b *testing.B) {
				c, numbers := &calls{b: b, graph: tf.NewGraph()}, int64(0)
				product := func(from, to int64) {
					c.call("GorbitNextProduct", c.full([]int64{rows, from}, 1), c.noise([]int64{from, to}))
					numbers += from * to
				}
				for range model.layers {
					product(model.width, model.inner)
					product(model.inner, model.width)
					for range 4 {
						product(model.width, model.width)
					}
				}
				c.run(b)
				b.ReportMetric(4*float64(numbers)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
			})
		}
	}
}
