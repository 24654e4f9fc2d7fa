// Package layout defines the layout of a folder written by gorbit export, and reads its
// description. It does not depend on TensorFlow, so programs with any binding can use it.
// docs/guide/serving.md describes the folder.
package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/text"
)

// Paths inside a served model, with slashes.
const (
	ModelFile       = "saved_model.pb"
	VariablesPrefix = "variables/variables"
	AssetsFolder    = "assets"
	DescriptionFile = AssetsFolder + "/gorbit-serving.json"
	VocabFile       = AssetsFolder + "/vocab.txt"
	LabelsFile      = AssetsFolder + "/labels.txt"
)

// Format and Version identify a description. Version 1 is read as well: it is that of classifiers of
// texts and has no answers.
const (
	Format  = "gorbit-serving"
	Version = 2

	oldestVersion = 1
)

// Tag is the tag of the SavedModel's one graph.
const Tag = "serve"

// Signature is the name of the signature for predictions.
const Signature = "serving_default"

// Names of the tensors of a signature that takes texts: three of int32 [B, S]; and of a classifier's
// two of float32 [B, labels].
const (
	InputIDs      = "input_ids"
	AttentionMask = "attention_mask"
	TokenTypeIDs  = "token_type_ids"
	Probabilities = "probabilities"
	Logits        = "logits"
)

// maxDescriptionBytes is the maximum size of the description, enough for the names of a
// million labels.
const maxDescriptionBytes = 64 << 20

// Description is the content of assets/gorbit-serving.json.
type Description struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Task is the task of the contract, for instance "classification".
	Task string `json:"task"`
	// Labels are the names of the classes, in the order of their numbers; empty if there are none.
	Labels []string `json:"labels"`
	// Vocab is the name of the vocabulary file in the assets folder; "" for a model that takes no
	// texts.
	Vocab string `json:"vocab"`
	// VocabSHA256 is the checksum of that file in hexadecimal digits; "" in descriptions that do not say it.
	VocabSHA256 string `json:"vocab_sha256,omitempty"`
	// Lowercase and the fields after it say how texts were prepared for a vocab.txt in training, as those of
	// text.Config. StripAccents is nil if accents are stripped as Lowercase says.
	Lowercase       bool  `json:"lowercase"`
	StripAccents    *bool `json:"strip_accents,omitempty"`
	LiteralSpecials bool  `json:"literal_specials,omitempty"`
	Unclean         bool  `json:"unclean,omitempty"`
	JoinIdeographs  bool  `json:"join_ideographs,omitempty"`
	MaxWordChars    int   `json:"max_word_chars,omitempty"`
	// MaxLength is the maximum number of tokens of an example, including [CLS] and [SEP].
	MaxLength int `json:"max_length"`
	// DocStride is the number of tokens that neighbouring windows of a long context share, of a model
	// that answers questions; 0 means 128.
	DocStride int `json:"doc_stride,omitempty"`
	// Pairs reports whether the model was trained on pairs of texts. It is nil in descriptions
	// that do not say it.
	Pairs *bool `json:"pairs,omitempty"`
	// Inputs and Outputs map the names of the signature to tensors of the graph, as
	// "operation:index".
	Inputs  map[string]string `json:"inputs"`
	Outputs map[string]string `json:"outputs"`
	// Answers describe the outputs that answers are made of, in order. There are none if the
	// signature gives none of the outputs that the contract describes, as that of a masked language
	// model, which gives logits of all positions.
	Answers []Answer `json:"answers,omitempty"`
	// Features describe the inputs of a model that takes no texts, by the names of the signature.
	Features []Feature `json:"features,omitempty"`
	// Generation is what there is to know of a model that makes texts, a predict.Maker, and Calls are the
	// signatures with which it makes them, by their names; nil of other models.
	Generation json.RawMessage `json:"generation,omitempty"`
	Calls      map[string]Call `json:"calls,omitempty"`
	// Model is the contract's description of the model.
	Model json.RawMessage `json:"model"`
	// Int8 describes a model whose dense layers compute in int8; nil of others.
	Int8 *Int8 `json:"int8,omitempty"`
}

// Int8 describes which layers of a model compute in int8, and what it costs.
type Int8 struct {
	// Layers is the number of matrices, and Weights that of their numbers.
	Layers  int   `json:"layers"`
	Weights int64 `json:"weights"`
	// Embeddings is the number of the numbers of tables; 0 if these are in float32.
	Embeddings int64 `json:"embeddings,omitempty"`
	// Quality is nil if it was not measured.
	Quality *Quality `json:"quality,omitempty"`
}

// String says it in words.
func (i *Int8) String() string {
	out := fmt.Sprintf("%d matrices of %s weights", i.Layers, words.Thousands(i.Weights))
	if i.Embeddings > 0 {
		out += fmt.Sprintf(", and embeddings of %s", words.Thousands(i.Embeddings))
	}
	out += "; "
	q := i.Quality
	if q == nil {
		return out + "what that costs was not measured"
	}
	return out + fmt.Sprintf("%s %.4f on the %d examples of split %s, %.4f in float32; %.2f%% of the answers differ", q.Metric, q.Int8, q.Examples, q.Split, q.Float32, 100*q.Different)
}

// Quality compares a model with the same in float32, on the examples of a split.
type Quality struct {
	Split    string `json:"split"`
	Examples int    `json:"examples"`
	// Metric is accuracy, the share of right labels, or loss. Float32 and Int8 are its values.
	Metric  string  `json:"metric"`
	Float32 float64 `json:"float32"`
	Int8    float64 `json:"int8"`
	// Different is the share of answers that differ.
	Different float64 `json:"different"`
}

// Lost returns how much worse the model is than in float32: points of accuracy, or percent of the loss.
func (q Quality) Lost() float64 {
	if q.Metric == MetricAccuracy {
		return 100 * (q.Float32 - q.Int8)
	}
	return 100 * (q.Int8 - q.Float32) / q.Float32
}

// Values of Quality.Metric.
const (
	MetricAccuracy = "accuracy"
	MetricLoss     = "loss"
)

// Call has the tensors of a signature, as the description's Inputs and Outputs.
type Call struct {
	Inputs  map[string]string `json:"inputs"`
	Outputs map[string]string `json:"outputs"`
}

// Names of the Calls: MakeCaches makes caches of so many slots, Encode reads sources into those of a model that
// has any, and Generate computes next tokens.
const (
	MakeCaches = "make_caches"
	Encode     = "encode"
	Generate   = "generate"
)

// Inputs of the Calls that only they have, as the contract names them.
const (
	PositionIDs = "position_ids"
	Slots       = "slots"
	SourceSlots = "source_slots"
	Context     = "context"
	Last        = "last"
	Source      = "source"
)

// Answer describes an output of the model.
type Answer struct {
	// Name is that of the signature's output.
	Name string `json:"name"`
	// Kind says what the values are, as in the contract.
	Kind string `json:"kind"`
	// Of is the label that the output is about, and Classes the names of its classes; both may be
	// missing.
	Of      string   `json:"of,omitempty"`
	Classes []string `json:"classes,omitempty"`
	// Tokens means that the output has a value for each token of an example, and not one for the
	// example.
	Tokens bool `json:"tokens,omitempty"`
}

// Feature describes an input of the model.
type Feature struct {
	// Name is that of the signature's input. Record is the name of the feature in records.
	Name   string `json:"name"`
	Record string `json:"record"`
	// DType is uint8, int32, int64, float32 or bool.
	DType string `json:"dtype"`
	// Axes are the names of the axes, the first of which is that of the examples. Shape has their
	// lengths, -1 where one is open.
	Axes  []string `json:"axes"`
	Shape []int64  `json:"shape"`
	// Minimum is the smallest valid value of an integer. Valid values are less than Below. Nil
	// means no limit.
	Minimum *int64 `json:"minimum,omitempty"`
	Below   *int64 `json:"below,omitempty"`
	// Pad fills up an open axis.
	Pad float64 `json:"pad,omitempty"`
	// Make is what the feature is made of instead of values of the record, as in the contract.
	Make string `json:"make,omitempty"`
	// JPEG names what decodes JPEG images in records, as dataset.Spec does; "" is Go's library.
	JPEG string `json:"jpeg,omitempty"`
	// Source says how the values were converted from columns of tables, as the manifest of the data
	// does.
	Source json.RawMessage `json:"source,omitempty"`
}

// otherModels are the other files from which TensorFlow may read a graph, besides
// ModelFile.
var otherModels = []string{"saved_model.cpb", "saved_model.pbtxt"}

// Read reads the description of the served model in a folder. Its errors say what the
// folder lacks. If the served model is damaged, they are of class fault.Damaged.
func Read(dir string) (*Description, error) {
	info, err := vfs.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("model %s: no such folder", dir)
	case err != nil:
		return nil, fmt.Errorf("model %s: %w", dir, err)
	case !info.IsDir():
		return nil, fmt.Errorf("model %s: not a folder", dir)
	}
	lacks := func(path string) bool { // what cannot be looked at now may be there
		_, err := vfs.Stat(filepath.Join(dir, filepath.FromSlash(path)))
		return err != nil && !fault.OfMachine(err)
	}
	switch {
	case lacks(ModelFile):
		return nil, fmt.Errorf("model %s: not a SavedModel: it has no %s", dir, ModelFile)
	case lacks(DescriptionFile) && !lacks(AssetsFolder+"/gorbit.json"):
		return nil, fmt.Errorf("model %s: a graph to train; expected a trained model, written by gorbit export", dir)
	case lacks(DescriptionFile):
		return nil, fmt.Errorf("model %s: a SavedModel, but not one written by gorbit export: it has no %s", dir, DescriptionFile)
	case lacks(VariablesPrefix + ".index"):
		return nil, fault.Damagedf("model %s: it has no %s.index, which holds its variables", dir, VariablesPrefix)
	}
	if err := variables(filepath.Join(dir, filepath.Dir(VariablesPrefix))); err != nil {
		return nil, fmt.Errorf("model %s: %w", dir, err)
	}
	for _, name := range otherModels {
		if !lacks(name) {
			return nil, fmt.Errorf("model %s: it has a graph in %s and another in %s; remove the one not written by gorbit export", dir, ModelFile, name)
		}
	}
	d, err := readDescription(filepath.Join(dir, filepath.FromSlash(DescriptionFile)))
	if err != nil {
		return nil, err
	}
	if vocab := AssetsFolder + "/" + d.Vocab; d.Vocab != "" && lacks(vocab) {
		return nil, fault.Damagedf("model %s: its vocabulary %s is missing", dir, vocab)
	}
	return d, nil
}

// variables checks that the files of a folder can be read: TensorFlow would wait for the writer of a pipe.
func variables(folder string) error {
	entries, err := vfs.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		f, err := vfs.Open(filepath.Join(folder, e.Name()))
		if err != nil {
			return err
		}
		f.Close()
	}
	return nil
}

func readDescription(path string) (*Description, error) {
	data, err := vfs.ReadBounded(path, maxDescriptionBytes)
	if err != nil {
		return nil, err
	}
	d, err := Parse(data)
	if err != nil {
		return nil, fault.Damagedf("%s: %w", path, err)
	}
	return d, nil
}

// Parse reads a description and checks it.
func Parse(data []byte) (*Description, error) {
	d := new(Description)
	if err := json.Unmarshal(data, d); err != nil {
		return nil, fmt.Errorf("not a description of a model: %w", err)
	}
	if err := d.Validate(); err != nil {
		return nil, err
	}
	if d.Version == oldestVersion {
		d.Answers = []Answer{{Name: Probabilities, Kind: Probabilities, Classes: d.Labels}, {Name: Logits, Kind: Logits, Classes: d.Labels}}
	}
	return d, nil
}

// SetTokenizer describes how texts are prepared for a vocab.txt.
func (d *Description) SetTokenizer(cfg text.Config) {
	d.Lowercase, d.StripAccents = cfg.Lowercase, nil
	if strips := cfg.StripsAccents(); strips != cfg.Lowercase {
		d.StripAccents = &strips
	}
	d.LiteralSpecials, d.Unclean, d.JoinIdeographs, d.MaxWordChars = cfg.LiteralSpecials, cfg.Unclean, cfg.JoinIdeographs, cfg.MaxWordChars
	if d.MaxWordChars == text.DefaultMaxWordChars {
		d.MaxWordChars = 0
	}
}

// TokenizerConfig returns how texts are prepared for a vocab.txt.
func (d *Description) TokenizerConfig() text.Config {
	cfg := text.Config{Lowercase: d.Lowercase, LiteralSpecials: d.LiteralSpecials, Unclean: d.Unclean, JoinIdeographs: d.JoinIdeographs, MaxWordChars: d.MaxWordChars}
	if d.StripAccents != nil {
		cfg.Accents = text.KeepAccents
		if *d.StripAccents {
			cfg.Accents = text.StripAccents
		}
	}
	return cfg
}

// Validate returns an error that names the first invalid field.
func (d *Description) Validate() error {
	switch {
	case d.Format != Format:
		return fmt.Errorf("format is %q; expected %q", d.Format, Format)
	case d.Version != Version && d.Version != oldestVersion:
		return fmt.Errorf("version is %d; expected %d; export the model again", d.Version, Version)
	}
	if err := CheckLabels(d.Labels); err != nil {
		return err
	}
	inputs, outputs := []string{InputIDs, AttentionMask, TokenTypeIDs}, []string{Probabilities, Logits}
	if d.Version == oldestVersion {
		if len(d.Labels) < 2 {
			return fmt.Errorf("number of labels is %d; expected 2 or more", len(d.Labels))
		}
	}
	if d.Version == oldestVersion || d.Vocab != "" || d.MaxLength != 0 {
		if err := d.validateTexts(); err != nil {
			return err
		}
	} else {
		inputs = nil
		if len(d.Features) == 0 {
			return errors.New("the model has neither a vocabulary nor features; expected one of them")
		}
		for _, f := range d.Features {
			if err := f.validate(); err != nil {
				return err
			}
			inputs = append(inputs, f.Name)
		}
	}
	if d.Version != oldestVersion {
		outputs = nil
		for _, a := range d.Answers {
			outputs = append(outputs, a.Name)
			if err := CheckLabels(a.Classes); err != nil {
				return fmt.Errorf("answers: %s: %w", a.Name, err)
			}
		}
	}
	if d.Generation != nil { // whose sources may be beside other inputs
		inputs = slices.Sorted(maps.Keys(d.Inputs))
	}
	if err := (Call{d.Inputs, d.Outputs}).validate(inputs, outputs); err != nil {
		return err
	}
	return d.validateCalls()
}

// validate returns an error for the first tensor that is missing or has no name.
func (c Call) validate(inputs, outputs []string) error {
	for _, name := range inputs {
		if _, _, err := ParseTensor(c.Inputs[name]); err != nil {
			return fmt.Errorf("inputs: %s: %w", name, err)
		}
	}
	for _, name := range outputs {
		if _, _, err := ParseTensor(c.Outputs[name]); err != nil {
			return fmt.Errorf("outputs: %s: %w", name, err)
		}
	}
	return nil
}

// validateCalls checks the signatures of a model that makes texts.
func (d *Description) validateCalls() error {
	if d.Generation == nil {
		return nil
	}
	for _, name := range []string{MakeCaches, Generate} {
		if _, ok := d.Calls[name]; !ok {
			return fmt.Errorf("calls: there is no %s; expected those with which texts are made; make the graph and export the model again", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Calls)) {
		c := d.Calls[name]
		if len(c.Outputs) != 1 {
			return fmt.Errorf("calls: %s has %d outputs; expected one", name, len(c.Outputs))
		}
		if err := c.validate(slices.Sorted(maps.Keys(c.Inputs)), slices.Sorted(maps.Keys(c.Outputs))); err != nil {
			return fmt.Errorf("calls: %s: %w", name, err)
		}
	}
	return nil
}

// validateTexts checks the fields of a model that takes texts.
func (d *Description) validateTexts() error {
	switch {
	case d.MaxLength < 3:
		return fmt.Errorf("max_length is %d; expected 3 or more", d.MaxLength)
	case d.DocStride < 0:
		return fmt.Errorf("doc_stride is %d; expected 0 or more", d.DocStride)
	case d.Vocab == "" || strings.ContainsAny(d.Vocab, `/\`) || d.Vocab == "." || d.Vocab == "..":
		return fmt.Errorf("vocab is %q; expected the name of a file in %s", d.Vocab, AssetsFolder)
	}
	return nil
}

// maxElements limits the values of a feature of one example.
const maxElements = 1 << 30

// validate returns an error that names the first invalid field.
func (f Feature) validate() error {
	switch {
	case f.Name == "" || f.Record == "" && f.Make == "":
		return fmt.Errorf("features: %q of the record's %q has no name", f.Name, f.Record)
	case !slices.Contains([]string{"uint8", "int32", "int64", "float32", "bool"}, f.DType):
		return fmt.Errorf("features: %s is %q; expected uint8, int32, int64, float32 or bool", f.Name, f.DType)
	case len(f.Axes) == 0 || len(f.Axes) != len(f.Shape):
		return fmt.Errorf("features: %s has %d axes and a shape of %d; expected as many, and one or more", f.Name, len(f.Axes), len(f.Shape))
	}
	elements := int64(1)
	for _, d := range f.Shape {
		if d == 0 || d < -1 || d > maxElements/elements {
			return fmt.Errorf("features: %s has the shape %v; expected lengths of 1 or more, or -1, and at most %d values", f.Name, f.Shape, maxElements)
		}
		elements *= max(d, 1)
	}
	return nil
}

// CheckLabels returns an error for the first label that is invalid or declared twice.
func CheckLabels(labels []string) error {
	seen := make(map[string]bool, len(labels))
	for _, label := range labels {
		if label == "" || strings.ContainsAny(label, "\t\r\n") {
			return fmt.Errorf("labels: %q is empty or has a tab or a line break", label)
		}
		if seen[label] {
			return fmt.Errorf("labels: %q is declared twice", label)
		}
		seen[label] = true
	}
	return nil
}

// ParseTensor splits "operation:index" into its parts.
func ParseTensor(name string) (operation string, index int, err error) {
	operation, number, ok := strings.Cut(name, ":")
	if ok {
		_, err = fmt.Sscanf(number, "%d", &index)
	}
	if !ok || err != nil || operation == "" || index < 0 || fmt.Sprint(index) != number {
		return "", 0, fmt.Errorf("tensor is %q; expected operation:index", name)
	}
	return operation, index, nil
}
