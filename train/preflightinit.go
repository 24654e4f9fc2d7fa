package train

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/bounded"
	"github.com/gorbit-ml/gorbit/text"
)

// init finds initial weights that are of another vocabulary, or fill less than half of the
// encoder. Weights that cannot be read are an error of their own.
func (f *preflight) init() error {
	p := f.params
	if p.Init == "" {
		return nil
	}
	source, closeSource, err := checkpoint.OpenSource(sourceOf(p.Init))
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	defer closeSource()
	if filled, all := fill(checkpoint.Compare(source, wantedOf(f.contract)), f.contract); 2*filled < all && !p.InitPartial {
		f.add("init %s fills %d of the %d numbers of the encoder, less than half: give weights of a model of the graph's size (gorbit inspect shows it), or use what fits with --set init_partial=true", p.Init, filled, all)
	}
	m := f.records.manifest
	if m == nil {
		return nil
	}
	path, binding := vocabOf(p.Init)
	switch how := otherVocab(path, filepath.Join(f.records.dir, m.Vocab.File)); {
	case how != "" && binding:
		f.add("init %s is of another vocabulary than data %s (%s): convert with --vocab %s", p.Init, f.records.dir, how, path)
	case how != "":
		f.log.Warn("the vocabulary beside the initial weights is not that of the data", "vocabulary", path, "differs", how)
	}
	return nil
}

// sourceOf returns where the weights of an init are: a run's are its checkpoints'.
func sourceOf(init string) string {
	if folder := filepath.Join(init, checkpointFolder); isDir(folder) {
		return folder
	}
	return init
}

// wantedOf lists what initial weights are looked through for.
func wantedOf(c *graphs.Contract) []checkpoint.Wanted {
	var wanted []checkpoint.Wanted
	for _, v := range c.Variables {
		w := checkpoint.Wanted{Name: v.Name, Shape: v.Shape, DType: tf.Float}
		for _, name := range v.Foreign {
			w.Foreign = append(w.Foreign, checkpoint.Candidate{Name: name, Transpose: v.Transpose})
		}
		wanted = append(wanted, w)
	}
	return wanted
}

// encoderPrefix is what the names of an encoder's variables begin with.
const encoderPrefix = "model/encoder/"

// fill returns how many numbers of the encoder weights fill, and how many it has. A model
// that names no encoder is looked at as a whole.
func fill(r *checkpoint.LoadReport, c *graphs.Contract) (filled, all int64) {
	matched := make(map[string]bool)
	for _, m := range r.Matched {
		matched[m.Name] = true
	}
	named := slices.ContainsFunc(c.Variables, func(v graphs.Variable) bool { return strings.HasPrefix(v.Name, encoderPrefix) })
	for _, v := range c.Variables {
		if named && !strings.HasPrefix(v.Name, encoderPrefix) {
			continue
		}
		all += v.Elements()
		if matched[v.Name] {
			filled += v.Elements()
		}
	}
	return filled, all
}

// vocabOf returns the vocabulary of initial weights, "" for none, and whether it surely is
// theirs: that of a run or an exported model is, a file beside weights of elsewhere may not be.
func vocabOf(init string) (path string, binding bool) {
	dir := init
	if !isDir(dir) {
		dir = filepath.Dir(init)
	}
	if filepath.Base(dir) == checkpointFolder {
		dir = filepath.Dir(dir)
	}
	for _, c := range []struct{ vocab, mark string }{
		{vocabFile, paramsFile},
		{filepath.Join("assets", vocabFile), "saved_model.pb"},
		{vocabFile, vocabFile},
	} {
		path := filepath.Join(dir, c.vocab)
		if exists(path) && exists(filepath.Join(dir, c.mark)) {
			return path, c.mark != vocabFile
		}
	}
	return "", false
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// vocabSum returns the SHA-256 of a vocabulary's file, as a manifest has it.
func vocabSum(path string) (string, error) {
	content, err := bounded.ReadFile(path, text.MaxVocabBytes)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(content)), nil
}

// otherVocab says in which way two files hold different tokens, "" for none. A file that is
// not there, or is no vocabulary, says nothing.
func otherVocab(there, here string) string {
	sumThere, errThere := vocabSum(there)
	sumHere, errHere := vocabSum(here)
	if errThere != nil || errHere != nil || sumThere == sumHere {
		return ""
	}
	// Ends of lines and the like do not count.
	a, errA := text.LoadVocab(there)
	b, errB := text.LoadVocab(here)
	if errA != nil || errB != nil {
		return ""
	}
	if a.Size() != b.Size() {
		return fmt.Sprintf("%d tokens there and %d here", a.Size(), b.Size())
	}
	for id := range int32(a.Size()) {
		if a.Token(id) != b.Token(id) {
			return fmt.Sprintf("token %d is %q there and %q here", id, a.Token(id), b.Token(id))
		}
	}
	return ""
}
