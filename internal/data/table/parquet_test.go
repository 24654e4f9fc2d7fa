package table

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// columns of the goldens, which testdata/parquet.py has written.
var parquetColumns = strings.Fields("id label text large kind double float flag byte tiny whole unsigned nothing choices sizes tokens fixed grid answers turns")

// rowsOf returns the fields of the rows of a table, and the error that ended it.
func rowsOf(t *Table, names []string) (rows [][]Field, err error) {
	defer t.Close()
	var columns []Column
	for _, name := range names {
		columns = append(columns, Column{Name: name, Lists: true, Objects: true, Nulls: true})
	}
	if err := t.Select(columns...); err != nil {
		return nil, err
	}
	for cutter := t.NewCutter(); ; {
		text, line, number, err := t.Next()
		if err == io.EOF {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		if line != number+1 {
			return rows, fmt.Errorf("line %d of row %d", line, number)
		}
		fields, err := cutter.Cut(string(text), line)
		if err != nil {
			return rows, err
		}
		rows = append(rows, slices.Clone(fields))
	}
}

// openGolden opens a golden, and returns the sum of the bytes that are read.
func openGolden(t *testing.T, name string) (*Table, func() string) {
	t.Helper()
	sum := sha256.New()
	in, err := Open(t.Context(), filepath.Join("testdata", "parquet", name), Config{Format: FormatOf(name), Sum: sum})
	if err != nil {
		t.Fatal(err)
	}
	return in, func() string { return fmt.Sprintf("%x", sum.Sum(nil)) }
}

// TestParquet reads files of pyarrow and the same rows as JSON lines.
func TestParquet(t *testing.T) {
	lines, _ := openGolden(t, "rows.jsonl")
	want, err := rowsOf(lines, parquetColumns)
	if err != nil || len(want) != 60 {
		t.Fatalf("%d rows, %v", len(want), err)
	}
	for _, name := range []string{"none", "snappy", "zstd", "gzip", "brotli", "lz4", "checked", "delta"} {
		in, sum := openGolden(t, name+".parquet")
		got, err := rowsOf(in, parquetColumns)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d rows; expected %d", name, len(got), len(want))
			continue
		}
		for i, row := range got {
			for k, f := range row {
				if f != want[i][k] {
					t.Fatalf("%s: row %d, column %s: got %+v; expected %+v", name, i, parquetColumns[k], f, want[i][k])
				}
			}
		}
		content, err := os.ReadFile(filepath.Join("testdata", "parquet", name+".parquet"))
		if is := fmt.Sprintf("%x", sha256.Sum256(content)); err != nil || sum() != is || in.Bytes() != int64(len(content)) {
			t.Errorf("%s: %d bytes with the sum %s were read; expected %d with %s, %v", name, in.Bytes(), sum(), len(content), is, err)
		}
	}
}

func TestRefusedParquet(t *testing.T) {
	for column, want := range map[string]string{
		"day":   `column "day" has values of type DATE; expected numbers`,
		"at":    `column "at" has values of type TIMESTAMP`,
		"price": `column "price" has values of type DECIMAL(5,2)`,
		"half":  `column "half" has values of type FIXED_LEN_BYTE_ARRAY(2)`,
		"map":   `column "map" is a map`,
		"image": `other.parquet:1: column "image" has bytes that are no text`,
		"real":  `other.parquet:1: column "real" is NaN; expected a finite number`,
		"Day":   `has no column "Day"; expected one of "day", "at", "price", "half", "map", "image", "real"; did you mean "day"?`,
	} {
		in, _ := openGolden(t, "other.parquet")
		if err := in.Select(Column{Name: column, Lists: true, Objects: true}); err != nil {
			t.Fatal(err)
		}
		_, _, _, err := in.Next()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; expected %q", column, err, want)
		}
		in.Close()
	}
	for path, want := range map[string]string{
		"x.parquet.gz": "is compressed as a whole",
		"testdata":     "is a folder; expected a file",
	} {
		if _, err := Open(t.Context(), path, Config{Format: Parquet}); !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; expected %q", path, err, want)
		}
	}
	if _, err := New(strings.NewReader("PAR1"), "standard input", Config{Format: Parquet}); !errors.Is(err, fault.Usage) {
		t.Errorf("a stream: %v", err)
	}
}

// listOf is a list whose repeated field is given, as older writers have it.
type listOf struct{ parquet.Group }

func (listOf) Type() parquet.Type { return parquet.List(parquet.String()).Type() }

// TestOldLists reads lists of two levels, by the rules that the format has for them
// (https://github.com/apache/parquet-format/blob/master/LogicalTypes.md#lists), and groups that are lists by no
// more than their names.
func TestOldLists(t *testing.T) {
	number := parquet.Leaf(parquet.Int32Type)
	pair := parquet.Group{"a": number, "b": number}
	one := parquet.Group{"a": number}
	schema := parquet.NewSchema("rows", parquet.Group{
		"array":   parquet.Optional(listOf{parquet.Group{"array": parquet.Repeated(one)}}),
		"grid":    listOf{parquet.Group{"element": parquet.Repeated(listOf{parquet.Group{"element": parquet.Repeated(number)}})}},
		"numbers": listOf{parquet.Group{"element": parquet.Repeated(number)}},
		"pairs":   listOf{parquet.Group{"element": parquet.Repeated(pair)}},
		"plain":   parquet.Group{"list": parquet.Repeated(number)},
		"some":    listOf{parquet.Group{"element": parquet.Repeated(parquet.Group{"of": parquet.Repeated(number)})}},
		"tuple":   listOf{parquet.Group{"tuple_tuple": parquet.Repeated(one)}},
	})
	v := func(n int32, rep, def, column int) parquet.Value { return parquet.ValueOf(n).Level(rep, def, column) }
	null := func(def, column int) parquet.Value { return parquet.NullValue().Level(0, def, column) }
	var file bytes.Buffer
	w := parquet.NewWriter(&file, schema)
	_, err := w.WriteRows([]parquet.Row{
		{v(1, 0, 2, 0), v(2, 1, 2, 0), v(3, 0, 2, 1), v(4, 2, 2, 1), v(5, 1, 2, 1), v(6, 0, 1, 2), v(7, 1, 1, 2), v(8, 0, 1, 3), v(9, 0, 1, 4), v(10, 0, 1, 5), v(11, 0, 2, 6), v(12, 0, 1, 7)},
		{null(0, 0), null(0, 1), null(0, 2), null(0, 3), null(0, 4), null(0, 5), null(0, 6), null(0, 7)},
	})
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	rows, err := parquetOf(file.Bytes(), strings.Fields("array grid numbers pairs plain some tuple"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range rows {
		var texts []string
		for _, f := range row {
			texts = append(texts, f.Text)
		}
		got = append(got, strings.Join(texts, " "))
	}
	want := []string{
		`[{"a":1},{"a":2}] [[3,4],[5]] [6,7] [{"a":8,"b":9}] {"list":[10]} [{"of":[11]}] [{"a":12}]`,
		` [] [] [] {"list":[]} [] []`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q; expected %q", got, want)
	}
}

// parquetOf reads a file from memory.
func parquetOf(content []byte, names []string) ([][]Field, error) {
	t := &Table{path: "x.parquet"}
	if err := t.readParquet(context.Background(), bytes.NewReader(content), int64(len(content)), Config{}); err != nil {
		return nil, err
	}
	return rowsOf(t, names)
}

// pageBytes returns which bytes of a file are of its pages, and not of headers or the footer.
func pageBytes(t *testing.T, content []byte) []bool {
	t.Helper()
	in := &Table{path: "x.parquet"}
	if err := in.readParquet(t.Context(), bytes.NewReader(content), int64(len(content)), Config{}); err != nil {
		t.Fatal(err)
	}
	r, of, buffer := in.rows.(*parquetRows), make([]bool, len(content)), make([]byte, 1<<10)
	for _, g := range r.file.Metadata().RowGroups {
		for _, c := range g.Columns {
			at := c.MetaData.DataPageOffset
			if c.MetaData.DictionaryPageOffset != 0 {
				at = c.MetaData.DictionaryPageOffset
			}
			for end := at + c.MetaData.TotalCompressedSize; at < end; {
				h, err := r.pageHeader(at, end, &buffer)
				if err != nil {
					t.Fatal(err)
				}
				at += h.length
				for i := range h.packed {
					of[at+i] = true
				}
				at += h.packed
			}
		}
	}
	return of
}

// TestDamagedParquet cuts a file short and changes bytes of it. The pages of this one have checksums, so that
// no changed value comes through; what changes in a header may.
func TestDamagedParquet(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("testdata", "parquet", "checked.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := parquetOf(content, parquetColumns)
	if err != nil {
		t.Fatal(err)
	}
	named := func(err error) bool {
		bad := (*Error)(nil)
		return strings.Contains(err.Error(), "x.parquet") && (errors.Is(err, fault.Damaged) || errors.Is(err, fault.Usage) || errors.As(err, &bad))
	}
	for n := 0; n < len(content); n += 1999 {
		if _, err := parquetOf(content[:n], parquetColumns); err == nil || !named(err) {
			t.Fatalf("of %d bytes the first %d: %v", len(content), n, err)
		}
	}
	pages, found := pageBytes(t, content), 0
	for at := 0; at < len(content); at += 37 {
		changed := bytes.Clone(content)
		changed[at] ^= 1 << (at % 8)
		got, err := parquetOf(changed, parquetColumns)
		switch {
		case err != nil && !named(err):
			t.Fatalf("byte %d: %v", at, err)
		case err != nil:
			found++
		case pages[at] && !slices.EqualFunc(got, want, slices.Equal[[]Field]):
			t.Fatalf("byte %d: rows differ, and there is no error", at)
		}
	}
	if found == 0 {
		t.Error("no damage was found")
	}
}

// Whatever a file holds, reading it ends, with an error that names the file or with text.
func FuzzParquet(f *testing.F) {
	for _, name := range []string{"other", "checked", "delta", "zstd"} {
		content, err := os.ReadFile(filepath.Join("testdata", "parquet", name+".parquet"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if _, err := parquetOf(content, parquetColumns); err != nil && !strings.Contains(err.Error(), "x.parquet") {
			t.Errorf("%v", err)
		}
	})
}
