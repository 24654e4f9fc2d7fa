package convert

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/pixels"
	"github.com/gorbit-ml/gorbit/internal/data/table"
)

// The kinds of a feature.
const (
	KindNumber   = "number"   // numbers of one or several columns
	KindCategory = "category" // the index of a cell's text among the feature's categories
	KindText     = "text"     // the ids of a text's tokens
	KindImage    = "image"    // the PNG or JPEG file whose path is the cell
	KindBytes    = "bytes"    // the cell's text itself
)

// The roles of a feature.
const (
	RoleInput  = "input"
	RoleLabel  = "label"
	RoleWeight = "weight" // the weight of the example, a number that is not negative
	RoleID     = "id"     // which example it is, for the user
)

var (
	allKinds  = []string{KindNumber, KindCategory, KindText, KindImage, KindBytes}
	allRoles  = []string{RoleInput, RoleLabel, RoleWeight, RoleID}
	allDTypes = []string{"float32", "int64", "int32", "uint8", "bool"}
)

// Limits of a schema.
const (
	maxSchema     = 4 << 20 // bytes
	maxColumns    = 1 << 20 // columns of a feature
	maxFeatures   = 4096
	maxElements   = 1 << 28 // numbers of a feature of fixed shape
	maxCategories = 1 << 20 // of an input; a label has at most maxLabels
)

// schema says which features records have, and of which columns of a table they are made.
type schema struct {
	path     string
	features []*featureSchema
}

// featureSchema is a feature of a schema.
type featureSchema struct {
	name, kind, role string
	line             int            // of the name in the file
	lines            map[string]int // of its keys
	dtype            string
	columns          []string
	shape            Shape

	minimum, maximum *float64
	missing          *string  // instead of an empty cell
	missingValues    []string // cells that are empty, too
	separator        string   // between the values of a cell; "" means space

	categories []string
	unknown    string // the category of all others; "" if there is none
	numbered   bool   // cells have the numbers of categories, and not their names
	byName     bool   // categories that are found are sorted by their bytes, also if all are numbers

	maxLength int
	segments  string // the feature that says which ids are of the second text; "" for none
	bare      bool   // without special tokens

	folder        string
	raw           bool
	resize        string // how images of another size are scaled; "" refuses them
	jpeg          string // what decodes JPEG files; "" is Go's library
	crop          bool   // to the proportions of the shape, before scaling
	convertColors bool
}

// readSchema reads a schema. An error in it is a usage error.
func readSchema(path string) (*schema, error) {
	data, err := vfs.ReadBounded(path, maxSchema)
	if err != nil {
		return nil, fmt.Errorf("convert: schema: %w", err)
	}
	return parseSchema(data, path)
}

// with returns the first feature of a role, or nil.
func (s *schema) with(role string) *featureSchema {
	for _, f := range s.features {
		if f.role == role {
			return f
		}
	}
	return nil
}

// numbers reports whether records get the number of their row: they do unless a feature has its name.
func (s *schema) numbers() bool {
	return !slices.ContainsFunc(s.features, func(f *featureSchema) bool { return f.name == ExampleID || f.segments == ExampleID })
}

// text returns the first feature of kind text, or nil.
func (s *schema) text() *featureSchema {
	for _, f := range s.features {
		if f.kind == KindText {
			return f
		}
	}
	return nil
}

// label returns the only label if it is one category, or nil.
func (s *schema) label() *featureSchema {
	var only *featureSchema
	for _, f := range s.features {
		if f.role == RoleLabel {
			if only != nil {
				return nil
			}
			only = f
		}
	}
	if only == nil || only.kind != KindCategory || len(only.shape) > 0 {
		return nil
	}
	return only
}

// check returns an error for features that contradict each other.
func (s *schema) check() error {
	columns := map[string]*featureSchema{}
	names := map[string]*featureSchema{}
	roles := map[string]*featureSchema{}
	for _, f := range s.features {
		for _, name := range []string{f.name, f.segments} {
			if other := names[name]; other != nil {
				return s.errorf(f.at("segments"), "feature %q is declared twice, here and in line %d; expected different names", name, other.line)
			}
			if name != "" {
				names[name] = f
			}
		}
		if f.role == RoleWeight || f.role == RoleID {
			if other := roles[f.role]; other != nil {
				return s.errorf(f.at("role"), "features %q and %q both have role %s; expected one", other.name, f.name, f.role)
			}
			roles[f.role] = f
		}
		for _, c := range f.columns {
			other := columns[c]
			if other != nil && (f.role == RoleLabel) != (other.role == RoleLabel) && f.role != RoleID && other.role != RoleID {
				return s.errorf(f.at("columns"), "column %q is of feature %q and of feature %q, and only one of them is a label; expected different columns", c, other.name, f.name)
			}
			if other == nil || other.role == RoleID {
				columns[c] = f
			}
		}
	}
	if s.with(RoleInput) == nil {
		return s.errorf(1, "no feature has role input; expected one or more")
	}
	if f := names[ExampleID]; f != nil && roles[RoleID] == nil {
		return s.errorf(f.line, "feature %q has role %s; expected role id, or another name, because records get the number of their row under this one", ExampleID, f.role)
	}
	return nil
}

// of names a feature and where it is described.
func (s *schema) of(f *featureSchema) string {
	if f.line == 0 {
		return fmt.Sprintf("feature %q of task %s", f.name, ImagesTask)
	}
	return fmt.Sprintf("feature %q of %s:%d", f.name, s.path, f.line)
}

func (s *schema) errorf(line int, format string, args ...any) error {
	return fault.Usagef("%s:%d: %s", s.path, line, fmt.Sprintf(format, args...))
}

// at returns the line of a key, or of the feature if it does not have the key.
func (f *featureSchema) at(key string) int {
	if line := f.lines[key]; line > 0 {
		return line
	}
	if key == "columns" && f.lines["column"] > 0 {
		return f.lines["column"]
	}
	return f.line
}

// given reports whether a feature has a key.
func (f *featureSchema) given(key string) bool { return f.lines[key] > 0 }

// keysOf are the keys that only features of some kinds have.
var keysOf = map[string][]string{
	"dtype":          {KindNumber},
	"minimum":        {KindNumber},
	"maximum":        {KindNumber},
	"missing":        {KindNumber, KindCategory},
	"missing_values": {KindNumber, KindCategory, KindBytes},
	"separator":      {KindNumber, KindCategory},
	"shape":          {KindNumber, KindCategory, KindImage},
	"categories":     {KindCategory},
	"unknown":        {KindCategory},
	"max_length":     {KindText},
	"segments":       {KindText},
	"special_tokens": {KindText},
	"folder":         {KindImage},
	"encoding":       {KindImage},
	"resize":         {KindImage},
	"jpeg":           {KindImage},
	"convert_colors": {KindImage},

	"crop_to_aspect_ratio": {KindImage},
}

// complete fills in what is not given and returns an error for what contradicts itself.
func (f *featureSchema) complete(s *schema) error {
	fail := func(key, format string, args ...any) error {
		return s.errorf(f.at(key), "feature %q: %s", f.name, fmt.Sprintf(format, args...))
	}
	if f.kind == "" {
		switch f.role {
		case RoleWeight:
			f.kind = KindNumber
		case RoleID:
			f.kind = KindBytes
		default:
			return fail("", "has no kind; expected one of %s", strings.Join(allKinds, ", "))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keysOf)) {
		if kinds := keysOf[key]; f.given(key) && !slices.Contains(kinds, f.kind) {
			return fail(key, "has kind %s and %s, which is for kind %s; leave out one of them", f.kind, key, strings.Join(kinds, " and "))
		}
	}
	if f.given("column") && f.given("columns") {
		return fail("column", "has column and columns; expected one of them")
	}
	if f.columns == nil {
		f.columns = []string{f.name}
	}
	f.role = cmp.Or(f.role, RoleInput)
	most := 1
	switch f.kind {
	case KindNumber:
		most = maxColumns
	case KindText:
		most = 2
	}
	if len(f.columns) > most {
		return fail("columns", "has kind %s and %d columns; expected at most %d", f.kind, len(f.columns), most)
	}
	switch f.kind {
	case KindNumber:
		f.dtype = cmp.Or(f.dtype, "float32")
	case KindCategory:
		f.dtype = "int64"
	case KindText:
		f.dtype, f.shape = "int64", Shape{-1}
	case KindImage:
		f.dtype = "uint8"
	case KindBytes:
		f.dtype = "string"
	}
	for _, check := range []func(func(string, string, ...any) error) error{f.checkRole, f.checkShape, f.checkNumber, f.checkCategories, f.checkText, f.checkImage} {
		if err := check(fail); err != nil {
			return err
		}
	}
	return nil
}

func (f *featureSchema) checkRole(fail func(string, string, ...any) error) error {
	switch {
	case f.role == RoleWeight && (f.kind != KindNumber || f.dtype != "float32" || len(f.columns) > 1 || f.given("shape")):
		return fail("role", "has role weight; expected one number of dtype float32")
	case f.role == RoleID && f.kind != KindBytes && (f.kind != KindNumber || f.dtype != "int64" || len(f.columns) > 1 || f.given("shape")):
		return fail("role", "has role id; expected kind bytes, or one number of dtype int64")
	case f.role != RoleID && f.kind == KindBytes:
		return fail("role", "has kind bytes and role %s; expected role id, because a model takes numbers", f.role)
	case f.role == RoleLabel && f.kind == KindImage:
		return nil
	case f.role == RoleWeight && f.minimum == nil:
		f.minimum = new(float64)
	case f.role == RoleWeight && *f.minimum < 0:
		return fail("minimum", "has role weight and minimum %v; expected 0 or more", *f.minimum)
	}
	return nil
}

// checkShape checks the shape, which is that of the columns if none is given.
func (f *featureSchema) checkShape(fail func(string, string, ...any) error) error {
	if f.kind == KindImage {
		if s := f.shape; len(s) != 3 || s.open() || s[2] != 1 && s[2] != 3 {
			return fail("shape", "has shape %v; expected that of the image, [HEIGHT, WIDTH, CHANNELS] with 1 channel (gray) or 3 (RGB)", s)
		}
	}
	if f.kind == KindNumber && !f.given("shape") && len(f.columns) > 1 {
		f.shape = Shape{int64(len(f.columns))}
	}
	for i, n := range f.shape {
		if n == -1 && i > 0 {
			return fail("shape", "has shape %v; expected null as the first size only", f.shape)
		}
	}
	n, ok := f.shape.elements()
	if !ok {
		return fail("shape", "has shape %v; expected at most %d values", f.shape, maxElements)
	}
	if len(f.columns) > 1 && f.kind == KindNumber && (f.shape.open() || n != int64(len(f.columns))) {
		return fail("shape", "has shape %v and %d columns; expected a shape of %d values", f.shape, len(f.columns), len(f.columns))
	}
	if f.given("separator") && (len(f.columns) > 1 || len(f.shape) == 0) {
		return fail("separator", "has a separator and shape %v from %s; expected a shape such as [null] or [3] from one column of lists", f.shape, table.Count(len(f.columns), "column"))
	}
	return nil
}

// list reports whether a cell has a list of values.
func (f *featureSchema) list() bool {
	return len(f.columns) == 1 && len(f.shape) > 0 && (f.kind == KindNumber || f.kind == KindCategory)
}

// checkNumber checks bounds and the value of missing cells.
func (f *featureSchema) checkNumber(fail func(string, string, ...any) error) error {
	if f.kind != KindNumber {
		return nil
	}
	if f.dtype == "bool" && (f.minimum != nil || f.maximum != nil) {
		return fail("dtype", "has dtype bool and bounds; leave out one of them")
	}
	low, high := f.bounds()
	for i, key := range []string{"minimum", "maximum"} {
		if bound := []*float64{f.minimum, f.maximum}[i]; bound != nil && (*bound < low || *bound > high || f.dtype != "float32" && *bound != math.Trunc(*bound)) {
			return fail(key, "has dtype %s and %s %v; expected a number of that dtype", f.dtype, key, *bound)
		}
	}
	if f.minimum != nil && f.maximum != nil && *f.minimum > *f.maximum {
		return fail("maximum", "has minimum %v and maximum %v; expected a maximum that is not less", *f.minimum, *f.maximum)
	}
	if f.missing != nil {
		if _, reason := f.number(*f.missing); reason != "" {
			return fail("missing", "missing is %q; %s", *f.missing, reason)
		}
	}
	return nil
}

func (f *featureSchema) checkCategories(fail func(string, string, ...any) error) error {
	if f.kind != KindCategory {
		return nil
	}
	most := maxCategories
	if f.role == RoleLabel {
		most = maxLabels
	}
	switch {
	case f.given("categories") && len(f.categories) == 0:
		return fail("categories", "has no categories; expected one or more, or leave out the key to take those of the train split")
	case len(f.categories) > most:
		return fail("categories", "has %d categories; expected at most %d", len(f.categories), most)
	case f.unknown != "" && f.role == RoleLabel:
		return fail("unknown", "has role label and a category for unknown ones; leave it out, because such a label teaches nothing")
	case f.unknown != "" && slices.Contains(f.categories, f.unknown):
		return fail("unknown", "unknown is %q, which is one of the categories; expected another name", f.unknown)
	case f.missing != nil && f.categories != nil && *f.missing != f.unknown && !slices.Contains(f.categories, *f.missing):
		return fail("missing", "missing is %q; expected one of %s%s", *f.missing, table.List(f.categories), table.DidYouMean(*f.missing, f.categories))
	}
	return nil
}

func (f *featureSchema) checkText(fail func(string, string, ...any) error) error {
	switch {
	case f.kind != KindText:
		return nil
	case f.given("max_length") && (f.maxLength < 3 || f.maxLength > maxMaxLength):
		return fail("max_length", "max_length is %d; expected 3 to %d", f.maxLength, maxMaxLength)
	case f.bare && len(f.columns) > 1:
		return fail("special_tokens", "has two texts and no special tokens; expected one text, because nothing would stand between two")
	case f.bare && f.segments != "":
		return fail("segments", "has segments and no special tokens; leave out one of them")
	}
	return nil
}

// checkImage checks how an image of another form becomes one of the shape. Its pixels are kept then.
func (f *featureSchema) checkImage(fail func(string, string, ...any) error) error {
	changed := f.resize != "" || f.convertColors
	switch {
	case f.kind != KindImage:
		return nil
	case f.crop && f.resize == "":
		return fail("crop_to_aspect_ratio", "has crop_to_aspect_ratio and no resize; expected how images are scaled, as \"resize: bilinear\"")
	case changed && f.given("encoding") && !f.raw:
		return fail("encoding", "has encoding file, and images are changed; expected encoding raw, because what is kept is no longer the file")
	case f.role == RoleLabel && f.resize != "" && f.resize != string(pixels.Nearest):
		return fail("resize", "has role label and resize %s; expected %s, which makes no new values", f.resize, pixels.Nearest)
	}
	f.raw = f.raw || changed
	return nil
}

// bounds returns the least and the greatest number of the dtype.
func (f *featureSchema) bounds() (low, high float64) {
	switch f.dtype {
	case "int32":
		return math.MinInt32, math.MaxInt32
	case "int64":
		return math.MinInt64, math.MaxInt64
	case "uint8":
		return 0, math.MaxUint8
	case "bool":
		return 0, 1
	}
	return -math.MaxFloat32, math.MaxFloat32
}

// value is a number as it is stored: whole for all dtypes but float32.
type value struct {
	real  float32
	whole int64
}

// float returns the number for comparisons and statistics.
func (f *featureSchema) float(v value) float64 {
	if f.dtype == "float32" {
		return float64(v.real)
	}
	return float64(v.whole)
}

// number returns the number of a text, or what was expected instead.
func (f *featureSchema) number(s string) (v value, reason string) {
	low, high := f.bounds()
	switch f.dtype {
	case "float32":
		x, err := strconv.ParseFloat(s, 32)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) || strings.ContainsAny(s, "xX_") {
			return v, "expected a finite number"
		}
		v.real = float32(x)
	case "bool":
		switch strings.ToLower(s) {
		case "1", "true":
			v.whole = 1
		case "0", "false":
		default:
			return v, "expected 0, 1, true or false"
		}
	default:
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			// Programs write columns with missing values as fractions: 3.0.
			x, err := strconv.ParseFloat(s, 64)
			if err != nil || x != math.Trunc(x) || math.Abs(x) > 1<<53 || strings.ContainsAny(s, "xX_") {
				return v, "expected a whole number"
			}
			n = int64(x)
		}
		if v.whole = n; float64(n) < low || float64(n) > high {
			return v, fmt.Sprintf("expected %.0f to %.0f, the numbers of dtype %s", low, high, f.dtype)
		}
	}
	x := f.float(v)
	switch {
	case f.minimum != nil && f.maximum != nil && (x < *f.minimum || x > *f.maximum):
		return v, fmt.Sprintf("expected %v to %v", *f.minimum, *f.maximum)
	case f.minimum != nil && x < *f.minimum:
		return v, fmt.Sprintf("expected %v or more", *f.minimum)
	case f.maximum != nil && x > *f.maximum:
		return v, fmt.Sprintf("expected %v or less", *f.maximum)
	}
	return v, ""
}
