package train

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/bounded"
	"github.com/gorbit-ml/gorbit/text"
)

// checkInit finds initial weights that are of another vocabulary, or fill less than half of
// the encoder. Weights that cannot be read are an error of their own.
func checkInit(s *setup) (found []string, err error) {
	from := s.params.Init
	if from == "" {
		return nil, nil
	}
	source, closeSource, err := checkpoint.OpenSource(sourceOf(from))
	if err != nil {
		return nil, fmt.Errorf("init: %w", err)
	}
	defer closeSource()
	filled, all := fill(checkpoint.Compare(source, wantedOf(s.export.Contract)), s.export.Contract)
	if 2*filled < all && !s.params.InitPartial {
		found = append(found, fmt.Sprintf("init %s fills %d of the %d numbers of the encoder, less than half: give weights of a model of the graph's size (gorbit inspect shows it), or use what fits with --set init_partial=true", from, filled, all))
	}
	m := s.data.manifest
	if m == nil {
		return found, nil
	}
	path, binding := vocabOf(from)
	switch how := otherVocab(path, filepath.Join(s.data.dir, m.Vocab.File)); {
	case how != "" && binding:
		found = append(found, fmt.Sprintf("init %s is of another vocabulary than data %s (%s): convert with --vocab %s", from, s.data.dir, how, path))
	case how != "":
		s.env.Log.Warn("the vocabulary beside the initial weights is not that of the data", "vocabulary", path, "differs", how)
	}
	return found, nil
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
