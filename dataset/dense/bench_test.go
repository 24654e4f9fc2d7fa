package dense_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/dataset"
	. "github.com/gorbit-ml/gorbit/dataset/dense"
	"github.com/gorbit-ml/gorbit/internal/data/pixels"
	_ "github.com/gorbit-ml/gorbit/internal/exec/tfjpeg" // the decoder of runs
	"github.com/gorbit-ml/gorbit/internal/testkit/records"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

var benchmarkRecords = flag.String("records", "", "folder with KIND.tfrecord that BenchmarkNext reads instead of its own")

// benchmarkKind is a kind of records and how batches are made of them. bench/peers/dense.py writes and
// reads the same.
type benchmarkKind struct {
	name     string
	features []dataset.Spec
	record   func(r *rand.Rand) []tfrecord.Feature
}

func benchmarkKinds() []benchmarkKind {
	weights := dataset.Spec{Name: "example_weights", DType: dataset.Float32, Role: dataset.Weight}
	label := dataset.Spec{Name: "label", DType: dataset.Int32, Role: dataset.Label, Below: number(10)}
	images := func(name string, height, width, channels int, encode func([]byte) []byte) benchmarkKind {
		return benchmarkKind{name, []dataset.Spec{{Name: "image", DType: dataset.Uint8, Shape: []int{height, width, channels}, JPEG: pixels.TensorFlow}, label, weights}, func(r *rand.Rand) []tfrecord.Feature {
			pixels := make([]byte, height*width*channels)
			for i := range pixels {
				pixels[i] = byte(i/7 + r.IntN(16))
			}
			return []tfrecord.Feature{tfrecord.BytesFeature("image", encode(pixels)), tfrecord.Int64Feature("label", int64(r.IntN(10)))}
		}}
	}
	picture := func(pixels []byte, width, channels int) image.Image {
		img := image.NewRGBA(image.Rect(0, 0, width, len(pixels)/width/channels))
		for i := range len(pixels) / channels {
			p := pixels[i*channels:]
			img.SetRGBA(i%width, i/width, color.RGBA{p[0], p[channels/2], p[channels-1], 255})
		}
		return img
	}
	raw := func(b []byte) []byte { return b }
	return []benchmarkKind{
		images("digits", 28, 28, 1, raw),
		images("photos", 224, 224, 3, raw),
		images("png", 28, 28, 1, func(b []byte) []byte {
			gray := &image.Gray{Pix: b, Stride: 28, Rect: image.Rect(0, 0, 28, 28)}
			var out bytes.Buffer
			_ = png.Encode(&out, gray)
			return out.Bytes()
		}),
		images("jpeg", 224, 224, 3, func(b []byte) []byte {
			var out bytes.Buffer
			_ = jpeg.Encode(&out, picture(b, 224, 3), nil)
			return out.Bytes()
		}),
		{"table", []dataset.Spec{{Name: "x", DType: dataset.Float32, Shape: []int{30}}, label, weights}, func(r *rand.Rand) []tfrecord.Feature {
			x := make([]float32, 30)
			for i := range x {
				x[i] = r.Float32()
			}
			return []tfrecord.Feature{tfrecord.FloatFeature("x", x...), tfrecord.Int64Feature("label", int64(r.IntN(10)))}
		}},
		{"tokens", []dataset.Spec{{Name: "ids", DType: dataset.Int32, Shape: []int{-1}, Below: number(30522)}, {Name: "mask", DType: dataset.Int32, Shape: []int{-1}, Make: MakeMask}, label, weights},
			func(r *rand.Rand) []tfrecord.Feature {
				ids := make([]int64, 16+r.IntN(75))
				for i := range ids {
					ids[i] = int64(r.IntN(30522))
				}
				return []tfrecord.Feature{tfrecord.Int64Feature("ids", ids...), tfrecord.Int64Feature("label", int64(r.IntN(10)))}
			}},
	}
}

// BenchmarkNext takes the whole path from a file to batches.
func BenchmarkNext(b *testing.B) {
	for _, kind := range benchmarkKinds() {
		b.Run(kind.name, func(b *testing.B) {
			path := filepath.Join(*benchmarkRecords, kind.name+".tfrecord")
			if *benchmarkRecords == "" {
				path = filepath.Join(b.TempDir(), kind.name+".tfrecord")
				r := rand.New(rand.NewPCG(1, 2))
				records.WriteFile(b, path, 256, func(int) []byte { return record(b, kind.record(r), false) })
			}
			for _, readers := range []int{1, 2} {
				b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) { benchmarkNext(b, path, kind.features, readers) })
			}
		})
	}
}

func benchmarkNext(b *testing.B, path string, features []dataset.Spec, readers int) {
	d, err := dataset.Open(context.Background(), dataset.Config{Files: []string{path}, BatchSize: 32, Readers: readers, Layout: Config{Features: features}})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	for range 20 { // what is made ahead at the start is not counted, as that at the end is not
		if _, err := d.Next(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	n, size := 0, 0
	used := processorTime(b)
	b.ReportAllocs()
	for b.Loop() {
		batch, err := d.Next(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		n += batch.Examples
		for i := range batch.Features {
			size += len(batch.Features[i].Raw())
		}
		batch.Release()
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "examples/s")
	b.ReportMetric(float64(size)/b.Elapsed().Seconds()/1e6, "MB/s")
	b.ReportMetric(float64((processorTime(b)-used).Nanoseconds())/float64(n), "cpu-ns/example")
}

// processorTime returns what the process has used of all processors.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
