package servable

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/made"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/tokenizers"
	"github.com/gorbit-ml/gorbit/text"
)

// HuggingFaceWeights is the file of weights in a folder for Hugging Face's transformers.
const HuggingFaceWeights = "model.safetensors"

// WriteHuggingFace writes a folder that Hugging Face's transformers loads: config.json,
// model.safetensors, the files of the tokenizer, and a model card with the results. The folder is
// complete or does not exist, as that of Write.
func WriteHuggingFace(ctx context.Context, o Options, results map[string]float64) error {
	if err := o.Validate(); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	form := o.Export.Contract.Model.HuggingFace
	if form == nil {
		return fault.Usagef("export: %s does not say how Hugging Face stores its model; expected an encoder with a head that transformers has (mean pooling has none); export without --format huggingface", o.Export.Path)
	}
	return publish(o, isHuggingFace, func(dir string) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return o.writeHuggingFace(dir, form, results)
	})
}

// isHuggingFace reports whether a folder has weights that WriteHuggingFace wrote, and not a model from
// elsewhere.
func isHuggingFace(dir string) bool {
	weights, err := checkpoint.OpenSafetensors(filepath.Join(dir, HuggingFaceWeights))
	if err != nil {
		return false
	}
	defer weights.Close()
	return weights.Metadata()[madeBy] == made.WeightsMark
}

// madeBy is the metadata of the weights that says who wrote them.
const madeBy = "made_by"

func (o Options) writeHuggingFace(dir string, form *graphs.HuggingFace, results map[string]float64) error {
	tensors, err := o.huggingFaceTensors(form)
	if err != nil {
		return err
	}
	vocab, err := o.readVocab()
	if err != nil {
		return err
	}
	if vocab.Name == tokenizers.Model {
		return fault.Usagef("export: the tokenizer %s is a SentencePiece model, of which transformers does not know which tokens are around a text; expected data of a tokenizer.json; export without --format huggingface", vocab.Path)
	}
	if cfg := vocab.Config; vocab.Name == tokenizers.Vocab && (cfg.Unclean || cfg.MaxWordChars != 0 && cfg.MaxWordChars != text.DefaultMaxWordChars) {
		return fault.Usagef("export: texts were prepared with Unclean %v and MaxWordChars %d, which transformers cannot be told for a vocab.txt; expected false and %d; export without --format huggingface", cfg.Unclean, cfg.MaxWordChars, text.DefaultMaxWordChars)
	}
	config := maps.Clone(form.Config)
	if len(o.Labels) > 0 {
		numbers, names := make(map[string]int, len(o.Labels)), make(map[string]string, len(o.Labels))
		for i, label := range o.Labels {
			numbers[label], names[strconv.Itoa(i)] = i, label
		}
		config["label2id"], config["id2label"] = numbers, names
	} else if config["problem_type"] == "regression" {
		config["label2id"], config["id2label"] = map[string]int{"LABEL_0": 0}, map[string]string{"0": "LABEL_0"}
	}
	tokenizer, special := o.huggingFaceTokenizer(vocab)
	if types, ok := form.Config["type_vocab_size"].(float64); !ok || types < 2 {
		tokenizer["model_input_names"] = []string{"input_ids", "attention_mask"}
	}
	if o.Maker != nil {
		beginAndEnd(config, tokenizer, special, vocab.Tokenizer)
		if c := o.Maker.Chat; c != nil {
			tokenizer["chat_template"] = c.Template
			for name, token := range c.Tokens {
				tokenizer[name], special[name] = token, token
			}
		}
	} else if err := checkPadding(form, vocab); err != nil {
		return err
	}
	files := []jsonFile{{"config.json", config}, {"tokenizer_config.json", tokenizer}, {"special_tokens_map.json", special}}
	if o.Export.Contract.Task == string(convert.Embed) {
		modules, err := o.sentenceTransformer(dir)
		if err != nil {
			return err
		}
		files = append(files, modules...)
	}
	for _, f := range files {
		data, err := json.MarshalIndent(f.content, "", "  ")
		if err != nil {
			return err
		}
		if err := vfs.WriteFile(filepath.Join(dir, f.name), append(data, '\n')); err != nil {
			return err
		}
	}
	for _, f := range files {
		if at := filepath.Dir(f.name); at != "." {
			if err := vfs.SyncDir(filepath.Join(dir, at)); err != nil {
				return err
			}
		}
	}
	if err := vfs.WriteFile(filepath.Join(dir, vocab.Name), vocab.Content); err != nil {
		return err
	}
	if err := vfs.WriteFile(filepath.Join(dir, "README.md"), o.card(form, results)); err != nil {
		return err
	}
	if err := writeWeights(filepath.Join(dir, HuggingFaceWeights), tensors); err != nil {
		return err
	}
	return vfs.SyncDir(dir)
}

// jsonFile is a file of JSON.
type jsonFile struct {
	name    string
	content any
}

// sentenceTransformer returns the files that make a model of sentence-transformers of an encoder: how the
// vectors of tokens become one. It makes the folders of its parts.
func (o Options) sentenceTransformer(dir string) ([]jsonFile, error) {
	c := o.Export.Contract.Model.Config
	width, ok := o.Export.Contract.Model.HuggingFace.Config["hidden_size"]
	if !ok {
		width = o.Export.Contract.Model.HuggingFace.Config["dim"] // of DistilBERT
	}
	type module struct {
		Number int    `json:"idx"`
		Name   string `json:"name"`
		Path   string `json:"path"`
		Type   string `json:"type"`
	}
	const kind = "sentence_transformers.models."
	modules := []module{{0, "0", "", kind + "Transformer"}, {1, "1", "1_Pooling", kind + "Pooling"}}
	if normalize, _ := c["normalize"].(bool); normalize {
		modules = append(modules, module{2, "2", "2_Normalize", kind + "Normalize"})
	}
	for _, m := range modules[1:] {
		if err := vfs.MkdirAll(filepath.Join(dir, m.Path), 0o777); err != nil {
			return nil, err
		}
	}
	pooling := map[string]any{"word_embedding_dimension": width, "pooling_mode_cls_token": c["pooling"] == "first", "pooling_mode_mean_tokens": c["pooling"] == "mean",
		"pooling_mode_max_tokens": false, "pooling_mode_mean_sqrt_len_tokens": false, "pooling_mode_weightedmean_tokens": false, "pooling_mode_lasttoken": false, "include_prompt": true}
	return []jsonFile{
		{"modules.json", modules},
		{filepath.Join("1_Pooling", "config.json"), pooling},
		{"sentence_bert_config.json", map[string]any{"max_seq_length": o.MaxLength, "do_lower_case": false}},
		{"config_sentence_transformers.json", map[string]any{"prompts": map[string]string{}, "default_prompt_name": nil, "similarity_fn_name": "cosine"}},
	}, nil
}

// huggingFaceTokenizer returns the settings of the tokenizer, and its special tokens.
func (o Options) huggingFaceTokenizer(file *tokenizers.File) (settings map[string]any, special map[string]string) {
	settings, special = map[string]any{"model_max_length": o.MaxLength}, map[string]string{}
	r := file.Tokenizer.Roles()
	for name, id := range map[string]int32{"cls_token": r.Cls, "mask_token": r.Mask, "pad_token": r.Pad, "sep_token": r.Sep, "unk_token": r.Unk} {
		if id >= 0 {
			special[name] = file.Tokenizer.Vocab().Token(id)
			settings[name] = special[name]
		}
	}
	if file.Name == tokenizers.Vocab {
		maps.Copy(settings, map[string]any{"tokenizer_class": "BertTokenizer", "do_lower_case": file.Config.Lowercase,
			"strip_accents": file.Config.StripsAccents(), "tokenize_chinese_chars": !file.Config.JoinIdeographs, "clean_up_tokenization_spaces": true})
	} else {
		settings["tokenizer_class"], settings["clean_up_tokenization_spaces"] = "PreTrainedTokenizerFast", false
	}
	return settings, special
}

// beginAndEnd names the tokens at the beginning and end of a text as causal language models do. A model
// without a number for the last one has the tokenizer's, by which generation stops.
func beginAndEnd(config, settings map[string]any, special map[string]string, t *text.Tokenizer) {
	for _, name := range [][2]string{{"cls_token", "bos_token"}, {"sep_token", "eos_token"}} {
		if token, ok := special[name[0]]; ok {
			special[name[1]], settings[name[1]] = token, token
			delete(special, name[0])
			delete(settings, name[0])
		}
	}
	if end := t.Roles().Sep; end >= 0 && config["eos_token_id"] == nil {
		config["eos_token_id"] = end
	}
}

// checkPadding refuses a vocabulary with a word where transformers counts positions and passes over the
// number of the padding token.
func checkPadding(form *graphs.HuggingFace, file *tokenizers.File) error {
	pad, ok := form.Config["pad_token_id"].(float64)
	vocab, path := file.Tokenizer.Vocab(), file.Path
	if !ok || pad == 0 || int(pad) >= vocab.Size() {
		return nil
	}
	if token := vocab.Token(int32(pad)); token != "[PAD]" && token != "<pad>" && int32(pad) != file.Tokenizer.Roles().Pad {
		return fault.Usagef("export: token %v of the vocabulary %s is %q, and Hugging Face takes it for padding, as the model's pad_token_id; expected a vocabulary with the padding token there", pad, path, token)
	}
	return nil
}

// writeWeights writes a safetensors file and flushes it to disk.
func writeWeights(path string, tensors []checkpoint.SafeTensor) (err error) {
	f, err := vfs.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, 1<<20)
	if err := checkpoint.WriteSafetensors(w, tensors, map[string]string{"format": "pt", madeBy: made.WeightsMark}); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Sync()
}

// huggingFaceTensors returns the variables and states as transformers stores them. Adapters are left
// out, as they are in the merged kernels.
func (o Options) huggingFaceTensors(form *graphs.HuggingFace) ([]checkpoint.SafeTensor, error) {
	c := o.Export.Contract
	adapters := make(map[string]bool) // what merge reads and does not give
	if merge := o.Export.Functions["merge"]; merge != nil {
		for _, name := range merge.Captures {
			adapters[name] = !slices.Contains(c.Merge, name)
		}
	}
	var tensors []checkpoint.SafeTensor
	add := func(name string, foreign []graphs.ForeignName, transpose bool) error {
		if adapters[name] {
			return nil
		}
		if len(foreign) == 0 {
			return fmt.Errorf("variable %s has no name in Hugging Face's files", name)
		}
		value := o.Variables[name]
		if value == nil {
			return fmt.Errorf("variable %s has no value", name)
		}
		if value.DataType() != tf.Float {
			return fmt.Errorf("variable %s is %s; expected float32", name, checkpoint.DTypeName(value.DataType()))
		}
		tensors = append(tensors, checkpoint.SafeTensor{Name: form.TensorName(foreign[0].Name), Value: value, Transpose: transpose})
		return nil
	}
	for _, v := range c.Variables {
		if err := add(v.Name, v.Foreign, v.Transpose); err != nil {
			return nil, err
		}
	}
	for _, s := range c.States {
		if err := add(s.Name, s.Foreign, s.Transpose); err != nil {
			return nil, err
		}
	}
	return tensors, nil
}

// card returns the model card, whose head Hugging Face's hub reads.
func (o Options) card(form *graphs.HuggingFace, results map[string]float64) []byte {
	var b strings.Builder
	architecture := o.Export.Contract.Model.Architecture
	if classes, ok := form.Config["architectures"].([]any); ok && len(classes) > 0 {
		architecture = fmt.Sprint(classes[0])
	}
	library := "transformers"
	if o.Export.Contract.Task == string(convert.Embed) {
		library = "sentence-transformers"
	}
	fmt.Fprintf(&b, "---\nlibrary_name: %s\ntags:\n- gorbit\n- %s\n---\n\n# %s\n\n", library, form.Config["model_type"], filepath.Base(filepath.Clean(o.Out)))
	fmt.Fprintf(&b, "A `%s` that was trained with Gorbit. Load it with\n\n", architecture)
	if library == "sentence-transformers" {
		b.WriteString("```python\nfrom sentence_transformers import SentenceTransformer\n\nmodel = SentenceTransformer(\".\")\n```\n\n")
	} else {
		fmt.Fprintf(&b, "```python\nfrom transformers import AutoTokenizer, %s\n\n", architecture)
		fmt.Fprintf(&b, "tokenizer = AutoTokenizer.from_pretrained(\".\")\nmodel = %s.from_pretrained(\".\")\n```\n\n", architecture)
	}
	if len(o.Labels) > 0 {
		fmt.Fprintf(&b, "Labels: %s.\n\n", strings.Join(o.Labels, ", "))
	}
	fmt.Fprintf(&b, "It was trained on texts of up to %d tokens.\n", o.MaxLength)
	if len(results) > 0 {
		b.WriteString("\n| metric of the evaluation split | |\n| --- | --- |\n")
		for _, name := range slices.Sorted(maps.Keys(results)) {
			fmt.Fprintf(&b, "| %s | %.6g |\n", name, results[name])
		}
	}
	return []byte(b.String())
}
