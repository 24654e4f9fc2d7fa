package convert

import (
	"math"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

func TestValidate(t *testing.T) {
	ok := func() Config {
		return Config{TextColumn: "t", Vocab: "v", Out: "o", Inputs: []Input{{Train, "x.tsv"}}}
	}
	nan := math.NaN()
	one := 1.0
	tests := []struct {
		name   string
		change func(*Config)
		want   string // of the error; "" where there is none
	}{
		{"plain", func(c *Config) {}, ""},
		{"task", func(c *Config) { c.Task, c.TextColumn = "mrpc", "" }, ""},
		{"task whose file has no telling name", func(c *Config) { c.Task, c.TextColumn, c.Inputs[0].Path = "mrpc", "", "x" }, ""},
		{"score", func(c *Config) { c.LabelColumn, c.LabelThreshold = "l", &one }, ""},
		{"hash", func(c *Config) { c.SplitByHash, c.DevFraction = "i", 0.5 }, ""},
		{"ids", func(c *Config) { c.Task, c.TextColumn, c.DevIDs = "mrpc", "", "i" }, ""},
		{"no inputs", func(c *Config) { c.Inputs = nil }, "convert: no input files are given"},
		{"split name", func(c *Config) { c.Inputs[0].Split = "a/b" }, `convert: split is "a/b"; expected a name of letters, digits and _`},
		{"no split name", func(c *Config) { c.Inputs[0].Split = "" }, `convert: split is ""; expected a name of letters, digits and _`},
		{"no path", func(c *Config) { c.Inputs[0].Path = "" }, "convert: the train split has a file without a name"},
		{"format", func(c *Config) { c.Format = "xml" }, `convert: format is "xml"; expected tsv, csv, jsonl, json, parquet, npz, tfrecord, lines, conll, brown or squad`},
		{"encoding", func(c *Config) { c.Charset = "utf-16" }, `convert: encoding is "utf-16"; expected utf-8, latin-1 or windows-1252`},
		{"no vocabulary", func(c *Config) { c.Vocab = "" }, "convert: no vocabulary is given; expected a tokenizer.json, a .model of SentencePiece, or a BERT vocab.txt with one token per line (--tokenizer)"},
		{"tokenizer", func(c *Config) { c.Tokenizer = text.Config{MaxWordChars: -1} }, "text: MaxWordChars is -1; expected 0 or more"},
		{"length", func(c *Config) { c.MaxLength = 2 }, "convert: maximum length is 2; expected 3 to 1048576"},
		{"no such task", func(c *Config) { c.Task = "glue" }, `convert: task is "glue"; expected text, multilabel, regression, tokens, mlm, lm, qa, seq2seq, embed, choices, images, cola, mnli, mrpc, qnli, qqp, rte, sst2, stsb or wnli`},
		{"no text column", func(c *Config) { c.TextColumn = "" }, "convert: no text column is given; expected the name of a column (--text-column)"},
		{"labels without column", func(c *Config) { c.Labels = []string{"a"} }, "convert: labels are given, but no label column"},
		{"text as label", func(c *Config) { c.LabelColumn = "t" }, `convert: column "t" is both the text column and the label column; expected different columns`},
		{"text as pair", func(c *Config) { c.PairColumn = "t" }, `convert: column "t" is both the text column and the pair column; expected different columns`},
		{"chats of a class", func(c *Config) { c.ChatColumn = "c" }, "convert: a column of conversations is given, which is for task lm; leave it out"},
		{"chats and texts", func(c *Config) { c.Task, c.ChatColumn, c.LabelColumn = "lm", "c", "" }, "convert: a column of conversations is given, each of which is an example; leave out the text column, the pair column, the kind of documents and blocks"},
		{"chats in a table", func(c *Config) { c.Task, c.ChatColumn, c.LabelColumn, c.TextColumn, c.Format = "lm", "c", "", "", CSV }, "convert: a column of conversations is given, and the format is csv; expected jsonl, json or parquet"},
		{"pair as label", func(c *Config) { c.PairColumn, c.LabelColumn = "p", "p" }, `convert: column "p" is both the pair column and the label column; expected different columns`},
		{"task with columns", func(c *Config) { c.Task = "sst2" }, "convert: task sst2 has fixed columns; name columns only with task text"},
		{"task with labels", func(c *Config) { c.Task, c.TextColumn, c.Labels = "sst2", "", []string{"a"} }, "convert: task sst2 has fixed labels; name labels only with task text"},
		{"task in csv", func(c *Config) { c.Task, c.TextColumn, c.Format = "sst2", "", CSV }, "convert: task sst2 is published as tsv; use task text for csv"},
		{"label twice", func(c *Config) { c.LabelColumn, c.Labels = "l", []string{"a", "a"} }, `convert: label "a" is repeated, empty or surrounded by spaces; expected different labels`},
		{"label with space", func(c *Config) { c.LabelColumn, c.Labels = "l", []string{" a"} }, `convert: label " a" is repeated, empty or surrounded by spaces; expected different labels`},
		{"threshold", func(c *Config) { c.LabelColumn, c.LabelThreshold = "l", &nan }, "convert: label threshold is NaN; expected a number"},
		{"threshold with three labels", func(c *Config) { c.LabelColumn, c.LabelThreshold, c.Labels = "l", &one, []string{"a", "b", "c"} }, "convert: 3 labels are given with a label threshold; expected 2"},
		{"fraction alone", func(c *Config) { c.DevFraction = 0.1 }, "convert: a dev fraction is given, but no column to split by"},
		{"fraction", func(c *Config) { c.SplitByHash, c.DevFraction = "i", 1 }, "convert: dev fraction is 1; expected more than 0 and less than 1"},
		{"fraction NaN", func(c *Config) { c.SplitByHash, c.DevFraction = "i", nan }, "convert: dev fraction is NaN; expected more than 0 and less than 1"},
		{"ids of text", func(c *Config) { c.DevIDs = "i" }, "convert: task text has no ids to split by"},
		{"hash and dev", func(c *Config) { c.SplitByHash = "i"; c.Inputs = append(c.Inputs, Input{Dev, "y.tsv"}) }, "convert: the dev split has a file of its own; expected none, because it is taken from the train split"},
		{"hash without train", func(c *Config) { c.SplitByHash = "i"; c.Inputs[0].Split = Test }, "convert: there is no train split to take the dev split from"},
		{"hash and ids", func(c *Config) { c.Task, c.TextColumn, c.SplitByHash, c.DevIDs = "mrpc", "", "i", "j" }, "convert: the dev split is given both by hash and by ids; give one of them"},
		{"no output", func(c *Config) { c.Out = "" }, "convert: no output folder is given"},
		{"shards", func(c *Config) { c.Shards = 513 }, "convert: number of shards is 513; expected 1 to 512"},
		{"compression", func(c *Config) { c.Compression = tfrecord.Zlib + 1 }, "convert: compression is 3; expected none, gzip or zlib"},
		{"workers", func(c *Config) { c.Workers = -1 }, "convert: number of workers is -1; expected 0 or more"},
		{"two faults", func(c *Config) { c.Out, c.Shards = "", -1 }, "convert: no output folder is given\nconvert: number of shards is -1; expected 1 to 512"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := ok()
			tt.change(&cfg)
			err := cfg.Validate()
			if tt.want == "" && err != nil {
				t.Errorf("got %v", err)
			}
			if tt.want != "" && (err == nil || err.Error() != tt.want) {
				t.Errorf("got %v\nexpected %s", err, strings.ReplaceAll(tt.want, "\n", " / "))
			}
		})
	}
}
