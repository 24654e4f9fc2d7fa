package tfrecord

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"

	examplepb "github.com/wamuir/graft/tensorflow/core/example/example_protos_go_proto"
	"google.golang.org/protobuf/proto"
)

// benchStream holds 4,096 fixed-length BERT records of length 128.
func benchStream(b *testing.B, c Compression) ([]byte, int) {
	records := make([][]byte, 4096)
	for i := range records {
		records[i] = bertRecord(b, 128)
	}
	data, _ := stream(b, c, records...)
	return data, len(records)
}

func BenchmarkReadDecode(b *testing.B) {
	for _, c := range []Compression{None, Gzip} {
		b.Run(c.String(), func(b *testing.B) {
			data, n := benchStream(b, c)
			d := NewDecoder("input_ids", "input_mask", "segment_ids", "label_ids")
			var v Values
			for b.Loop() {
				rd, err := NewReader(bytes.NewReader(data), "bench")
				if err != nil {
					b.Fatal(err)
				}
				for {
					record, err := rd.Next()
					if err == io.EOF {
						break
					}
					if err != nil {
						b.Fatal(err)
					}
					if err := d.Decode(record, &v); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/record")
		})
	}
}

func BenchmarkRead(b *testing.B) {
	data, n := benchStream(b, None)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		rd, err := NewReader(bytes.NewReader(data), "bench")
		if err != nil {
			b.Fatal(err)
		}
		for err == nil {
			_, err = rd.Next()
		}
		if err != io.EOF || rd.Records() != int64(n) {
			b.Fatal(rd.Records(), err)
		}
	}
}

func BenchmarkRecord(b *testing.B) {
	data, n := benchStream(b, None)
	x, err := OpenIndexed(writeFile(b, "x.tfrecord", data))
	if err != nil {
		b.Fatal(err)
	}
	defer x.Close()
	var buf []byte
	r := rand.New(rand.NewPCG(1, 2))
	for b.Loop() {
		if buf, err = x.Record(r.IntN(n), buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	record := bertRecord(b, 128)
	d := NewDecoder("input_ids", "input_mask", "segment_ids", "label_ids")
	var v Values
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Decode(record, &v); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDecodeProtobuf is the protobuf library on the same record.
func BenchmarkDecodeProtobuf(b *testing.B) {
	record := bertRecord(b, 128)
	var pb examplepb.Example
	b.ReportAllocs()
	for b.Loop() {
		if err := proto.Unmarshal(record, &pb); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendExample(b *testing.B) {
	features, err := ParseExample(bertRecord(b, 128))
	if err != nil {
		b.Fatal(err)
	}
	var record []byte
	b.ReportAllocs()
	for b.Loop() {
		if record, err = AppendExample(record[:0], features...); err != nil {
			b.Fatal(err)
		}
	}
}
