package train

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/data/pixels"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/tfrecord"
	"github.com/gorbit-ml/gorbit/train/params"
)

// TestJPEGDecoder holds that a run names what decodes its images and keeps it, also one that began before
// there was a choice.
func TestJPEGDecoder(t *testing.T) {
	long(t)
	m := anyModels[slices.IndexFunc(anyModels, func(m anyModel) bool { return m.name == "plants" })]
	m.record = func(r *rand.Rand) []tfrecord.Feature {
		kind, photo := r.IntN(3), image.NewNRGBA(image.Rect(0, 0, 9, 8))
		for y := range 8 {
			for x := range 9 {
				c := [3]uint8{uint8(r.IntN(100)), uint8(r.IntN(100)), uint8(r.IntN(100))}
				c[kind] += 150
				photo.SetNRGBA(x, y, color.NRGBA{c[0], c[1], c[2], 255})
			}
		}
		var file bytes.Buffer
		if err := jpeg.Encode(&file, photo, nil); err != nil {
			panic(err) // memory does not fail
		}
		return []tfrecord.Feature{tfrecord.BytesFeature("image/encoded", file.Bytes()), tfrecord.Int64Feature("image/class/label", int64(kind)),
			tfrecord.FloatFeature("measures", r.Float32(), r.Float32(), r.Float32(), r.Float32())}
	}
	p := m.params(t)
	train := func(run string, steps int64, jpeg string) (metrics, log string, err error) {
		t.Helper()
		var said bytes.Buffer
		env := quiet()
		env.Log = slog.New(slog.NewTextHandler(&said, nil))
		p := p
		p.Train.Steps, p.Data.JPEG = steps, jpeg
		out, err := Train(t.Context(), p, run, env)
		return fmt.Sprint(out), said.String(), err
	}
	recorded := func(run string) string {
		t.Helper()
		p, err := params.Read(filepath.Join(run, runfolder.Params))
		if err != nil {
			t.Fatal(err)
		}
		return p.Data.JPEG
	}
	in := func(name string) string { return filepath.Join(t.TempDir(), name) }

	unasked, old, whole := in("unasked"), in("old"), in("whole")
	if _, _, err := train(unasked, 12, ""); err != nil {
		t.Fatal(err)
	}
	first, log, err := train(unasked, 24, "")
	if err != nil || first == "" || recorded(unasked) != pixels.TensorFlow || !strings.Contains(log, "jpeg_decoder=tensorflow") {
		t.Errorf("%v, a new run has the decoder %q:\n%s", err, recorded(unasked), log)
	}
	if _, _, err = train(unasked, 32, pixels.Go); err == nil || !strings.Contains(err.Error(), "JPEG by tensorflow") {
		t.Errorf("another decoder in the middle of a run: %v", err)
	}
	if _, _, err = train(whole, 12, pixels.Go); err != nil {
		t.Fatal(err)
	}
	want, _, err := train(whole, 24, pixels.Go)
	if err != nil || want == first {
		t.Errorf("%v, with Go's pixels %s, with TensorFlow's %s", err, want, first)
	}
	if _, _, err = train(old, 12, pixels.Go); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(old, runfolder.Params)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, strings.Replace(string(text), "  jpeg: go\n", "", 1)) // as it was written before
	got, log, err := train(old, 24, "")
	if err != nil || got != want || recorded(old) != "" || !strings.Contains(log, "jpeg_decoder=go") {
		t.Errorf("%v, an old run ends with %s, expected %s; its decoder is %q:\n%s", err, got, want, recorded(old), log)
	}
}
