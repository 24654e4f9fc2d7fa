package main

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/galeone/tfgo"

	"github.com/gorbit-ml/gorbit/internal/served/layout"
	"github.com/gorbit-ml/gorbit/text"
)

// model is a served model and the tokenizer that goes with it.
type model struct {
	saved     *tfgo.Model
	tokenizer *text.Tokenizer
	labels    []string
	maxLength int

	inputIDs, attentionMask, tokenTypeIDs tf.Output
	output                                tf.Output
}

func loadModel(dir string) (*model, error) {
	d, err := layout.Read(dir)
	if err != nil {
		return nil, err
	}
	vocab, err := text.LoadVocab(filepath.Join(dir, layout.AssetsFolder, d.Vocab))
	if err != nil {
		return nil, err
	}
	tokenizer, err := text.NewTokenizer(vocab, text.Config{Lowercase: d.Lowercase})
	if err != nil {
		return nil, err
	}
	m := &model{tokenizer: tokenizer, labels: d.Labels, maxLength: d.MaxLength}
	err = catch(func() {
		m.saved = tfgo.LoadModel(dir, []string{layout.Tag}, nil)
		m.inputIDs = m.tensor(d.Inputs[layout.InputIDs])
		m.attentionMask = m.tensor(d.Inputs[layout.AttentionMask])
		m.tokenTypeIDs = m.tensor(d.Inputs[layout.TokenTypeIDs])
		m.output = m.tensor(d.Outputs[layout.Probabilities])
	})
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", dir, err)
	}
	return m, nil
}

// tensor finds a tensor of the graph by its name, which layout has checked.
func (m *model) tensor(name string) tf.Output {
	operation, index, err := layout.ParseTensor(name)
	if err != nil {
		panic(err)
	}
	return m.saved.Op(operation, index)
}

// probabilities answers a batch: one probability per label for each example.
func (m *model) probabilities(examples []example) ([][]float32, error) {
	pairs := make([]text.Pair, len(examples))
	for i, e := range examples {
		pairs[i] = text.Pair{A: e.text, B: e.pair}
	}
	encodings := m.tokenizer.EncodeBatch(pairs, m.maxLength)
	length := 0
	for _, e := range encodings {
		length = max(length, len(e.IDs))
	}
	ids, mask, types := rows(len(examples), length), rows(len(examples), length), rows(len(examples), length)
	for i, e := range encodings {
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
	var answers []*tf.Tensor
	if err := catch(func() { answers = m.saved.Exec([]tf.Output{m.output}, feeds) }); err != nil {
		return nil, err
	}
	out, ok := answers[0].Value().([][]float32)
	if !ok || len(out) != len(examples) || len(out[0]) != len(m.labels) {
		return nil, fmt.Errorf("the model gives %v %v for %d examples and %d labels",
			answers[0].DataType(), answers[0].Shape(), len(examples), len(m.labels))
	}
	return out, nil
}

// rows makes an n by length matrix of zeros.
func rows(n, length int) [][]int32 {
	all := make([]int32, n*length)
	out := make([][]int32, n)
	for i := range out {
		out[i] = all[i*length : (i+1)*length]
	}
	return out
}

// catch turns what tfgo panics with into an error of one line.
func catch(f func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case runtime.Error:
			panic(p)
		case error, string:
			line, _, _ := strings.Cut(fmt.Sprint(p), "\n")
			err = fmt.Errorf("TensorFlow: %s", line)
		default:
			panic(p)
		}
	}()
	f()
	return nil
}
