package tfjpeg_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/dense"
	_ "github.com/gorbit-ml/gorbit/internal/exec/tfjpeg"
	"github.com/gorbit-ml/gorbit/internal/testkit/records"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// photo returns the file of an image of testdata/generate.py and its pixels in TensorFlow.
func photo(t *testing.T) (file, pixels []byte, shape []int) {
	t.Helper()
	text, err := os.ReadFile("testdata/images.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Name         string
		File, Pixels []byte
		Shape        []int
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, g := range all {
		if g.Name == "4:2:0" {
			return g.File, g.Pixels, g.Shape
		}
	}
	t.Fatal("the image is missing")
	return nil, nil, nil
}

// example returns a record of an image.
func example(t *testing.T, file []byte) []byte {
	t.Helper()
	b, err := tfrecord.AppendExample(nil, tfrecord.BytesFeature("x", file))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// read returns the first batch of images of a file of records.
func read(t *testing.T, path, jpeg string, shape []int) ([]byte, error) {
	t.Helper()
	layout := dense.Config{Labels: dataset.LabelsNone, Features: []dataset.Spec{{Name: "x", DType: dataset.Uint8, Shape: shape, JPEG: jpeg}}}
	d, err := dataset.Open(t.Context(), dataset.Config{Files: []string{path}, BatchSize: 2, Shuffle: dataset.ShuffleNone, Layout: layout})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	batch, err := d.Next(t.Context())
	if err != nil {
		return nil, err
	}
	return slices.Clone(batch.Features[0].Uint8), nil
}

// TestPaths makes the pixels of an image in every way that there is: read from records, converted, and
// asked for as a converted row.
func TestPaths(t *testing.T) {
	file, want, shape := photo(t)
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "of-others.tfrecord")
	records.WriteFile(t, path, 1, func(int) []byte { return example(t, file) })
	got, err := read(t, path, "tensorflow", shape)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("read from records: %v, equal %v", err, slices.Equal(got, want))
	}
	other, err := read(t, path, "", shape)
	if err != nil || slices.Equal(other, want) {
		t.Errorf("a run that does not name its decoder has the pixels of Go's library: %v", err)
	}

	write("photo.jpg", string(file))
	write("train.csv", "x\nphoto.jpg\n")
	for _, tt := range []struct {
		keys, jpeg string
		want       []byte
	}{{"", "tensorflow", want}, {", jpeg: tensorflow", "tensorflow", want}, {", jpeg: go", "go", other}} {
		for _, encoding := range []string{"raw", "file"} {
			write("schema.yaml", "features: {x: {kind: image, shape: [35, 43, 3], encoding: "+encoding+tt.keys+"}}")
			out := filepath.Join(t.TempDir(), "out")
			m, err := convert.Run(t.Context(), convert.Config{Schema: filepath.Join(dir, "schema.yaml"), Inputs: []convert.Input{{Split: convert.Train, Path: filepath.Join(dir, "train.csv")}}, Out: out},
				slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			f := m.Feature("x")
			if f.JPEG != tt.jpeg {
				t.Errorf("%q: the manifest says %q, expected %q", tt.keys, f.JPEG, tt.jpeg)
			}
			if got, err := read(t, filepath.Join(out, m.Splits["train"].Files[0].Name), tt.jpeg, shape); err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("%q: converted to %s: %v, equal %v", tt.keys, encoding, err, slices.Equal(got, tt.want))
			}
			rows, err := convert.NewRowRecords([]convert.Feature{*f}, dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			record, err := rows.Record([]convert.Cell{{Text: "photo.jpg", OK: true}})
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "row.tfrecord")
			records.WriteFile(t, path, 1, func(int) []byte { return record })
			if got, err := read(t, path, tt.jpeg, shape); err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("%q: a row of %s: %v, equal %v", tt.keys, encoding, err, slices.Equal(got, tt.want))
			}
		}
	}
}

// TestDamagedRecord holds that the error of an image names its file and record.
func TestDamagedRecord(t *testing.T) {
	file, _, shape := photo(t)
	path := filepath.Join(t.TempDir(), "cut.tfrecord")
	records.WriteFile(t, path, 2, func(i int) []byte {
		return example(t, file[:len(file)-i*300])
	})
	_, err := read(t, path, "tensorflow", shape)
	want := `feature "x" is a JPEG image that cannot be decoded: `
	if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "cut.tfrecord") || !strings.Contains(err.Error(), "record 1") {
		t.Errorf("%v, expected %s, in cut.tfrecord, record 1", err, want)
	}
}
