package convert

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// goldenImages returns a conversion of the images that testdata/images.py has written, and where the records go.
func goldenImages(t *testing.T, inputs ...Input) Config {
	t.Helper()
	cfg := Config{Task: ImagesTask, Out: filepath.Join(t.TempDir(), "out")}
	for _, in := range inputs {
		cfg.Inputs = append(cfg.Inputs, Input{in.Split, filepath.Join("testdata", "images", in.Path)})
	}
	return cfg
}

// recordsOf returns the file of records of a split.
func recordsOf(t *testing.T, cfg Config, split string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(cfg.Out, split+"-00000-of-00001.tfrecord"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestParquetImages converts images of Hugging Face's datasets and of pyarrow to the records of the folders that they
// were made of.
func TestParquetImages(t *testing.T) {
	folders := goldenImages(t, Input{Train, "train"}, Input{Test, "test"})
	mustRun(t, folders)
	alone := goldenImages(t, Input{Test, "test"})
	mustRun(t, alone)
	scaledFolder := goldenImages(t, Input{Train, "train"})
	scaledFolder.ImageShape = Shape{2, 2, 3}
	mustRun(t, scaledFolder)
	classes := []string{"10", "9", "cat", "dog"}
	for name, tt := range map[string]struct {
		inputs       []Input
		image, label string
		shape        Shape
		classes      []string
		want         Config
		hidden       bool
	}{
		"datasets": {inputs: []Input{{Train, "train-00000-of-00001.parquet"}, {Test, "test-00000-of-00001.parquet"}}, classes: classes, want: folders},
		"hidden":   {inputs: []Input{{Train, "train-00000-of-00001.parquet"}, {Test, "hidden.parquet"}}, classes: classes, want: folders, hidden: true},
		"texts":    {inputs: []Input{{Train, "texts.parquet"}}, label: "kind", classes: classes, want: folders},
		"columns":  {inputs: []Input{{Train, "texts.parquet"}}, image: "photo", label: "kind", classes: classes, want: folders},
		"numbers":  {inputs: []Input{{Train, "numbers.parquet"}}, label: "kind", classes: []string{"0", "3", "6", "9"}, want: folders},
		"test":     {inputs: []Input{{Test, "test-00000-of-00001.parquet"}}, classes: classes, want: alone},
		"scaled":   {inputs: []Input{{Train, "texts.parquet"}}, label: "kind", shape: Shape{2, 2, 3}, classes: classes, want: scaledFolder},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := goldenImages(t, tt.inputs...)
			cfg.ImageColumn, cfg.LabelColumn, cfg.ImageShape = tt.image, tt.label, tt.shape
			m := mustRun(t, cfg)
			if !slices.Equal(m.Labels, tt.classes) {
				t.Errorf("labels %q; expected %q", m.Labels, tt.classes)
			}
			for _, in := range tt.inputs {
				if in.Split == Test && tt.hidden {
					for _, r := range labelledOf(t, cfg, Test) {
						if r.class != -1 {
							t.Errorf("a record of the test split has class %d; expected none", r.class)
						}
					}
					continue
				}
				if !bytes.Equal(recordsOf(t, cfg, in.Split), recordsOf(t, tt.want, in.Split)) {
					t.Errorf("%s: the records differ from those of the folder", in.Split)
				}
			}
		})
	}
}

// TestParquetShardsOfImages converts a folder as the Hub has them, and takes a dev split by the images themselves.
func TestParquetShardsOfImages(t *testing.T) {
	file, err := os.ReadFile(filepath.Join("testdata", "images", "train-00000-of-00001.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	dir := write(t, map[string]string{
		"data/train-00000-of-00002.parquet": string(file), "data/train-00001-of-00002.parquet": string(file),
		"mixed/train.parquet": string(file), "mixed/cat/a.png": "",
	})
	cfg := Config{Task: ImagesTask, Inputs: []Input{{Train, filepath.Join(dir, "data")}}, Out: filepath.Join(dir, "out"), SplitByHash: imageFeature, DevFraction: 0.3}
	m := mustRun(t, cfg)
	train, dev := labelledOf(t, cfg, Train), labelledOf(t, cfg, Dev)
	if m.Splits[Train].Records+m.Splits[Dev].Records != 24 || len(dev)%2 != 0 {
		t.Errorf("%d and %d records; expected 24, with both copies of an image in one split", len(train), len(dev))
	}
	for _, r := range dev {
		if slices.Contains(train, r) {
			t.Errorf("an image of class %d is in both splits", r.class)
		}
	}
	cfg = Config{Task: ImagesTask, Inputs: []Input{{Train, filepath.Join(dir, "mixed")}}, Out: filepath.Join(dir, "other")}
	if _, err := Run(t.Context(), cfg, quiet); err == nil || !strings.Contains(err.Error(), "has the folder cat and the file train.parquet; expected folders of images, or Parquet files") {
		t.Error(err)
	}
}

// TestParquetOfSchema makes features of images and other columns by a schema.
func TestParquetOfSchema(t *testing.T) {
	dir := write(t, map[string]string{"schema.yaml": "features:\n  image: {kind: image, column: photo, shape: [3, 4, 3]}\n  label: {kind: category, column: kind, role: label, categories: [\"10\", \"9\", cat, dog]}\n"})
	cfg := Config{Schema: filepath.Join(dir, "schema.yaml"), Inputs: []Input{{Train, filepath.Join("testdata", "images", "texts.parquet")}}, Out: filepath.Join(dir, "out")}
	mustRun(t, cfg)
	folders := goldenImages(t, Input{Train, "train"})
	mustRun(t, folders)
	if !bytes.Equal(recordsOf(t, cfg, Train), recordsOf(t, folders, Train)) {
		t.Error("the records differ from those of the folder")
	}
}

func TestRefusedParquetImages(t *testing.T) {
	const whole = "train-00000-of-00001.parquet"
	for _, tt := range []struct {
		inputs       []Input
		image, label string
		want         string
	}{
		{[]Input{{Train, "bad.parquet"}}, "", "", `bad.parquet:2: column "image" has no bytes; expected those of a file`},
		{[]Input{{Train, "texts.parquet"}}, "", "", `texts.parquet does not say which column has the classes; expected one of "id", "photo", "kind"; choose it with --label-column`},
		{[]Input{{Train, "texts.parquet"}}, "Photo", "kind", `has no column "Photo"; expected one of "id", "photo", "kind"; did you mean "photo"?; choose one with --image-column`},
		{[]Input{{Train, "texts.parquet"}}, "", "Kind", `has no column "Kind"; expected one of "id", "photo", "kind"; did you mean "kind"?; choose one with --label-column`},
		{[]Input{{Train, "texts.parquet"}}, "kind", "kind", `has no bytes in column "kind"; expected the bytes of images, or a struct with bytes and path; for paths, write a schema (--schema)`},
		{[]Input{{Train, "texts.parquet"}}, "photo", "photo", `column "photo" is both that of images and that of classes`},
		{[]Input{{Train, whole}, {Dev, "train"}}, "", "", "is no Parquet file, and others are; expected Parquet files for all splits, or folders"},
		{[]Input{{Train, whole}, {Dev, "hidden.parquet"}}, "", "", `hidden.parquet:1: column "label" is "-1", which is not a value; expected a category`},
		{[]Input{{Train, "numbers.parquet"}, {Dev, "texts.parquet"}}, "", "kind", "has numbers without names, and that of " + filepath.Join("testdata", "images", "texts.parquet") + " has texts; expected the same"},
		{[]Input{{Train, "train"}}, "image", "", "is no Parquet file; leave out --image-column and --label-column"},
		{[]Input{{Train, "../images.py"}}, "", "", "images.py is a file; expected a folder with a folder of images for each class, or Parquet files for all splits"},
	} {
		cfg := goldenImages(t, tt.inputs...)
		cfg.ImageColumn, cfg.LabelColumn = tt.image, tt.label
		if _, err := Run(t.Context(), cfg, quiet); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v; expected %q", tt.inputs, err, tt.want)
		}
	}
}

// TestBadParquetImages names each bad row of a file.
func TestBadParquetImages(t *testing.T) {
	cfg := goldenImages(t, Input{Train, "bad.parquet"})
	cfg.SkipBadRows = true
	var log strings.Builder
	m, err := Run(t.Context(), cfg, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if m.Sources[0].Skipped != 4 || m.Splits[Train].Records != 1 {
		t.Errorf("%+v, %d records", m.Sources[0], m.Splits[Train].Records)
	}
	lines := strings.ReplaceAll(log.String(), `\"`, `"`)
	for _, want := range []string{
		`bad.parquet:2: column "image" has no bytes; expected those of a file`,
		`bad.parquet:3: column "image" has the path "cat/1.png" and no bytes; expected the bytes of the file; write them with it`,
		`bad.parquet:4: column "image": the image is not a PNG or JPEG file`,
		`bad.parquet:5: column "image" has no bytes`,
	} {
		if !strings.Contains(lines, want) {
			t.Errorf("%s\nexpected %q", lines, want)
		}
	}
}
