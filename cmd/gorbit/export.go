package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/internal/app/servable"
	"github.com/gorbit-ml/gorbit/internal/base/made"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/layout"
	"github.com/gorbit-ml/gorbit/internal/exec/launch"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/params"
)

func newExport(g *globals) *cobra.Command {
	var r runFlags
	var o servable.Options
	cmd := &cobra.Command{
		Use:   "export --run FOLDER --out FOLDER [flags]",
		Short: "Export a run's model as a SavedModel for serving",
		Long: `Writes a SavedModel with the variables of one of the run's checkpoints. Its signature
serving_default is that of the exported graph: a text classifier takes input_ids,
attention_mask and token_type_ids, int32 [batch, length], and returns logits and
probabilities. Its assets hold the vocabulary, if the model takes texts, and the labels.
TensorFlow Serving, Python, tfgo and gorbit-predict can load it.

With --precision int8 the dense layers compute with whole numbers of 8 bits, which takes
less time and memory. What it costs is measured on a split with labels, and written
beside the model; a model that loses more than --max-lost is not written.

With --format huggingface it writes config.json, model.safetensors, the tokenizer's
files and a model card instead, which Hugging Face's transformers loads.`,
		Example: `  gorbit export --run runs/mrpc --out served/mrpc
  gorbit-predict --model served/mrpc --text "He left." --text-pair "He went away."`,
		Args: noArgs,
	}
	r.add(cmd, params.BestOrLatest)
	f := cmd.Flags()
	f.StringVar(&o.Out, "out", "", "`FOLDER` to write (required)")
	format := formatSavedModel
	rounded := rounding{limit: 0.5}
	f.StringVar(&format, "format", format, "what to write; huggingface is for Hugging Face's transformers `savedmodel|huggingface`")
	rounded.add(f)
	f.BoolVar(&o.Overwrite, "overwrite", false, "replace an existing model")
	addTokenizer(f, &o.Vocab, "(default: the run's)")
	f.BoolVar(&o.Tokenizer.Lowercase, "lowercase", true, "whether the vocabulary is uncased (default: as in the run's data)")
	f.Lookup("lowercase").DefValue = "" // the help text states the default
	f.StringSliceVar(&o.Labels, "labels", nil, "names of the labels (default: those of the run's data)")
	help.Group(f, "Output", "out", "overwrite", "format")
	help.Group(f, "What the model says of itself", "labels", "tokenizer", "vocab", "lowercase")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Out == "" {
			return usagef("--out is missing; expected the folder to write")
		}
		if format != formatSavedModel && format != formatHuggingFace {
			return usagef("--format is %q; expected %s or %s", format, formatSavedModel, formatHuggingFace)
		}
		if o.Int8 = rounded.precision == precisionInt8; o.Int8 && format != formatSavedModel {
			return usagef("--precision int8 and --format %s are given; expected --format %s: transformers does not read such weights", format, formatSavedModel)
		}
		if err := rounded.check(f); err != nil {
			return err
		}
		if remote, err := vfs.RemoteOf(o.Out); err != nil {
			return usagef("--out: %w", err)
		} else if remote != nil && o.Overwrite {
			return usagef("--overwrite is given, and --out is in a bucket, where a model cannot be replaced at once; export to a new folder, such as the next version's")
		}
		err := oneTokenizer(f)
		if err != nil {
			return err
		}
		if o.Vocab, err = vfs.Localize(cmd.Context(), o.Vocab, nil); err != nil {
			return err
		}
		for _, s := range r.settings {
			if strings.HasPrefix(s, "strategy.tpu") || strings.HasPrefix(s, "strategy.name=tpu") {
				return usagef("--set %s is given, and a model is exported without a TPU; leave it out", s)
			}
		}
		env, err := g.env(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		step, ask, err := exportRun(cmd.Context(), r, env, format, o, f.Changed("lowercase"), rounded)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "exported %s to %s\nnext: %s\n", r.version(step), o.Out, afterExport(format, r, o.Out, ask))
		return err
	}
	return cmd
}

// exportRun writes the model of a run's checkpoint. It returns the checkpoint's step, and the
// flags with which to ask the model.
func exportRun(ctx context.Context, r runFlags, env train.Env, format string, o servable.Options, lowercaseGiven bool, rounded rounding) (step int64, ask string, err error) {
	run, step, err := r.open(ctx, env, true)
	if err != nil {
		return 0, "", err
	}
	defer run.Close()
	o.Export = run.Export
	if o.Int8 {
		if o.Measure, err = rounded.measure(run, env); err != nil {
			return 0, "", err
		}
	}
	if err := completeInputs(&o, run, lowercaseGiven); err != nil {
		return 0, "", err
	}
	if err := completeServable(&o, run); err != nil {
		return 0, "", err
	}
	if run.Generates() {
		m := run.Maker()
		o.Maker = &m
	}
	if o.Variables, err = run.Variables(ctx); err != nil {
		return 0, "", err
	}
	return step, run.ToAsk(), writeModel(ctx, format, o, run.Results(), env.Log)
}

// afterExport returns what to type after a model was written.
func afterExport(format string, r runFlags, to, ask string) string {
	out := launch.Quote(to)
	switch {
	case format == formatHuggingFace:
		return "see README.md there, which says how transformers loads it"
	case vfs.Scheme(to) != "":
		return fmt.Sprintf("serve it with TensorFlow Serving, or copy it to try it: gcloud storage cp -r %s .", out)
	case strings.Contains(ask, text.Mask): // gorbit-predict fills no masks
		return fmt.Sprintf("load it with TensorFlow; to ask the model: gorbit predict %s %s", r.words(), ask)
	}
	return fmt.Sprintf("gorbit-predict --model %s %s", out, ask)
}

// completeInputs sets what the model takes: texts, with a vocabulary, or features.
func completeInputs(o *servable.Options, run *train.Run, lowercaseGiven bool) (err error) {
	if !run.TakesTexts() {
		if o.Vocab != "" {
			return usagef("--vocab is given, and the graph of the run takes no texts; leave it out")
		}
		if o.Features, err = servedFeatures(run); err == nil && run.RowsHaveTexts() {
			o.FeatureVocab = run.VocabPath()
		}
		return err
	}
	o.MaxLength, o.DocStride = run.MaxLength(), run.DocStride()
	if o.Vocab != "" || run.VocabPath() != "" {
		// Refuse a tokenizer here that gorbit predict would refuse.
		var lowercase *bool
		if lowercaseGiven {
			lowercase = &o.Tokenizer.Lowercase
		}
		if _, err := run.Tokenizer(o.Vocab, lowercase); err != nil {
			return err
		}
	}
	if o.Vocab == "" {
		if o.Vocab = run.VocabPath(); o.Vocab == "" {
			return usagef("the run has no vocabulary because its data has no manifest; name one with --vocab")
		}
	}
	return nil
}

// servedFeatures describes the inputs of a model that takes no texts.
func servedFeatures(run *train.Run) ([]layout.Feature, error) {
	rows := run.RowFeatures()
	var out []layout.Feature
	for _, f := range run.Export.Contract.Features {
		if f.Role != graphs.RoleInput {
			continue
		}
		served := layout.Feature{Name: f.Name, DType: f.DType, Axes: f.Axes, Shape: f.Shape, Minimum: f.Minimum, Below: f.Below, Pad: f.Pad, Make: f.Make}
		if f.Make == "" {
			source, err := json.Marshal(rows[0])
			if err != nil {
				return nil, err
			}
			if f.DType == "uint8" {
				served.JPEG = run.Params.Data.JPEG
			}
			served.Record, served.Source, rows = rows[0].Name, source, rows[1:]
		}
		out = append(out, served)
	}
	return out, nil
}

// Values of --format.
const (
	formatSavedModel  = "savedmodel"
	formatHuggingFace = "huggingface"
)

// writeModel writes the model in a format. For a bucket, it writes a local folder and uploads it.
func writeModel(ctx context.Context, format string, o servable.Options, results runner.Outputs, log *slog.Logger) error {
	last, kind := layout.ModelFile, made.Export
	if format == formatHuggingFace {
		last, kind = servable.HuggingFaceWeights, made.Model
	}
	return publish(ctx, o.Out, last, kind, false, log, func(local string) error {
		o.Out = local
		if format == formatHuggingFace {
			return servable.WriteHuggingFace(ctx, o, results)
		}
		return servable.Write(ctx, o)
	})
}

// completeServable sets what the flags left open to what the run's data says. Labels that the run knows
// may have other names, but not each other's.
func completeServable(o *servable.Options, run *train.Run) error {
	if run.Manifest != nil && run.TakesTexts() {
		pairs := run.Manifest.Pairs()
		o.Pairs = &pairs
		o.Tokenizer = run.Manifest.TokenizerConfig() // run.Tokenizer refused another --lowercase
	}
	label := run.Export.Contract.Label()
	if label != nil {
		own := run.Classes(label.Name)
		for i, name := range o.Labels {
			if k := slices.Index(own, name); k >= 0 && k != i {
				return usagef("--labels: label %d is %q, which is label %d of the run (%s); expected other names for them in the same order; leave --labels out", i, name, k, strings.Join(own, ", "))
			}
		}
		if o.Labels == nil {
			o.Labels = own
		}
	}
	if label != nil && len(o.Labels) == 0 {
		for i := range label.Classes() {
			o.Labels = append(o.Labels, fmt.Sprint(i))
		}
	}
	o.Classes = make(map[string][]string)
	for _, f := range run.Export.Contract.Features {
		if names := run.Classes(f.Name); f.Role == graphs.RoleLabel && names != nil && f.Name != label.Name {
			o.Classes[f.Name] = names
		}
	}
	return nil
}
