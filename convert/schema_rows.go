package convert

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/pixels"
	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// schemaRows is the maker of records by a schema.
type schemaRows struct {
	cfg       *Config
	schema    *schema
	tokenizer *text.Tokenizer
	ids       []map[string]int64 // of each feature's categories
	all       []int64            // the id of all other categories, or -1
}

// newSchemaRows returns the maker for a schema, and describes it in the manifest.
func newSchemaRows(ctx context.Context, c *conversion) (*schemaRows, error) {
	s := &schemaRows{cfg: c.cfg, schema: c.schema, tokenizer: c.tokenizer}
	if err := s.collect(ctx); err != nil {
		return nil, err
	}
	for _, f := range s.schema.features {
		if f.kind == KindImage {
			if name := pixels.Fastest(); f.jpeg == "" && name != pixels.Go {
				f.jpeg = name
			}
			if _, err := pixels.DecoderOf(f.jpeg); err != nil {
				return nil, s.schema.errorf(f.at("jpeg"), "feature %q decodes %v", f.name, err)
			}
		}
		ids, all := make(map[string]int64, len(f.categories)), int64(-1)
		for i, name := range f.categories {
			if f.numbered {
				name = strconv.Itoa(i)
			}
			ids[name] = int64(i)
		}
		if f.unknown != "" {
			all = int64(len(f.categories))
			ids[f.unknown] = all
			f.categories = append(f.categories, f.unknown)
		}
		if f.missing != nil && f.kind == KindCategory {
			if _, ok := ids[*f.missing]; !ok {
				return nil, s.schema.errorf(f.at("missing"), "feature %q: missing is %q, which is not a category of the train split; expected one of %s", f.name, *f.missing, table.List(f.categories))
			}
		}
		s.ids, s.all = append(s.ids, ids), append(s.all, all)
		if f.kind == KindText {
			f.maxLength = cmp.Or(f.maxLength, c.cfg.MaxLength)
			c.manifest.MaxLength = max(c.manifest.MaxLength, f.maxLength)
		}
		c.manifest.Features = append(c.manifest.Features, f.manifest()...)
	}
	if s.schema.numbers() {
		c.manifest.Features = append(c.manifest.Features, Feature{Name: ExampleID, Kind: KindNumber, DType: "int64", Shape: Shape{}, Role: RoleID})
	}
	if l := s.schema.label(); l != nil {
		c.manifest.Labels = slices.Clone(l.categories)
	}
	return s, nil
}

// manifest describes the feature, and that of its segments if there is one.
func (f *featureSchema) manifest() []Feature {
	m := Feature{Name: f.name, Kind: f.kind, DType: f.dtype, Shape: append(Shape{}, f.shape...), Role: f.role,
		Categories: f.categories, Unknown: f.unknown != "", Columns: f.columns,
		Missing: f.missing, MissingValues: f.missingValues, Separator: f.separator}
	if f.kind == KindImage {
		m.Encoding = "file"
		if f.raw {
			m.Encoding = "raw"
		}
		m.JPEG, m.Resize, m.CropToAspectRatio, m.ConvertColors = f.jpeg, f.resize, f.crop, f.convertColors
	}
	if f.kind == KindText {
		m.MaxLength, m.Bare, m.Segments = f.maxLength, f.bare, f.segments
	}
	if f.segments == "" {
		return []Feature{m}
	}
	second := m
	second.MaxLength, second.Segments = 0, ""
	second.Name, second.Kind, second.Columns = f.segments, KindNumber, nil
	return []Feature{m, second}
}

// chunkBytesOfImages is about how many bytes of images are worked on at a time.
const chunkBytesOfImages = 4 << 20

func (s *schemaRows) chunkRows() int {
	bytes := int64(1)
	for _, f := range s.schema.features {
		if f.kind == KindImage {
			n, _ := f.shape.elements()
			bytes += maxImage(n) / 16
		}
	}
	return int(max(1, min(chunkRows, chunkBytesOfImages/bytes)))
}

// columns returns the columns of all features, one after the other.
func (s *schemaRows) columns(in Input) []table.Column {
	var columns []table.Column
	for _, f := range s.schema.features {
		for _, name := range f.columns {
			columns = append(columns, table.Column{
				Name:     name,
				Words:    f.kind == KindText || f.kind == KindImage,
				Lists:    f.list(),
				Nulls:    f.missing != nil,
				Optional: s.optional(f, in.Split),
				Files:    f.kind == KindImage,
				Flag:     s.flagOf(f),
			})
		}
	}
	return columns
}

// flagOf says where the columns of a feature are chosen.
func (s *schemaRows) flagOf(f *featureSchema) string {
	switch {
	case !s.cfg.images():
		return fmt.Sprintf("\"columns:\" of feature %q in %s:%d", f.name, s.schema.path, f.at("columns"))
	case f.kind == KindImage:
		return "--image-column"
	}
	return "--label-column"
}

// optional reports whether the rows of a split need not have a feature: labels and weights, outside
// of training and evaluation.
func (s *schemaRows) optional(f *featureSchema, split string) bool {
	return !needsLabels(split) && (f.role == RoleLabel || f.role == RoleWeight)
}

func (s *schemaRows) worker(in *inputFile) func(*chunk, *row, []table.Field) {
	w := &schemaWorker{s: s, in: in, isInput: map[string]bool{}}
	first := 0
	base := vfs.Dir(in.Path)
	if _, ok := s.cfg.folders[in.Path]; ok { // the folder is the table
		base = in.Path
	}
	for i, f := range s.schema.features {
		folder := f.folder
		if !vfs.IsAbs(folder) { // relative to the table, as paths without a folder are
			folder = vfs.Join(base, folder)
		}
		w.makers = append(w.makers, &cellMaker{featureSchema: f, schema: s.schema.path, first: first, ids: s.ids[i], all: s.all[i], tokenizer: s.tokenizer})
		w.folders = append(w.folders, folder)
		w.isInput[f.name] = f.role == RoleInput
		w.optional = append(w.optional, s.optional(f, in.Split))
		first += len(f.columns)
	}
	w.number = s.schema.numbers()
	return w.encode
}

// schemaWorker makes records in one goroutine.
type schemaWorker struct {
	s        *schemaRows
	in       *inputFile
	makers   []*cellMaker
	folders  []string
	optional []bool
	number   bool // whether records get the number of their row
	features []tfrecord.Feature
	inputs   []tfrecord.Feature
	isInput  map[string]bool
	record   []byte
}

// encode makes the record of a row and appends it to the chunk's data.
func (w *schemaWorker) encode(k *chunk, r *row, fields []table.Field) {
	w.features = w.features[:0]
	r.cells = len(k.cells)
	picks := len(k.picks)
	fail := func(reason string) {
		k.cells, k.picks = k.cells[:r.cells], k.picks[:picks]
		r.bad = &RowError{w.in.Path, r.line, reason}
	}
	for i, m := range w.makers {
		c, reason := m.make(fields, w.optional[i], w.folders[i])
		if reason != "" {
			if m.unread != nil {
				k.unread = fmt.Errorf("%s:%d: column %q: %w", w.in.Path, r.line, m.columns[0], m.unread)
			}
			fail(reason)
			return
		}
		k.picks = append(k.picks, m.picks...)
		c.picks = len(k.picks)
		k.cells = append(k.cells, c)
		if !c.present {
			continue
		}
		w.features = append(w.features, tfrecord.Feature{Name: m.name, Value: m.value})
		if m.segments.Kind != tfrecord.KindNone {
			w.features = append(w.features, tfrecord.Feature{Name: m.featureSchema.segments, Value: m.segments})
		}
		if m.kind == KindText && m.featureSchema == w.s.schema.text() {
			r.length, r.truncated = len(m.encoding.IDs), m.encoding.Truncated
		}
	}
	if w.number {
		w.features = append(w.features, tfrecord.Int64Feature(ExampleID, w.in.number+r.number))
	}
	slices.SortFunc(w.features, func(a, b tfrecord.Feature) int { return strings.Compare(a.Name, b.Name) })
	var err error
	if w.record, err = tfrecord.AppendExample(w.record[:0], w.features...); err != nil {
		fail(err.Error())
		return
	}
	k.data = tfrecord.AppendRecord(k.data, w.record)
	w.inputs = w.inputs[:0]
	for _, f := range w.features {
		if w.isInput[f.Name] {
			w.inputs = append(w.inputs, f)
		}
	}
	if w.record, err = tfrecord.AppendExample(w.record[:0], w.inputs...); err != nil {
		fail(err.Error())
		return
	}
	r.content = xxhash.Sum64(w.record)
}

func (s *schemaRows) count(split *Split, k *chunk, r *row) {
	s.begin(split)
	if s.schema.text() != nil {
		split.addTokens(r.length, r.truncated)
	}
	for i, f := range s.schema.features {
		c := &k.cells[r.cells+i]
		start := 0
		if at := r.cells + i; at > 0 {
			start = k.cells[at-1].picks
		}
		split.Features[f.name].add(f, c, k.picks[start:c.picks])
	}
}

// begin makes the statistics of a split.
func (s *schemaRows) begin(split *Split) {
	if split.Features != nil {
		return
	}
	split.Features = map[string]*Statistics{}
	for _, f := range s.schema.features {
		split.Features[f.name] = &Statistics{}
		if f.kind == KindCategory {
			split.Features[f.name].Counts = make([]int64, len(f.categories))
		}
	}
}

func (s *schemaRows) finish(split *Split) {
	s.begin(split)
	split.meanLength()
	for _, f := range s.schema.features {
		split.Features[f.name].finish(f)
	}
	if l := s.schema.label(); l != nil {
		split.LabelCounts = slices.Clone(split.Features[l.name].Counts)
	}
}

// collect collects the categories that the schema does not list from the train split, or from all
// splits if there is none.
func (s *schemaRows) collect(ctx context.Context) error {
	var open []*featureSchema
	var columns []table.Column
	for _, f := range s.schema.features {
		if f.kind == KindCategory && !f.given("categories") {
			open = append(open, f)
			columns = append(columns, table.Column{Name: f.columns[0], Lists: f.list(), Nulls: f.missing != nil, Flag: s.flagOf(f)})
		}
	}
	if len(open) == 0 {
		return nil
	}
	if err := checkTwice(s.cfg, "categories of "+s.schema.of(open[0])); err != nil {
		return err
	}
	seen := make([]map[string]bool, len(open))
	for i := range seen {
		seen[i] = map[string]bool{}
	}
	rows := 0
	for _, in := range s.cfg.Inputs {
		if s.cfg.has(Train) && in.Split != Train {
			continue
		}
		for i := range columns {
			columns[i].Optional = s.optional(open[i], in.Split)
		}
		n, err := s.collectFrom(ctx, in, columns, open, seen)
		if err != nil {
			return err
		}
		rows += n
	}
	for i, f := range open {
		if err := s.collected(f, seen[i], rows); err != nil {
			return err
		}
	}
	return nil
}

// collected sets the categories that were found.
func (s *schemaRows) collected(f *featureSchema, seen map[string]bool, rows int) error {
	if f.unknown != "" {
		delete(seen, f.unknown)
	}
	if len(seen) == 0 {
		return fault.Damagedf("convert: column %q has no categories for %s", f.columns[0], s.schema.of(f))
	}
	if f.categories = inOrder(seen); f.byName {
		f.categories = slices.Sorted(maps.Keys(seen))
	}
	if f.role != RoleLabel {
		return nil
	}
	reason, list := noLabels(seen, rows), "with \"categories:\" of a schema (--schema)"
	switch {
	case f.line == 0 && reason != "":
		return fault.Usagef("convert: column %q has %d different values in %d rows%s; expected classes; choose another one with --label-column", f.columns[0], len(seen), rows, reason)
	case reason != "":
		return s.schema.errorf(f.line, "feature %q has %d different values in %d rows%s; expected labels; list them with \"categories:\", or choose kind number", f.name, len(seen), rows, reason)
	}
	if f.line > 0 {
		list = fmt.Sprintf("with \"categories:\" in %s:%d", s.schema.path, f.line)
	}
	return refuseAlike(f.columns[0], f.categories, list)
}

// collectFrom adds the categories of a file and returns its number of rows.
func (s *schemaRows) collectFrom(ctx context.Context, in Input, columns []table.Column, open []*featureSchema, seen []map[string]bool) (rows int, err error) {
	t, err := openTable(ctx, s.cfg, in.Path, columns, nil)
	if err != nil {
		return 0, err
	}
	defer t.Close()
	newWorker := func() func(*chunk, *row, []table.Field) {
		var makers []*cellMaker
		for _, f := range open {
			makers = append(makers, &cellMaker{featureSchema: f, collect: true})
		}
		return func(k *chunk, r *row, fields []table.Field) {
			r.cells = len(k.values)
			for i, m := range makers {
				for _, v := range m.texts(fields[i]) {
					k.values = append(k.values, found{i, v})
				}
			}
			r.picks = len(k.values)
		}
	}
	err = each(ctx, t, s.cfg.Workers, chunkRows, newWorker, func(k *chunk) error {
		for i := range k.rows {
			r := &k.rows[i]
			if r.bad != nil {
				if s.cfg.SkipBadRows {
					continue
				}
				return r.bad
			}
			rows++
			for _, v := range k.values[r.cells:r.picks] {
				if seen[v.feature][v.text] {
					continue
				}
				f, most := open[v.feature], maxCategories
				if f.role == RoleLabel {
					most = maxLabels
				}
				if len(seen[v.feature]) == most {
					return &RowError{in.Path, r.line, fmt.Sprintf("column %q has more than %d different categories, the most for %s; expected fewer, or another kind", f.columns[0], most, s.schema.of(f))}
				}
				seen[v.feature][strings.Clone(v.text)] = true // not the whole row
			}
		}
		if k.err != io.EOF {
			return k.err
		}
		return nil
	})
	return rows, err
}

// found is a category of a row.
type found struct {
	feature int
	text    string
}

// texts returns the categories of a cell; none of one that is empty or damaged.
func (m *cellMaker) texts(field table.Field) []string {
	m.parts = m.parts[:0]
	if m.isMissing(field) {
		return nil
	}
	s := strings.TrimSpace(field.Text)
	if !m.list() {
		return append(m.parts, s)
	}
	var c cell
	if m.listOf(s, &c) != "" {
		m.parts = m.parts[:0] // the conversion will say why
	}
	return m.parts
}
