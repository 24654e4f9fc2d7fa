package convert

import (
	"image"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/tfrecord"
)

// imageRecord is the record of an image: its class, or -1, and its bytes.
type imageRecord struct {
	class int64
	image string
}

func labelledOf(t *testing.T, cfg Config, split string) (out []imageRecord) {
	t.Helper()
	eachRecord(t, cfg, split, func(data []byte) {
		features, err := tfrecord.ParseExample(data)
		if err != nil {
			t.Fatal(err)
		}
		r := imageRecord{class: -1}
		for _, f := range features {
			switch f.Name {
			case classFeature:
				r.class = f.Value.Int64s[0]
			case imageFeature:
				r.image = string(f.Value.Bytes[0])
			}
		}
		out = append(out, r)
	})
	return out
}

// TestImageFolders converts folders by class: the classes are those of the train split, sorted by name.
func TestImageFolders(t *testing.T) {
	size := image.Rect(0, 0, 3, 2)
	gray, photo, wide := picture(t, image.NewGray(size), "png"), picture(t, image.NewGray(size), "jpeg"), picture(t, image.NewRGBA(image.Rect(0, 0, 4, 4)), "png")
	dir := write(t, map[string]string{
		"train/dog/b.png": gray, "train/dog/a.jpg": photo, "train/cat/z.png": gray, "train/10/c.png": gray, "train/9/c.png": gray,
		"train/.DS_Store": "x", "train/cat/.hidden": "x", "validation/cat/a.png": gray, "test/a.png": gray, "test/dog/b.png": gray,
		"bad/cat/a.png": gray, "bad/cat/notes.txt": "notes", "loose/a.png": gray, "wide/cat/a.png": gray, "wide/cat/b.png": wide,
		"cow/cow/a.png": gray, "empty/cat/a.png": gray, "file": "x",
	})
	if err := os.MkdirAll(filepath.Join(dir, "empty/dog"), 0o777); err != nil {
		t.Fatal(err)
	}
	of := func(inputs ...Input) Config {
		cfg := in(dir, Config{Task: ImagesTask, Inputs: inputs})
		cfg.Vocab, cfg.Out = "", filepath.Join(t.TempDir(), "out")
		return cfg
	}
	cfg := of(Input{Train, "train"}, Input{Dev, "validation"}, Input{Test, "test"})
	m := mustRun(t, cfg)
	if want := []string{"10", "9", "cat", "dog"}; !slices.Equal(m.Labels, want) || m.Task != SchemaTask {
		t.Errorf("task %s, labels %q; expected %q", m.Task, m.Labels, want)
	}
	for split, want := range map[string][]imageRecord{
		Train: {{0, gray}, {1, gray}, {2, gray}, {3, photo}, {3, gray}}, Dev: {{2, gray}}, Test: {{-1, gray}, {3, gray}},
	} {
		if got := labelledOf(t, cfg, split); !slices.Equal(got, want) {
			t.Errorf("%s: %d records that differ from those expected", split, len(got))
		}
	}
	scaled := of(Input{Train, "wide"})
	scaled.ImageShape = Shape{2, 3, 3}
	if m := mustRun(t, scaled); m.Features[0].Resize != "bilinear" || !slices.Equal(m.Features[0].Shape, Shape{2, 3, 3}) {
		t.Errorf("%+v", m.Features[0])
	}
	split := of(Input{Train, "train"})
	split.SplitByHash, split.DevFraction = FileColumn, 0.4
	if m := mustRun(t, split); m.Splits[Train].Records+m.Splits[Dev].Records != 5 {
		t.Errorf("%+v", m.Splits)
	}

	for _, tt := range []struct {
		inputs []Input
		want   string
	}{
		{[]Input{{Train, "bad"}}, "notes.txt is not a PNG or JPEG file"},
		{[]Input{{Train, "loose"}}, filepath.Join("loose", "a.png") + " is not in the folder of a class; expected "},
		{[]Input{{Train, "wide"}}, "to scale images, give --image-shape HEIGHT,WIDTH,CHANNELS"},
		{[]Input{{Train, "train"}, {Dev, "cow"}}, `column "class" is "cow"; expected one of "10", "9", "cat", "dog"`},
		{[]Input{{Train, "empty"}}, filepath.Join("empty", "dog") + " is the folder of a class and has no images"},
		{[]Input{{Train, "file"}}, "file is a file; expected a folder with a folder of images for each class"},
		{[]Input{{Train, "."}}, "cat is a folder; expected images alone in the folder of a class"},
		{[]Input{{Train, "train"}, {Train, "wide"}}, "wide has "},
	} {
		if _, err := Run(t.Context(), of(tt.inputs...), quiet); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v; expected %q", tt.inputs, err, tt.want)
		}
	}
	cfg = of(Input{Train, "bad"})
	cfg.SkipBadRows = true
	if m := mustRun(t, cfg); m.Sources[0].Skipped != 1 || m.Splits[Train].Records != 1 {
		t.Errorf("%+v", m.Sources)
	}
}
