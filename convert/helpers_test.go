package convert

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// tokens are the vocabulary of the tests, after the special tokens.
var tokens = []string{"good", "bad", "film", "a", "b", "c", "d", "e", `"`, "é", "ö", "x", ",", "."}

var quiet = slog.New(slog.DiscardHandler)

// write makes files in a new folder and returns it. A vocab.txt is always there.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	vocab := append([]string{text.Pad, text.Unk, text.Cls, text.Sep, text.Mask}, tokens...)
	put(t, filepath.Join(dir, "vocab.txt"), strings.Join(vocab, "\n")+"\n")
	for name, content := range files {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o777); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, name), content)
	}
	return dir
}

func put(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
}

// in completes a configuration: its paths are made to be in dir, its output is a
// folder there.
func in(dir string, cfg Config) Config {
	cfg.Inputs = slices.Clone(cfg.Inputs)
	for i := range cfg.Inputs {
		cfg.Inputs[i].Path = filepath.Join(dir, cfg.Inputs[i].Path)
	}
	if cfg.DevIDs != "" {
		cfg.DevIDs = filepath.Join(dir, cfg.DevIDs)
	}
	cfg.Vocab = filepath.Join(dir, "vocab.txt")
	cfg.Out = filepath.Join(dir, "out")
	return cfg
}

func mustRun(t testing.TB, cfg Config) *Manifest {
	t.Helper()
	m, err := Run(context.Background(), cfg, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// example is a record, its ids as tokens.
type example struct {
	tokens   string
	segments []int64
	label    int64 // -1: none
	id       int64
}

// eachRecord calls each with the records of a split, shard after shard, whose numbers must be those of the
// manifest.
func eachRecord(t testing.TB, cfg Config, split string, each func(data []byte)) {
	t.Helper()
	m, err := ReadManifest(cfg.Out)
	if err != nil {
		t.Fatal(err)
	}
	s := m.Splits[split]
	if s == nil {
		t.Fatalf("there is no split %s", split)
	}
	for _, f := range s.Files {
		r, err := tfrecord.Open(filepath.Join(cfg.Out, f.Name))
		if err != nil {
			t.Fatal(err)
		}
		n := int64(0)
		for {
			data, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			each(data)
			n++
		}
		r.Close()
		if n != f.Records {
			t.Fatalf("%s holds %d records, the manifest says %d", f.Name, n, f.Records)
		}
	}
}

// verified returns the manifest of a conversion, whose files it has checked.
func verified(t testing.TB, cfg Config) *Manifest {
	t.Helper()
	m, err := ReadManifest(cfg.Out)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Verify(context.Background(), cfg.Out); err != nil {
		t.Fatal(err)
	}
	return m
}

// records reads the records of a split back, shard after shard.
func records(t testing.TB, cfg Config, split string) []example {
	t.Helper()
	m := verified(t, cfg)
	v, err := text.LoadVocab(filepath.Join(cfg.Out, m.Vocab.File))
	if err != nil {
		t.Fatal(err)
	}
	var out []example
	dec := tfrecord.NewDecoder(InputIDs, SegmentIDs, LabelIDs, ExampleID)
	eachRecord(t, cfg, split, func(data []byte) {
		var vals tfrecord.Values
		if err := dec.Decode(data, &vals); err != nil {
			t.Fatal(err)
		}
		var ids []int32
		for _, id := range vals.At(0).Int64s {
			ids = append(ids, int32(id))
		}
		e := example{v.Tokens(ids), slices.Clone(vals.At(1).Int64s), -1, vals.At(3).Int64s[0]}
		if len(vals.At(2).Int64s) > 0 {
			e.label = vals.At(2).Int64s[0]
		}
		if len(e.segments) != len(ids) {
			t.Fatalf("record %d: %d ids, %d segment ids", len(out), len(ids), len(e.segments))
		}
		out = append(out, e)
	})
	return out
}

// lines returns "label tokens" of records, without the special tokens at the ends.
func shown(names []string, all []example) []string {
	var out []string
	for _, e := range all {
		label := "-"
		if e.label >= 0 {
			label = names[e.label]
		}
		s := strings.TrimSuffix(strings.TrimPrefix(e.tokens, "[CLS] "), " [SEP]")
		out = append(out, label+": "+strings.ReplaceAll(s, " [SEP] ", " | "))
	}
	return out
}

// fieldsOf returns n fields of a text.
func fieldsOf(s string, n int) []table.Field {
	return slices.Repeat([]table.Field{{Text: s, OK: true}}, n)
}
