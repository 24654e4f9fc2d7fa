package train

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/fault"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// PreflightError says what is wrong with a run before its first step: everything that was
// found, each with what mends it.
type PreflightError struct {
	Findings []string
	// Damaged says that files are not what they were written as.
	Damaged bool
}

func (e *PreflightError) Error() string {
	if len(e.Findings) == 1 {
		return e.Findings[0]
	}
	out := fmt.Sprintf("%d things are wrong:", len(e.Findings))
	for i, finding := range e.Findings {
		out += fmt.Sprintf(" (%d) %s.", i+1, finding)
	}
	return out
}

// Is reports whether the target is the error's class, fault.Damaged or fault.Usage.
func (e *PreflightError) Is(target error) bool {
	return e.Damaged && target == fault.Damaged || !e.Damaged && target == fault.Usage
}

// preflight looks at a run before its graph is composed.
type preflight struct {
	params   Params
	contract *graphs.Contract
	records  *data
	log      *slog.Logger
	found    PreflightError
}

// preflightOf returns a preflight of a setup whose data is open.
func preflightOf(s *setup) *preflight {
	return &preflight{params: s.params, contract: s.export.Contract, records: s.data, log: s.env.Log}
}

// preflightTraining looks at a run that is about to begin, or to go on from what is known
// of it. Its row length is known afterwards.
func preflightTraining(s *setup, folder string, before *past) error {
	f := preflightOf(s)
	if err := checkBest(s.params, s.export); err != nil {
		f.add("%v", err)
	}
	f.rowLength(before)
	f.graph()
	if f.folder() {
		f.trainingSplits(before == nil)
		f.vocabulary()
	}
	if before != nil {
		f.runVocabulary(folder)
	} else {
		found, err := checkInit(s)
		if err != nil {
			return err
		}
		f.found.Findings = append(f.found.Findings, found...)
	}
	s.params.Data.RowLength = cmp.Or(s.params.Data.RowLength, rowLengthOf(s.data.manifest, s.export.Contract))
	return f.err()
}

// checkBest returns an error unless evaluations of a graph give the metric by which the
// best checkpoint is kept, and its direction is known.
func checkBest(p Params, export *graphs.Export) error {
	if p.Checkpoint.Best == "" || p.Train.EvalInterval == noEval {
		return nil
	}
	of := taskOf(export.Contract)
	metrics, err := of.Metrics(export.Functions["evaluate"].Outputs)
	if err != nil {
		return err
	}
	var names []string
	for _, m := range metrics {
		names = append(names, m.Name)
	}
	if !slices.Contains(names, p.Checkpoint.Best) {
		return &ParamsError{fmt.Errorf("checkpoint.best is %q; evaluations of this graph give %s: give one with --set checkpoint.best=NAME",
			p.Checkpoint.Best, strings.Join(names, ", "))}
	}
	_, err = p.Checkpoint.order(of)
	return err
}

// preflightSplit looks at a split that a run is to be evaluated on, or to answer on.
func preflightSplit(s *setup, folder, split string, use use) error {
	f := preflightOf(s)
	f.graph()
	if f.folder() && f.split(split, "--split NAME") {
		f.lengths(split)
		if use != toPredict {
			f.answers(split, "evaluate a split that has labels, with --split NAME")
		}
	}
	f.runVocabulary(folder)
	return f.err()
}

// add adds a finding.
func (f *preflight) add(format string, args ...any) {
	f.found.Findings = append(f.found.Findings, fmt.Sprintf(format, args...))
}

// err returns what was found, nil for nothing.
func (f *preflight) err() error {
	if len(f.found.Findings) == 0 {
		return nil
	}
	return &f.found
}

// positions is how many positions a graph has, 0 where it does not say.
func positions(c *graphs.Contract) int { return c.Model.ConfigInt("max_position_embeddings") }

// rowStep is what the row length of long examples is a multiple of.
const rowStep = 64

// rowLengthOf is how long rows are where the params leave it to the data: 128 tokens or, for
// longer examples, the longest rounded up to a multiple of 64; but never more than the graph
// has positions. Short examples share a row, so that rows are not shorter for them.
func rowLengthOf(m *convert.Manifest, c *graphs.Contract) int {
	longest := 0
	if m != nil {
		for _, split := range m.Splits {
			longest = max(longest, split.Lengths.Max)
		}
	}
	n := max(packed.DefaultRowLength, (longest+rowStep-1)/rowStep*rowStep)
	if most := positions(c); most > 0 {
		n = min(n, most)
	}
	return n
}

// rowLength finds rows that are longer than the graph has positions. A run that began with
// such rows keeps them.
func (f *preflight) rowLength(before *past) {
	n, most := f.params.Data.RowLength, positions(f.contract)
	if most > 0 && n > most && (before == nil || before.params.Data.RowLength != n) {
		f.add("data.row_length is %d, and the graph has %d positions: give --set data.row_length=%[2]d, or leave it out", n, most)
	}
}

// graph holds the data against the graph that is to be fed with it.
func (f *preflight) graph() {
	m := f.records.manifest
	if m == nil {
		return
	}
	if got, want := m.Vocab.Size, f.contract.Model.ConfigInt("vocab_size"); want > 0 && got != want {
		f.add("data %s was made with a vocabulary of %d tokens, the graph has %d: convert with the model's vocabulary, or export with --vocab-size %[2]d", f.records.dir, got, want)
	}
	if reason := taskOf(f.contract).CheckData(m); reason != "" {
		f.add("data %s %s", f.records.dir, reason)
	}
}

// folder finds a folder of data that is none, such as one a level too high, and reports
// whether it is worth looking at its splits.
func (f *preflight) folder() bool {
	if f.records.manifest != nil {
		return true
	}
	if files, err := tfrecord.Glob(f.records.dir); err == nil && len(files) > 0 {
		return true
	}
	below, err := filepath.Glob(filepath.Join(f.records.dir, "*", convert.ManifestName))
	if err != nil || len(below) == 0 {
		return true // its splits say what is not there
	}
	f.add("data %s holds no records, but folders in it do: give one of these, such as --data %s", f.records.dir, filepath.Dir(below[0]))
	return false
}

// trainingSplits looks at the splits that a run trains and evaluates on.
func (f *preflight) trainingSplits(begins bool) {
	train, eval := f.params.Data.Train, f.params.Data.Eval
	evaluates := f.params.Train.EvalInterval != noEval
	if f.split(train, "--set data.train=NAME") {
		f.lengths(train)
		f.answers(train, "convert with --label-column")
	}
	if evaluates && eval != train && f.split(eval, "--set data.eval=NAME, or train without evaluations with --eval-interval -2") {
		f.lengths(eval)
		f.answers(eval, "convert with --label-column, give a split that has labels with --set data.eval=NAME, or train without evaluations with --eval-interval -2")
	}
	if !begins {
		return
	}
	if answer, only := f.onlyAnswer(train); only {
		f.add("data %s: all examples of split %s have the label %q, and from one label nothing can be learned: convert with examples of others in --train", f.records.dir, train, answer)
	}
	if !evaluates {
		return
	}
	if answer, only := f.onlyAnswer(eval); only {
		f.log.Warn("all examples of the split that is evaluated have one label: its metrics say little", "split", eval, "label", answer)
	}
	if f.sameExamples(train, eval) {
		f.log.Warn("evaluations are of examples that are trained on: their metrics say nothing of new examples", "data.train", train, "data.eval", eval)
	}
}

// shardEnding is what the name of a file has behind the base of its shards.
var shardEnding = regexp.MustCompile(`(-\d+-of-\d+)?\.tfrecords?$`)

// split finds a split that is not there, and reports whether it is.
func (f *preflight) split(split, flag string) bool {
	if f.of(split) != nil {
		return true
	}
	for _, pattern := range f.records.files(split) {
		if _, err := tfrecord.Glob(pattern); !errors.Is(err, fs.ErrNotExist) {
			return true // whoever opens the files says what is wrong with them
		}
	}
	var there []string
	if m := f.records.manifest; m != nil {
		there = slices.Sorted(maps.Keys(m.Splits))
	} else if files, err := tfrecord.Glob(f.records.dir); err == nil {
		for _, file := range files {
			there = append(there, shardEnding.ReplaceAllString(filepath.Base(file), ""))
		}
		there = slices.Compact(there)
	}
	if len(there) == 0 {
		f.add("data %s has no split %q and no other records: give the folder that gorbit convert wrote, with --data", f.records.dir, split)
		return false
	}
	f.add("data %s has no split %q; it has %s: give one of these with %s", f.records.dir, split, strings.Join(there, ", "), flag)
	return false
}

// of returns what the manifest says of a split, nil where it says nothing.
func (f *preflight) of(split string) *convert.Split {
	if f.records.manifest == nil {
		return nil
	}
	return f.records.manifest.Splits[split]
}

// lengths finds examples that are longer than a row, or than the graph has positions.
func (f *preflight) lengths(split string) {
	s, most, row := f.of(split), positions(f.contract), f.params.Data.RowLength
	if s == nil || f.params.Data.Truncate {
		return
	}
	longest := s.Lengths.Max
	switch {
	case most > 0 && longest > most:
		f.add("data %s: split %s has examples of up to %d tokens, the graph has %d positions: convert with --max-length %[4]d, or shorten them with --set data.truncate=true", f.records.dir, split, longest, most)
	case row > 0 && longest > row:
		f.add("data %s: split %s has examples of up to %d tokens, and data.row_length is %d: give --set data.row_length=%[3]d, or shorten them with --set data.truncate=true", f.records.dir, split, longest, row)
	}
}

// answers finds a split whose examples do not have what the task learns from.
func (f *preflight) answers(split, mend string) {
	s := f.of(split)
	if s == nil {
		return
	}
	if reason := taskOf(f.contract).CheckSplit(split, s); reason != "" {
		f.add("data %s: %s: %s", f.records.dir, reason, mend)
	}
}

// onlyAnswer returns what all examples of a split have to be answered with, if that is one thing.
func (f *preflight) onlyAnswer(split string) (answer string, only bool) {
	s := f.of(split)
	if s == nil {
		return "", false
	}
	return taskOf(f.contract).OnlyAnswer(f.records.manifest, s)
}

// sameExamples reports whether two splits are one, or were made from one file.
func (f *preflight) sameExamples(train, eval string) bool {
	if slices.Equal(f.records.files(train), f.records.files(eval)) {
		return true
	}
	if f.records.manifest == nil {
		return false
	}
	made := func(split string, sum string) bool {
		return slices.ContainsFunc(f.records.manifest.Sources, func(s convert.Source) bool { return s.Split == split && s.SHA256 == sum })
	}
	return slices.ContainsFunc(f.records.manifest.Sources, func(s convert.Source) bool { return s.Split == eval && made(train, s.SHA256) })
}

// vocabulary finds a data folder whose vocabulary is not the one its records were made with.
func (f *preflight) vocabulary() {
	m := f.records.manifest
	if m == nil {
		return
	}
	path := filepath.Join(f.records.dir, m.Vocab.File)
	switch sum, err := vocabSum(path); {
	case err != nil:
		f.add("data %s: its vocabulary cannot be read: %v; convert the data again", f.records.dir, err)
	case m.Vocab.SHA256 == "" || sum == m.Vocab.SHA256:
		return
	default:
		f.add("%s is not the vocabulary that the records were made with (its checksum differs): put that back, or convert the data again", path)
	}
	f.found.Damaged = true
}

// runVocabulary finds a run that learned from another vocabulary than the data's.
func (f *preflight) runVocabulary(folder string) {
	if f.records.manifest == nil {
		return
	}
	own := filepath.Join(folder, vocabFile)
	if how := otherVocab(own, filepath.Join(f.records.dir, f.records.manifest.Vocab.File)); how != "" {
		f.add("run %s learned from another vocabulary than that of data %s (%s): give the run's data, or convert with --vocab %s", folder, f.records.dir, how, own)
	}
}
