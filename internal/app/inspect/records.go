package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/data/tokenizers"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// RecordSets describes a dataset: the splits of a folder, or one file.
type RecordSets struct {
	Kind Kind   `json:"kind"`
	Path string `json:"path"`
	// Task, Labels, MaxLength and Warnings are those of the manifest, if there is one.
	Task      string   `json:"task,omitempty"`
	Labels    []string `json:"labels,omitempty"`
	MaxLength int      `json:"max_length,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
	// Vocab is the vocabulary with which ids are shown as text; "" for none.
	Vocab string      `json:"vocab,omitempty"`
	Note  string      `json:"note,omitempty"`
	Sets  []RecordSet `json:"sets"`
}

// RecordSet describes the records of a split or a file.
type RecordSet struct {
	Name        string   `json:"name"`
	Files       []string `json:"files"`
	Bytes       int64    `json:"bytes"`
	Compression string   `json:"compression"`
	Records     int64    `json:"records"`
	// Damaged are the files that could not be read to their end. What is before the damage is counted.
	Damaged []string `json:"damaged,omitempty"`
	// NotExamples is the number of records that are neither Examples nor SequenceExamples, such as
	// the events of TensorBoard.
	NotExamples int64          `json:"not_examples,omitempty"`
	Features    []FeatureStats `json:"features"`
	Examples    []Shown        `json:"examples"`
}

// FeatureStats describes a feature of records.
type FeatureStats struct {
	Name string `json:"name"`
	// Kind is bytes, float or int64, or several of them; a list of a SequenceExample begins with
	// "list of".
	Kind string `json:"kind"`
	// Records is the number of records that have the feature.
	Records int64 `json:"records"`
	// Min, Median and Max are those of the number of its values, or of the steps of a list.
	Min    int `json:"min"`
	Median int `json:"median"`
	Max    int `json:"max"`
}

// Shown is one decoded record.
type Shown struct {
	Record   int64          `json:"record"`
	Features []ShownFeature `json:"features"`
}

// ShownFeature is a decoded feature, shortened.
type ShownFeature struct {
	Name   string `json:"name"`
	Length int    `json:"length"`
	Values string `json:"values"`
	// Text is what the values mean: the tokens of ids, or the name of a label.
	Text string `json:"text,omitempty"`
}

// DescribeRecords reads all records of a dataset's folder or of a TFRecord file, and shows the first
// examples of each split. If files are damaged or missing, it returns what it has with the error, of class
// fault.Damaged, that names them.
func DescribeRecords(ctx context.Context, found Found, examples int) (*RecordSets, error) {
	r := &RecordSets{Kind: found.Kind, Path: found.Path, Note: found.Note, Sets: []RecordSet{}}
	dir := found.Path
	if found.Kind == Records {
		dir = filepath.Dir(found.Path)
	}
	m, err := convert.ReadManifest(dir)
	if err != nil && (found.Kind != Records && !errors.Is(err, fs.ErrNotExist)) {
		return nil, err
	}
	d := &decoder{}
	if m != nil {
		if err := r.manifest(m, dir, d); err != nil {
			return nil, err
		}
	}
	sets, damage := setsOf(found, m)
	if damage != nil && !errors.Is(damage, fault.Damaged) {
		return nil, damage
	}
	for _, s := range sets {
		err := s.read(ctx, examples, d)
		if err != nil && !errors.Is(err, fault.Damaged) {
			return nil, err
		}
		damage = errors.Join(damage, err)
		r.Sets = append(r.Sets, *s)
	}
	return r, damage
}

// manifest takes what the manifest of a dataset tells.
func (r *RecordSets) manifest(m *convert.Manifest, dir string, d *decoder) error {
	r.Task, r.Labels, r.MaxLength, r.Warnings = m.Task, m.Labels, m.MaxLength, m.Warnings
	d.labels = m.Labels
	if !m.HasVocab() {
		return nil
	}
	r.Vocab = filepath.Join(dir, m.Vocab.File)
	file, err := tokenizers.Open(r.Vocab, m.TokenizerConfig())
	if err != nil {
		return err
	}
	d.tokenizer = file.Tokenizer
	return nil
}

// setsOf returns the splits of a folder, or the file, without what is in them. An error of class
// fault.Damaged comes with those that there are.
func setsOf(found Found, m *convert.Manifest) ([]*RecordSet, error) {
	if found.Kind == Records {
		return []*RecordSet{{Name: filepath.Base(found.Path), Files: []string{found.Path}}}, nil
	}
	var out []*RecordSet
	if m != nil {
		for _, name := range sorted(m.Splits) {
			s := &RecordSet{Name: name}
			for _, f := range m.Splits[name].Files {
				s.Files = append(s.Files, filepath.Join(found.Path, f.Name))
			}
			out = append(out, s)
		}
		return out, nil
	}
	entries, err := os.ReadDir(found.Path)
	if err != nil {
		return nil, err
	}
	bases := make(map[string]*RecordSet)
	for _, e := range entries {
		name := e.Name()
		// A shard whose first record is damaged is known by its name alone.
		if e.IsDir() || !tfrecord.HasRecordName(name) && !isRecords(filepath.Join(found.Path, name)) {
			continue
		}
		base, _, _, ok := tfrecord.ParseShardName(name)
		if !ok {
			base = name
		}
		if bases[base] == nil {
			bases[base] = &RecordSet{Name: base}
			out = append(out, bases[base])
		}
		bases[base].Files = append(bases[base].Files, filepath.Join(found.Path, name))
	}
	if len(out) == 0 {
		return nil, fault.Damagedf("%s has no file that begins with a record", found.Path)
	}
	// A set of shards may lack some.
	if _, err := tfrecord.Glob(found.Path); errors.Is(err, fault.Damaged) {
		return out, err
	}
	return out, nil
}

// stats counts a feature.
type stats struct {
	kinds   map[string]bool
	lengths map[int]int64
}

// read reads all records of a set. The error of damaged files comes after the others are read.
func (s *RecordSet) read(ctx context.Context, examples int, d *decoder) (damage error) {
	s.Features, s.Examples = []FeatureStats{}, []Shown{}
	all := make(map[string]*stats)
	for _, path := range s.Files {
		err := s.readFile(ctx, path, examples, d, all)
		if err != nil && !errors.Is(err, fault.Damaged) {
			return err
		}
		if err != nil {
			s.Damaged = append(s.Damaged, path)
			damage = errors.Join(damage, err)
		}
	}
	for _, name := range sorted(all) {
		f := FeatureStats{Name: name, Kind: strings.Join(sorted(all[name].kinds), " or ")}
		lengths := slices.Sorted(maps.Keys(all[name].lengths))
		f.Min, f.Max = lengths[0], lengths[len(lengths)-1]
		for _, n := range all[name].lengths {
			f.Records += n
		}
		passed := int64(0)
		for _, l := range lengths {
			if passed += all[name].lengths[l]; 2*passed >= f.Records {
				f.Median = l
				break
			}
		}
		s.Features = append(s.Features, f)
	}
	return damage
}

func (s *RecordSet) readFile(ctx context.Context, path string, examples int, d *decoder, all map[string]*stats) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	s.Bytes += info.Size()
	r, err := tfrecord.Open(path, tfrecord.Until(ctx))
	if err != nil {
		return err
	}
	defer r.Close()
	s.Compression = r.Compression().String()
	for number := int64(0); ; number++ {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if number%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		s.Records++
		features, lists, err := tfrecord.ParseSequenceExample(record)
		if of := (*tfrecord.ExampleError)(nil); errors.As(err, &of) && of.TooLarge {
			return fmt.Errorf("%s: record %d: %w", path, number, err)
		}
		// The events of TensorBoard parse, with fields that are no features.
		if err != nil || len(features)+len(lists) == 0 && len(record) > emptyExample {
			s.NotExamples++
			continue
		}
		add := func(name, kind string, n int) {
			if all[name] == nil {
				all[name] = &stats{map[string]bool{}, map[int]int64{}}
			}
			all[name].kinds[kind] = true
			all[name].lengths[n]++
		}
		shown := Shown{Record: number, Features: []ShownFeature{}}
		show := len(s.Examples) < examples
		for _, f := range features {
			add(f.Name, f.Kind.String(), f.Len())
			if show {
				shown.Features = append(shown.Features, d.show(f.Name, f.Value))
			}
		}
		for _, l := range lists {
			kind := "none"
			if len(l.Steps) > 0 {
				kind = l.Steps[0].Kind.String()
			}
			add(l.Name, "list of "+kind, len(l.Steps))
			if show {
				shown.Features = append(shown.Features, d.showList(l))
			}
		}
		if show {
			s.Examples = append(s.Examples, shown)
		}
	}
}

// emptyExample is the length of an Example without features: the field and its length.
const emptyExample = 2

// decoder shows values.
type decoder struct {
	tokenizer *text.Tokenizer
	labels    []string
}

const (
	mostValues = 12  // of a feature that are shown
	mostText   = 200 // bytes of a text that are shown
)

// show returns a feature with its values as text.
func (d *decoder) show(name string, v tfrecord.Value) ShownFeature {
	out := ShownFeature{Name: name, Length: v.Len()}
	var values []string
	for i := range min(v.Len(), mostValues) {
		switch v.Kind {
		case tfrecord.KindInt64:
			values = append(values, fmt.Sprint(v.Int64s[i]))
		case tfrecord.KindFloat:
			values = append(values, fmt.Sprint(v.Floats[i]))
		default:
			values = append(values, bytesShown(v.Bytes[i]))
		}
	}
	if v.Len() > mostValues {
		values = append(values, "...")
	}
	out.Values = strings.Join(values, " ")
	if v.Kind != tfrecord.KindInt64 {
		return out
	}
	switch {
	case d.tokenizer != nil && strings.HasSuffix(name, "input_ids"):
		ids := make([]int32, 0, len(v.Int64s))
		for _, id := range v.Int64s {
			ids = append(ids, int32(max(-1, min(id, int64(d.tokenizer.Vocab().Size())))))
		}
		out.Text = d.tokenizer.Sentence(ids, mostText)
	case len(v.Int64s) == 1 && (name == "label_ids" || name == "label" || name == "labels") && v.Int64s[0] >= 0 && v.Int64s[0] < int64(len(d.labels)):
		out.Text = d.labels[v.Int64s[0]]
	}
	return out
}

// showList returns the first steps of a list.
func (d *decoder) showList(l tfrecord.FeatureList) ShownFeature {
	out := ShownFeature{Name: l.Name, Length: len(l.Steps)}
	var steps []string
	for _, s := range l.Steps[:min(len(l.Steps), 3)] {
		steps = append(steps, "["+d.show("", s).Values+"]")
	}
	if len(l.Steps) > 3 {
		steps = append(steps, "...")
	}
	out.Values = strings.Join(steps, " ")
	return out
}

// bytesShown returns a byte string as text if it is one, and what it is otherwise.
func bytesShown(b []byte) string {
	switch {
	case bytes.HasPrefix(b, []byte("\x89PNG\r\n")):
		return fmt.Sprintf("<PNG image of %d bytes>", len(b))
	case bytes.HasPrefix(b, []byte("\xff\xd8\xff")):
		return fmt.Sprintf("<JPEG image of %d bytes>", len(b))
	case !utf8.Valid(b) || bytes.ContainsFunc(b, func(r rune) bool { return !unicode.IsPrint(r) && !unicode.IsSpace(r) }):
		return fmt.Sprintf("<%d bytes>", len(b))
	}
	return fmt.Sprintf("%q", words.Clip(string(b), mostText))
}

// Write writes the description as text.
func (r *RecordSets) Write(out io.Writer) error {
	tabs := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tabs, "  %s\t%s\n", r.Kind, r.Path)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(tabs, "  %s\t%s\n", name, value)
		}
	}
	row("note", r.Note)
	row("task", r.Task)
	row("labels", words.Clip(strings.Join(r.Labels, ", "), mostText))
	row("vocabulary", r.Vocab)
	if r.MaxLength > 0 {
		row("max length", fmt.Sprint(r.MaxLength))
	}
	for _, w := range r.Warnings {
		row("warning", w)
	}
	for _, s := range r.Sets {
		fmt.Fprintf(tabs, "\n%s: %s in %s, %s, compression %s\n", plain(s.Name), words.Count(s.Records, "record"), words.Count(int64(len(s.Files)), "file"), words.Bytes(s.Bytes), s.Compression)
		for _, path := range s.Damaged {
			fmt.Fprintf(tabs, "  damaged\t%s\n", path)
		}
		if s.NotExamples > 0 {
			fmt.Fprintf(tabs, "  %s of them are not Examples, such as the events of TensorBoard\n", words.Thousands(s.NotExamples))
		}
		if len(s.Features) > 0 {
			fmt.Fprintf(tabs, "  feature\tkind\trecords\tlength min/median/max\n")
		}
		for _, f := range s.Features {
			fmt.Fprintf(tabs, "  %s\t%s\t%s\t%d/%d/%d\n", plain(f.Name), f.Kind, words.Thousands(f.Records), f.Min, f.Median, f.Max)
		}
		for _, e := range s.Examples {
			fmt.Fprintf(tabs, "\nrecord %d of %s\n", e.Record, plain(s.Name))
			for _, f := range e.Features {
				shown := f.Values
				if f.Text != "" {
					shown += "  = " + f.Text
				}
				fmt.Fprintf(tabs, "  %s\t%s\n", plain(f.Name), shown)
			}
		}
	}
	return tabs.Flush()
}
