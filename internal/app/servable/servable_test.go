package servable

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"
	"golang.org/x/sys/unix"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/data/layout"
	"github.com/gorbit-ml/gorbit/internal/data/tokenizers"
	"github.com/gorbit-ml/gorbit/internal/run/described"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/text"
)

//go:embed testdata/golden.py
var goldenScript string

//go:embed testdata/load.py
var loadScript string

type golden struct {
	InputIDs      [][]int32   `json:"input_ids"`
	TokenTypeIDs  [][]int32   `json:"token_type_ids"`
	AttentionMask [][]int32   `json:"attention_mask"`
	Probabilities [][]float32 `json:"probabilities"`
}

// fixture returns golden.py's folder, and options that serve its checkpoint.
func fixture(t *testing.T) (dir string, o Options) {
	t.Helper()
	dir = testkit.Made(t, goldenScript)
	export, err := graphs.Open(filepath.Join(dir, "graph"))
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := checkpoint.OpenBundle(filepath.Join(dir, "ckpt"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, v := range export.Contract.Variables {
		names = append(names, "root/"+v.Name)
	}
	values, err := bundle.Read(context.Background(), names...)
	if err != nil {
		t.Fatal(err)
	}
	o = Options{
		Export:    export,
		Variables: make(map[string]*tf.Tensor),
		Vocab:     filepath.Join(dir, "vocab.txt"),
		Labels:    []string{"bad", "fair", "good"},
		Tokenizer: text.Config{Lowercase: true, LiteralSpecials: true},
		MaxLength: 16,
		Out:       filepath.Join(t.TempDir(), "served", "model"),
	}
	for name, value := range values {
		o.Variables[strings.TrimPrefix(name, "root/")] = value
	}
	return dir, o
}

func readGolden(t *testing.T, dir string) golden {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

func sameProbabilities(t *testing.T, got, want [][]float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d answers, want %d", len(got), len(want))
	}
	for i := range want {
		if len(got[i]) != len(want[i]) {
			t.Fatalf("answer %d has %d probabilities, want %d", i, len(got[i]), len(want[i]))
		}
		for j := range want[i] {
			if math.Abs(float64(got[i][j]-want[i][j])) > 1e-6 {
				t.Errorf("answer %d is %v, want %v", i, got[i], want[i])
				break
			}
		}
	}
}

func TestServedModelAnswersAsPredict(t *testing.T) {
	dir, o := fixture(t)
	o.DocStride = 7
	if err := Write(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	if d, err := layout.Read(o.Out); err != nil || d.DocStride != 7 {
		t.Errorf("the description has the stride of windows %d, %v; expected 7", d.DocStride, err)
	}
	g := readGolden(t, dir)

	t.Run("TensorFlow C API", func(t *testing.T) {
		model, err := tf.LoadSavedModel(o.Out, []string{layout.Tag}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer model.Session.Close()
		d, err := layout.Read(o.Out)
		if err != nil {
			t.Fatal(err)
		}
		output := func(name string) tf.Output {
			operation, index, err := layout.ParseTensor(name)
			if err != nil {
				t.Fatal(err)
			}
			return model.Graph.Operation(operation).Output(index)
		}
		feeds := make(map[tf.Output]*tf.Tensor)
		for name, rows := range map[string][][]int32{
			layout.InputIDs: g.InputIDs, layout.AttentionMask: g.AttentionMask, layout.TokenTypeIDs: g.TokenTypeIDs,
		} {
			if feeds[output(d.Inputs[name])], err = tf.NewTensor(rows); err != nil {
				t.Fatal(err)
			}
		}
		out, err := model.Session.Run(feeds, []tf.Output{output(d.Outputs[layout.Probabilities])}, nil)
		if err != nil {
			t.Fatal(err)
		}
		sameProbabilities(t, out[0].Value().([][]float32), g.Probabilities)
	})

	t.Run("Python", func(t *testing.T) {
		out := testkit.RunPython(t, loadScript, o.Out, filepath.Join(dir, "golden.json"))
		var got [][]float32
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		sameProbabilities(t, got, g.Probabilities)
	})
}

func TestServedFolder(t *testing.T) {
	dir, o := fixture(t)
	if err := Write(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	var files []string
	filepath.WalkDir(filepath.Dir(o.Out), func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			rel, _ := filepath.Rel(o.Out, path)
			files = append(files, filepath.ToSlash(rel))
		}
		return err
	})
	want := "assets/gorbit-serving.json assets/labels.txt assets/vocab.txt saved_model.pb " +
		"variables/variables.data-00000-of-00001 variables/variables.index"
	if got := strings.Join(files, " "); got != want {
		t.Errorf("the folder holds %s, want %s", got, want)
	}
	d, err := layout.Read(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(d.Labels, " ") != "bad fair good" || !d.Lowercase || !d.LiteralSpecials || d.MaxLength != 16 || d.Task != "classification" {
		t.Errorf("the description reads %+v", d)
	}
	if len(d.Inputs) != 3 || len(d.Outputs) != 2 {
		t.Errorf("inputs %v, outputs %v", d.Inputs, d.Outputs)
	}
	for _, pair := range [][2]string{
		{filepath.Join(o.Out, layout.VocabFile), filepath.Join(dir, "vocab.txt")},
		{filepath.Join(o.Out, layout.ModelFile), filepath.Join(dir, "graph", "serving", "saved_model.pb")},
	} {
		got, err := os.ReadFile(pair[0])
		if err != nil {
			t.Fatal(err)
		}
		if want, err := os.ReadFile(pair[1]); err != nil || string(got) != string(want) {
			t.Errorf("%s is not a copy of %s (%v)", pair[0], pair[1], err)
		}
	}
	if labels, err := os.ReadFile(filepath.Join(o.Out, layout.LabelsFile)); err != nil || string(labels) != "bad\nfair\ngood\n" {
		t.Errorf("labels.txt reads %q (%v)", labels, err)
	}
}

// A served model prepares texts as its data did, and transformers is told the same.
func TestServedTokenizer(t *testing.T) {
	dir, o := fixture(t)
	vocab, err := os.ReadFile(filepath.Join(dir, "vocab.txt"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(vocab)), "\n")
	copy(lines[len(lines)-5:], []string{"\u00e9", "e", "\u4e2d\u6587", "\u4e2d", "\u6587"})
	o.Vocab, o.Overwrite = filepath.Join(t.TempDir(), "vocab.txt"), true
	if err := os.WriteFile(o.Vocab, []byte(strings.Join(lines, "\n")), 0o666); err != nil {
		t.Fatal(err)
	}
	served, foreign := o.Out, filepath.Join(t.TempDir(), "hf")
	for _, cfg := range []text.Config{
		{Lowercase: true}, {Lowercase: true, Accents: text.KeepAccents}, {Accents: text.StripAccents, MaxWordChars: text.DefaultMaxWordChars},
		{JoinIdeographs: true}, {Unclean: true}, {MaxWordChars: 1},
	} {
		o.Tokenizer, o.Out = cfg, served
		if err := Write(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		m, err := described.Read(served)
		if err != nil {
			t.Fatal(err)
		}
		trained, err := tokenizers.Open(o.Vocab, cfg)
		if err != nil {
			t.Fatal(err)
		}
		const s = "\u00c9 \u00e9 \u4e2d\u6587 E\x01e"
		if got, want := m.Tokenizer.AppendIDs(nil, s), trained.Tokenizer.AppendIDs(nil, s); !slices.Equal(got, want) {
			t.Errorf("%+v: got %v, want %v", cfg, got, want)
		}
		o.Out = foreign
		if err := WriteHuggingFace(t.Context(), o, nil); cfg.Unclean || cfg.MaxWordChars == 1 {
			if err == nil || fault.Of(err) != fault.Usage {
				t.Errorf("%+v: got %v, want a usage error", cfg, err)
			}
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		// The folder says it to whoever opens it.
		again, err := tokenizers.Open(foreign, text.Uncased())
		if err != nil {
			t.Fatal(err)
		}
		if got, want := again.Tokenizer.AppendIDs(nil, s), trained.Tokenizer.AppendIDs(nil, s); !slices.Equal(got, want) {
			t.Errorf("%+v with transformers: got %v, want %v", cfg, got, want)
		}
	}
}

func TestOverwrite(t *testing.T) {
	_, o := fixture(t)
	ctx := context.Background()
	if err := Write(ctx, o); err != nil {
		t.Fatal(err)
	}
	if err := Write(ctx, o); !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("a second export gave %v", err)
	}
	o.Overwrite, o.MaxLength = true, 8
	if err := Write(ctx, o); err != nil {
		t.Fatal(err)
	}
	if d, err := layout.Read(o.Out); err != nil || d.MaxLength != 8 {
		t.Errorf("after overwriting: %+v, %v", d, err)
	}
	if left, _ := os.ReadDir(filepath.Dir(o.Out)); len(left) != 1 {
		t.Errorf("overwriting left %v", left)
	}

	o.Out = t.TempDir()
	precious := filepath.Join(o.Out, "precious")
	if err := os.WriteFile(precious, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := Write(ctx, o); err == nil || !strings.Contains(err.Error(), "is not a model written by gorbit export") {
		t.Errorf("overwriting another folder gave %v", err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

func TestErrorsLeaveNothing(t *testing.T) {
	dir, good := fixture(t)
	wrongShape, err := tf.NewTensor([]float32{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	large := filepath.Join(t.TempDir(), "large.txt")
	vocab, _ := os.ReadFile(filepath.Join(dir, "vocab.txt"))
	if err := os.WriteFile(large, append(vocab, "more\n"...), 0o666); err != nil {
		t.Fatal(err)
	}
	without := func(name string, with *tf.Tensor) map[string]*tf.Tensor {
		values := make(map[string]*tf.Tensor)
		for k, v := range good.Variables {
			if k != name {
				values[k] = v
			} else if with != nil {
				values[k] = with
			}
		}
		return values
	}
	for _, test := range []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"labels", func(o *Options) { o.Labels = o.Labels[:2] }, "number of labels is 2; expected 3, as in the model of " + good.Export.Path},
		{"equal labels", func(o *Options) { o.Labels = []string{"a", "b", "a"} }, `labels: "a" is declared twice; expected a different name for each label`},
		{"label with tab", func(o *Options) { o.Labels = []string{"a", "b\tc", "d"} }, `labels: "b\tc" is empty or has a tab or a line break; expected a different name for each label`},
		{"max length", func(o *Options) { o.MaxLength = 17 }, "max_length is 17; expected at most 16, the positions of the model of " + good.Export.Path},
		{"no max length", func(o *Options) { o.MaxLength = 0 }, "max_length is 0; expected 3 or more"},
		{"no vocabulary", func(o *Options) { o.Vocab = filepath.Join(dir, "none.txt") }, "vocabulary: open " + filepath.Join(dir, "none.txt") + ": no such file or directory"},
		{"large vocabulary", func(o *Options) { o.Vocab = large }, "the vocabulary " + large + " has 13 entries; expected 12, as in the model"},
		{"missing variable", func(o *Options) { o.Variables = without("model/classifier/bias", nil) }, "variable model/classifier/bias has no value"},
		{"wrong variable", func(o *Options) { o.Variables = without("model/classifier/bias", wrongShape) },
			"variable model/classifier/bias has a value of float32 [2]; expected float32 [3]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := good
			o.Out = filepath.Join(t.TempDir(), "out")
			test.change(&o)
			err := Write(context.Background(), o)
			if err == nil || !strings.HasSuffix(err.Error(), test.want) {
				t.Errorf("got %v, want it to end in: %s", err, test.want)
			}
			if left, _ := os.ReadDir(filepath.Dir(o.Out)); len(left) != 0 {
				t.Errorf("the failed export left %v", left)
			}
		})
	}
}

// TestLeftovers exports next to what killed exports have left, and what only looks like it.
func TestLeftovers(t *testing.T) {
	_, o := fixture(t)
	parent := filepath.Dir(o.Out)
	name := filepath.Base(o.Out)
	for _, folder := range []string{"." + name + ".part-12/variables", "." + name + ".part-13", "." + name + ".part-1x", ".other.part-12", name + ".part-12"} {
		if err := os.MkdirAll(filepath.Join(parent, folder), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	live, err := lockFolder(filepath.Join(parent, "."+name+".part-13"), unix.LOCK_NB)
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	if err := Write(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, err := os.ReadDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	want := []string{".other.part-12", "." + name + ".part-13", "." + name + ".part-1x", name, name + ".part-12"}
	slices.Sort(want)
	if !slices.Equal(left, want) {
		t.Errorf("there are %q, want %q", left, want)
	}
}

func TestCancelled(t *testing.T) {
	_, o := fixture(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Write(ctx, o); err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(filepath.Dir(o.Out)); len(left) != 0 {
		t.Errorf("the cancelled export left %v", left)
	}
}
