package table

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"
)

// npy returns an array in NumPy's format.
func npy(descr, shape, fortran string, values any) []byte {
	var out bytes.Buffer
	head := fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }", descr, fortran, shape)
	head += strings.Repeat(" ", 117-len(head)) + "\n"
	out.WriteString("\x93NUMPY\x01\x00")
	order := binary.ByteOrder(binary.LittleEndian)
	if descr[0] == '>' {
		order = binary.BigEndian
	}
	for _, part := range []any{uint16(len(head)), []byte(head)} {
		binary.Write(&out, binary.LittleEndian, part)
	}
	binary.Write(&out, order, values)
	return out.Bytes()
}

// npzOf returns an archive of arrays.
func npzOf(t *testing.T, arrays map[string][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for name, data := range arrays {
		f, err := w.Create(name + ".npy")
		if err == nil {
			_, err = f.Write(data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestNPZ reads an array of each kind, a row for each index.
func TestNPZ(t *testing.T) {
	arrays := map[string][]byte{
		"image":  npy("|u1", "2, 2, 2", "False", []uint8{1, 2, 3, 4, 5, 6, 7, 255}),
		"half":   npy("<f2", "2,", "False", []uint16{0x3e00, 0xc000}),
		"single": npy("<f4", "2, 1", "False", []float32{0.1, -2}),
		"double": npy("<f8", "2,", "False", []float64{0.1, 1e300}),
		"big":    npy(">i4", "2,", "False", []int32{-7, 8}),
		"small":  npy("|i1", "2,", "False", []int8{-7, 8}),
		"yes":    npy("|b1", "2,", "False", []bool{true, false}),
		"name":   npy("<U2", "2,", "False", []rune{'\u00fc', 'b', 'c', 0}),
		"word":   npy("|S3", "2,", "False", []byte("ab\x00cde")),
		"other":  npy("|O", "1", "False", []byte{}), // not selected
	}
	names := []string{"image", "half", "single", "double", "big", "small", "yes", "name", "word"}
	var columns []Column
	for _, name := range names {
		columns = append(columns, Column{Name: name, Lists: true})
	}
	table, err := New(bytes.NewReader(npzOf(t, arrays)), "x.npz", Config{Format: FormatOf("X.NPZ")})
	if err == nil {
		err = table.Select(columns...)
	}
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for cutter := table.NewCutter(); ; {
		text, line, number, err := table.Next()
		if err == io.EOF {
			break
		}
		if err != nil || line != number+1 {
			t.Fatalf("line %d of row %d: %v", line, number, err)
		}
		fields, err := cutter.Cut(string(text), line)
		if err != nil {
			t.Fatal(err)
		}
		var row []string
		for _, f := range fields {
			row = append(row, f.Text)
		}
		got = append(got, strings.Join(row, " "))
	}
	want := []string{"[[1,2],[3,4]] 1.5 0.1 0.1 -7 -7 true \u00fcb ab", "[[5,6],[7,255]] -2 -2 1e+300 8 8 false c cde"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q; expected %q", got, want)
	}
}

func TestWrongNPZ(t *testing.T) {
	good := npy("<i8", "2,", "False", []int64{1, 2})
	for want, array := range map[string][]byte{
		`array "x" has 3 rows and "a" has 2`:                npy("<i8", "3,", "False", []int64{1, 2, 3}),
		`array "x" is in the order of Fortran`:              npy("<i8", "2, 2", "True", []int64{1, 2, 3, 4}),
		`array "x" has the header {'descr': '|O'`:           npy("|O", "2,", "False", []byte("..")),
		`array "x" has the dtype c8`:                        npy("<c8", "2,", "False", []int64{1, 2}),
		`array "x" is a single value`:                       npy("<i8", "", "False", []int64{1}),
		`array "x" has the shape (2, 999999999999)`:         npy("<i8", "2, 999999999999", "False", []int64{1}),
		`array "x" is not in NumPy's format`:                []byte("something else"),
		`row 1 of array "x": unexpected EOF`:                npy("<i8", "2,", "False", []int32{1}),
		`has no array "x"; expected one of "a"`:             nil,
		`is no archive of arrays, as numpy.savez writes (z`: []byte("-"),
	} {
		arrays := map[string][]byte{"a": good}
		if array != nil {
			arrays["x"] = array
		}
		data := npzOf(t, arrays)
		if string(array) == "-" {
			data = array
		}
		table, err := New(bytes.NewReader(data), "x.npz", Config{Format: NPZ})
		if err == nil {
			err = table.Select(Column{Name: "a"}, Column{Name: "x"})
		}
		if err == nil {
			_, _, _, err = table.Next()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; expected %q", err, want)
		}
	}
}
