package table

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/stream"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// Limits of a Parquet file (https://parquet.apache.org/docs/file-format/). What is in memory at a time is a page
// of each selected column, and the footer.
const (
	maxParquetFooter = 64 << 20
	maxParquetPage   = 256 << 20 // bytes, decompressed
	maxParquetValues = 1 << 24   // of a page, and of a row in a column
	maxParquetHeader = 1 << 20   // bytes of a page's header
)

// parquetRows are the rows of a Parquet file, which are read by row groups and in them by pages. Rows are
// JSON objects of the selected columns, as another program would write them in JSON lines.
type parquetRows struct {
	jsonRows
	ctx   context.Context
	in    io.ReaderAt
	size  int64
	raw   *meter // counts and hashes the file's bytes, up to the row group that is read
	file  *parquet.File
	begun bool
	read  []*parquetColumn
	group int   // number of the next row group
	left  int64 // rows of the current one
	at    int64 // rows read
	row   []byte
}

// openParquet opens a Parquet file, which is read from its end: no pipe and no compressed file.
func openParquet(ctx context.Context, path string, cfg Config) (*Table, error) {
	if cfg.Delimiter != 0 {
		return nil, fault.Usagef("%s has format %s, which has no delimiter; expected tsv or csv", path, cfg.Format)
	}
	if _, packed := stream.CutSuffix(path); packed {
		return nil, fault.Usagef("%s is compressed as a whole, and Parquet is read from its end; expected a file whose pages are compressed; decompress it first, as with gunzip or zstd -d", path)
	}
	info, err := vfs.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := stream.Check(path, info, 1<<62, fault.Usage); err != nil {
		return nil, err
	}
	file, err := vfs.Open(path)
	if err != nil {
		return nil, err
	}
	t := &Table{path: path, close: []func() error{file.Close}}
	in := io.ReaderAt(file)
	if remote, ok := file.(vfs.RemoteFile); ok {
		remote.Bind(ctx)
		kept, err := remote.Keep(ctx)
		if err != nil {
			return nil, errors.Join(err, t.Close())
		}
		if kept != nil {
			in, t.close = kept, append(t.close, kept.Close)
		}
	}
	if err := t.readParquet(ctx, in, info.Size(), cfg); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// readParquet makes the rows of a table those of a file of so many bytes.
func (t *Table) readParquet(ctx context.Context, in io.ReaderAt, size int64, cfg Config) error {
	t.raw = &meter{r: io.NewSectionReader(in, 0, size), h: cfg.Sum}
	rows := &parquetRows{jsonRows: jsonRows{lines: lines{path: t.path}, files: true}, ctx: ctx, in: in, size: size, raw: t.raw}
	t.rows = rows
	return rows.open()
}

// damaged returns an error of a file that is not what it should be.
func (r *parquetRows) damaged(format string, args ...any) error {
	return fault.Damagedf("%s %s; is the file whole? download it or write it again", r.path, fmt.Sprintf(format, args...))
}

// open reads the footer.
func (r *parquetRows) open() (err error) {
	var ends [8]byte
	if r.size < 12 {
		return r.damaged("has %d bytes, too few for a Parquet file", r.size)
	}
	if _, err := r.in.ReadAt(ends[:4], 0); err != nil {
		return fmt.Errorf("read %s: %w", r.path, err)
	}
	head := string(ends[:4])
	if _, err := r.in.ReadAt(ends[:], r.size-8); err != nil {
		return fmt.Errorf("read %s: %w", r.path, err)
	}
	n := int64(binary.LittleEndian.Uint32(ends[:]))
	switch tail := string(ends[4:]); {
	case tail == "PARE" || head == "PARE":
		return fault.Usagef("%s is encrypted; expected a Parquet file that is not", r.path)
	case head != "PAR1":
		return fault.Damagedf("%s is no Parquet file: it begins with %q; expected \"PAR1\"", r.path, head)
	case tail != "PAR1":
		return r.damaged("does not end as a Parquet file does, with \"PAR1\"")
	case n > r.size-12:
		return r.damaged("says that its footer has %d bytes, and has %d bytes itself", n, r.size)
	case n > maxParquetFooter:
		return fault.Usagef("%s has a footer of %d bytes; expected at most %d; write it with fewer row groups", r.path, n, maxParquetFooter)
	}
	footer := make([]byte, n)
	if _, err := r.in.ReadAt(footer, r.size-8-n); err != nil {
		return fmt.Errorf("read %s: %w", r.path, err)
	}
	if err := (&thriftWalk{data: footer}).structure(0, 0); err != nil {
		return r.damaged("has a damaged footer: it %v", err)
	}
	err = r.guard("has a damaged footer", func() error {
		r.file, err = parquet.OpenFile(r.in, r.size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
		return err
	})
	return err
}

// guard calls the library, which panics on some damage, and returns its errors as those of a damaged file.
func (r *parquetRows) guard(what string, do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = r.damaged("%s: %v", what, p)
		}
	}()
	if err := r.ctx.Err(); err != nil {
		return context.Cause(r.ctx)
	}
	switch err := do(); {
	case err == nil || err == io.EOF:
		return err
	case fault.OfMachine(err):
		return fmt.Errorf("read %s: %w", r.path, err)
	default:
		return r.damaged("%s: %v", what, err)
	}
}

// begin finds the selected columns.
func (r *parquetRows) begin() error {
	r.begun = true
	var names []string
	for _, c := range r.file.Root().Columns() {
		names = append(names, c.Name())
	}
	for _, c := range r.columns {
		i := slices.Index(names, c.Name)
		switch {
		case i < 0 && (c.Name == "" || c.Optional):
			continue
		case i < 0:
			choose := ""
			if c.Flag != "" {
				choose = "; choose one with " + c.Flag
			}
			return fault.Usagef("%s has no column %q; expected one of %s%s%s", r.path, c.Name, List(names), DidYouMean(c.Name, names), choose)
		case slices.Contains(names[i+1:], c.Name):
			return fault.Usagef("%s has two columns %q; the columns are %s", r.path, c.Name, List(names))
		case slices.ContainsFunc(r.read, func(p *parquetColumn) bool { return p.name == c.Name }):
			continue
		}
		column, reason := newParquetColumn(r.file.Root().Columns()[i], c)
		if reason != "" {
			return fault.Usagef("%s: column %q %s", r.path, c.Name, reason)
		}
		r.read = append(r.read, column)
	}
	return nil
}

// next implements rowReader. The line of a row is its number, from 1.
func (r *parquetRows) next() ([]byte, int64, error) {
	if !r.begun {
		if err := r.begin(); err != nil {
			return nil, 0, err
		}
	}
	for r.left == 0 {
		if err := r.nextGroup(); err != nil {
			return nil, 0, err
		}
	}
	r.left--
	r.at++
	r.row = append(r.row[:0], '{')
	var bad *Error
	for i, c := range r.read {
		var reason string
		err := r.guard(r.where(c), func() (err error) {
			if err = c.next(); err == io.EOF {
				err = fmt.Errorf("it ends %d rows too early", r.left+1)
			}
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		if i > 0 {
			r.row = append(r.row, ',')
		}
		r.row = append(append(r.row, c.quoted...), ':')
		if r.row, reason = c.append(r.row); reason != "" && bad == nil {
			bad = &Error{r.path, r.at, fmt.Sprintf("column %q %s", c.name, reason)}
		}
	}
	r.row = append(r.row, '}')
	switch {
	case bad != nil:
		return nil, r.at, bad
	case len(r.row) > maxLine:
		return nil, r.at, &Error{r.path, r.at, fmt.Sprintf("has %d bytes as JSON; expected at most %d", len(r.row), maxLine)}
	}
	return r.row, r.at, nil
}

// where says where damage is.
func (r *parquetRows) where(c *parquetColumn) string {
	return fmt.Sprintf("is damaged in row group %d, column %q", r.group-1, c.name)
}

// nextGroup opens the selected columns of the next row group. The error is io.EOF after the last one.
func (r *parquetRows) nextGroup() error {
	groups := r.file.Metadata().RowGroups
	if err := r.endGroup(); err != nil {
		return err
	}
	if r.group == len(groups) {
		return r.passTo(r.size, io.EOF)
	}
	g, end := groups[r.group], int64(0)
	r.group++
	if r.left = g.NumRows; r.left < 0 {
		return r.damaged("says that row group %d has %d rows", r.group-1, r.left)
	}
	chunks := r.file.RowGroups()[r.group-1].ColumnChunks()
	for _, c := range r.read {
		for _, leaf := range c.leaves {
			m := g.Columns[leaf.index].MetaData
			at, empty, err := r.checkChunk(c, m, groups[0].Columns[leaf.index].MetaData.Codec)
			if err != nil {
				return err
			}
			end = max(end, at)
			leaf.open(chunks[leaf.index].(*parquet.FileColumnChunk).PagesFrom(withoutPages{r.in, empty, at}))
		}
	}
	return r.passTo(end, nil)
}

// endGroup closes the columns of the row group before, which must be at their ends.
func (r *parquetRows) endGroup() error {
	if r.group == 0 {
		return nil
	}
	for _, c := range r.read {
		err := r.guard(r.where(c), func() error {
			err := c.next()
			if err == nil {
				err = fmt.Errorf("it has more than the group's %d rows", r.file.Metadata().RowGroups[r.group-1].NumRows)
			}
			return err
		})
		if err != io.EOF {
			return err
		}
		for _, leaf := range c.leaves {
			leaf.pages.Close()
		}
	}
	return nil
}

// passTo counts and hashes the bytes of the file up to an offset, and returns err.
func (r *parquetRows) passTo(end int64, err error) error {
	n := end - r.raw.n
	if n <= 0 {
		return err
	}
	if r.raw.h == nil {
		r.raw.n = end
		return err
	}
	if _, failed := io.CopyBuffer(io.Discard, struct{ io.Reader }{io.LimitReader(stream.WithContext(r.ctx, r.raw), n)}, make([]byte, 1<<20)); failed != nil {
		return fmt.Errorf("read %s: %w", r.path, failed)
	}
	return err
}

// withoutPages is a file, up to where a column ends, without some of its pages.
type withoutPages struct {
	in   io.ReaderAt
	gaps []gap // in order
	end  int64
}

// gap is a page that is left out.
type gap struct{ at, size int64 }

// ReadAt implements io.ReaderAt.
func (w withoutPages) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		at, most := off+int64(n), int64(len(p)-n)
		for _, g := range w.gaps {
			if g.at > at {
				most = min(most, g.at-at)
				break
			}
			at += g.size
		}
		if most = min(most, w.end-at); most <= 0 {
			return n, io.EOF
		}
		k, err := w.in.ReadAt(p[n:n+int(most)], at)
		n += k
		if err != nil && (err != io.EOF || int64(k) < most) {
			return n, err
		}
	}
	return n, nil
}

// checkChunk passes over the headers of a column's pages and returns where the last one ends, and which have no
// values: some writers have such pages in version 2, and the library cannot read them. It makes room for what
// a header says.
func (r *parquetRows) checkChunk(c *parquetColumn, m format.ColumnMetaData, codec format.CompressionCodec) (end int64, empty []gap, err error) {
	at := m.DataPageOffset
	if m.DictionaryPageOffset != 0 {
		at = m.DictionaryPageOffset
	}
	end = at + m.TotalCompressedSize
	if at < 4 || m.TotalCompressedSize < 0 || end < at || end > r.size {
		return 0, nil, r.damaged("%s: its pages are at bytes %d to %d, and the file has %d", r.where(c), at, end, r.size)
	}
	if m.Codec != codec {
		return 0, nil, fault.Usagef("%s has column %q compressed with %s in row group %d and with %s in the first; expected one compression for a column; write it again", r.path, c.name, m.Codec, r.group-1, codec)
	}
	for buffer := make([]byte, 1<<10); at < end; {
		h, err := r.pageHeader(at, end, &buffer)
		if err != nil {
			return 0, nil, r.damaged("%s: the page at byte %d %v", r.where(c), at, err)
		}
		at += h.length
		if h.values > maxParquetValues || h.plain > maxParquetPage {
			return 0, nil, fault.Usagef("%s has a page of %d values and %d bytes in column %q; expected at most %d and %d; write it with smaller pages", r.path, h.values, h.plain, c.name, maxParquetValues, maxParquetPage)
		}
		if h.packed < 0 || h.packed > end-at || h.plain < 0 || h.values < 0 {
			return 0, nil, r.damaged("%s: the page before byte %d has %d bytes, of which %d are left, %d bytes decompressed and %d values", r.where(c), at, h.packed, end-at, h.plain, h.values)
		}
		if m.Codec == format.Snappy && h.compressed && h.levels >= 0 && h.packed > h.levels {
			// Snappy's text begins with its length, for which the library makes room.
			var begin [binary.MaxVarintLen32]byte
			k, _ := r.in.ReadAt(begin[:min(int64(len(begin)), h.packed-h.levels)], at+h.levels)
			if n, used := binary.Uvarint(begin[:k]); used > 0 && int64(n) > h.plain {
				return 0, nil, r.damaged("%s: the page before byte %d has %d bytes decompressed; expected %d", r.where(c), at, n, h.plain)
			}
		}
		if at += h.packed; h.data && h.values == 0 {
			empty = append(empty, gap{at - h.length - h.packed, h.length + h.packed})
		}
	}
	return end, empty, nil
}

// pageHeader is what a page's header says, whose length is given.
type pageHeader struct {
	length, packed, plain, values int64
	levels                        int64 // bytes before what is compressed
	compressed                    bool
	data                          bool // no dictionary
}

// pageHeader reads the header at an offset of a chunk that has an end.
func (r *parquetRows) pageHeader(at, end int64, buffer *[]byte) (h pageHeader, err error) {
	for {
		n := min(int64(len(*buffer)), end-at)
		if _, err := r.in.ReadAt((*buffer)[:n], at); err != nil {
			return h, err
		}
		h = pageHeader{compressed: true}
		w := thriftWalk{data: (*buffer)[:n], number: func(field, inner int16, v int64) {
			switch {
			case field == 1 && inner == 0:
				h.data = v == int64(format.DataPage) || v == int64(format.DataPageV2)
			case field == 2 && inner == 0:
				h.plain = v
			case field == 3 && inner == 0:
				h.packed = v
			case (field == 5 || field == 7 || field == 8) && inner == 1:
				h.values = v
			case field == 8 && (inner == 5 || inner == 6):
				h.levels += v
			case field == 8 && inner == 7:
				h.compressed = v != 0
			}
		}}
		err := w.structure(0, 0)
		if errors.Is(err, errThriftEnd) && n < end-at && n < maxParquetHeader {
			*buffer = make([]byte, 4*len(*buffer))
			continue
		}
		h.length = int64(w.at)
		return h, err
	}
}

// parquetColumn is a selected column of a Parquet file.
type parquetColumn struct {
	name   string
	quoted []byte // as JSON
	node   *parquetNode
	leaves []*parquetLeaf
	all    [][]parquet.Value // of a row, by leaf
	file   *parquetFile      // if the column has contents of files
}

// newParquetColumn returns the column that is selected as asked says.
func newParquetColumn(c *parquet.Column, asked Column) (*parquetColumn, string) {
	p := &parquetColumn{name: c.Name()}
	p.quoted, _ = json.Marshal(p.name) // a string can always be written
	var reason string
	p.node, reason = newParquetNode(c, 0, 0, func(index int) {
		p.leaves = append(p.leaves, &parquetLeaf{index: index})
	})
	p.all = make([][]parquet.Value, len(p.leaves))
	if reason == "" && asked.Files {
		p.file = newParquetFile(c, p.node, asked.Optional || asked.Nulls)
	}
	return p, reason
}

// next reads the values of the next row. The error is io.EOF if there is none.
func (c *parquetColumn) next() error {
	ended := 0
	for i, leaf := range c.leaves {
		var err error
		if c.all[i], err = leaf.next(); err == io.EOF {
			ended++
		} else if err != nil {
			return err
		}
	}
	if ended > 0 && ended < len(c.leaves) {
		return errors.New("its fields have different numbers of rows")
	}
	if ended > 0 {
		return io.EOF
	}
	return nil
}

// append appends the value of the row as JSON.
func (c *parquetColumn) append(out []byte) (_ []byte, reason string) {
	if c.file != nil {
		return c.file.append(out, c.all)
	}
	return c.node.append(out, c.all)
}

// parquetLeaf reads the values of a column that has values itself, of one row group.
type parquetLeaf struct {
	index  int // among the file's
	pages  parquet.Pages
	values parquet.ValueReader
	buffer []parquet.Value
	some   []parquet.Value // of the buffer: those not yet taken
	row    []parquet.Value
}

func (l *parquetLeaf) open(pages parquet.Pages) {
	l.pages, l.values, l.some = pages, nil, nil
}

// next returns the values of the next row, which are valid until the next call. Values share the memory of
// their pages, which are not released but left to the collector, because a row may have several.
func (l *parquetLeaf) next() ([]parquet.Value, error) {
	l.row = l.row[:0]
	for {
		if len(l.some) == 0 {
			if err := l.fill(); err == io.EOF && len(l.row) > 0 {
				return l.row, nil
			} else if err != nil {
				return nil, err
			}
		}
		if len(l.row) > 0 && l.some[0].RepetitionLevel() == 0 {
			return l.row, nil
		}
		if len(l.row) == 0 && l.some[0].RepetitionLevel() != 0 {
			return nil, errors.New("a row begins within a list")
		}
		if len(l.row) == maxParquetValues {
			return nil, fmt.Errorf("a row has more than %d values", maxParquetValues)
		}
		l.row, l.some = append(l.row, l.some[0]), l.some[1:]
	}
}

// fill reads more values. The error is io.EOF if there are none.
func (l *parquetLeaf) fill() error {
	if l.buffer == nil {
		l.buffer = make([]parquet.Value, 256)
	}
	for {
		if l.values == nil {
			page, err := l.pages.ReadPage()
			if err != nil {
				return err
			}
			l.values = page.Values()
		}
		n, err := l.values.ReadValues(l.buffer)
		if err == io.EOF {
			l.values = nil
		} else if err != nil {
			return err
		}
		if n > 0 {
			l.some = l.buffer[:n]
			return nil
		}
	}
}
