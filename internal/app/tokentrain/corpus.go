package tokentrain

import (
	"cmp"
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/text/bpe"
	"github.com/gorbit-ml/gorbit/text/learn"
	"github.com/gorbit-ml/gorbit/text/tokenizerjson"
)

// Corpus is texts in files.
type Corpus struct {
	// Paths are files, and folders: of these, all files below, but for hidden ones.
	Paths []string
	// Column is the column of the texts; "" for files with a text on each line.
	Column string
	// Format is that of the files; "" goes by their names.
	Format  table.Format
	Charset table.Charset
}

// formats are those that texts are read from.
var formats = []table.Format{table.Lines, table.TSV, table.CSV, table.JSONL, table.JSON, table.Parquet}

func (c *Corpus) validate() error {
	known := c.Format == ""
	for _, f := range formats {
		known = known || c.Format == f
	}
	switch {
	case len(c.Paths) == 0:
		return fault.Usagef("no files are given; expected files or folders of text")
	case !known:
		return fault.Usagef("the format is %q; expected one of lines, tsv, csv, jsonl, json, parquet", c.Format)
	case c.Format == table.Lines && c.Column != "":
		return fault.Usagef("format lines has no columns; leave out the text column")
	case c.Charset != "" && c.Charset != table.UTF8 && c.Charset != table.Latin1 && c.Charset != table.Windows1252:
		return fault.Usagef("the encoding is %q; expected utf-8, latin-1 or windows-1252", c.Charset)
	}
	return nil
}

// formatOf returns the format of a file.
func (c *Corpus) formatOf(name string) (table.Format, error) {
	format := cmp.Or(c.Format, table.FormatOf(name))
	named := c.Column != ""
	switch {
	case !named && (format == "" || format == table.TSV && c.Format == "" && !strings.Contains(name, ".tsv")):
		return table.Lines, nil
	case !named && format != table.Lines:
		return "", unreadable(name, "has columns (format %s), and no text column is given; name it with --text-column, or add --format lines for a text on each line", format)
	case format == "" || format == table.NPZ || format == table.TFRecord:
		return "", unreadable(name, "has a name that does not say how its columns are laid out; add --format tsv, csv, jsonl, json or parquet")
	}
	return format, nil
}

// file is a file of a corpus.
type file struct {
	path string
	size int64
}

// files returns the files of the corpus, in order.
func (c *Corpus) files() ([]file, error) {
	var all []file
	var add func(name string, named bool) error
	add = func(name string, named bool) error {
		info, err := vfs.Stat(name)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			if named || info.Mode().IsRegular() {
				all = append(all, file{name, info.Size()})
			}
			return nil
		}
		entries, err := vfs.ReadDir(name)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") {
				continue
			}
			if err := add(vfs.Join(name, e.Name()), false); err != nil {
				return err
			}
		}
		return nil
	}
	for _, name := range c.Paths {
		before := len(all)
		if err := add(name, true); err != nil {
			return nil, err
		}
		if len(all) == before {
			return nil, unreadable(name, "is a folder without files; expected texts")
		}
	}
	return all, nil
}

const (
	batchBytes = 256 << 10
	// mostWords is how many different words a goroutine counts on its own.
	mostWords = 1 << 18
)

// batch is some rows of a table.
type batch struct {
	table *table.Table
	path  string
	text  []byte
	ends  []int
	lines []int64
}

// count counts the words of the corpus.
func (c *Config) count(ctx context.Context, f *family) ([]learn.Word, *Result, error) {
	files, err := c.Corpus.files()
	if err != nil {
		return nil, nil, err
	}
	result := &Result{}
	for _, one := range files {
		result.Bytes += one.size
	}
	var counter learn.Counter
	var texts atomic.Int64
	countings := make([]*counting, cmp.Or(c.Threads, runtime.GOMAXPROCS(0)))
	for i := range countings {
		if countings[i], err = newCounting(f, &counter); err != nil {
			return nil, nil, err
		}
	}
	work := make(chan *batch, len(countings))
	free := sync.Pool{New: func() any { return new(batch) }}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(work)
		done := int64(0)
		for _, one := range files {
			err := c.readFile(ctx, one.path, func(at int64) { c.report("read", done+at, result.Bytes, texts.Load()) }, &free, work)
			if err != nil {
				return err
			}
			done += one.size
		}
		return nil
	})
	for _, w := range countings {
		g.Go(func() error {
			for b := range work {
				n, err := w.batch(b)
				if err != nil {
					return err
				}
				texts.Add(n)
				free.Put(b)
			}
			w.flush()
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	result.Texts = texts.Load()
	words := counter.Words()
	if len(words) == 0 {
		return nil, nil, fault.Usagef("the corpus is empty: there are no words in %s", strings.Join(c.Corpus.Paths, ", "))
	}
	return words, result, nil
}

// readFile sends the rows of a file to work. It calls progress for each batch with the bytes read.
func (c *Config) readFile(ctx context.Context, name string, progress func(at int64), free *sync.Pool, work chan<- *batch) error {
	format, err := c.Corpus.formatOf(name)
	if err != nil {
		return err
	}
	t, err := table.Open(ctx, name, table.Config{Format: format, Charset: c.Corpus.Charset, FormatFlag: "--format"})
	if err != nil {
		return err
	}
	defer t.Close()
	column := table.Column{Name: cmp.Or(c.Corpus.Column, table.TextField), Words: true, Nulls: true}
	if c.Corpus.Column != "" {
		column.Flag = "--text-column"
	}
	if err := t.Select(column); err != nil {
		return err
	}
	for end := false; !end; {
		b := free.Get().(*batch)
		b.table, b.path = t, name
		b.text, b.ends, b.lines = b.text[:0], b.ends[:0], b.lines[:0]
		for len(b.text) < batchBytes {
			row, line, _, err := t.Next()
			if errors.Is(err, io.EOF) {
				end = true
				break
			}
			if err != nil {
				return err
			}
			b.text = append(b.text, row...)
			b.ends, b.lines = append(b.ends, len(b.text)), append(b.lines, line)
		}
		select {
		case work <- b:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		progress(t.Bytes())
	}
	return nil
}

// counting counts words in one goroutine.
type counting struct {
	words   func(text string, each func(word string))
	bytes   bool
	counts  map[string]*int64
	counter *learn.Counter
}

func newCounting(f *family, counter *learn.Counter) (*counting, error) {
	words, err := (&tokenizerjson.File{Normalizer: f.normalizer, PreTokenizer: f.preTokenizer}).Words()
	return &counting{words, f.bytes, map[string]*int64{}, counter}, err
}

// batch counts the words of a batch, and returns the number of its texts.
func (w *counting) batch(b *batch) (texts int64, err error) {
	cutter, start := b.table.NewCutter(), 0
	for i, end := range b.ends {
		fields, err := cutter.Cut(string(b.text[start:end]), b.lines[i])
		if err != nil {
			return 0, err
		}
		start = end
		text := fields[0].Text
		if strings.IndexByte(text, 0) >= 0 {
			return 0, fault.Usagef("%s:%d: has a byte 0 in the text; expected text, and not a binary file", b.path, b.lines[i])
		}
		if text == "" {
			continue
		}
		texts++
		w.words(text, func(word string) {
			if n := w.counts[word]; n != nil {
				*n++
				return
			}
			n := int64(1)
			// The word's bytes are copied, because they are part of a long text.
			w.counts[strings.Clone(word)] = &n
		})
	}
	if len(w.counts) > mostWords {
		w.flush()
	}
	return texts, nil
}

// flush adds the counts to those of all goroutines.
func (w *counting) flush() {
	all := make(map[string]int64, len(w.counts))
	for word, n := range w.counts {
		if w.bytes {
			var b strings.Builder
			for i := range len(word) {
				b.WriteRune(bpe.Char(word[i]))
			}
			word = b.String()
		}
		all[word] = *n
	}
	w.counter.Add(all)
	clear(w.counts)
}
