package convert

import (
	"maps"
	"slices"
)

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

	string(QuestionAnswering): QuestionAnswering,
}

// Tasks returns the names of the tasks: TextTask, the others whose columns the configuration names,
// and those of GLUE.
func Tasks() []string {
	names := []string{TextTask, string(MultiLabel), string(Regression), string(Tokens), string(MaskedLM), string(QuestionAnswering)}
	return append(names, slices.Sorted(maps.Keys(tasks))...)
}
