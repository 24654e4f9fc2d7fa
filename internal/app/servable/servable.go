package servable

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	tf "github.com/wamuir/graft/tensorflow"
	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	spb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/dtype"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/layout"
	"github.com/gorbit-ml/gorbit/internal/data/tokenizers"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// Options describe a served model to write.
type Options struct {
	// Export is the export with the graph.
	Export *graphs.Export
	// Variables are the trained values by their names in the export, for instance
	// "model/encoder/layers/0/attention/query/kernel". Others are ignored.
	Variables map[string]*tf.Tensor
	// Vocab is the path of the vocabulary; "" for a model that takes no texts, which has Features.
	// FeatureVocab is that of features that are made of texts; "" if there are none.
	Vocab        string
	Features     []layout.Feature
	FeatureVocab string
	// Labels are the names of the first label's classes, in the order of their numbers.
	Labels []string
	// Classes are the names of the classes of further labels, by the label.
	Classes map[string][]string
	// Tokenizer says how texts were prepared for a vocab.txt in training, and MaxLength to how many tokens
	// they were cut.
	Tokenizer text.Config
	MaxLength int
	// DocStride is the number of tokens that neighbouring windows of a context share; 0 for the default.
	DocStride int
	// Pairs reports whether the model was trained on pairs of texts; nil if that is not known.
	Pairs *bool
	// Maker is how the model makes texts; nil if it does not.
	Maker *predict.Maker
	// Int8 makes the model compute its dense layers in int8, see package dense. Measure, if it is not nil, is
	// called with the folder then, which has all but the description's Int8.Quality: what it returns is that.
	Int8    bool
	Measure func(ctx context.Context, dir string) (*layout.Quality, error)
	// Out is the folder to write. It must not exist. With Overwrite it may be a served
	// model, which is replaced.
	Out       string
	Overwrite bool
}

// Validate returns an error if an option is missing or does not match the export.
func (o Options) Validate() error {
	switch {
	case o.Export == nil:
		return errors.New("no export")
	case o.Out == "":
		return errors.New("no folder to write")
	case o.Vocab == "" && len(o.Features) == 0:
		return errors.New("no vocabulary")
	}
	model := o.Export.Contract.Model
	n := 0
	if label := o.Export.Contract.Label(); label != nil {
		n = label.Classes()
	}
	if n > 0 && len(o.Labels) != n {
		return fault.Usagef("number of labels is %d; expected %d, as in the model of %s", len(o.Labels), n, o.Export.Path)
	}
	if err := layout.CheckLabels(o.Labels); err != nil {
		return fault.Usagef("%w; expected a different name for each label", err)
	}
	if most := model.ConfigInt("max_position_embeddings"); most > 0 && o.MaxLength > most {
		return fmt.Errorf("max_length is %d; expected at most %d, the positions of the model of %s", o.MaxLength, most, o.Export.Path)
	}
	return nil
}

// Write writes a served model. The folder is complete or does not exist: it is written
// under another name, flushed to disk, and renamed.
func Write(ctx context.Context, o Options) error {
	if err := o.Validate(); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return publish(o, isServed, func(dir string) error { return write(ctx, o, dir) })
}

// isServed reports whether a folder has a served model.
func isServed(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, filepath.FromSlash(layout.DescriptionFile)))
	return err == nil
}

// publish fills a folder under another name, flushes it to disk, and renames it. A folder that is
// there is replaced if the options say so and it is one that ours recognises.
func publish(o Options, ours func(dir string) bool, fill func(dir string) error) error {
	out := filepath.Clean(o.Out)
	parent := filepath.Dir(out)
	if err := vfs.MkdirAll(parent, 0o777); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	part, release, err := newPart(out)
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	defer release()
	// Not earlier: a model that a killed export moved away is only now back in its place.
	replace, err := target(out, ours, o.Overwrite)
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	if err := fill(part); err != nil {
		return fmt.Errorf("export to %s: %w", o.Out, err)
	}
	if replace {
		err = exchange(part, out)
	} else if err = vfs.Rename(part, out); errors.Is(err, fs.ErrExist) {
		_, err = target(out, ours, false) // another export was first
	}
	if err == nil {
		err = vfs.SyncDir(parent)
	}
	if err != nil {
		return fmt.Errorf("export to %s: %w", o.Out, err)
	}
	return nil
}

// target reports whether there is a model to replace, and returns an error if anything else is in the way.
func target(out string, ours func(dir string) bool, overwrite bool) (replace bool, err error) {
	_, err = os.Lstat(out)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !overwrite:
		return false, fault.Usagef("%s already exists; choose another folder, or add --overwrite to replace it", out)
	}
	// Replace only a served model, never a folder named by mistake.
	if !ours(out) {
		return false, fault.Usagef("%s already exists and is not a model written by gorbit export, so it is not overwritten; choose another folder", out)
	}
	return true, nil
}

// write fills a new folder.
func write(ctx context.Context, o Options, dir string) error {
	template := filepath.Join(o.Export.Path, graphs.ServingFolder, layout.ModelFile)
	data, err := vfs.ReadBounded(template, graphs.MaxModelBytes)
	if err != nil {
		return fmt.Errorf("the graph's serving model: %w", err)
	}
	model, err := parseModel(data)
	if err != nil {
		return fmt.Errorf("%s: %w", template, err)
	}
	tensors, err := variables(model, o)
	if err != nil {
		return fmt.Errorf("%s: %w", template, err)
	}
	d, vocab, err := describe(model, o)
	if err != nil {
		return err
	}
	if o.Int8 {
		if data, d.Int8, err = round(data, tensors); err != nil {
			return fmt.Errorf("%s: %w", template, err)
		}
	}
	description, err := encode(d)
	if err != nil {
		return err
	}

	var labels []byte
	if len(o.Labels) > 0 {
		labels = []byte(strings.Join(o.Labels, "\n") + "\n")
	}

	for _, folder := range []string{filepath.Join(dir, filepath.Dir(layout.VariablesPrefix)), filepath.Join(dir, layout.AssetsFolder)} {
		if err := vfs.Mkdir(folder, 0o777); err != nil {
			return err
		}
	}
	for _, file := range []struct {
		path string
		data []byte
	}{
		{layout.ModelFile, data},
		{layout.AssetsFolder + "/" + tokenizers.NameOf(vocab), vocab},
		{layout.LabelsFile, labels},
		{layout.DescriptionFile, description},
	} {
		if file.data == nil {
			continue
		}
		if err := vfs.WriteFile(filepath.Join(dir, filepath.FromSlash(file.path)), file.data); err != nil {
			return err
		}
	}
	if err := checkpoint.WriteBundle(ctx, filepath.Join(dir, filepath.FromSlash(layout.VariablesPrefix)), tensors); err != nil {
		return err
	}
	if o.Int8 && o.Measure != nil {
		if err := o.measure(ctx, dir, d); err != nil {
			return err
		}
	}
	if err := vfs.SyncDir(filepath.Join(dir, layout.AssetsFolder)); err != nil {
		return err
	}
	return vfs.SyncDir(dir)
}

func parseModel(data []byte) (*spb.MetaGraphDef, error) {
	model := new(spb.SavedModel)
	if err := proto.Unmarshal(data, model); err != nil {
		return nil, fmt.Errorf("not a SavedModel: %w", err)
	}
	if n := len(model.GetMetaGraphs()); n != 1 {
		return nil, fmt.Errorf("has %d graphs; expected one", n)
	}
	return model.GetMetaGraphs()[0], nil
}

// readVocab returns the vocabulary.
func (o Options) readVocab() (*tokenizers.File, error) {
	f, err := tokenizers.Open(o.Vocab, o.Tokenizer)
	if err != nil {
		return nil, err
	}
	if rows, size := o.Export.Contract.Model.ConfigInt("vocab_size"), f.Tokenizer.Vocab().Size(); rows > 0 && size > rows {
		return nil, fmt.Errorf("the vocabulary %s has %d entries; expected %d, as in the model", o.Vocab, size, rows)
	}
	return f, nil
}

// answers describes the outputs that the contract knows and the signature has.
func (o Options) answers(outputs map[string]*spb.TensorInfo) []layout.Answer {
	var out []layout.Answer
	c := o.Export.Contract
	for _, output := range c.Outputs {
		if outputs[output.Name] == nil {
			continue
		}
		a := layout.Answer{Name: output.Name, Kind: output.Kind, Of: output.Of, Classes: o.Classes[output.Of], Tokens: slices.Contains(output.Axes, "length") || c.Padded(output)}
		if label := c.Label(); label != nil && output.Of == label.Name {
			a.Classes = o.Labels
		}
		out = append(out, a)
	}
	return out
}

// firstSlots is the number of slots of a cache before a program makes it, as gorbit_export says.
const firstSlots = 2

// describe builds the description and reads the vocabulary.
func describe(model *spb.MetaGraphDef, o Options) (d *layout.Description, vocab []byte, err error) {
	c := o.Export.Contract
	vocabName, sum, prepared := "", "", text.Config{}
	if o.Vocab != "" {
		file, err := o.readVocab()
		if err != nil {
			return nil, nil, err
		}
		vocab, vocabName, prepared = file.Content, file.Name, file.Config
		sum = fmt.Sprintf("%x", sha256.Sum256(vocab))
	} else if o.FeatureVocab != "" {
		if vocab, err = vfs.ReadBounded(o.FeatureVocab, tokenizers.MaxBytes); err != nil {
			return nil, nil, fmt.Errorf("vocabulary: %w", err)
		}
	}
	signature, ok := model.GetSignatureDef()[layout.Signature]
	if !ok {
		return nil, nil, fmt.Errorf("the graph's serving model has no signature %s", layout.Signature)
	}
	d = &layout.Description{
		Format: layout.Format, Version: layout.Version,
		Task:        c.Task,
		Labels:      o.Labels,
		Vocab:       vocabName,
		VocabSHA256: sum,
		MaxLength:   o.MaxLength,
		DocStride:   o.DocStride,
		Pairs:       o.Pairs,
		Inputs:      tensorNames(signature.GetInputs()),
		Outputs:     tensorNames(signature.GetOutputs()),
		Answers:     o.answers(signature.GetOutputs()),
		Features:    o.Features,
	}
	if o.Maker != nil {
		if err := o.describeGeneration(d, model); err != nil {
			return nil, nil, err
		}
	}
	d.SetTokenizer(prepared)
	if d.Model, err = json.Marshal(c.Model); err != nil {
		return nil, nil, err
	}
	return d, vocab, d.Validate()
}

// encode returns the file of a description.
func encode(d *layout.Description) ([]byte, error) {
	out, err := json.MarshalIndent(d, "", " ")
	return append(out, '\n'), err
}

// describeGeneration says how texts are made.
func (o Options) describeGeneration(d *layout.Description, model *spb.MetaGraphDef) (err error) {
	names := []string{layout.MakeCaches, layout.Generate}
	if o.Maker.SourceLength > 0 {
		names = append(names, layout.Encode)
	}
	d.Calls = make(map[string]layout.Call)
	for _, name := range names {
		signature, ok := model.GetSignatureDef()[name]
		if !ok {
			return fault.Usagef("the graph's serving model has no signature %s, with which texts are made; expected a graph of this release: make it again with gorbit_export, and take the run's variables by gorbit export --run RUN --set graph=GRAPH", name)
		}
		d.Calls[name] = layout.Call{Inputs: tensorNames(signature.GetInputs()), Outputs: tensorNames(signature.GetOutputs())}
	}
	d.Generation, err = json.Marshal(o.Maker)
	return err
}

// caches adds the caches of generation to what a model restores: their first values, of zeros.
func (o Options) caches(values map[string]*tf.Tensor) error {
	g := o.Export.Contract.Generation
	if g == nil {
		return nil
	}
	all := g.Caches
	if g.Source != nil {
		all = slices.Concat(all, g.Source.Caches)
	}
	for _, c := range all {
		shape := append([]int64{firstSlots}, c.Shape...)
		size := dtype.Of(c.DType).Size()
		for _, d := range shape {
			size *= d
		}
		zeros, err := tf.ReadTensor(tf.DataType(dtype.Of(c.DType)), shape, bytes.NewReader(make([]byte, size)))
		if err != nil {
			return fmt.Errorf("cache %s: %w", c.Name, err)
		}
		values["caches/"+c.Argument()] = zeros
	}
	return nil
}

func tensorNames(tensors map[string]*spb.TensorInfo) map[string]string {
	names := make(map[string]string, len(tensors))
	for key, info := range tensors {
		names[key] = info.GetName()
	}
	return names
}

// variables returns the tensors that the model's restore function reads, under its keys.
func variables(model *spb.MetaGraphDef, o Options) ([]checkpoint.NamedTensor, error) {
	keys, err := restored(model)
	if err != nil {
		return nil, err
	}
	type spec struct {
		Name, DType string
		Shape       []int64
	}
	wanted := make(map[string]spec, len(o.Export.Contract.Variables))
	caches := make(map[string]*tf.Tensor)
	if err := o.caches(caches); err != nil {
		return nil, err
	}
	for name, zeros := range caches {
		wanted[checkpoint.VariableKey(name)] = spec{name, checkpoint.DTypeName(zeros.DataType()), zeros.Shape()}
	}
	for _, v := range o.Export.Contract.Variables {
		wanted[checkpoint.VariableKey(v.Name)] = spec{v.Name, v.DType, v.Shape}
	}
	for _, s := range o.Export.Contract.States {
		wanted[checkpoint.VariableKey(s.Name)] = spec{s.Name, s.DType, s.Shape}
	}
	var tensors []checkpoint.NamedTensor
	var names []string
	for _, key := range keys {
		if key == checkpoint.ObjectGraphKey {
			continue
		}
		v, ok := wanted[key]
		if !ok {
			return nil, fmt.Errorf("restores %s, which is not a variable of %s", key, graphs.ContractFile)
		}
		value := cmp.Or(o.Variables[v.Name], caches[v.Name])
		if value == nil {
			return nil, fmt.Errorf("variable %s has no value", v.Name)
		}
		if dtype := checkpoint.DTypeName(value.DataType()); dtype != v.DType || !slices.Equal(value.Shape(), v.Shape) {
			return nil, fmt.Errorf("variable %s has a value of %s %v; expected %s %v", v.Name, dtype, value.Shape(), v.DType, v.Shape)
		}
		tensors = append(tensors, checkpoint.NamedTensor{Name: key, Value: value})
		names = append(names, v.Name)
	}
	if len(names) == 0 {
		return nil, errors.New("restores no variables")
	}
	graph, err := checkpoint.BuildObjectGraph(names)
	if err != nil {
		return nil, err
	}
	value, err := tf.NewTensor(string(graph))
	if err != nil {
		return nil, err
	}
	return append(tensors, checkpoint.NamedTensor{Name: checkpoint.ObjectGraphKey, Value: value}), nil
}

// restored lists the keys that a SavedModel's restore operation reads: the names passed to
// RestoreV2 in the functions that it calls.
func restored(model *spb.MetaGraphDef) ([]string, error) {
	nodes := model.GetGraphDef().GetNode()
	i := slices.IndexFunc(nodes, func(n *npb.NodeDef) bool { return n.GetName() == model.GetSaverDef().GetRestoreOpName() })
	if i < 0 {
		return nil, errors.New("has no operation that restores its variables")
	}
	functions := make(map[string]*fpb.FunctionDef)
	for _, f := range model.GetGraphDef().GetLibrary().GetFunction() {
		functions[f.GetSignature().GetName()] = f
	}
	var keys []string
	seen := make(map[string]bool)
	var visit func(nodes []*npb.NodeDef)
	visit = func(nodes []*npb.NodeDef) {
		for _, n := range nodes {
			if called := n.GetAttr()["f"].GetFunc().GetName(); called != "" && !seen[called] {
				seen[called] = true
				visit(functions[called].GetNodeDef())
			}
			if n.GetOp() != "RestoreV2" || len(n.GetInput()) != 3 {
				continue
			}
			from, _, _ := strings.Cut(n.GetInput()[1], ":")
			for _, c := range nodes {
				if c.GetName() == from {
					for _, key := range c.GetAttr()["value"].GetTensor().GetStringVal() {
						keys = append(keys, string(key))
					}
				}
			}
		}
	}
	visit(nodes[i : i+1])
	return keys, nil
}
