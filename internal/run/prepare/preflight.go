package prepare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/text/scores"
	"github.com/gorbit-ml/gorbit/tfrecord"
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/params"
	"github.com/gorbit-ml/gorbit/train/task"
)

// PreflightOf returns a preflight for a setup. Its data must be open.
func PreflightOf(s *Setup) *Preflight {
	return &Preflight{params: s.Params, contract: s.Export.Contract, records: s.Data, log: s.Env.Log}
}

// PreflightTraining checks a run that is about to start, or to continue from the state in before.
// It also sets the row length if the params leave it to the data.
func PreflightTraining(ctx context.Context, s *Setup, folder string, before *params.Params) error {
	f := PreflightOf(s)
	if err := CheckBest(s.Params, s.Export); err != nil {
		f.add("%v", err)
	}
	if err := CheckGenerate(s.Params, s.Export.Contract, s.Data.Manifest); err != nil {
		f.add("%v", err)
	}
	if err := checkFeatures(s.Params, s.Export.Contract); err != nil {
		f.add("%v", err)
	}
	f.rowLength(before)
	f.targets()
	f.graph()
	f.additive()
	if err := checkPhases(f.params, f.contract); err != nil {
		f.add("%v", err)
	}
	f.texts()
	f.schedule()
	if _, err := ClassWeightsOf(f.params, f.contract, f.records.Manifest); err != nil {
		f.add("%v", err)
	}
	if _, err := samplingOf(f.params, f.contract, f.records.Manifest); err != nil {
		f.add("%v", err)
	}
	if f.folder() {
		f.features(true, readSplits(f.params)...)
		f.trainingSplits(before == nil)
		f.vocabulary()
	}
	if before != nil {
		f.RunMeaning(folder)
	} else if err := f.Init(ctx); err != nil {
		return err
	}
	s.Params.Data.RowLength = cmp.Or(s.Params.Data.RowLength, RowLengthOf(s.Data.Manifest, s.Export.Contract))
	if err := checkLengthWarmup(s.Params, s.Export.Contract); err != nil {
		f.add("%v", err)
	}
	if s.Params.Strategy.Kind() == devices.TPU {
		if err := CheckTPUGraph(s.Export.Contract); err != nil {
			return err
		}
		if err := FixLength(&s.Params, s.Export.Contract, s.Data.Manifest); err != nil {
			f.add("%v", err)
		}
	}
	if s.Params.Data.Rows == 0 && s.Params.Strategy.Kind() == devices.TPU && TakesTokens(s.Export.Contract) {
		s.Params.Data.Rows, s.Chosen = f.tpuRows(s.Params, folder, before), true
	}
	if s.Params.Data.Rows == 0 && before == nil && s.Export.Contract.XLA && TakesTokens(s.Export.Contract) && !s.Export.Contract.HasTargets() && onGPUs(s.Params, s.Export) {
		// What the rows of a batch are is not known for data without a manifest: they differ.
		s.Params.Data.Rows, _ = RowsOf(s.Params, s.Data.Manifest, s.Params.Train.BatchSize)
		s.Chosen = s.Params.Data.Rows > 0
	}
	if s.Params.Data.Rows > 0 {
		s.Params.Data.RowExamples = cmp.Or(s.Params.Data.RowExamples, RowExamplesOf(s.Data.Manifest, s.Params))
	}
	return f.Err()
}

// checkLengthWarmup returns an error if rows of the graph cannot be cut as the params say.
func checkLengthWarmup(p params.Params, c *graphs.Contract) error {
	if p.Train.LengthWarmup == "" {
		return nil
	}
	if c.Masking == nil && c.Task != task.LanguageModel {
		return params.Errorf("train.length_warmup", "is given and the graph's task is %s; expected mlm or lm, whose losses are those of tokens and not of whole examples; leave it out", cmp.Or(c.Task, "not known"))
	}
	for _, name := range []string{packed.SequenceIDs, packed.PositionIDs} {
		if c.Feature(name) == nil {
			return params.Errorf("train.length_warmup", "is given and the graph has no feature %s; expected it, by which rows are cut; leave it out", name)
		}
	}
	return p.CheckLengths()
}

// CheckBest returns an error if evaluations of the graph do not have the metric that selects the
// best checkpoint, or the one that the schedule plateau watches, or if its direction is unknown.
func CheckBest(p params.Params, export *graphs.Export) error {
	of := loop.KnownTask(export.Contract)
	if p.Checkpoint.Best != "" && p.Train.EvalInterval != params.NoEval {
		if err := checkMetric("checkpoint.best", p.Checkpoint.Best, p, export, of); err != nil {
			return err
		}
		if _, err := p.BestOrder(of); err != nil {
			return err
		}
	}
	if p.Optimizer.Schedule != runner.OnPlateau {
		return nil
	}
	if err := checkMetric("optimizer.plateau.metric", p.PlateauMetric(), p, export, of); err != nil {
		return err
	}
	_, err := p.PlateauOrder(of)
	return err
}

// checkMetric returns an error if evaluations of the graph do not have the metric of a param.
func checkMetric(param, metric string, p params.Params, export *graphs.Export, of task.Task) error {
	splits := p.Data.Eval
	_, plain := splits.Cut(metric)
	metrics, err := task.Metrics(of, export.Functions["evaluate"].Outputs, task.Classes(export.Contract))
	if err != nil {
		return err
	}
	generated, err := p.Eval.Generate.Scores()
	if err != nil {
		return err
	}
	var names []string
	for i := range splits {
		for _, m := range metrics {
			names = append(names, splits.Prefix(i)+m.Name)
		}
		for _, s := range generated {
			names = append(names, splits.Prefix(i)+s.Name)
		}
	}
	if !slices.Contains(names, metric) {
		return params.Errorf(param, "is %q; expected one of %s, the metrics of this graph; choose one with --set %s=NAME%s%s",
			metric, strings.Join(names, ", "), param, words.DidYouMean(metric, names), ofTexts(plain))
	}
	return nil
}

// ofTexts says where a metric comes from that is a score of generated texts.
func ofTexts(name string) string {
	if _, err := scores.Named(name); err != nil {
		return ""
	}
	return fmt.Sprintf("; %s is a score of generated texts, which --set eval.generate.metrics=%[1]s adds", name)
}

// PreflightSplit checks a split to evaluate or to predict on.
func PreflightSplit(s *Setup, folder, split string, use use) error {
	f := PreflightOf(s)
	f.graph()
	if f.folder() && f.split(split, "--split NAME") {
		f.features(use != ToPredict, split)
		f.lengths(split)
		if use != ToPredict {
			f.answers(split, "evaluate a split with labels, with --split NAME, or ask for the answers alone, with gorbit predict --split "+split)
		}
	}
	f.RunMeaning(folder)
	return f.Err()
}

// PreflightWeights checks a graph and the weights that the params name, of which no run was made. Data that are
// not open are not checked.
func PreflightWeights(ctx context.Context, s *Setup) error {
	f := PreflightOf(s)
	f.graph()
	if s.Data.Dir != "" && f.folder() {
		f.vocabulary()
	}
	if err := f.Init(ctx); err != nil {
		return err
	}
	return f.Err()
}

// Err returns the findings as an error, or nil if there are none.
func (f *Preflight) Err() error {
	if len(f.Found.Findings) == 0 {
		return nil
	}
	return &f.Found
}

// rowStep is the unit to which the row length of long examples is rounded up.
const rowStep = 64

// RowLengthOf returns the row length for the data: 128 tokens or, for longer examples, the longest
// rounded up to a multiple of 64, but never more than the graph's positions. Rows are not shorter
// for short examples because these share a row.
//
// Graphs that take no rows have none: 0.
func RowLengthOf(m *convert.Manifest, c *graphs.Contract) int {
	if !TakesTokens(c) {
		return 0
	}
	longest := 0
	if m != nil {
		for _, split := range m.Splits {
			longest = max(longest, split.Lengths.Max)
		}
	}
	n := max(packed.DefaultRowLength, (longest+rowStep-1)/rowStep*rowStep)
	if most := mostTokens(c); most > 0 {
		n = min(n, most)
	}
	return n
}

// tpuRows returns the number of fixed rows for a run on a TPU that leaves it to the data: what
// train.batch_size examples of mean length fill, rounded up to a multiple of 8, so that 2, 4 and 8
// cores share them evenly. A run that began without fixed rows cannot continue with them.
func (f *Preflight) tpuRows(p params.Params, folder string, before *params.Params) int {
	if before != nil {
		f.add("run %s began without fixed rows, which a TPU needs; continue it on CPUs or GPUs, or start another run", folder)
		return 0
	}
	rows, err := RowsOf(p, f.records.Manifest, p.Train.BatchSize)
	if err != nil {
		f.add("%v", err)
		return 0
	}
	return rows
}

// RowsOf returns the number of fixed rows that so many examples of the data's mean length fill, as a
// multiple of 8, but not more rows than examples.
func RowsOf(p params.Params, m *convert.Manifest, examples int) (int, error) {
	const filled = 0.97
	if p.Data.Packing == string(packed.PackNone) {
		return examples, nil
	}
	if m == nil || m.Splits[p.Data.Train] == nil || !(m.Splits[p.Data.Train].Lengths.Mean >= 1) {
		return 0, fmt.Errorf("data.rows is 0, and data %s does not say how long its examples are; expected the rows of a batch, as with --set data.rows=16", p.Data.Dir)
	}
	mean := min(m.Splits[p.Data.Train].Lengths.Mean, float64(p.Data.RowLength))
	rows := int(math.Ceil(float64(examples) * mean / float64(p.Data.RowLength) / filled))
	return min(evenRows(rows), examples), nil
}

// evenRows returns the next multiple of 8, which 2, 4 and 8 cores of a TPU share evenly.
func evenRows(rows int) int { return (rows + 7) / 8 * 8 }

// RowExamplesOf returns the maximum examples of a fixed row: twice as many as fit on average, so that
// rows of short examples are filled as well, or 0, for the default, if the lengths are not known.
func RowExamplesOf(m *convert.Manifest, p params.Params) int {
	if p.Data.Packing == string(packed.PackNone) {
		return 1
	}
	if m == nil || m.Splits[p.Data.Train] == nil || !(m.Splits[p.Data.Train].Lengths.Mean >= 1) {
		return 0
	}
	return min(p.Data.RowLength, int(math.Ceil(2*float64(p.Data.RowLength)/m.Splits[p.Data.Train].Lengths.Mean)))
}

// rowLength reports rows that are longer than the graph's positions. A run that began with such
// rows keeps them.
func (f *Preflight) rowLength(before *params.Params) {
	n, most := f.params.Data.RowLength, mostTokens(f.contract)
	if most > 0 && n > most && (before == nil || before.Data.RowLength != n) {
		f.add("data.row_length is %d; expected at most %d, the positions of the graph; use --set data.row_length=%[2]d, or leave it out", n, most)
	}
}

// targets reports what cannot be done with a graph whose examples have targets, and targets that are too long.
func (f *Preflight) targets() {
	if !f.contract.HasTargets() {
		return
	}
	if n := f.params.Data.Rows; n > 0 {
		f.add("data.rows is %d, and the graph makes texts of sources, whose rows hold the same examples on both sides and so are as many as a batch needs; leave it out", n)
	}
}

// additive reports what cannot be done with a graph whose sums depend on how a batch is divided.
func (f *Preflight) additive() {
	s := f.params.Strategy
	if f.contract.Additive {
		return
	}
	if err := checkWhole(f.params, f.contract); err != nil {
		f.add("%v", err)
	} else if s.Elastic {
		f.add("strategy.elastic is true, and the graph's results depend on how a batch is divided, as with batch normalization; expected a division that stays; leave out --elastic")
	}
}

// texts reports settings that examples of several texts do not have.
func (f *Preflight) texts() {
	if n := f.contract.Texts(); n > 1 && f.params.Data.Truncate {
		f.add("data.truncate is true, and an example of the graph is %d texts, of which the last would be cut; expected false; convert with a lower --max-length in its place", n)
	}
}

// schedule reports a learning rate and a schedule that are given next to those of the graph.
func (f *Preflight) schedule() {
	o := f.params.Optimizer
	if !f.contract.Optimizer.Scheduled {
		return
	}
	const own = "the graph's optimizer has a schedule of its own"
	if o.LearningRate != 1 {
		f.add("optimizer.learning_rate is %v, and %s, whose rates it would be multiplied with; expected 1, as without it; for another rate, export the model with another schedule or a number", o.LearningRate, own)
	}
	if o.Schedule != runner.Constant || o.WarmupSteps != 0 || o.WarmupRatio != 0 {
		f.add("optimizer.schedule is %s with a warmup of %d steps and a share of %v, and %s; expected constant and no warmup; for another schedule, export the model with a number as its learning rate", o.Schedule, o.WarmupSteps, o.WarmupRatio, own)
	}
}

// features compares the features of data made by a schema with those of the graph.
func (f *Preflight) features(labels bool, splits ...string) {
	check := &featureCheck{params: f.params, contract: f.contract, records: f.records}
	check.features(labels, splits...)
	f.Found.Findings = append(f.Found.Findings, check.found...)
}

// readSplits returns the splits that a training reads.
func readSplits(p params.Params) []string {
	splits := []string{p.Data.Train}
	if p.Train.EvalInterval == params.NoEval {
		return splits
	}
	for _, eval := range p.Data.Eval {
		if eval != p.Data.Train {
			splits = append(splits, eval)
		}
	}
	return splits
}

// graph checks that vocabulary and labels of the data match the graph.
func (f *Preflight) graph() {
	switch d, tokens := f.params.Data, TakesTokens(f.contract); {
	case d.Rows > 0 && !tokens:
		f.add("data.rows is %d, and the graph takes no rows of tokens; leave it out", d.Rows)
	case d.Resize != "" && !slices.ContainsFunc(f.contract.Features, func(g graphs.Feature) bool { return takesImages(specOf(f.params, g)) }):
		f.add("data.resize is %s, and the graph takes no images of one size; leave it out", d.Resize)
	case d.CropToAspectRatio && d.Resize == "":
		f.add("data.crop_to_aspect_ratio is true and data.resize is not set; expected how images are scaled, as with --set data.resize=bilinear")
	case d.Buckets != "" && tokens && d.Rows == 0 && f.params.Strategy.Kind() != devices.TPU:
		f.add("data.buckets is %s and data.rows is 0; expected the rows of a batch, as with --set data.rows=16", d.Buckets)
	case d.Buckets != "" && !tokens && f.contract.OpenAxis() == "":
		f.add("data.buckets is %s, and the graph takes no sequences; leave it out", d.Buckets)
	}
	m := f.records.Manifest
	if m == nil {
		return
	}
	if TakesTokens(f.contract) && !m.HasVocab() {
		f.add("data %s has no texts, and the graph takes tokens; expected texts, converted with the model's vocabulary", f.records.Dir)
		return
	}
	if f.params.Data.WholeWords && f.contract.Masking != nil && !m.WordStarts {
		f.add("data.whole_words is true, and data %s does not say where words start; convert it again, or leave it out", f.records.Dir)
	}
	if got, want := m.Vocab.Size, VocabSizeOf(f.contract); want > 0 && !m.Vocab.Rows(want) {
		f.add("data %s has a vocabulary of %d tokens; expected %d, as in the graph; convert with the model's vocabulary, or export with --vocab-size %[2]d", f.records.Dir, got, want)
	}
	if reason := loop.KnownTask(f.contract).CheckData(m); reason != "" {
		f.add("data %s %s", f.records.Dir, reason)
	}
}

// folder reports a data folder without records, such as the parent of the right one. It returns
// whether to check the splits.
func (f *Preflight) folder() bool {
	if f.records.Manifest != nil {
		return true
	}
	if files, err := tfrecord.Glob(f.records.Dir); err == nil && len(files) > 0 {
		return true
	}
	if vfs.Scheme(f.records.Dir) != "" {
		return true // listing all folders below one in a bucket could take long
	}
	below, err := filepath.Glob(filepath.Join(f.records.Dir, "*", convert.ManifestName))
	if err != nil || len(below) == 0 {
		return true // the check of the splits reports what is missing
	}
	f.add("data %s has no records, but folders in it do; use one of these, such as --data %s", f.records.Dir, filepath.Dir(below[0]))
	return false
}

// trainingSplits checks the splits that a run trains and evaluates on. begins means that the run is
// new.
func (f *Preflight) trainingSplits(begins bool) {
	splits := readSplits(f.params)
	train := splits[0]
	evaluates := f.params.Train.EvalInterval != params.NoEval
	if f.split(train, "--set data.train=NAME") {
		f.lengths(train)
		f.answers(train, "convert with --label-column")
	}
	for _, eval := range splits[1:] {
		if f.split(eval, "--set data.eval=NAME, or train without evaluations with --eval-interval -2") {
			f.lengths(eval)
			f.answers(eval, "convert with --label-column, choose a split with labels with --set data.eval=NAME, or train without evaluations with --eval-interval -2")
		}
	}
	if !begins {
		return
	}
	if answer, only := f.onlyAnswer(train); only {
		f.add("data %s: all examples of split %s have the label %q; expected examples with at least 2 labels; convert with more files in --train", f.records.Dir, train, answer)
	}
	if !evaluates {
		return
	}
	for _, eval := range f.params.Data.Eval {
		if answer, only := f.onlyAnswer(eval); only {
			f.log.Warn("all examples of the evaluated split have the same label; its metrics mean little", "split", eval, "label", answer)
		}
		if f.sameExamples(train, eval) {
			f.log.Warn("the run is evaluated on examples that it trains on; the metrics say nothing about new examples", "data.train", train, "data.eval", eval)
		}
	}
}

// recordEnding matches the end of the name of a file of records.
var recordEnding = regexp.MustCompile(`\.tf_?records?(\.\w+)?$`)

// split reports a split that does not exist. It returns whether it exists.
func (f *Preflight) split(split, flag string) bool {
	if f.of(split) != nil {
		return true
	}
	for _, pattern := range f.records.files(split) {
		if _, err := tfrecord.Glob(pattern); !errors.Is(err, fs.ErrNotExist) {
			return true // opening the files reports any other error
		}
	}
	var there []string
	if m := f.records.Manifest; m != nil {
		there = slices.Sorted(maps.Keys(m.Splits))
	} else {
		there = splitsByName(f.records.Dir)
	}
	if len(there) == 0 {
		f.add("data %s has no split %q and no other records; expected the folder that gorbit convert wrote, or one of TFRecords such as %s, with --data", f.records.Dir, split, tfrecord.ShardName(split, 0, 1))
		return false
	}
	hint := words.DidYouMean(split, there)
	if strings.Contains(split, ",") && strings.Contains(flag, "data.eval") {
		hint = "; several splits are a list, as in --set 'data.eval=[dev, test]'"
	}
	f.add("data %s has no split %q; expected one of %s; choose one with %s%s", f.records.Dir, split, strings.Join(there, ", "), flag, hint)
	return false
}

// splitsByName returns the names of the splits of a folder without a manifest. Shards need no ending.
func splitsByName(dir string) []string {
	var out []string
	for _, pattern := range []string{dir, vfs.Join(dir, "*-{shard}-of-{count}")} {
		files, err := tfrecord.Glob(pattern)
		if err != nil {
			continue
		}
		for _, file := range files {
			name := recordEnding.ReplaceAllString(filepath.Base(file), "")
			if base, _, _, ok := tfrecord.ParseShardName(filepath.Base(file)); ok {
				name = recordEnding.ReplaceAllString(base, "")
			}
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// lengths reports examples that are longer than a row or than the graph's positions.
func (f *Preflight) lengths(split string) {
	if !TakesTokens(f.contract) {
		return
	}
	s, most, row := f.of(split), mostTokens(f.contract), f.params.Data.RowLength
	if s == nil || f.params.Data.Truncate && !f.contract.HasParts() {
		return
	}
	f.targetLengths(split, s.TargetLengths.Max)
	longest := s.Lengths.Max
	switch positions := positions(f.contract); {
	case row > 0 && longest > row && f.contract.HasParts():
		f.add("data %s: split %s has examples of up to %d tokens, those of all choices; expected at most %d, the data.row_length; use --set data.row_length=%[3]d", f.records.Dir, split, longest, row)
	case positions > 0 && s.LongestText > positions:
		f.add("data %s: split %s has texts of up to %d tokens; expected at most %d, the positions of the graph; convert with --max-length %[4]d", f.records.Dir, split, s.LongestText, positions)
	case most > 0 && longest > most:
		f.add("data %s: split %s has examples of up to %d tokens; expected at most %d, the positions of the graph; convert with --max-length %[4]d, or shorten them with --set data.truncate=true", f.records.Dir, split, longest, most)
	case row > 0 && longest > row:
		f.add("data %s: split %s has examples of up to %d tokens; expected at most %d, the data.row_length; use --set data.row_length=%[3]d, or shorten them with --set data.truncate=true", f.records.Dir, split, longest, row)
	}
}

// targetLengths reports targets that are too long.
func (f *Preflight) targetLengths(split string, longest int) {
	most, row := bound(f.contract, packed.TargetPositionIDs), cmp.Or(f.params.Data.TargetRowLength, f.params.Data.RowLength, RowLengthOf(f.records.Manifest, f.contract))
	switch {
	case !f.contract.HasTargets():
	case most > 0 && longest > most:
		f.add("data %s: split %s has targets of up to %d tokens; expected at most %d, the positions of the graph; convert with --max-target-length %[4]d, or shorten them with --set data.truncate=true", f.records.Dir, split, longest, most)
	case longest > row:
		f.add("data %s: split %s has targets of up to %d tokens; expected at most %d, the length of rows of targets; use --set data.target_row_length=%[3]d, or shorten them with --set data.truncate=true", f.records.Dir, split, longest, row)
	}
}

// answers reports a split whose examples lack what the task learns from. mend is how to fix that.
func (f *Preflight) answers(split, mend string) {
	s := f.of(split)
	if s == nil {
		return
	}
	if reason := loop.KnownTask(f.contract).CheckSplit(split, s); reason != "" {
		f.add("data %s: %s; %s", f.records.Dir, reason, mend)
	}
}

// onlyAnswer returns the answer of all examples of a split if they all have the same one.
func (f *Preflight) onlyAnswer(split string) (answer string, only bool) {
	s := f.of(split)
	if s == nil {
		return "", false
	}
	return loop.KnownTask(f.contract).OnlyAnswer(f.records.Manifest, s)
}

// sameExamples reports whether two splits are the same or were made from the same file.
func (f *Preflight) sameExamples(train, eval string) bool {
	if slices.Equal(f.records.files(train), f.records.files(eval)) {
		return true
	}
	if f.records.Manifest == nil {
		return false
	}
	made := func(split string, sum string) bool {
		return slices.ContainsFunc(f.records.Manifest.Sources, func(s convert.Source) bool { return s.Split == split && s.SHA256 == sum })
	}
	return slices.ContainsFunc(f.records.Manifest.Sources, func(s convert.Source) bool { return s.Split == eval && made(train, s.SHA256) })
}

// vocabulary reports a data folder whose vocabulary is not the one its records were made with.
func (f *Preflight) vocabulary() {
	m := f.records.Manifest
	if m == nil || m.Vocab.File == "" || !TakesTokens(f.contract) {
		return
	}
	f.knownMask()
	if m.Vocab.NoFirst && f.contract.Model.Config["pooling"] == "first" {
		f.add("the graph reads the first token of a text, and the tokenizer of data %s puts no special token there; export with --pooling mean, or convert with a tokenizer that begins texts with a token such as <s>", f.records.Dir)
	}
	if m.Vocab.NoLast && f.params.Data.Truncate {
		f.add("data.truncate keeps the last token of a record, and the tokenizer of data %s puts no special token there; convert with a lower --max-length in its place", f.records.Dir)
	}
	path := vfs.Join(f.records.Dir, m.Vocab.File)
	switch sum, err := VocabSum(path); {
	case err != nil:
		f.add("data %s: vocabulary: %v; convert the data again", f.records.Dir, err)
	case m.Vocab.SHA256 == "" || sum == m.Vocab.SHA256:
		return
	default:
		f.add("%s is not the vocabulary that the records were made with (its checksum differs); restore it, or convert the data again", path)
	}
	f.Found.Damaged = true
}

// runVocabulary reports a run that was trained with another vocabulary than the data's.
func (f *Preflight) runVocabulary(folder string, was *convert.Manifest) {
	m := f.records.Manifest
	if m == nil || m.Vocab.File == "" || !(Meaning{m, f.params.Data.Features}).takesText(f.contract) {
		return
	}
	own := filepath.Join(folder, m.Vocab.Kept())
	how := OtherVocab(own, vfs.Join(f.records.Dir, m.Vocab.File))
	if !Exists(own) && was != nil && was.Vocab.SHA256 != m.Vocab.SHA256 {
		how = "its checksum differs"
	}
	if how != "" {
		f.add("run %s was trained with another vocabulary than that of data %s (%s); use the run's data, or convert with --vocab %s", folder, f.records.Dir, how, own)
	}
}
