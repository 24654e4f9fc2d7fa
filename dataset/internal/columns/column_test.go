package columns

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/internal/data/pixels"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

func number64(x int64) *int64 { return &x }

func ints(v ...int64) tfrecord.Value     { return tfrecord.Int64Feature("", v...).Value }
func floats(v ...float32) tfrecord.Value { return tfrecord.FloatFeature("", v...).Value }
func texts(v ...string) tfrecord.Value {
	var all [][]byte
	for _, s := range v {
		all = append(all, []byte(s))
	}
	return tfrecord.BytesFeature("", all...).Value
}

func le(values ...any) string {
	var b []byte
	for _, v := range values {
		b, _ = binary.Append(b, binary.LittleEndian, v)
	}
	return string(b)
}

// steps returns the list of a SequenceExample.
func steps(t testing.TB, all ...tfrecord.Value) *tfrecord.List {
	t.Helper()
	record, err := tfrecord.AppendSequenceExample(nil, nil, tfrecord.FeatureList{Name: "x", Steps: all})
	if err != nil {
		t.Fatal(err)
	}
	values := new(tfrecord.Values)
	if err := tfrecord.NewSequenceDecoder("x").Decode(record, values); err != nil {
		t.Fatal(err)
	}
	return values.List(0)
}

func TestAdd(t *testing.T) {
	type f = dataset.Feature
	for _, c := range []struct {
		spec   dataset.Spec
		value  tfrecord.Value
		length int
		want   dataset.Feature // without name and shape
		reason string
	}{
		{dataset.Spec{DType: dataset.Int32}, ints(7), 1, f{Int32: []int32{7}}, ""},
		{dataset.Spec{DType: dataset.Int64}, ints(math.MinInt64), 1, f{Int64: []int64{math.MinInt64}}, ""},
		{dataset.Spec{DType: dataset.Uint8, Shape: []int{2, 2}}, ints(0, 1, 254, 255), 1, f{Uint8: []uint8{0, 1, 254, 255}}, ""},
		{dataset.Spec{DType: dataset.Bool, Shape: []int{2}}, ints(1, 0), 1, f{Bool: []bool{true, false}}, ""},
		{dataset.Spec{DType: dataset.Float32}, ints(-3), 1, f{Float32: []float32{-3}}, ""},
		{dataset.Spec{DType: dataset.Float32, Shape: []int{3}}, floats(1, 2, 3), 1, f{Float32: []float32{1, 2, 3}}, ""},
		{dataset.Spec{DType: dataset.Float32, Shape: []int{2}}, texts(le(float32(1.5), float32(-2))), 1, f{Float32: []float32{1.5, -2}}, ""},
		{dataset.Spec{DType: dataset.Int32, Shape: []int{2}}, texts(le(int32(-1), int32(1<<30))), 1, f{Int32: []int32{-1, 1 << 30}}, ""},
		{dataset.Spec{DType: dataset.Int64, Shape: []int{1}}, texts(le(int64(-1))), 1, f{Int64: []int64{-1}}, ""},
		{dataset.Spec{DType: dataset.Bool, Shape: []int{2}}, texts("\x01\x00"), 1, f{Bool: []bool{true, false}}, ""},
		{dataset.Spec{DType: dataset.Uint8, Shape: []int{2, 3}}, texts("abcdef"), 1, f{Uint8: []uint8("abcdef")}, ""},
		{dataset.Spec{DType: dataset.Uint8, Shape: []int{2, 3}}, texts("abc", "def"), 1, f{Uint8: []uint8("abcdef")}, ""},
		{dataset.Spec{DType: dataset.Uint8, Shape: []int{-1, 3}}, texts("abcdef"), 2, f{Uint8: []uint8("abcdef")}, ""},
		{dataset.Spec{DType: dataset.Uint8, Shape: []int{-1, 3}}, texts("abc"), 1, f{Uint8: []uint8("abc")}, ""},
		{dataset.Spec{DType: dataset.Int32, Shape: []int{-1}}, ints(1, 2, 3), 3, f{Int32: []int32{1, 2, 3}}, ""},
		{dataset.Spec{DType: dataset.Int32, Shape: []int{-1}}, ints(), 0, f{Int32: []int32{}}, ""},
		{dataset.Spec{DType: dataset.Int32, Shape: []int{2, -1}}, ints(1, 2, 3, 4), 2, f{Int32: []int32{1, 2, 3, 4}}, ""},

		{dataset.Spec{DType: dataset.Int32}, ints(1, 2), 0, f{}, "has 2 values; expected 1"},
		{dataset.Spec{DType: dataset.Int32}, ints(), 0, f{}, "has 0 values; expected 1"},
		{dataset.Spec{DType: dataset.Float32, Shape: []int{2, 2}}, floats(1), 0, f{}, "has 1 values; expected 4, the shape [2 2]"},
		{dataset.Spec{DType: dataset.Float32, Shape: []int{-1, 2}}, floats(1), 0, f{}, "has 1 values; expected a multiple of 2, the shape [-1 2]"},
		{dataset.Spec{DType: dataset.Int32}, floats(1), 0, f{}, "has float values; expected int64 or bytes, because its dtype is int32; the model may declare it as float32"},
		{dataset.Spec{DType: dataset.Int32}, ints(0, 1, 0), 0, f{}, "has 3 values, which are 0 but for a 1; expected 1, the number of the class; the model may declare it as float32 of the shape [3]"},
		{dataset.Spec{DType: dataset.Uint8, Shape: []int{2}}, ints(1, 256), 0, f{}, "has 256 at position 1; expected 0 to 255"},
		{dataset.Spec{DType: dataset.Int32}, ints(1 << 31), 0, f{}, "has 2147483648 at position 0; expected -2147483648 to 2147483647"},
		{dataset.Spec{DType: dataset.Bool}, ints(2), 0, f{}, "has 2 at position 0; expected 0 to 1"},
		{dataset.Spec{DType: dataset.Bool, Shape: []int{2}}, texts("\x01\x02"), 0, f{}, "has 2 at position 1; expected 0 to 1"},
		{dataset.Spec{DType: dataset.Float32}, ints(1<<24 + 1), 0, f{}, "has 16777217 at position 0; expected -16777216 to 16777216"},
		{dataset.Spec{DType: dataset.Int32, Below: number64(10)}, ints(10), 0, f{}, "has 10 at position 0; expected 0 to 9"},
		{dataset.Spec{DType: dataset.Int32, Below: number64(10)}, ints(-1), 0, f{}, "has -1 at position 0; expected 0 to 9"},
		{dataset.Spec{DType: dataset.Int32, Minimum: number64(-1), Below: number64(10)}, ints(-1), 1, f{Int32: []int32{-1}}, ""},
		{dataset.Spec{DType: dataset.Int32, Below: number64(10)}, texts(le(int32(11))), 0, f{}, "has 11 at position 0; expected 0 to 9"},
		{dataset.Spec{DType: dataset.Int32, Role: dataset.Label, Below: number64(3)}, ints(3), 0, f{}, "has 3 at position 0; expected 0 to 2; labels that begin with 1 need a model with one class more"},
		{dataset.Spec{DType: dataset.Int32}, texts("cats"), 0, f{}, `is the text "cats"; expected a number of int32`},
		{dataset.Spec{DType: dataset.Uint8, Shape: []int{2, 3}}, texts("GIF89a and more"), 0, f{}, "is a GIF image; expected a PNG or JPEG image, or 6 values of uint8, the shape [2 3]"},
		{dataset.Spec{DType: dataset.Uint8, Shape: []int{2, 3}}, texts("RIFF....WEBPVP8L"), 0, f{}, "is a WebP image; expected"},
		{dataset.Spec{DType: dataset.Int64}, texts("abc"), 0, f{}, `is the text "abc"; expected a number of int64; write the records with numbers`},
		{dataset.Spec{DType: dataset.Int64}, texts("\x01\x02\x03"), 0, f{}, "has 3 bytes; expected 8, which are 1 values of int64"},
		{dataset.Spec{DType: dataset.Float32, Shape: []int{2, 2}}, texts("\x01\x02\x03\x04"), 0, f{}, "has 4 bytes; expected 16, which are 4 values of float32, the shape [2 2]; it has as many values of uint8, as which the model may declare the feature"},
		{dataset.Spec{DType: dataset.Uint8, Shape: []int{2, 3}}, texts("abcde"), 0, f{}, "has 5 bytes; expected 6, which are 6 values of uint8, the shape [2 3], or a PNG or JPEG image"},
		{dataset.Spec{DType: dataset.Float32, Shape: []int{2, 3, 3}}, texts("\xff\xd8\xffabc"), 0, f{}, "is a JPEG image, and the feature is float32; expected a feature of uint8, as which the model may declare it"},
		{dataset.Spec{DType: dataset.Uint8, Shape: []int{2, 3}}, texts("abc", "de"), 0, f{}, "has a byte string 1 that has 2 bytes; expected 3"},
		{dataset.Spec{DType: dataset.Uint8, Shape: []int{2, 3}}, texts("a", "b", "c"), 0, f{}, "has 3 byte strings; expected one, the shape [2 3]"},
		{dataset.Spec{DType: dataset.Int32}, texts("a", "b"), 0, f{}, "has 2 byte strings; expected one"},
		{dataset.Spec{DType: dataset.Float32, Shape: []int{-1}}, texts("abcde"), 0, f{}, "has 5 bytes; expected a multiple of 4, for values of float32"},
	} {
		c.spec.Name = "x"
		name := fmt.Sprintf("%v of %+v", c.spec, c.value)
		if err := c.spec.Validate(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		col := New(c.spec)
		col.Begin(nil)
		length, reason := col.Add(&c.value, nil)
		if c.reason != "" || reason != "" {
			if reason == "" || !strings.HasPrefix(reason, c.reason) || c.reason == "" {
				t.Errorf("%s: reason %q, want %q", name, reason, c.reason)
			}
			col.Keep(0)
			continue
		}
		if length != c.length {
			t.Errorf("%s: length %d, want %d", name, length, c.length)
		}
		got := laid(col, c.spec, length)
		got.Name, got.Shape = "", nil
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func laid(c Column, spec dataset.Spec, length int) dataset.Feature {
	if spec.Open() >= 0 {
		return c.Pad(c.Len(), length)
	}
	return c.Stack(c.Len(), 0)
}

func TestAddSteps(t *testing.T) {
	for _, c := range []struct {
		spec   dataset.Spec
		steps  []tfrecord.Value
		want   string
		reason string
	}{
		{dataset.Spec{DType: dataset.Int32, Shape: []int{-1}}, []tfrecord.Value{ints(1), ints(2)}, "[1 2]", ""},
		{dataset.Spec{DType: dataset.Float32, Shape: []int{-1, 2}}, []tfrecord.Value{floats(1, 2), floats(3, 4)}, "[1 2 3 4]", ""},
		{dataset.Spec{DType: dataset.Int32, Shape: []int{2}}, []tfrecord.Value{ints(1), ints(2)}, "[1 2]", ""},
		{dataset.Spec{DType: dataset.Uint8, Shape: []int{-1, 2}}, []tfrecord.Value{texts("ab")}, "[97 98]", ""},
		{dataset.Spec{DType: dataset.Int32, Shape: []int{-1}}, nil, "[]", ""},
		{dataset.Spec{DType: dataset.Int32, Shape: []int{-1}}, []tfrecord.Value{ints(1), ints(2, 3)}, "", "has 2 values in step 1; expected 1"},
		{dataset.Spec{DType: dataset.Int32, Shape: []int{-1}}, []tfrecord.Value{ints(1), floats(2)}, "", "has float values in step 1 and others before it; expected one kind"},
		{dataset.Spec{DType: dataset.Int32, Shape: []int{3}}, []tfrecord.Value{ints(1), ints(2)}, "", "has 2 steps; expected 3"},
		{dataset.Spec{DType: dataset.Int32}, []tfrecord.Value{ints(1)}, "", "is a list of steps; expected a feature of the context, because it has one value for an example"},
		{dataset.Spec{DType: dataset.Int32, Shape: []int{1, -1}}, []tfrecord.Value{ints(1)}, "", "is a list of steps; expected a feature of the context, because axis 1 of its shape [1 -1] is open"},
	} {
		c.spec.Name = "x"
		col := New(c.spec)
		col.Begin(nil)
		length, reason := col.Add(&tfrecord.Value{}, steps(t, c.steps...))
		if reason != c.reason {
			t.Errorf("%v: reason %q, want %q", c.spec, reason, c.reason)
		}
		if reason != "" {
			continue
		}
		f := laid(col, c.spec, length)
		got := fmt.Sprint(f.Int32)
		switch f.DType() {
		case dataset.Float32:
			got = fmt.Sprint(f.Float32)
		case dataset.Uint8:
			got = fmt.Sprint(f.Uint8)
		}
		if got != c.want {
			t.Errorf("%v: %s, want %s", c.spec, got, c.want)
		}
	}
}

// golden is an image of testdata/images.json, which TensorFlow decoded.
type golden struct {
	Format, Name string
	Shape        []int
	Data, Values []byte
}

func goldens(t testing.TB) (all []golden) {
	t.Helper()
	text, err := os.ReadFile("testdata/images.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestImages compares decoded images with TensorFlow's: PNG exactly, JPEG within the rounding of
// another inverse transform and another interpolation of colours.
func TestImages(t *testing.T) {
	for _, g := range goldens(t) {
		for _, shape := range [][]int{g.Shape, {g.Shape[0], -1, g.Shape[2]}, {-1, g.Shape[1], g.Shape[2]}, {1, g.Shape[0], g.Shape[1], g.Shape[2]}, {-1, g.Shape[0], g.Shape[1], g.Shape[2]}} {
			spec := dataset.Spec{Name: "x", DType: dataset.Uint8, Shape: shape}
			c := New(spec)
			c.Begin(nil)
			v := texts(string(g.Data))
			length, reason := c.Add(&v, nil)
			if reason != "" {
				t.Errorf("%s %s of %v: %s", g.Format, g.Name, shape, reason)
				continue
			}
			f := laid(c, spec, length)
			most := 0
			if g.Format == pixels.JPEG {
				most = 8
				switch g.Name {
				case "progressive":
					most = 24 // its colours have half the resolution
				case "cmyk":
					most = 16 // products of two channels
				}
			}
			worst := 0
			for i, x := range f.Uint8 {
				worst = max(worst, int(math.Abs(float64(x)-float64(g.Values[i]))))
			}
			if len(f.Uint8) != len(g.Values) || worst > most {
				t.Errorf("%s %s of %v: %d values, the worst differs by %d; expected %d within %d", g.Format, g.Name, shape, len(f.Uint8), worst, len(g.Values), most)
			}
		}
	}
}

func TestWrongImages(t *testing.T) {
	all := goldens(t)
	by := func(format, name string) string {
		for _, g := range all {
			if g.Format == format && g.Name == name {
				return string(g.Data)
			}
		}
		t.Fatal(format, name)
		return ""
	}
	gray, smooth := by(pixels.PNG, "gray"), by(pixels.JPEG, "smooth")
	huge := []byte(gray) // its header says 2^31-1 pixels a side
	binary.BigEndian.PutUint64(huge[16:], 0x7fffffff7fffffff)
	for _, c := range []struct {
		data   string
		shape  []int
		reason string
	}{
		{gray, []int{7, 5, 1}, "is a PNG image of height 5 and width 7; expected height 7 and width 5; to scale images, set the feature's Resize, as --set data.resize=bilinear does"},
		{gray, []int{-1, 5, 1}, "is a PNG image of height 5 and width 7; expected any height and width 5"},
		{gray[:40], []int{5, 7}, "is a PNG image that cannot be decoded"},
		{gray[:20], []int{5, 7}, "is a PNG image that cannot be decoded"},
		{string(huge), []int{-1, 7, 1}, "is a PNG image that cannot be decoded"}, // the checksum of the header
		{smooth, []int{12, 17, 1}, "is a JPEG image with colours; expected a gray one, because the feature has one channel"},
		{smooth[:200], []int{12, 17, 3}, "is a JPEG image that cannot be decoded"},
		{by(pixels.PNG, "rgb"), []int{5, 7}, "is a PNG image with colours"},
		{gray, []int{len(gray) + 1}, fmt.Sprintf("has %d bytes; expected %d", len(gray), len(gray)+1)},
	} {
		col := New(dataset.Spec{Name: "x", DType: dataset.Uint8, Shape: c.shape})
		col.Begin(nil)
		v := texts(c.data)
		if _, reason := col.Add(&v, nil); !strings.HasPrefix(reason, c.reason) {
			t.Errorf("%v: %q, want %q", c.shape, reason, c.reason)
		}
	}
	// Values of an image are held to the bounds, as raw ones are.
	bounded := New(dataset.Spec{Name: "x", DType: dataset.Uint8, Shape: []int{5, 7, 1}, Role: dataset.Label, Below: number64(3)})
	bounded.Begin(nil)
	v := texts(gray)
	if _, reason := bounded.Add(&v, nil); !strings.HasSuffix(reason, "expected 0 to 2") {
		t.Errorf("values of an image that are no classes: %q", reason)
	}
	// Another size is scaled where the spec says so.
	scaled := New(dataset.Spec{Name: "x", DType: dataset.Uint8, Shape: []int{2, 3, 1}, Resize: "bilinear"})
	scaled.Begin(nil)
	for _, data := range []string{gray, "raw by"} {
		v := texts(data)
		if _, reason := scaled.Add(&v, nil); reason != "" {
			t.Errorf("%q: %s", data, reason)
		}
	}
	want := make([]uint8, 6)
	of := all[slices.IndexFunc(all, func(g golden) bool { return g.Name == "gray" })]
	(&pixels.Scaler{Resize: pixels.Bilinear}).Scale(want, 2, 3, of.Values, of.Shape[0], of.Shape[1], 1)
	if f := scaled.Stack(2, 0); string(f.Uint8) != string(want)+"raw by" {
		t.Errorf("scaled to %v, expected %v and raw values", f.Uint8, want)
	}
	// Raw values of the right size may begin as an image does.
	raw := "\xff\xd8\xff\x00\x00\x00"
	col := New(dataset.Spec{Name: "x", DType: dataset.Uint8, Shape: []int{2, 3}})
	col.Begin(nil)
	v = texts(raw)
	if _, reason := col.Add(&v, nil); reason != "" {
		t.Error(reason)
	} else if f := col.Stack(1, 0); string(f.Uint8) != raw {
		t.Errorf("raw values %v became %v", []byte(raw), f.Uint8)
	}
}

// TestEdits holds the operations on collected examples against slices.
func TestEdits(t *testing.T) {
	spec := dataset.Spec{Name: "x", DType: dataset.Int64, Shape: []int{-1, 2}, Pad: -1}
	c := New(spec)
	c.Begin(nil)
	add := func(v ...int64) {
		value := ints(v...)
		if _, reason := c.Add(&value, nil); reason != "" {
			t.Fatal(reason)
		}
	}
	add(1, 2, 3, 4, 5, 6)
	c.Select([]int64{1, 0, 1})
	add(7, 8, 9, 10, 11, 12)
	c.Ends(2)
	add(13, 14, 15, 16)
	c.Head(1)
	add(0, 0)
	c.Keep(3)
	c.Fill(1, 20)
	f := c.Scatter(10, []int{0, 3, 5, 7}, 2, 5)
	want := []int64{1, 2, 5, 6, -1, -1, 7, 8, 11, 12, 13, 14, -1, -1, 20, 20, -1, -1, -1, -1}
	if !reflect.DeepEqual(f.Int64, want) || !reflect.DeepEqual(f.Shape, []int{2, 5, 2}) {
		t.Errorf("got %v of %v, want %v", f.Int64, f.Shape, want)
	}
	c.Begin(&f)
	c.Append(&f, 3, 5)
	c.Append(&f, 0, 1)
	if g := c.Pad(3, 2); !reflect.DeepEqual(g.Int64, []int64{7, 8, 11, 12, 1, 2, -1, -1, -1, -1, -1, -1}) {
		t.Errorf("got %v", g.Int64)
	}
	// An open axis after another one.
	inner := New(dataset.Spec{Name: "x", DType: dataset.Int32, Shape: []int{2, -1}})
	inner.Begin(nil)
	for _, v := range []tfrecord.Value{ints(1, 2, 3, 4, 5, 6), ints(7, 8)} {
		if _, reason := inner.Add(&v, nil); reason != "" {
			t.Fatal(reason)
		}
	}
	g := inner.Pad(2, 3)
	if !reflect.DeepEqual(g.Int32, []int32{1, 2, 3, 4, 5, 6, 7, 0, 0, 8, 0, 0}) || !reflect.DeepEqual(g.Shape, []int{2, 2, 3}) {
		t.Errorf("got %v of %v", g.Int32, g.Shape)
	}
	inner.Begin(nil)
	inner.Copy(&g, 1, 1)
	inner.Copy(&g, 0, 3)
	inner.Head(2)
	if g := inner.Pad(2, 2); !reflect.DeepEqual(g.Int32, []int32{7, 0, 8, 0, 1, 2, 4, 5}) {
		t.Errorf("got %v", g.Int32)
	}
}

// FuzzStrings holds that any byte string is refused or becomes as many values as it should.
func FuzzStrings(f *testing.F) {
	for _, g := range goldens(f) {
		f.Add(g.Data, uint8(g.Shape[2]))
		f.Add(g.Values, uint8(g.Shape[2]))
	}
	f.Fuzz(func(t *testing.T, data []byte, channels uint8) {
		for _, spec := range []dataset.Spec{
			{DType: dataset.Uint8, Shape: []int{5, 7, int(channels%4) + 1}}, {DType: dataset.Uint8, Shape: []int{-1, 7, 3}}, {DType: dataset.Uint8, Shape: []int{12, -1}},
			{DType: dataset.Uint8, Shape: []int{2, 5, 7, 1}}, {DType: dataset.Bool, Shape: []int{-1}}, {DType: dataset.Float32, Shape: []int{-1, 3}}, {DType: dataset.Int32, Below: number64(5)},
		} {
			spec.Name = "x"
			c := New(spec)
			c.Begin(nil)
			v := tfrecord.BytesFeature("", data).Value
			length, reason := c.Add(&v, nil)
			if reason != "" {
				continue
			}
			if out := laid(c, spec, length); out.Len() != out.Size() {
				t.Fatalf("%v: %d values of shape %v", spec, out.Len(), out.Shape)
			}
		}
	})
}
