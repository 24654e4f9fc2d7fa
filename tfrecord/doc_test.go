package tfrecord_test

import (
	"bytes"
	"fmt"
	"io"
	"log"

	"github.com/gorbit-ml/gorbit/tfrecord"
)

// A file of two Examples is written and read back.
func Example() {
	var file bytes.Buffer
	w := tfrecord.NewWriter(&file, tfrecord.Compress(tfrecord.Gzip))
	for i, text := range []string{"good", "bad"} {
		record, err := tfrecord.AppendExample(nil,
			tfrecord.BytesFeature("text", []byte(text)),
			tfrecord.Int64Feature("label", int64(i)))
		if err != nil {
			log.Fatal(err)
		}
		if err := w.Write(record); err != nil {
			log.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}

	r, err := tfrecord.NewReader(&file, "memory")
	if err != nil {
		log.Fatal(err)
	}
	decoder := tfrecord.NewDecoder("text", "label")
	var values tfrecord.Values
	for {
		record, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		if err := decoder.Decode(record, &values); err != nil {
			log.Fatal(err)
		}
		text, err := values.Bytes(0)
		if err != nil {
			log.Fatal(err)
		}
		_, err = values.Floats(1)
		fmt.Printf("%s, %v, %v\n", text[0], values.At(1).Int64s, err)
	}
	// Output:
	// good, [0], feature "label" has int64 values; expected float
	// bad, [1], feature "label" has int64 values; expected float
}
