package convert

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/stream"
	"github.com/gorbit-ml/gorbit/internal/data/table"
)

// Kind is what the examples of a task ask for, and so the form of the answers in its records.
type Kind string

// The kinds.
const (
	Classification Kind = "classification" // one label: its number in label_ids
	MultiLabel     Kind = "multilabel"     // any number of labels: their numbers in label_ids
	Regression     Kind = "regression"     // a number: label
	Tokens         Kind = "tokens"         // a label per word: a number per token in label_ids, -1 where it is not counted
	MaskedLM       Kind = "mlm"            // the tokens themselves
	LanguageModel  Kind = "lm"             // the tokens themselves, each following the ones before it
	// QuestionAnswering asks for a part of a context: its first and last token in start_positions and
	// end_positions, 0 where there is no answer.
	QuestionAnswering Kind = "qa"
	Seq2Seq           Kind = "seq2seq" // a text that is made of another: its tokens in target_ids
	// Embed asks how near texts are to each other: the tokens of two or three, each with its special
	// tokens, whose numbers are in segment_ids; and a score in label, where there are scores.
	Embed Kind = "embed"
	// Choices asks which of several texts goes with a text: the number of the right one in label_ids. The
	// tokens of all are in one record, which says where those of each begin.
	Choices Kind = "choices"
)

// DefaultLabelSeparator separates the labels of MultiLabel in a field.
const DefaultLabelSeparator = ","

// texts reports whether records have texts without answers.
func (k Kind) texts() bool { return k == MaskedLM || k == LanguageModel }

// free reports whether the configuration names the columns of the files.
func (c *Config) free() bool {
	_, ok := free[c.taskName()]
	return ok
}

// separator returns what separates labels.
func (c *Config) separator() string {
	if c.LabelSeparator == "" {
		return DefaultLabelSeparator
	}
	return c.LabelSeparator
}

// formats names the formats of the files of a kind.
func (k Kind) formats() string {
	switch k {
	case Tokens:
		return "conll, brown, jsonl, json or parquet"
	case QuestionAnswering:
		return "squad, jsonl, json or parquet"
	}
	return "tsv, csv, jsonl, json, parquet, npz or tfrecord"
}

// formatOfKind returns the format of a file whose name shows f. MaskedLM and LanguageModel without
// columns have a text per line, and Tokens has sentences in place of tables.
func (c *Config) formatOfKind(path string, f Format) Format {
	name, _ := stream.CutSuffix(strings.ToLower(path))
	switch kind := c.task().kind; {
	case kind.texts() && c.TextColumn == "" && c.ChatColumn == "":
		return PlainLines
	case kind == Tokens && (f == TSV || slices.Contains([]string{".conll", ".conllu", ".iob", ".bio"}, filepath.Ext(name))):
		return CoNLL
	case kind == QuestionAnswering && f == JSON:
		return SQuAD
	}
	return f
}

// validateKind checks the settings that only some kinds have.
func (c *Config) validateKind(fail func(format string, args ...any)) {
	kind := c.task().kind
	if kind == Seq2Seq {
		return // validateSides checks them
	}
	tagged := c.Format == CoNLL || c.Format == Brown
	if kind == Embed {
		c.validateEmbed(fail)
	} else if c.NegativeColumn != "" || c.ScoreMax != 0 {
		fail("a negative column or a highest score is given; they are only for task %s", Embed)
	}
	switch {
	case c.Format == SQuAD && kind != QuestionAnswering, kind == QuestionAnswering && c.Format != Auto && c.Format != SQuAD && c.Format != JSON && c.Format != JSONL && c.Format != Parquet:
		fail("format is %s for task %s; expected %s for task %s, and others for other tasks", c.Format, c.taskName(), QuestionAnswering.formats(), QuestionAnswering)
	case kind == QuestionAnswering && len(c.Labels) > 0:
		fail("labels are given; task %s has none", QuestionAnswering)
	case c.ChatColumn != "" && kind != LanguageModel:
		fail("a column of conversations is given, which is for task %s; leave it out", LanguageModel)
	case c.ChatColumn != "" && (c.TextColumn != "" || c.PairColumn != "" || c.Documents != EachText || c.Blocks != JoinDocuments):
		fail("a column of conversations is given, each of which is an example; leave out the text column, the pair column, the kind of documents and blocks")
	case c.ChatColumn != "" && c.Format != Auto && !table.Format(c.Format).Objects():
		fail("a column of conversations is given, and the format is %s; expected jsonl, json or parquet", c.Format)
	case c.TextColumn == "" && kind != Tokens && !kind.texts() && kind != QuestionAnswering:
		fail("no text column is given; expected the name of a column (--text-column)")
	case kind.texts() && (c.PairColumn != "" && kind != LanguageModel || c.LabelColumn != "" || len(c.Labels) > 0):
		fail("task %s has texts without labels; leave out the pair column, the label column and labels", c.Task)
	case kind == LanguageModel && c.PairColumn != "" && c.TextColumn == "":
		fail("a pair column is given and no text column; expected the column of the texts that it follows (--text-column)")
	case kind == LanguageModel && c.PairColumn != "" && (c.Documents != EachText || c.Blocks != JoinDocuments):
		fail("a pair column is given, of which each row is an example; leave out the kind of documents and blocks")
	case kind.texts() && c.TextColumn != "" && c.Format == PlainLines:
		fail("format %s has no columns; leave out the text column", PlainLines)
	case kind.texts() && c.TextColumn == "" && c.ChatColumn == "" && c.Format != Auto && c.Format != PlainLines:
		fail("no text column is given; name it, or choose format %s for a text on each line", PlainLines)
	case kind == Tokens && c.PairColumn != "":
		fail("task %s has no pairs; leave out the pair column", c.Task)
	case tagged && kind != Tokens, c.Format == PlainLines && !kind.texts():
		fail("format %s is not for task %s; expected %s", c.Format, c.taskName(), Classification.formats())
	case kind == Tokens && (c.Format == CSV || c.Format == TSV):
		fail("format is %s; expected %s for task %s", c.Format, kind.formats(), c.Task)
	case c.Format == Brown && (c.TextColumn != "" || c.LabelColumn != ""):
		fail("format %s has no columns; leave out the text column and the label column", Brown)
	case kind == Choices && slices.Contains([]Format{PlainLines, CoNLL, Brown, SQuAD}, c.Format):
		fail("format is %s; expected %s for task %s", c.Format, kind.formats(), Choices)
	case kind != Classification && c.LabelThreshold != nil:
		fail("a label threshold is given; task %s has no use for one", c.Task)
	case (kind == Regression || kind == Embed) && len(c.Labels) > 0:
		fail("labels are given; task %s has numbers", c.Task)
	case !slices.Contains([]Documents{EachText, BlankLines, Headings}, c.Documents):
		fail("documents are %q; expected texts, %s or %s", c.Documents, BlankLines, Headings)
	case !slices.Contains([]Blocks{JoinDocuments, KeepDocuments, GroupDocuments}, c.Blocks):
		fail("blocks are %q; expected join, %s or %s", c.Blocks, KeepDocuments, GroupDocuments)
	case kind == LanguageModel && c.Blocks == GroupDocuments:
		fail("blocks are %s, which is for task %s; expected join, which does the same for task %s, or %s", c.Blocks, MaskedLM, kind, KeepDocuments)
	case c.Documents != EachText && c.SplitByHash != "":
		fail("texts are split by hash, and documents have several of them, which would be torn apart; give a dev file instead")
	}
	for _, only := range []struct {
		given bool
		what  string
		kind  Kind
	}{
		{c.LabelSeparator != "", "label separator", MultiLabel},
		{c.AllPieces, "label of all pieces", Tokens},
		{c.WordStarts, "start of words", MaskedLM},
		{c.DocStride != 0, "stride of windows", QuestionAnswering},
	} {
		if only.given && kind != only.kind {
			fail("the %s is given; it is only for task %s", only.what, only.kind)
		}
	}
	if (c.Documents != EachText || c.Blocks != JoinDocuments) && !kind.texts() {
		fail("the kind of documents or blocks is given; it is only for tasks %s and %s", MaskedLM, LanguageModel)
	}
	for _, l := range c.Labels {
		if kind == MultiLabel && strings.Contains(l, c.separator()) {
			fail("label %q has the separator %q in it; choose another separator", l, c.separator())
		}
	}
}

// task describes the files of a named task.
type task struct {
	kind              Kind // "" means Classification
	text, pair, label string
	// values are the labels in the files, and names their readable names.
	values, names []string
	// bare names the columns of files without a header line, for the one task with such
	// files. A file whose first row has the name of the text column does have a header.
	bare []string
	// ids are the columns that a list of ids refers to.
	ids []string
}

// tasks are the GLUE tasks with one or two texts. Test files have the same text columns but no
// label.
var tasks = map[string]task{
	"stsb": {
		kind: Regression, text: "sentence1", pair: "sentence2", label: "score",
	},
	"cola": {
		text: "sentence", label: "label",
		values: []string{"0", "1"}, names: []string{"unacceptable", "acceptable"},
		bare: []string{"source", "label", "mark", "sentence"},
	},
	"sst2": {
		text: "sentence", label: "label",
		values: []string{"0", "1"}, names: []string{"negative", "positive"},
	},
	"mrpc": {
		text: "#1 String", pair: "#2 String", label: "Quality",
		values: []string{"0", "1"}, names: []string{"not_equivalent", "equivalent"},
		ids: []string{"#1 ID", "#2 ID"},
	},
	"qqp": {
		text: "question1", pair: "question2", label: "is_duplicate",
		values: []string{"0", "1"}, names: []string{"not_duplicate", "duplicate"},
	},
	"mnli": {
		text: "sentence1", pair: "sentence2", label: "gold_label",
		values: []string{"contradiction", "entailment", "neutral"},
	},
	"qnli": {
		text: "question", pair: "sentence", label: "label",
		values: []string{"entailment", "not_entailment"},
	},
	"rte": {
		text: "sentence1", pair: "sentence2", label: "label",
		values: []string{"entailment", "not_entailment"},
	},
	"wnli": {
		text: "sentence1", pair: "sentence2", label: "label",
		values: []string{"0", "1"}, names: []string{"not_entailment", "entailment"},
	},
}

// TextTask is the task of files whose columns the configuration names.
const TextTask = "text"

// free are the tasks of files whose columns the configuration names.
var free = map[string]Kind{
	TextTask:           Classification,
	string(MultiLabel): MultiLabel,
	string(Regression): Regression,
	string(Tokens):     Tokens,
	string(MaskedLM):   MaskedLM,

	string(LanguageModel):     LanguageModel,
	string(QuestionAnswering): QuestionAnswering,
	string(Seq2Seq):           Seq2Seq,
	string(Embed):             Embed,
	string(Choices):           Choices,
}

// Tasks returns the names of the tasks: TextTask, the others whose columns the configuration names,
// ImagesTask, and those of GLUE.
func Tasks() []string {
	names := []string{TextTask, string(MultiLabel), string(Regression), string(Tokens), string(MaskedLM), string(LanguageModel), string(QuestionAnswering), string(Seq2Seq), string(Embed), string(Choices), ImagesTask}
	return append(names, slices.Sorted(maps.Keys(tasks))...)
}
