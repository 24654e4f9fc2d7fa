// Package described has what programs need of a served model in addition to its graph: the
// tokenizer, the answers and the layout of examples. It does not depend on TensorFlow, so programs
// with any binding can use it. Package layout describes the folder.
package described

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/dense"
	"github.com/gorbit-ml/gorbit/graphs/safety"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/layout"
	"github.com/gorbit-ml/gorbit/internal/data/tokenizers"
	_ "github.com/gorbit-ml/gorbit/internal/exec/tfjpeg" // a decoder of images
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// Model is a served model whose graph was not loaded.
type Model struct {
	*layout.Description
	Dir string
	// Tokenizer is nil if the model takes no texts.
	Tokenizer *text.Tokenizer
	// Renderer makes answers of the outputs that the description lists as Answers.
	Renderer predict.Renderer
	// Maker is how the model makes texts; nil if it does not.
	Maker *predict.Maker
}

// Read reads the description of the served model in a folder, and the files that it names. The error for
// a damaged model is of class fault.Damaged.
func Read(dir string) (*Model, error) {
	d, err := layout.Read(dir)
	if err != nil {
		return nil, err
	}
	m := &Model{Description: d, Dir: dir}
	if d.Vocab != "" {
		if m.Tokenizer, err = m.tokenizer(); err != nil {
			return nil, err
		}
	}
	var outputs []predict.OutputSpec
	for _, a := range d.Answers {
		outputs = append(outputs, predict.OutputSpec{Name: a.Name, Kind: predict.Kind(a.Kind), Of: a.Of, Classes: a.Classes})
	}
	if d.Generation != nil {
		if err := m.readMaker(); err != nil {
			return nil, fault.Damagedf("model %s: generation: %w", dir, err)
		}
	}
	switch {
	case len(outputs) == 0 && m.Maker != nil:
		m.Renderer = predict.Generation{}.Renderer()
		return m, nil
	case len(outputs) == 0:
		return nil, fault.Usagef("model %s gives %s and no answers; expected a model of another task; use gorbit predict --run, or load it with TensorFlow", dir, strings.Join(slices.Sorted(maps.Keys(d.Outputs)), ", "))
	}
	if m.Renderer, err = predict.NewRenderer(d.Task, outputs); err != nil {
		return nil, fault.Damagedf("model %s: %w", dir, err)
	}
	return m, nil
}

// tokenizer returns the tokenizer of a model that takes texts.
func (m *Model) tokenizer() (*text.Tokenizer, error) {
	file, err := tokenizers.Open(filepath.Join(m.Dir, layout.AssetsFolder, m.Vocab), m.TokenizerConfig())
	if err != nil {
		return nil, fault.Damagedf("model %s: %w", m.Dir, err)
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(file.Content)); m.VocabSHA256 != "" && sum != m.VocabSHA256 {
		return nil, fault.Damagedf("model %s: %s is not the vocabulary that the model was exported with; its checksum differs; export the model again", m.Dir, m.Vocab)
	}
	size := file.Tokenizer.Vocab().Size()
	var sizes struct {
		Config struct {
			VocabSize int `json:"vocab_size"`
		} `json:"config"`
	}
	if err := json.Unmarshal(m.Description.Model, &sizes); err == nil && sizes.Config.VocabSize > 0 && size != sizes.Config.VocabSize && (file.Name == tokenizers.Vocab || size > sizes.Config.VocabSize) {
		return nil, fault.Damagedf("model %s: its vocabulary has %d tokens; expected %d, as in the graph; export the model again", m.Dir, size, sizes.Config.VocabSize)
	}
	return file.Tokenizer, nil
}

// maxModelBytes is protobuf's own limit on a message.
const maxModelBytes = 2<<30 - 1

// ReadGraph reads the SavedModel into a message of the program's binding. It returns a *safety.Error for
// a model that can do more than compute, except for operations named in allowOps, and an error
// of class fault.Damaged for one whose functions call themselves. TensorFlow has not seen the model then,
// so nothing of it has run.
func (m *Model) ReadGraph(saved proto.Message, allowOps []string) error {
	path := filepath.Join(m.Dir, layout.ModelFile)
	data, err := vfs.ReadBounded(path, maxModelBytes)
	if err != nil {
		return fmt.Errorf("model %s: %w", m.Dir, err)
	}
	if err := proto.Unmarshal(data, saved); err != nil {
		return fault.Damagedf("model %s: %s cannot be parsed: %w", m.Dir, layout.ModelFile, err)
	}
	if err := safety.CheckCalls(saved); err != nil {
		return fault.Damagedf("model %s: %w", m.Dir, err)
	}
	run := slices.Collect(maps.Values(m.Outputs))
	for _, c := range m.Calls {
		run = slices.AppendSeq(run, maps.Values(c.Outputs))
	}
	return safety.Refuse("model", m.Dir, safety.Check(saved, run...), allowOps)
}

// Rows returns how the features are made of the columns of tables, and the tokenizer of those that are
// texts; nil if none is.
func (m *Model) Rows() (features []convert.Feature, tokenizer *text.Tokenizer, err error) {
	for _, f := range m.Features {
		if f.Make != "" {
			continue
		}
		var made convert.Feature
		if err := json.Unmarshal(f.Source, &made); err != nil {
			return nil, nil, fault.Damagedf("the model's feature %s does not say how it is made of columns: %w", f.Name, err)
		}
		features = append(features, made)
	}
	tokenizer, err = convert.TokenizerOf(features, tokenizers.Exists(filepath.Join(m.Dir, layout.AssetsFolder)))
	return features, tokenizer, err
}

// Layout returns how records become the batches that a model answers that takes no texts.
func (m *Model) Layout() dense.Config {
	l := dense.Config{Labels: dataset.LabelsNone}
	for _, f := range m.Features {
		s := dataset.Spec{Name: f.Name, DType: dataset.DType(f.DType), Make: f.Make, Minimum: f.Minimum, Below: f.Below, Pad: f.Pad}
		if f.Make == "" {
			s.Record, s.JPEG = []string{f.Record}, f.JPEG
		}
		for _, d := range f.Shape[1:] {
			s.Shape = append(s.Shape, int(d))
		}
		l.Features = append(l.Features, s)
	}
	return l
}

// PlainPath returns a path to a folder without pattern characters. TensorFlow treats the names of
// variable files as patterns, so a folder such as "lr[1e-5]" is reached through a symbolic link with a
// plain name. Call done after loading.
func PlainPath(dir string) (path string, done func(), err error) {
	if !strings.ContainsAny(dir, `*?[\`) {
		return dir, func() {}, nil
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return "", nil, err
	}
	temp, err := os.MkdirTemp("", "gorbit-model-")
	if err != nil {
		return "", nil, err
	}
	path = filepath.Join(temp, "model")
	if err := os.Symlink(dir, path); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(temp))
	}
	return path, func() { os.RemoveAll(temp) }, nil
}

// WithGraph makes a folder with another graph and a model's variables, for a loader that takes a folder. Call
// done after loading.
func WithGraph(dir string, saved proto.Message) (path string, done func(), err error) {
	graph, err := proto.Marshal(saved)
	if err != nil {
		return "", nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", nil, err
	}
	if path, err = os.MkdirTemp("", "gorbit-model-"); err != nil {
		return "", nil, err
	}
	variables := filepath.Dir(filepath.FromSlash(layout.VariablesPrefix))
	err = errors.Join(os.Symlink(filepath.Join(dir, variables), filepath.Join(path, variables)),
		vfs.WriteFile(filepath.Join(path, filepath.FromSlash(layout.ModelFile)), graph))
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(path))
	}
	return path, func() { os.RemoveAll(path) }, nil
}
