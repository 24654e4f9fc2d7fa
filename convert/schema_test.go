package convert

import (
	"errors"
	"fmt"
	"image"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

func TestSchemaRefused(t *testing.T) {
	for _, tt := range []struct{ name, schema, want string }{
		{"empty", "", `s.yaml:1: the file is empty; expected features`},
		{"no YAML", "features:\n  a: [", `s.yaml:2: did not find expected node content`},
		{"tabs", "features:\n\ta: 1", `s.yaml:2: found character that cannot start any token`},
		{"two documents", "features: {a: {kind: number}}\n---\nb: 1", `s.yaml:2: there is a second document; expected one`},
		{"a list", "- a", `s.yaml:1: the schema is a list; expected names with a value each, such as name: value`},
		{"unknown key", "feature: {}", `s.yaml:1: the schema has no key "feature"; expected one of features; did you mean "features"?`},
		{"no features", "features: {}", `s.yaml:1: there are no features; expected "features:" and one or more of them`},
		{"null features", "features:", `s.yaml:1: there are no features`},
		{"list of features", "features: [a]", `s.yaml:1: features is a list; expected names with a value each`},
		{"feature without keys", "features:\n  a:", `s.yaml:2: feature "a" is empty; expected names with a value each`},
		{"feature twice", "features:\n  a: {kind: number}\n  a: {kind: text}", `s.yaml:3: features has "a" twice, also in line 2; expected it once`},
		{"key twice", "features:\n  a: {kind: number, kind: text}", `s.yaml:2: feature "a" has "kind" twice, also in line 2; expected it once`},
		{"name", "features:\n  a b: {kind: number}", `s.yaml:2: feature is "a b"; expected a name of letters, digits, _, -, . and /`},
		{"misspelled key", "features:\n  a:\n    kind: number\n    colums: [a]", `s.yaml:4: feature "a" has no key "colums"; expected one of categories, column, columns, convert_colors, crop_to_aspect_ratio, dtype, encoding, folder, jpeg, kind, max_length, maximum, minimum, missing, missing_values, resize, role, segments, separator, shape, special_tokens, unknown; did you mean "columns"?`},
		{"merge key", "x: &x {kind: number}\nfeatures:\n  a: *x", `s.yaml:1: the schema has no key "x"`},
		{"misspelled kind", "features:\n  a: {kind: nubmer}", `s.yaml:2: feature "a": kind is "nubmer"; expected one of number, category, text, image, bytes; did you mean "number"?`},
		{"no kind", "features:\n  a: {column: x}", `s.yaml:2: feature "a": has no kind; expected one of number, category, text, image, bytes`},
		{"dtype", "features:\n  a: {kind: number, dtype: float64}", `dtype is "float64"; expected one of float32, int64, int32, uint8, bool`},
		{"key of another kind", "features:\n  a:\n    kind: text\n    minimum: 1", `s.yaml:4: feature "a": has kind text and minimum, which is for kind number; leave out one of them`},
		{"column and columns", "features:\n  a: {kind: number, column: x, columns: [x, y]}", `feature "a": has column and columns; expected one of them`},
		{"column twice", "features:\n  a: {kind: number, columns: [x, x]}", `columns has "x", which is empty or given twice`},
		{"no columns", "features:\n  a: {kind: number, columns: []}", `columns is empty; expected one name or more`},
		{"range", "features:\n  a: {kind: number, columns: 'x{5..1}'}", `columns: "x{5..1}"; expected one range of at most 1048576 names, such as pixel{0..63}`},
		{"huge range", "features:\n  a: {kind: number, columns: 'x{0..99999999999999999999}'}", `expected one range of at most`},
		{"two categories", "features:\n  a: {kind: category, columns: [x, y]}", `feature "a": has kind category and 2 columns; expected at most 1`},
		{"size", "features:\n  a: {kind: number, shape: [0]}", `shape has the size "0"; expected 1 or more, or null`},
		{"size of text", "features:\n  a: {kind: number, shape: [x]}", `shape has the size "x"; expected 1 or more, or null`},
		{"shape is a number", "features:\n  a: {kind: number, shape: 3}", `shape is "3"; expected a list of 1 to 8 sizes`},
		{"huge shape", "features:\n  a: {kind: number, shape: [100000, 100000]}", `has shape [100000, 100000]; expected at most 268435456 values`},
		{"overflowing shape", "features:\n  a: {kind: number, shape: [9223372036854775807, 9223372036854775807]}", `expected at most 268435456 values`},
		{"open behind", "features:\n  a: {kind: number, shape: [3, null]}", `has shape [3, null]; expected null as the first size only`},
		{"shape of columns", "features:\n  a: {kind: number, columns: 'x{0..7}', shape: [3, 3]}", `has shape [3, 3] and 8 columns; expected a shape of 8 values`},
		{"separator without list", "features:\n  a: {kind: number, separator: ';'}", `has a separator and shape [] from 1 column; expected a shape such as [null] or [3]`},
		{"bounds", "features:\n  a:\n    kind: number\n    minimum: 3\n    maximum: 2", `s.yaml:5: feature "a": has minimum 3 and maximum 2; expected a maximum that is not less`},
		{"bounds of dtype", "features:\n  a: {kind: number, dtype: uint8, maximum: 256}", `has dtype uint8 and maximum 256; expected a number of that dtype`},
		{"fraction for a whole number", "features:\n  a: {kind: number, dtype: int32, minimum: 0.5}", `has dtype int32 and minimum 0.5; expected a number of that dtype`},
		{"bound is text", "features:\n  a: {kind: number, minimum: low}", `minimum is "low"; expected a number`},
		{"bound is no number", "features:\n  a: {kind: number, minimum: .nan}", `minimum is ".nan"; expected a number`},
		{"bounds of bool", "features:\n  a: {kind: number, dtype: bool, minimum: 0}", `has dtype bool and bounds`},
		{"missing out of bounds", "features:\n  a: {kind: number, minimum: 0, missing: -1}", `missing is "-1"; expected 0 or more`},
		{"missing is no category", "features:\n  a: {kind: category, categories: [red, blue], missing: bleu}", `missing is "bleu"; expected one of "red", "blue"; did you mean "blue"?`},
		{"category twice", "features:\n  a:\n    kind: category\n    categories:\n    - x\n    - x", `s.yaml:6: feature "a": categories has "x", which is empty or given twice`},
		{"no categories", "features:\n  a: {kind: category, categories: []}", `has no categories; expected one or more, or leave out the key`},
		{"categories are text", "features:\n  a: {kind: category, categories: red}", `categories is "red"; expected a list, such as [a, b]`},
		{"unknown is known", "features:\n  a: {kind: category, categories: [x], unknown: x}", `unknown is "x", which is one of the categories`},
		{"unknown label", "features:\n  a: {kind: category, role: label, unknown: x}", `has role label and a category for unknown ones; leave it out`},
		{"image without shape", "features:\n  a: {kind: image}", `has shape []; expected that of the image, [HEIGHT, WIDTH, CHANNELS]`},
		{"image of two channels", "features:\n  a: {kind: image, shape: [8, 8, 2]}", `with 1 channel (gray) or 3 (RGB)`},
		{"resize", "features:\n  a: {kind: image, shape: [2, 2, 3], resize: cubic}", `resize is "cubic"; expected one of bilinear, antialias, nearest`},
		{"crop without resize", "features:\n  a: {kind: image, shape: [2, 2, 3], crop_to_aspect_ratio: true}", `has crop_to_aspect_ratio and no resize; expected how images are scaled, as "resize: bilinear"`},
		{"files that are scaled", "features:\n  a: {kind: image, shape: [2, 2, 3], resize: nearest, encoding: file}", `has encoding file, and images are changed; expected encoding raw`},
		{"classes that are scaled", "features:\n  x: {kind: number}\n  a: {kind: image, shape: [2, 2, 1], role: label, resize: bilinear}", `has role label and resize bilinear; expected nearest`},
		{"colours", "features:\n  a: {kind: image, shape: [2, 2, 3], convert_colors: 1}", `convert_colors is "1"; expected true or false`},
		{"length", "features:\n  a: {kind: text, max_length: 2}", `max_length is 2; expected 3 to 1048576`},
		{"length is text", "features:\n  a: {kind: text, max_length: many}", `max_length is "many"; expected a whole number`},
		{"special tokens", "features:\n  a: {kind: text, special_tokens: 1}", `special_tokens is "1"; expected true or false`},
		{"pair without special tokens", "features:\n  a: {kind: text, columns: [x, y], special_tokens: false}", `has two texts and no special tokens`},
		{"segments are a feature", "features:\n  a: {kind: text, segments: b}\n  b: {kind: number}", `feature "b" is declared twice, here and in line 2; expected different names`},
		{"two weights", "features:\n  a: {kind: number}\n  v: {role: weight}\n  w: {role: weight}", `s.yaml:4: features "v" and "w" both have role weight; expected one`},
		{"weight of text", "features:\n  a: {kind: number}\n  w: {kind: text, role: weight}", `has role weight; expected one number of dtype float32`},
		{"negative weight", "features:\n  a: {kind: number}\n  w: {role: weight, minimum: -1}", `has role weight and minimum -1; expected 0 or more`},
		{"id of a vector", "features:\n  a: {kind: number}\n  i: {kind: number, role: id, dtype: int64, shape: [2]}", `has role id; expected kind bytes, or one number of dtype int64`},
		{"bytes for a model", "features:\n  a: {kind: bytes}", `has kind bytes and role input; expected role id, because a model takes numbers`},
		{"no input", "features:\n  a: {kind: category, role: label}", `s.yaml:1: no feature has role input; expected one or more`},
		{"label is an input", "features:\n  a: {kind: number, column: x}\n  b: {kind: category, column: x, role: label}", `column "x" is of feature "a" and of feature "b", and only one of them is a label; expected different columns`},
		{"name of the row's number", "features:\n  example_id: {kind: number}", `feature "example_id" has role input; expected role id, or another name`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseSchema([]byte(tt.schema), "s.yaml")
			if !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "s.yaml") {
				t.Errorf("got\n%v\nexpected a usage error with\n%s", err, tt.want)
			}
		})
	}
}

func TestSchemaDefaults(t *testing.T) {
	s, err := parseSchema([]byte(`
features:
  pixels: {kind: number, columns: "p{08..11}", dtype: uint8, shape: [2, 2, 1]}
  sizes: {kind: number, columns: [a, "b{1..2}"]}
  digit: {kind: category, role: label, categories: [1, no, 2.0]}
  words: {kind: text}
  weight: {role: weight}
  name: {role: id}
`), "s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range s.features {
		got = append(got, fmt.Sprint(f.name, " ", f.kind, " ", f.role, " ", f.dtype, " ", f.shape, " ", f.columns, " ", f.categories))
	}
	want := []string{
		"pixels number input uint8 [2, 2, 1] [p08 p09 p10 p11] []",
		"sizes number input float32 [3] [a b1 b2] []",
		"digit category label int64 [] [digit] [1 no 2.0]",
		"words text input int64 [null] [words] []",
		"weight number weight float32 [] [weight] []",
		"name bytes id string [] [name] []",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// FuzzSchema checks that a schema is refused in words, or means the same when it is used.
func FuzzSchema(f *testing.F) {
	f.Add("features: {a: {kind: number, columns: 'x{0..3}', shape: [2, 2], minimum: 0, missing: 1}}", "1.5")
	f.Add("features: {a: {kind: category, categories: [x, y], unknown: z, shape: [null], separator: ','}}", "x, y")
	f.Add("features:\n  a: &a {kind: number, dtype: uint8}\n  b: *a\n", "[1, 2]")
	f.Add("features: {t: {kind: text, segments: s}, w: {role: weight}, i: {role: id}, m: {kind: image, shape: [1, 1, 3]}}", "")
	f.Fuzz(func(t *testing.T, data, cellText string) {
		if len(data) > 1<<12 {
			return
		}
		s, err := parseSchema([]byte(data), "s.yaml")
		if err != nil {
			if !errors.Is(err, fault.Usage) || !strings.HasPrefix(err.Error(), "s.yaml:") {
				t.Fatalf("%q: %v", data, err)
			}
			return
		}
		for _, f := range s.features {
			if n, ok := f.shape.elements(); !ok || n < 1 || len(f.columns) == 0 {
				t.Fatalf("%q: feature %q has %d values in %d columns", data, f.name, n, len(f.columns))
			}
			if f.kind != KindNumber && f.kind != KindCategory || len(f.columns) > 16 || f.dtype == "uint8" && f.shape.String() > "[9" {
				continue
			}
			if n, _ := f.shape.elements(); n > 1<<10 {
				continue
			}
			m := &cellMaker{featureSchema: f, schema: "s.yaml", all: -1}
			c, reason := m.make(fieldsOf(cellText, len(f.columns)), false, "")
			if reason == "" && int64(m.value.Len()) != c.values && len(m.value.Bytes) == 0 {
				t.Fatalf("%q of %q: %d values, %d counted", cellText, data, m.value.Len(), c.values)
			}
			if n, _ := f.shape.elements(); reason == "" && !f.shape.open() && c.values != n {
				t.Fatalf("%q of %q: %d values for shape %v", cellText, data, c.values, f.shape)
			}
		}
	})
}

// FuzzImage checks that a file is refused in words or has as many pixels as its shape.
func FuzzImage(f *testing.F) {
	for _, format := range []string{"png", "jpeg"} {
		f.Add([]byte(picture(f, image.NewGray(image.Rect(0, 0, 3, 2)), format)), uint8(2), uint8(3), false)
		f.Add([]byte(picture(f, image.NewRGBA(image.Rect(0, 0, 2, 2)), format)), uint8(2), uint8(2), true)
	}
	f.Add([]byte("\x89PNG\r\n\x1a\n"), uint8(1), uint8(1), true)
	f.Fuzz(func(t *testing.T, data []byte, height, width uint8, rgb bool) {
		shape := Shape{int64(height%8) + 1, int64(width%8) + 1, 1}
		if rgb {
			shape[2] = 3
		}
		for _, resize := range []string{"", "bilinear", "antialias"} {
			r := newImageReader(&featureSchema{shape: shape, resize: resize, crop: height > 100, convertColors: resize != ""}, "")
			if reason := r.decode(data); reason == "" {
				if n, _ := shape.elements(); int64(len(r.pixels)) != n {
					t.Fatalf("%d pixels for shape %v", len(r.pixels), shape)
				}
			}
		}
	})
}
