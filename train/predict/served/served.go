// Package served loads models that gorbit export wrote. It uses tfgo, the usual SavedModel loader
// for Go. A program that imports it cannot also import package strategy, and therefore not package
// train: these use another TensorFlow binding, and the two cannot be linked together.
package served

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	spb "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"
	"github.com/galeone/tfgo"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/graphs/safety"
	_ "github.com/gorbit-ml/gorbit/internal/altstack" // handles signals in TensorFlow's threads
	"github.com/gorbit-ml/gorbit/internal/bounded"
	"github.com/gorbit-ml/gorbit/internal/fault"
	"github.com/gorbit-ml/gorbit/internal/servable/layout"
	_ "github.com/gorbit-ml/gorbit/internal/tfprocess" // keeps TensorFlow's log off the terminal
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// Model is an exported model. It implements predict.Model. Several goroutines may use it at once.
type Model struct {
	// Tokenizer, Labels and MaxLength are those the model was trained with.
	Tokenizer *text.Tokenizer
	Labels    []string
	MaxLength int
	// Pairs reports whether the model was trained on pairs of texts; nil if the model does not
	// say it.
	Pairs *bool

	saved                                 *tfgo.Model
	inputIDs, attentionMask, tokenTypeIDs tf.Output
	outputs                               []tf.Output // probabilities, logits
}

// Open loads an exported model. It returns a *safety.Error if the model uses operations that reach
// beyond the graph, except for those named in allowOps. The error for a damaged model is of class
// fault.Damaged.
func Open(dir string, allowOps ...string) (*Model, error) {
	d, err := layout.Read(dir)
	if err != nil {
		return nil, err
	}
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
	tokenizer, err := text.NewTokenizer(vocab, text.Config{Lowercase: d.Lowercase})
	if err != nil {
		return nil, err
	}
	if err := refuseUnsafe(dir, d, allowOps); err != nil {
		return nil, err
	}
	m := &Model{Tokenizer: tokenizer, Labels: d.Labels, MaxLength: d.MaxLength, Pairs: d.Pairs}
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
		m.inputIDs = m.tensor(d.Inputs[layout.InputIDs])
		m.attentionMask = m.tensor(d.Inputs[layout.AttentionMask])
		m.tokenTypeIDs = m.tensor(d.Inputs[layout.TokenTypeIDs])
		m.outputs = []tf.Output{m.tensor(d.Outputs[layout.Probabilities]), m.tensor(d.Outputs[layout.Logits])}
	})
	if err != nil {
		return nil, fault.Damagedf("model %s: %w", dir, err)
	}
	return m, nil
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
	return predict.New(m, predict.Config{Tokenizer: m.Tokenizer, MaxLength: m.MaxLength, Labels: m.Labels, Window: batchSize})
}

// Predict implements predict.Model. It makes one call, with rows as long as the longest example.
func (m *Model) Predict(_ context.Context, examples []text.Encoding) ([]predict.Scores, error) {
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
	for output, value := range map[tf.Output][][]int32{m.inputIDs: ids, m.attentionMask: mask, m.tokenTypeIDs: types} {
		t, err := tf.NewTensor(value)
		if err != nil {
			return nil, err
		}
		feeds[output] = t
	}
	var out []*tf.Tensor
	if err := catch(func() { out = m.saved.Exec(m.outputs, feeds) }); err != nil {
		return nil, fmt.Errorf("TensorFlow cannot run the model: %w", err)
	}
	values := make([][][]float32, len(out))
	for i, t := range out {
		v, ok := t.Value().([][]float32)
		if !ok || len(v) != len(examples) || len(v[0]) != len(m.Labels) {
			return nil, fmt.Errorf("the model returned %v %v for %d examples; expected %d values for each",
				t.DataType(), t.Shape(), len(examples), len(m.Labels))
		}
		values[i] = v
	}
	scores := make([]predict.Scores, len(examples))
	for i := range scores {
		scores[i] = predict.Scores{Probabilities: widen(values[0][i]), Logits: widen(values[1][i])}
	}
	return scores, nil
}

func widen(values []float32) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = float64(v)
	}
	return out
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
