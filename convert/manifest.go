package convert

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/internal/data/tokenizers"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/text/chat"
)

// The format of a manifest.
const (
	ManifestName    = "manifest.json"
	ManifestFormat  = "gorbit-dataset"
	ManifestVersion = 1

	maxManifest  = 64 << 20
	maxQuestions = 2 << 30 // bytes of the questions of a split
)

// Manifest describes a dataset: the content of its manifest.json.
type Manifest struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Task is one of Tasks, and Columns says where its texts and labels come from. It is SchemaTask,
	// without Columns, if the records were made by a schema. Features then says what they have.
	Task     string    `json:"task"`
	Columns  Columns   `json:"columns,omitzero"`
	Features []Feature `json:"features,omitempty"`
	// Labels are the names of the labels in the order of their ids; empty if the dataset
	// has no labels. Of records made by a schema, they are the categories of its only label.
	Labels         []string `json:"labels"`
	LabelThreshold *float64 `json:"label_threshold,omitempty"`
	// Vocab is zero if no feature has text.
	Vocab Vocab `json:"vocab,omitzero"`
	// Chat is the chat template of the tokenizer, for LanguageModel; nil if it has none.
	Chat *chat.Format `json:"chat,omitempty"`
	// MaxLength is the maximum number of ids of a record; 0 if no feature has text.
	MaxLength int `json:"max_length,omitempty"`
	// MaxTargetLength is the maximum number of ids of a target, and Prefix what stands before each source,
	// also before those of predictions, of Seq2Seq.
	MaxTargetLength int    `json:"max_target_length,omitempty"`
	Prefix          string `json:"prefix,omitempty"`
	// TargetEnd is the token that ends targets; nil in manifests that do not say it.
	TargetEnd *int32 `json:"target_end_token_id,omitempty"`
	// WordStarts says that records tell which ids begin a word.
	WordStarts bool `json:"word_starts,omitempty"`
	// Documents and Blocks are those of the configuration.
	Documents Documents `json:"documents,omitempty"`
	Blocks    Blocks    `json:"blocks,omitempty"`
	// DocStride is the number of tokens that neighbouring windows of a context share.
	DocStride int               `json:"doc_stride,omitempty"`
	Splits    map[string]*Split `json:"splits"`
	Sources   []Source          `json:"sources"`
	// Warnings are what was suspicious about the data, in words.
	Warnings []string `json:"warnings,omitempty"`
}

// Columns names the columns of the sources; unused ones are "".
type Columns struct {
	Text  string `json:"text"`
	Pair  string `json:"text_pair,omitempty"`
	Chat  string `json:"chat,omitempty"`
	Label string `json:"label,omitempty"`
	// Negative is that of the third texts of Embed.
	Negative string `json:"negative,omitempty"`
	// Target is that of the targets of Seq2Seq, whose sources are in Text.
	Target string `json:"target,omitempty"`
	// Choices are those of the choices of Choices; if a column has a list of them, it is Pair. Stem is what
	// stands before each.
	Choices []string `json:"choices,omitempty"`
	Stem    string   `json:"stem,omitempty"`
}

// Vocab describes the vocabulary and how text is prepared for it. All but a vocab.txt say the latter themselves.
type Vocab struct {
	File            string `json:"file"`
	Size            int    `json:"size"` // the number of ids
	SHA256          string `json:"sha256"`
	Lowercase       bool   `json:"lowercase"`
	StripAccents    bool   `json:"strip_accents"`
	LiteralSpecials bool   `json:"literal_specials,omitempty"`
	Unclean         bool   `json:"unclean,omitempty"`
	JoinIdeographs  bool   `json:"join_ideographs,omitempty"`
	MaxWordChars    int    `json:"max_word_chars,omitempty"`
	// Special are the special tokens of all but a vocab.txt, and Mask is how a hidden one is written.
	Special text.Roles `json:"special,omitzero"`
	Mask    string     `json:"mask_token,omitempty"`
	// NoFirst and NoLast say that no special token begins, or ends, a text.
	NoFirst bool `json:"no_first_token,omitempty"`
	NoLast  bool `json:"no_last_token,omitempty"`
}

// Split describes the records of one split.
type Split struct {
	Files     []File `json:"files"`
	Records   int64  `json:"records"`
	Tokens    int64  `json:"tokens"`    // ids, including special tokens
	Truncated int64  `json:"truncated"` // records that lost tokens to MaxLength
	// Lengths describes the numbers of ids of the records.
	Lengths Lengths `json:"lengths"`
	// LongestText is the most ids of one of the texts of a record, of Embed.
	LongestText int `json:"longest_text,omitempty"`
	// TargetTokens and TargetLengths are those of the targets of Seq2Seq.
	TargetTokens  int64   `json:"target_tokens,omitempty"`
	TargetLengths Lengths `json:"target_lengths,omitzero"`
	// TruncatedTargets are the targets that lost tokens to MaxTargetLength.
	TruncatedTargets int64 `json:"truncated_targets,omitempty"`
	// LabelCounts are the numbers of records with each label, in the order of the ids.
	// Records without a label are not counted.
	LabelCounts []int64 `json:"label_counts,omitempty"`
	// Features describes the values of each feature, if the records were made by a schema.
	Features map[string]*Statistics `json:"features,omitempty"`
	// Answered is the number of records with an answer, which is not the sum of LabelCounts: for
	// MultiLabel, Tokens, Regression, and Embed with scores.
	Answered int64 `json:"answered,omitempty"`
	// Values describes the numbers that are the answers of Regression, and the scores of Embed.
	Values *Values `json:"values,omitempty"`
	// Questions describes the file of the questions of QuestionAnswering.
	Questions *Questions `json:"questions,omitempty"`
}

// File is a file of a dataset.
type File struct {
	Name    string `json:"name"`
	Records int64  `json:"records"`
	Bytes   int64  `json:"bytes"`
	SHA256  string `json:"sha256"`
}

// Lengths describes the lengths of records.
type Lengths struct {
	Min  int     `json:"min"`
	Max  int     `json:"max"`
	Mean float64 `json:"mean"`
	// Histogram counts the records of 1 to Step ids, of Step+1 to 2 Step, and so on.
	Step      int     `json:"step"`
	Histogram []int64 `json:"histogram"`
}

// lengthStep is the Step of the lengths of a split.
const lengthStep = 16

// addTokens counts a record of the given number of ids. Records counts it already.
func (s *Split) addTokens(length int, truncated bool) {
	s.Tokens += int64(length)
	if truncated {
		s.Truncated++
	}
	s.Lengths.add(length, s.Records == 1)
}

// add counts a length, the first or another one.
func (l *Lengths) add(length int, first bool) {
	if first || length < l.Min {
		l.Min = length
	}
	l.Max = max(l.Max, length)
	for len(l.Histogram) <= (length-1)/lengthStep {
		l.Histogram = append(l.Histogram, 0)
	}
	l.Histogram[(length-1)/lengthStep]++
}

// meanLength computes the mean of the lengths once all records are counted.
func (s *Split) meanLength() {
	if s.Records > 0 {
		s.Lengths.Mean = float64(s.Tokens) / float64(s.Records)
	}
}

// Source is a file that records were made from.
type Source struct {
	Split   string `json:"split"`
	Name    string `json:"name"` // without its folder
	Bytes   int64  `json:"bytes"`
	SHA256  string `json:"sha256"`
	Rows    int64  `json:"rows"`              // data rows, including bad ones
	Skipped int64  `json:"skipped,omitempty"` // skipped bad rows
	// Lines says on which line rows begin: the number of a row, from 0, and its line, from 1, of the
	// first row and of each that is not on the line after that of the row before.
	Lines [][2]int64 `json:"lines,omitempty"`
}

// HasVocab reports whether the dataset has a vocabulary. One that was made by a schema without text
// has none.
func (m *Manifest) HasVocab() bool { return m.Vocab != (Vocab{}) }

// Pairs reports whether a model sees pairs of texts, or a text and choices. A text and what follows it, of
// LanguageModel, are one text, and those of Embed are seen one by one.
func (m *Manifest) Pairs() bool {
	kind := m.Kind()
	return m.Columns.Pair != "" && kind != LanguageModel && kind != Embed || kind == Choices
}

// Kind returns what the examples of the dataset ask for.
func (m *Manifest) Kind() Kind {
	c := Config{Task: m.Task}
	return c.task().kind
}

// TokenizerConfig returns the settings with which the dataset's texts were tokenized.
func (m *Manifest) TokenizerConfig() text.Config { return m.Vocab.config() }

// set describes how texts are prepared for a vocab.txt.
func (v *Vocab) set(cfg text.Config) {
	v.Lowercase = cfg.Lowercase
	v.StripAccents = cfg.StripsAccents()
	v.LiteralSpecials, v.Unclean, v.JoinIdeographs = cfg.LiteralSpecials, cfg.Unclean, cfg.JoinIdeographs
	v.MaxWordChars = cmp.Or(cfg.MaxWordChars, text.DefaultMaxWordChars)
}

func (v Vocab) config() text.Config {
	accents := text.KeepAccents
	if v.StripAccents {
		accents = text.StripAccents
	}
	return text.Config{
		Lowercase:       v.Lowercase,
		Accents:         accents,
		LiteralSpecials: v.LiteralSpecials,
		Unclean:         v.Unclean,
		JoinIdeographs:  v.JoinIdeographs,
		MaxWordChars:    v.MaxWordChars,
	}
}

// Kept returns the name of a copy of the vocabulary in a run or a model.
func (v Vocab) Kept() string {
	switch {
	case v.Special == (text.Roles{}):
		return tokenizers.Vocab
	case v.File == tokenizers.Model:
		return tokenizers.Model
	}
	return tokenizers.JSON
}

// Rows reports whether an embedding table has as many rows as the vocabulary needs. All but that of a
// vocab.txt may have more, which such models have so that their size is a round one.
func (v Vocab) Rows(rows int) bool {
	return v.Size == rows || v.Kept() != tokenizers.Vocab && v.Size < rows
}

// Tokenizer returns the tokenizer of texts that were prepared for this vocabulary, whose file is at
// path. If the file is another one, the error is a [ManifestError].
func (v Vocab) Tokenizer(path string) (*text.Tokenizer, error) {
	content, err := vfs.ReadBounded(path, tokenizers.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("vocabulary: %w", err)
	}
	if fmt.Sprintf("%x", sha256.Sum256(content)) != v.SHA256 {
		return nil, &ManifestError{Path: path, Reason: "is not the vocabulary of the data; its checksum differs"}
	}
	return tokenizers.Parse(content, path, v.config())
}

// ReadManifest reads and checks the manifest of a dataset, given its folder or the
// manifest itself. It does not check other files: see [Manifest.Verify]. The error is a
// [ManifestError] or an error of the file system.
func ReadManifest(path string) (*Manifest, error) {
	if info, err := vfs.Stat(path); err == nil && info.IsDir() {
		path = vfs.Join(path, ManifestName)
	}
	data, err := vfs.ReadBounded(path, maxManifest)
	if err != nil {
		return nil, fmt.Errorf("dataset: %w", err)
	}
	m, reason := parseManifest(data)
	if reason != "" {
		return nil, &ManifestError{path, reason}
	}
	return m, nil
}

// parseManifest returns a manifest, or the reason why data is not a valid one.
func parseManifest(data []byte) (*Manifest, string) {
	// Check the version first, because another version may have other types.
	var head struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, "is not a manifest: " + err.Error()
	}
	if head.Format != ManifestFormat {
		return nil, fmt.Sprintf("has format %s; expected %q", table.Clip(fmt.Sprintf("%q", head.Format)), ManifestFormat)
	}
	if head.Version != ManifestVersion {
		return nil, fmt.Sprintf("has version %d; expected %d", head.Version, ManifestVersion)
	}
	m := &Manifest{}
	if err := json.Unmarshal(data, m); err != nil {
		return nil, "is not a manifest: " + err.Error()
	}
	return m, m.fault()
}

// fault returns what is wrong with a manifest, or "".
func (m *Manifest) fault() string {
	if m.Task == SchemaTask && !m.HasVocab() {
		if len(m.Features) == 0 {
			return "has neither features nor a vocabulary"
		}
	} else if !localName(m.Vocab.File) || m.Vocab.Size <= 0 {
		return fmt.Sprintf("the vocabulary is %s with %d ids; expected a file in the folder and 1 id or more", table.Clip(fmt.Sprintf("%q", m.Vocab.File)), m.Vocab.Size)
	}
	if m.MaxLength < 0 || m.HasVocab() && m.MaxLength == 0 || m.Vocab.MaxWordChars < 0 {
		return fmt.Sprintf("the maximum length is %d, that of a word %d", m.MaxLength, m.Vocab.MaxWordChars)
	}
	for i, l := range m.Labels {
		if l == "" || slices.Contains(m.Labels[:i], l) {
			return fmt.Sprintf("label %d is empty or declared twice: %s", i, table.Clip(fmt.Sprintf("%q", l)))
		}
	}
	if reason := m.featuresFault(); reason != "" {
		return reason
	}
	names := map[string]bool{m.Vocab.File: true, ManifestName: true}
	for _, split := range slices.Sorted(maps.Keys(m.Splits)) {
		s := m.Splits[split]
		if s == nil || !validSplit(split) {
			return fmt.Sprintf("split %s has no content or an invalid name", table.Clip(fmt.Sprintf("%q", split)))
		}
		var records int64
		for _, f := range s.Files {
			if !localName(f.Name) || names[f.Name] {
				return fmt.Sprintf("split %s: file %s is listed twice or outside the folder", split, table.Clip(fmt.Sprintf("%q", f.Name)))
			}
			if f.Records < 0 || f.Bytes < 0 {
				return fmt.Sprintf("split %s: %s has %d records in %d bytes", split, f.Name, f.Records, f.Bytes)
			}
			names[f.Name] = true
			records += f.Records
		}
		if q := s.Questions; q != nil {
			if !localName(q.Name) || names[q.Name] || q.Bytes < 0 || q.Bytes > maxQuestions || q.Records < 0 {
				return fmt.Sprintf("split %s: the questions are %s with %d bytes; expected another file in the folder", split, table.Clip(fmt.Sprintf("%q", q.Name)), q.Bytes)
			}
			names[q.Name] = true
		}
		if records != s.Records {
			return fmt.Sprintf("split %s has %d records; expected %d, the sum of its files", split, s.Records, records)
		}
		if len(s.LabelCounts) > len(m.Labels) {
			return fmt.Sprintf("split %s has counts of %d labels; expected %d", split, len(s.LabelCounts), len(m.Labels))
		}
	}
	return ""
}

// localName reports whether a name is that of a file in the dataset's own folder.
func localName(s string) bool {
	return s != "" && s == filepath.Base(s) && filepath.IsLocal(s) && s != "."
}

// Verify reads the vocabulary and all files of all splits in dir, and compares their sizes
// and checksums with the manifest. The error is a [ManifestError] that names the first
// file that differs, or an error of the file system or of ctx. It is for callers who have copied
// a dataset to another folder or machine; training does not call it.
func (m *Manifest) Verify(ctx context.Context, dir string) error {
	check := func(name, sum string, size int64) error {
		path := vfs.Join(dir, name)
		gotSize, gotSum, err := hashFile(ctx, path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return &ManifestError{path, "is missing"}
		case err != nil:
			return fmt.Errorf("dataset: %w", err)
		case size >= 0 && gotSize != size:
			return &ManifestError{path, fmt.Sprintf("has %d bytes; expected %d by the manifest", gotSize, size)}
		case gotSum != sum:
			return &ManifestError{path, fmt.Sprintf("has SHA-256 %s; expected %s by the manifest", gotSum, table.Clip(sum))}
		}
		return nil
	}
	if m.HasVocab() {
		if err := check(m.Vocab.File, m.Vocab.SHA256, -1); err != nil {
			return err
		}
	}
	for _, split := range slices.Sorted(maps.Keys(m.Splits)) {
		for _, f := range m.Splits[split].Files {
			if err := check(f.Name, f.SHA256, f.Bytes); err != nil {
				return err
			}
		}
		if q := m.Splits[split].Questions; q != nil {
			if err := check(q.Name, q.SHA256, q.Bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

// hashFile returns a file's size and SHA-256 in hex.
func hashFile(ctx context.Context, path string) (int64, string, error) {
	f, err := vfs.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	var size int64
	for buf := make([]byte, 1<<20); ; {
		if err := ctx.Err(); err != nil {
			return 0, "", err
		}
		n, err := f.Read(buf)
		h.Write(buf[:n])
		size += int64(n)
		if err == io.EOF {
			return size, hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return 0, "", err
		}
	}
}

// encode returns the content of the manifest's file.
func (m *Manifest) encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(m); err != nil {
		return nil, fmt.Errorf("convert: manifest: %w", err)
	}
	return b.Bytes(), nil
}
