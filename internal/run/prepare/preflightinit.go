package prepare

import (
	"context"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/tokenizers"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// Init reports initial weights that belong to another vocabulary, learned other names for the numbers of
// the data, or fill less than half of the encoder, or of a model without one. It returns an error if the weights cannot be read.
func (f *Preflight) Init(ctx context.Context) error {
	from := f.params.Init
	if from == "" {
		return nil
	}
	local, err := vfs.Localize(ctx, from, runfolder.NewestOnly)
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	source, closeSource, err := checkpoint.OpenSource(loop.SourceOf(local))
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	defer closeSource()
	report := checkpoint.Compare(source, loop.WantedOf(f.contract))
	if err := loop.CheckForm(source, report, f.contract, f.params.InitPartial); err != nil {
		f.add("init %v", err)
	}
	filled, all, part := fill(report, f.contract)
	name := objectName(source)
	switch {
	case 2*filled >= all || f.params.InitPartial:
	case len(report.Matched)+len(report.Mismatched) == 0 && name != "":
		f.add("init %s has none of the graph's names; it has those of TensorFlow's objects, such as %q; if it is of Keras or tf.train.Checkpoint, export the model with --weights, which reads it", from, name)
	default:
		f.add("init %s fills %d of the %d numbers of the %s; expected at least half; use weights of a model of the graph's size (see gorbit inspect), or accept these with --set init_partial=true", from, filled, all, part)
	}
	f.initMeaning(local, report)
	m := f.records.Manifest
	if m == nil {
		return nil
	}
	path, binding := vocabOf(local)
	if form := f.contract.Model.HuggingFace; form != nil && !binding && m.Vocab.Kept() == tokenizers.Model {
		if kind, _ := form.Config["model_type"].(string); tokenizers.HasFamily(kind) {
			f.add("init %s has the weights of a model of type %s, whose texts are not prepared as by the SentencePiece model of data %s alone; convert the data with --tokenizer FOLDER, that of the model with its config.json", from, kind, f.records.Dir)
		}
	}
	switch how := OtherVocab(path, vfs.Join(f.records.Dir, m.Vocab.File)); {
	case how != "" && binding:
		f.add("init %s has another vocabulary than data %s (%s); convert the data with --vocab %s", from, f.records.Dir, how, path)
	case how != "":
		f.log.Warn("the vocabulary next to the initial weights is not that of the data", "vocabulary", path, "differs", how)
	}
	return nil
}

// encoderPrefix is the prefix of the names of an encoder's variables.
const encoderPrefix = "model/encoder/"

// objectName returns the name of a tensor of weights that TensorFlow 2 saved by its objects, and gorbit did
// not; "" of other weights.
func objectName(source checkpoint.Source) string {
	const suffix = "/.ATTRIBUTES/VARIABLE_VALUE"
	found := ""
	for _, e := range source.Entries() {
		name, ok := strings.CutSuffix(e.Name, suffix)
		if ok && name == "runner_state" {
			return "" // of a run or an export
		}
		if ok && found == "" {
			found = name
		}
	}
	return found
}

// fill returns how many numbers of the encoder the weights fill, how many it has, and what it is: if no
// variable has the encoder's prefix, the model, with all variables and states.
func fill(r *checkpoint.LoadReport, c *graphs.Contract) (filled, all int64, part string) {
	matched := make(map[string]bool)
	for _, m := range r.Matched {
		matched[m.Name] = true
	}
	part = "encoder"
	wanted := loop.WantedOf(c)
	named := slices.ContainsFunc(wanted, func(w checkpoint.Wanted) bool { return strings.HasPrefix(w.Name, encoderPrefix) })
	if !named {
		part = "model"
	}
	for _, w := range wanted {
		if named && !strings.HasPrefix(w.Name, encoderPrefix) {
			continue
		}
		n := int64(1)
		for _, d := range w.Shape {
			n *= d
		}
		if all += n; matched[w.Name] {
			filled += n
		}
	}
	return filled, all, part
}

// vocabOf returns the vocabulary of initial weights, or "" for none, and whether it certainly
// belongs to them. That of a run or an exported model does; a file next to other weights may not.
func vocabOf(init string) (path string, binding bool) {
	dir := folderOf(init)
	for _, c := range []struct{ vocab, mark string }{
		{"", runfolder.Params},
		{"assets", "saved_model.pb"},
		{"", ""},
	} {
		if path := tokenizers.Exists(filepath.Join(dir, c.vocab)); path != "" && Exists(filepath.Join(dir, c.mark)) {
			return path, c.mark != ""
		}
	}
	return "", false
}

// Exists reports whether there is a file or folder at a path, maybe in a bucket. What the machine cannot
// look at now may be there.
func Exists(path string) bool {
	_, err := vfs.Stat(path)
	return err == nil || fault.OfMachine(err)
}

// VocabSum returns the SHA-256 of a vocabulary file in hexadecimal, as in a manifest.
func VocabSum(path string) (string, error) {
	content, err := vfs.ReadBounded(path, tokenizers.MaxBytes)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(content)), nil
}

// OtherVocab describes how the tokens of two vocabulary files differ. It returns "" if they do not
// differ, or if either file is missing or invalid.
func OtherVocab(there, here string) string {
	sumThere, errThere := VocabSum(there)
	sumHere, errHere := VocabSum(here)
	if errThere != nil || errHere != nil || sumThere == sumHere {
		return ""
	}
	// Compare tokens, because line breaks and the like do not matter.
	fileA, errA := tokenizers.Open(there, text.Config{})
	fileB, errB := tokenizers.Open(here, text.Config{})
	if errA != nil || errB != nil {
		return ""
	}
	return tokenizers.Difference(fileA, fileB)
}
