// Package served loads models that gorbit export wrote. It uses tfgo, the usual SavedModel loader
// for Go. A program that imports it cannot also import package strategy, and therefore not package
// train: these use another TensorFlow binding, and the two cannot be linked together.
package served

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	spb "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"
	"github.com/galeone/tfgo"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/dense"
	"github.com/gorbit-ml/gorbit/graphs/safety"
	_ "github.com/gorbit-ml/gorbit/internal/altstack" // handles signals in TensorFlow's threads
	"github.com/gorbit-ml/gorbit/internal/bounded"
	"github.com/gorbit-ml/gorbit/internal/fault"
	"github.com/gorbit-ml/gorbit/internal/servable/layout"
	_ "github.com/gorbit-ml/gorbit/internal/tfprocess" // keeps TensorFlow's log off the terminal
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// Model is an exported model. It implements predict.Model for texts. Several goroutines may use it at
// once.
type Model struct {
	// Tokenizer, Labels and MaxLength are those the model was trained with. Tokenizer is nil if the
	// model takes no texts.
	Tokenizer *text.Tokenizer
	Labels    []string
	MaxLength int
	// Pairs reports whether the model was trained on pairs of texts; nil if the model does not
	// say it.
	Pairs *bool
	// Renderer makes answers of the model's outputs.
	Renderer predict.Renderer

	description *layout.Description
	saved       *tfgo.Model
	inputs      map[string]tf.Output
	outputs     []tf.Output // in the order of the description's answers
}

// Open loads an exported model. It returns a *safety.Error if the model uses operations that reach
// beyond the graph, except for those named in allowOps. The error for a damaged model is of class
// fault.Damaged.
func Open(dir string, allowOps ...string) (*Model, error) {
	d, err := layout.Read(dir)
	if err != nil {
		return nil, err
	}
	m := &Model{Labels: d.Labels, MaxLength: d.MaxLength, Pairs: d.Pairs, description: d, inputs: make(map[string]tf.Output)}
	if d.Vocab != "" {
		if m.Tokenizer, err = tokenizer(dir, d); err != nil {
			return nil, err
		}
	}
	var outputs []predict.OutputSpec
	for _, a := range d.Answers {
		outputs = append(outputs, predict.OutputSpec{Name: a.Name, Kind: predict.Kind(a.Kind), Of: a.Of, Classes: a.Classes})
	}
	if len(outputs) == 0 {
		return nil, fault.Usagef("model %s gives %s and no answers; expected a model of another task; use gorbit predict --run, or load it with TensorFlow", dir, strings.Join(slices.Sorted(maps.Keys(d.Outputs)), ", "))
	}
	if m.Renderer, err = predict.NewRenderer(d.Task, outputs); err != nil {
		return nil, fault.Damagedf("model %s: %w", dir, err)
	}
	if err := refuseUnsafe(dir, d, allowOps); err != nil {
		return nil, err
	}
	path, done, err := plainPath(dir)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", dir, err)
	}
	defer done()
	err = catch(func() { m.saved = tfgo.LoadModel(path, []string{layout.Tag}, nil) })
	if err != nil {
		return nil, fault.Damagedf("model %s: TensorFlow cannot load it: %w", dir, err)
	}
	err = catch(func() {
		for name, tensor := range d.Inputs {
			m.inputs[name] = m.tensor(tensor)
		}
		for _, a := range d.Answers {
			m.outputs = append(m.outputs, m.tensor(d.Outputs[a.Name]))
		}
	})
	if err != nil {
		return nil, fault.Damagedf("model %s: %w", dir, err)
	}
	return m, nil
}

// tokenizer returns the tokenizer of a model that takes texts.
func tokenizer(dir string, d *layout.Description) (*text.Tokenizer, error) {
	vocab, err := text.LoadVocab(filepath.Join(dir, layout.AssetsFolder, d.Vocab))
	if err != nil {
		return nil, fault.Damagedf("model %s: %w", dir, err)
	}
	var sizes struct {
		Config struct {
			VocabSize int `json:"vocab_size"`
		} `json:"config"`
	}
	if err := json.Unmarshal(d.Model, &sizes); err == nil && sizes.Config.VocabSize > 0 && vocab.Size() != sizes.Config.VocabSize {
		return nil, fault.Damagedf("model %s: its vocabulary has %d tokens; expected %d, as in the graph; export the model again", dir, vocab.Size(), sizes.Config.VocabSize)
	}
	return text.NewTokenizer(vocab, text.Config{Lowercase: d.Lowercase})
}

// maxModelBytes is protobuf's own limit on a message.
const maxModelBytes = 2<<30 - 1

// refuseUnsafe returns a *safety.Error for a model that can do more than compute. It runs before
// TensorFlow loads the model, so nothing of the model has run yet.
func refuseUnsafe(dir string, d *layout.Description, allowOps []string) error {
	path := filepath.Join(dir, layout.ModelFile)
	data, err := bounded.ReadFile(path, maxModelBytes)
	if err != nil {
		return fmt.Errorf("model %s: %w", dir, err)
	}
	saved := new(spb.SavedModel)
	if err := proto.Unmarshal(data, saved); err != nil {
		return fault.Damagedf("model %s: %s cannot be parsed: %w", dir, layout.ModelFile, err)
	}
	run := slices.Collect(maps.Values(d.Outputs))
	return safety.Refuse("model", dir, safety.Check(saved, run...), allowOps)
}

// plainPath returns a path to the folder without pattern characters. TensorFlow treats the names
// of variable files as patterns, so a folder such as "lr[1e-5]" is reached through a symbolic link
// with a plain name. Call done after loading.
func plainPath(dir string) (path string, done func(), err error) {
	if !strings.ContainsAny(dir, `*?[\`) {
		return dir, func() {}, nil
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return "", nil, err
	}
	temp, err := os.MkdirTemp("", "gorbit-predict-")
	if err != nil {
		return "", nil, err
	}
	path = filepath.Join(temp, "model")
	if err := os.Symlink(dir, path); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(temp))
	}
	return path, func() { os.RemoveAll(temp) }, nil
}

// tensor returns a tensor of the graph by name. Package layout has already checked the name.
func (m *Model) tensor(name string) tf.Output {
	operation, index, err := layout.ParseTensor(name)
	if err != nil {
		panic(err)
	}
	return m.saved.Op(operation, index)
}

// Predictor returns a Predictor that runs the model on batchSize texts per call.
func (m *Model) Predictor(batchSize int) (*predict.Predictor, error) {
	if m.Tokenizer == nil {
		return nil, fault.Usagef("the model takes no texts; expected records, with the features %s", strings.Join(slices.Sorted(maps.Keys(m.inputs)), ", "))
	}
	return predict.New(m, predict.Config{Tokenizer: m.Tokenizer, MaxLength: m.MaxLength, Renderer: m.Renderer, Window: batchSize})
}

// Predict implements predict.Model. It makes one call, with rows as long as the longest example.
func (m *Model) Predict(_ context.Context, examples []text.Encoding) ([]predict.Result, error) {
	length := 0
	for _, e := range examples {
		length = max(length, len(e.IDs))
	}
	ids, mask, types := rows(len(examples), length), rows(len(examples), length), rows(len(examples), length)
	for i, e := range examples {
		copy(ids[i], e.IDs)
		copy(types[i], e.TypeIDs)
		for j := range e.IDs {
			mask[i][j] = 1
		}
	}
	feeds := make(map[tf.Output]*tf.Tensor)
	for name, value := range map[string][][]int32{layout.InputIDs: ids, layout.AttentionMask: mask, layout.TokenTypeIDs: types} {
		t, err := tf.NewTensor(value)
		if err != nil {
			return nil, err
		}
		feeds[m.inputs[name]] = t
	}
	results, err := m.run(feeds, len(examples))
	if err != nil {
		return nil, err
	}
	for k, a := range m.description.Answers {
		for i := range results {
			if v := &results[i][k]; a.Tokens && len(v.Shape) > 0 && v.Shape[0] == length {
				*v = v.First(len(examples[i].IDs))
			}
		}
	}
	return results, nil
}

// TakesTexts reports whether the model takes texts. The others take records.
func (m *Model) TakesTexts() bool { return m.Tokenizer != nil }

// Layout returns how records become the batches that a model answers that takes no texts.
func (m *Model) Layout() dataset.Layout {
	l := dense.Config{Labels: dataset.LabelsNone}
	for _, f := range m.description.Features {
		s := dataset.Spec{Name: f.Name, DType: dataset.DType(f.DType), Make: f.Make, Minimum: f.Minimum, Below: f.Below, Pad: f.Pad}
		if f.Make == "" {
			s.Record = []string{f.Record}
		}
		for _, d := range f.Shape[1:] {
			s.Shape = append(s.Shape, int(d))
		}
		l.Features = append(l.Features, s)
	}
	return l
}

// OpenRows opens a table whose rows have the values of the model's features in columns, and makes
// batches of up to size of them. The name - is standard input.
func (m *Model) OpenRows(ctx context.Context, path string, stdin io.Reader, columns predict.Columns, size int) (*predict.Rows, error) {
	var features []convert.Feature
	for _, f := range m.description.Features {
		if f.Make != "" {
			continue
		}
		var made convert.Feature
		if err := json.Unmarshal(f.Source, &made); err != nil {
			return nil, fault.Damagedf("the model's feature %s does not say how it is made of columns: %w", f.Name, err)
		}
		features = append(features, made)
	}
	records, err := convert.NewRowRecords(features, filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	return predict.OpenRows(ctx, path, stdin, columns, records, m.Layout(), size)
}

// PredictBatch implements predict.BatchModel for batches of Layout.
func (m *Model) PredictBatch(_ context.Context, b *dataset.Batch) ([]predict.Result, error) {
	feeds := make(map[tf.Output]*tf.Tensor)
	for i := range b.Features {
		f := &b.Features[i]
		shape := make([]int64, len(f.Shape))
		for k, d := range f.Shape {
			shape[k] = int64(d)
		}
		t, err := tf.ReadTensor(dtypes[f.DType()], shape, bytes.NewReader(f.Raw()))
		if err != nil {
			return nil, fmt.Errorf("feature %s: %w", f.Name, err)
		}
		feeds[m.inputs[f.Name]] = t
	}
	return m.run(feeds, b.Examples)
}

// dtypes are TensorFlow's dtypes of features.
var dtypes = map[dataset.DType]tf.DataType{dataset.Uint8: tf.Uint8, dataset.Int32: tf.Int32, dataset.Int64: tf.Int64, dataset.Float32: tf.Float, dataset.Bool: tf.Bool}

// run runs the model and divides its outputs among n examples.
func (m *Model) run(feeds map[tf.Output]*tf.Tensor, n int) ([]predict.Result, error) {
	var out []*tf.Tensor
	if err := catch(func() { out = m.saved.Exec(m.outputs, feeds) }); err != nil {
		return nil, fmt.Errorf("TensorFlow cannot run the model: %w", err)
	}
	results := make([]predict.Result, n)
	for i := range results {
		results[i] = make(predict.Result, len(out))
	}
	for k, t := range out {
		a, shape := m.description.Answers[k], t.Shape()
		flat, err := float64s(t)
		if err != nil {
			return nil, fmt.Errorf("output %s: %w", a.Name, err)
		}
		if len(shape) == 0 || shape[0] != int64(n) {
			return nil, fmt.Errorf("the model returned %s of shape %v for %d examples; expected the first axis to have as many", a.Name, shape, n)
		}
		each := make([]int, len(shape)-1)
		for i, d := range shape[1:] {
			each[i] = int(d)
		}
		size := len(flat) / n
		if len(a.Classes) > 0 && len(each) == 1 && size != len(a.Classes) && size != 1 {
			return nil, fmt.Errorf("the model returned %v %v for %d examples; expected %d values for each", t.DataType(), shape, n, len(a.Classes))
		}
		for i := range results {
			results[i][k] = predict.Values{Shape: each, Data: flat[i*size : (i+1)*size]}
		}
	}
	return results, nil
}

// float64s returns the values of a tensor, row-major.
func float64s(t *tf.Tensor) ([]float64, error) {
	var raw bytes.Buffer
	if _, err := t.WriteContentsTo(&raw); err != nil {
		return nil, err
	}
	b, le := raw.Bytes(), binary.NativeEndian
	size := map[tf.DataType]int{tf.Float: 4, tf.Double: 8, tf.Int32: 4, tf.Int64: 8, tf.Uint8: 1, tf.Bool: 1}[t.DataType()]
	if size == 0 {
		return nil, fmt.Errorf("has values of %v; expected float32, float64, int32, int64, uint8 or bool", t.DataType())
	}
	out := make([]float64, len(b)/size)
	for i := range out {
		switch v := b[i*size:]; t.DataType() {
		case tf.Float:
			out[i] = float64(math.Float32frombits(le.Uint32(v)))
		case tf.Double:
			out[i] = math.Float64frombits(le.Uint64(v))
		case tf.Int32:
			out[i] = float64(int32(le.Uint32(v)))
		case tf.Int64:
			out[i] = float64(int64(le.Uint64(v)))
		default:
			out[i] = float64(v[0])
		}
	}
	return out, nil
}

// rows returns an n by length matrix of zeros.
func rows(n, length int) [][]int32 {
	all := make([]int32, n*length)
	out := make([][]int32, n)
	for i := range out {
		out[i] = all[i*length : (i+1)*length]
	}
	return out
}

// catch calls f and returns a panic of tfgo as an error of one line.
func catch(f func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case runtime.Error:
			panic(p)
		case error, string:
			line, _, _ := strings.Cut(fmt.Sprint(p), "\n")
			err = errors.New(line)
		default:
			panic(p)
		}
	}()
	f()
	return nil
}
