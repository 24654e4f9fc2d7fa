package table

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/tfrecord"
)

// TestRecords reads the features of tf.train.Examples as columns.
func TestRecords(t *testing.T) {
	records := [][]tfrecord.Feature{
		{tfrecord.Int64Feature("label", 3), tfrecord.FloatFeature("x", 0.1, -2), tfrecord.BytesFeature("text", []byte("gr\u00fcn")), tfrecord.BytesFeature("image", []byte("\xff\xd8"))},
		{tfrecord.Int64Feature("label", 4), tfrecord.FloatFeature("x"), tfrecord.BytesFeature("text", []byte("\xff"))},
		{tfrecord.FloatFeature("x", 1), tfrecord.BytesFeature("text", []byte("a"))},
	}
	var file bytes.Buffer
	w := tfrecord.NewWriter(&file)
	for _, features := range records {
		data, err := tfrecord.AppendExample(nil, features...)
		if err == nil {
			err = w.Write(data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	table, err := New(&file, "x.tfrecord", Config{Format: FormatOf("x.tfrecord")})
	if err == nil {
		err = table.Select(Column{Name: "label"}, Column{Name: "x", Lists: true}, Column{Name: "text", Words: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	cutter := table.NewCutter()
	for _, want := range []string{
		"3 [0.1,-2] gr\u00fcn",
		`x.tfrecord:2: feature "text" has bytes that are no text, as those of an image`,
		`x.tfrecord:3: has no "label"; its members are`,
	} {
		var got []string
		text, line, _, err := table.Next()
		if err == nil {
			var fields []Field
			fields, err = cutter.Cut(string(text), line)
			for _, f := range fields {
				got = append(got, f.Text)
			}
		}
		if err != nil {
			got = append(got, err.Error())
		}
		if !strings.HasPrefix(strings.Join(got, " "), want) {
			t.Errorf("got %q; expected %q", got, want)
		}
	}
	if _, _, _, err := table.Next(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}
