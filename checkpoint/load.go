package checkpoint

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/gguf"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// Source is a set of named tensors to load weights from. [Bundle], [Safetensors] and [GGUF] are
// sources.
type Source interface {
	Path() string
	Entries() []Entry
	// Resolve finds the entry for a name that is not the entry's own name.
	Resolve(name string) (entry string, ok bool)
	Read(ctx context.Context, names ...string) (map[string]*tf.Tensor, error)
}

// OpenSource opens initial weights: a file of safetensors or GGUF, a checkpoint by its prefix or
// index file, or a folder that contains one of these (the newest checkpoint,
// variables/variables of a SavedModel, model.safetensors or its index). If err is nil, close is not.
func OpenSource(path string, opts ...Option) (src Source, close func() error, err error) {
	info, err := vfs.Stat(path)
	if err == nil && info.IsDir() {
		return openSourceDir(path, opts...)
	}
	if err != nil {
		if _, missing := vfs.Stat(IndexPath(path)); missing != nil {
			return nil, nil, fmt.Errorf("open weights: %w", err)
		}
		return openSourceBundle(path, opts...)
	}
	if prefix, ok := strings.CutSuffix(path, ".index"); ok {
		return openSourceBundle(prefix, opts...)
	}
	if i := strings.LastIndex(path, ".data-"); i >= 0 {
		if _, err := vfs.Stat(IndexPath(path[:i])); err == nil {
			return openSourceBundle(path[:i], opts...)
		}
	}
	if IsTable(path) {
		return nil, nil, v1Error(path)
	}
	if gguf.Looks(path) {
		g, err := OpenGGUF(path)
		if err != nil {
			return nil, nil, err
		}
		return g, g.Close, nil
	}
	if kind, advice := foreignKind(path); kind != "" {
		return nil, nil, fmt.Errorf("open weights: %s is %s; expected a checkpoint, safetensors or GGUF; %s", path, kind, advice)
	}
	s, err := OpenSafetensors(path)
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}

func openSourceBundle(prefix string, opts ...Option) (Source, func() error, error) {
	b, err := OpenBundle(prefix, opts...)
	if err != nil {
		return nil, nil, err
	}
	return b, func() error { return nil }, nil
}

func openSourceDir(dir string, opts ...Option) (Source, func() error, error) {
	data, err := vfs.ReadFile(filepath.Join(dir, StateName))
	if fault.OfMachine(err) {
		return nil, nil, fmt.Errorf("open weights: %w", err)
	}
	if err == nil {
		if state, err := parseState(data); err == nil && state.latest != "" {
			prefix := state.latest
			if !filepath.IsAbs(prefix) {
				prefix = filepath.Join(dir, prefix)
			}
			if _, err := vfs.Stat(IndexPath(prefix)); err != nil {
				// The folder has been moved.
				prefix = filepath.Join(dir, filepath.Base(prefix))
			}
			if IsTable(prefix) {
				return nil, nil, v1Error(prefix)
			}
			return openSourceBundle(prefix, opts...)
		}
	}
	for _, prefix := range []string{filepath.Join(dir, "variables", "variables"), filepath.Join(dir, "variables")} {
		_, err := vfs.Stat(IndexPath(prefix))
		if fault.OfMachine(err) {
			return nil, nil, fmt.Errorf("open weights: %w", err)
		}
		if err == nil {
			return openSourceBundle(prefix, opts...)
		}
	}
	path, index := filepath.Join(dir, "model.safetensors"), filepath.Join(dir, "model"+shardsSuffix)
	whole := exists(path) || !exists(index)
	if !whole {
		path = index
	}
	s, err := OpenSafetensors(path)
	if whole && errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("open weights: %s has no checkpoint, SavedModel or model.safetensors", dir)
	}
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}

func v1Error(path string) error {
	return fmt.Errorf("open weights: %s is a checkpoint in TensorFlow 1's V1 format; expected V2 or safetensors; convert it with "+
		`python -c "%s" %[1]s %[1]s-v2`, path, convertV1)
}

// convertV1 is a Python program that converts a checkpoint from the V1 to the V2 format.
const convertV1 = `import sys, tensorflow as tf; r = tf.train.load_checkpoint(sys.argv[1]); n = sorted(r.get_variable_to_shape_map()); ` +
	`tf.raw_ops.SaveV2(prefix=sys.argv[2], tensor_names=n, shape_and_slices=[''] * len(n), tensors=[r.get_tensor(k) for k in n])`

// IsTable reports whether a file ends as the index of a bundle does. So does a checkpoint that
// TensorFlow 1 wrote in its V1 format as one file: a table like the index, with the tensors in it.
func IsTable(path string) bool {
	f, err := vfs.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() < tableFooter {
		return false
	}
	var magic [8]byte
	_, err = f.ReadAt(magic[:], info.Size()-int64(len(magic)))
	return err == nil && binary.LittleEndian.Uint64(magic[:]) == tableMagic
}

// foreignKind recognises unsupported files that users may try to load, and says what to do with them.
func foreignKind(path string) (kind, advice string) {
	const save, keras = "save it as safetensors", "if it is of a Keras model, export that with --weights, otherwise save it as safetensors"
	f, err := vfs.Open(path)
	if err != nil {
		return "", ""
	}
	defer f.Close()
	var head [8]byte
	n, _ := io.ReadFull(f, head[:])
	switch start := string(head[:n]); {
	case filepath.Ext(path) == ".keras":
		return "an archive of Keras", keras
	case strings.HasPrefix(start, "PK\x03\x04"), strings.HasPrefix(start, "\x80\x02"):
		return "a PyTorch pickle or another archive", save
	case strings.HasPrefix(start, "\x89HDF\r\n"):
		return "an HDF5 file", keras
	}
	return "", ""
}

// Wanted is a variable to be filled.
type Wanted struct {
	Name  string // its path in checkpoints of this model
	DType tf.DataType
	Shape []int64
	// Foreign lists the names it may have in other sources, the best first.
	Foreign []Candidate
}

// Candidate is a name that a variable may have in weights from other sources.
type Candidate struct {
	Name      string
	Transpose bool // whether the matrix is stored there with its axes swapped
	// Reshape means that an axis may be stored there as several that follow each other, such as
	// heads and their width. It does not go with Transpose.
	Reshape bool
}

// Match is a variable that was filled.
type Match struct {
	Name       string
	Source     Entry // the entry it was filled from
	Transposed bool
}

// Mismatch is a variable whose stored tensor does not fit.
type Mismatch struct {
	Want       Wanted
	Source     Entry
	Transposed bool // whether the stored tensor had to be transposed first
}

// LoadReport says what happened to each variable and each stored tensor.
type LoadReport struct {
	Path       string
	Matched    []Match
	Missing    []Wanted
	Mismatched []Mismatch
	Unused     []Entry
	// Prefix is what the file's names have in front of the candidates, such as
	// "bert."; Stripped is what the candidates have in front of the file's names.
	Prefix, Stripped string
	// Unverified says that the file has no checksums, so that changed bytes would not be noticed.
	Unverified bool
}

// LoadError reports weights that do not fill all variables.
type LoadError struct{ Report *LoadReport }

func (e *LoadError) Error() string {
	r := e.Report
	if len(r.Matched) == 0 && len(r.Mismatched) == 0 {
		return fmt.Sprintf("%s: has none of the %d variables (it has %s)", r.Path, len(r.Missing), abbreviate(plains(entryNames(r.Unused))))
	}
	var parts []string
	if n := len(r.Missing); n > 0 {
		list := make([]string, n)
		for i, w := range r.Missing {
			list[i] = w.Name
		}
		parts = append(parts, fmt.Sprintf("%d variables are missing (%s)", n, abbreviate(list)))
	}
	if n := len(r.Mismatched); n > 0 {
		list := make([]string, n)
		for i, m := range r.Mismatched {
			list[i] = fmt.Sprintf("%s is %s; expected %s for %s", m.Source.Name, m.sourceType(), m.Want.typeString(), m.Want.Name)
		}
		parts = append(parts, fmt.Sprintf("%d variables do not fit (%s)", n, abbreviate(list)))
	}
	return fmt.Sprintf("%s: %s", r.Path, strings.Join(parts, "; "))
}

func entryNames(list []Entry) []string {
	names := make([]string, len(list))
	for i, e := range list {
		names[i] = e.Name
	}
	return names
}

// candidates lists all names of w, its own first.
func (w Wanted) candidates() []Candidate {
	return append([]Candidate{{Name: w.Name}}, w.Foreign...)
}

func (w Wanted) typeString() string { return DTypeName(w.DType) + shapeString(w.Shape) }

func (m Mismatch) sourceType() string {
	if m.Transposed {
		return m.Source.typeString() + " transposed"
	}
	return m.Source.typeString()
}

// Strict returns a [LoadError] unless all variables were filled.
func (r *LoadReport) Strict() error {
	if len(r.Missing) == 0 && len(r.Mismatched) == 0 {
		return nil
	}
	return &LoadError{r}
}

// Summary returns the first line of the report.
func (r *LoadReport) Summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d matched, %d missing, %d mismatched, %d unused", r.Path,
		len(r.Matched), len(r.Missing), len(r.Mismatched), len(r.Unused))
	if r.Prefix != "" {
		fmt.Fprintf(&b, " (names there begin with %q)", r.Prefix)
	}
	if r.Stripped != "" {
		fmt.Fprintf(&b, " (names there lack %q)", r.Stripped)
	}
	return b.String()
}

// String lists each tensor on a line of its own.
func (r *LoadReport) String() string {
	var b strings.Builder
	b.WriteString(r.Summary())
	for _, m := range r.Matched {
		fmt.Fprintf(&b, "\n  matched     %s <- %s", m.Name, m.Source)
		if m.Transposed {
			b.WriteString(" transposed")
		}
	}
	for _, w := range r.Missing {
		fmt.Fprintf(&b, "\n  missing     %s %s", w.Name, w.typeString())
	}
	for _, m := range r.Mismatched {
		fmt.Fprintf(&b, "\n  mismatched  %s %s <- %s %s", m.Want.Name, m.Want.typeString(), m.Source.Name, m.sourceType())
	}
	for _, e := range r.Unused {
		fmt.Fprintf(&b, "\n  unused      %s", e)
	}
	if r.Unverified {
		b.WriteString("\n  unverified  the file has no checksums, so that changed bytes would not be noticed")
	}
	return b.String()
}

// Load fills variables from a source. It looks up a variable under its own name, then
// under its foreign names, then under all of these with a prefix added or removed, if
// most names of the file agree on one: files of the same model may differ by a "bert."
// or "model/" in front of all names. Floating-point types are converted to the type of
// the variable. Other types must be equal, and so must shapes after transposing.
//
// Missing variables and tensors that do not fit are in the report. They are not an
// error, unless nothing matched at all; [LoadReport.Strict] turns them into one.
func Load(ctx context.Context, src Source, want []Wanted, opts ...Option) (map[string]*tf.Tensor, *LoadReport, error) {
	report, err := Find(src, want)
	if err != nil {
		return nil, report, err
	}
	tensors, err := report.Read(ctx, src, want, opts...)
	return tensors, report, err
}

// Find returns the report of Load without reading any tensor, and its error if nothing matched at all.
func Find(src Source, want []Wanted) (*LoadReport, error) {
	report := Compare(src, want)
	if len(want) > 0 && len(report.Matched) == 0 {
		return report, &LoadError{report}
	}
	return report, nil
}

// Has reports whether a variable was matched.
func (r *LoadReport) Has(variable string) bool {
	return slices.ContainsFunc(r.Matched, func(m Match) bool { return m.Name == variable })
}

// Read reads what Load does: those of the variables in want that the report of their source has matched.
func (r *LoadReport) Read(ctx context.Context, src Source, want []Wanted, opts ...Option) (map[string]*tf.Tensor, error) {
	fitting := make(map[string]Wanted, len(want))
	for _, w := range want {
		fitting[w.Name] = w
	}
	var matched []Match
	for _, m := range r.Matched {
		if _, ok := fitting[m.Name]; ok {
			matched = append(matched, m)
		}
	}
	return readMatches(ctx, src, matched, fitting, opts)
}

// Compare returns the report of Load without reading any tensor.
func Compare(src Source, want []Wanted) *LoadReport {
	report := &LoadReport{Path: src.Path()}
	switch s := src.(type) {
	case *Safetensors:
		report.Unverified = !s.Summed()
	case *GGUF:
		report.Unverified = true
	}
	entries := make(map[string]Entry, len(src.Entries()))
	for _, e := range src.Entries() {
		entries[e.Name] = e
	}
	resolve := func(name string) (Entry, bool) {
		key, ok := src.Resolve(name)
		if !ok {
			return Entry{}, false
		}
		e, ok := entries[key]
		return e, ok
	}
	report.Prefix, report.Stripped = affixes(src, want)
	find := func(w Wanted) (Entry, Candidate, bool) {
		for _, c := range w.candidates() {
			if e, ok := resolve(c.Name); ok {
				return e, c, true
			}
		}
		if report.Prefix == "" && report.Stripped == "" {
			return Entry{}, Candidate{}, false
		}
		for _, c := range w.candidates() {
			if short, ok := strings.CutPrefix(c.Name, report.Stripped); ok {
				if e, ok := resolve(report.Prefix + short); ok {
					return e, c, true
				}
			}
		}
		return Entry{}, Candidate{}, false
	}
	used := map[string]bool{ObjectGraphKey: true}
	for _, w := range want {
		e, c, ok := find(w)
		if !ok {
			report.Missing = append(report.Missing, w)
			continue
		}
		used[e.Name] = true
		if !fits(w, e, c) {
			report.Mismatched = append(report.Mismatched, Mismatch{w, e, c.Transpose})
			continue
		}
		report.Matched = append(report.Matched, Match{w.Name, e, c.Transpose})
	}
	for _, e := range src.Entries() {
		if !used[e.Name] {
			report.Unused = append(report.Unused, e)
		}
	}
	return report
}

// readMatches reads the matched tensors, some at a time, and converts them.
func readMatches(ctx context.Context, src Source, matched []Match, want map[string]Wanted, opts []Option) (map[string]*tf.Tensor, error) {
	r := &reshaper{}
	for _, o := range opts {
		o(&r.opts)
	}
	defer r.close()
	out := make(map[string]*tf.Tensor, len(matched))
	for start := 0; start < len(matched); {
		var names []string
		end, bytes := start, int64(0)
		for end < len(matched) && (end == start || bytes+matched[end].Source.memory() <= readBatch) {
			bytes += matched[end].Source.memory()
			if n := matched[end].Source.Name; !slices.Contains(names, n) {
				names = append(names, n)
			}
			end++
		}
		tensors, err := src.Read(ctx, names...)
		if err != nil {
			return nil, err
		}
		for _, m := range matched[start:end] {
			t, err := r.apply(tensors[m.Source.Name], want[m.Name].DType, m.Transposed)
			if err == nil && !slices.Equal(t.Shape(), want[m.Name].Shape) {
				err = t.Reshape(want[m.Name].Shape)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: tensor %q: %w", src.Path(), m.Source.Name, err)
			}
			out[m.Name] = t
		}
		start = end
	}
	return out, nil
}

func isFloat(t tf.DataType) bool {
	return t == tf.Float || t == tf.Double || t == tf.Half || t == tf.Bfloat16
}

// fits reports whether e, which was found as c, can fill w.
func fits(w Wanted, e Entry, c Candidate) bool {
	if e.DType != w.DType && !(isFloat(e.DType) && isFloat(w.DType)) {
		return false
	}
	shape := e.Shape
	if c.Reshape {
		return joins(shape, w.Shape)
	}
	if c.Transpose {
		if len(shape) != 2 {
			return false
		}
		shape = []int64{shape[1], shape[0]}
	}
	return slices.Equal(shape, w.Shape)
}

// joins reports whether joining axes of from that follow each other gives to.
func joins(from, to []int64) bool {
	for _, want := range to {
		size := int64(1)
		for len(from) > 0 && (size < want || from[0] == 1) && from[0] > 0 && size <= want/from[0] {
			size *= from[0]
			from = from[1:]
		}
		if size != want {
			return false
		}
	}
	return len(from) == 0
}

// affixes finds the prefix that most of the source's names have in front of the
// candidates, or most of the candidates in front of the source's names. A prefix ends at
// a dot or a slash. Both are empty if the names agree as they are.
func affixes(src Source, want []Wanted) (prefix, stripped string) {
	list := entryNames(src.Entries())
	var roots []string
	if b, ok := src.(*Bundle); ok {
		// Variables are listed by their shortest paths, but may have others.
		list, roots = b.Names(), b.roots()
	}
	before := map[string][]string{} // the prefixes of a name, by its suffix
	for _, name := range list {
		for i := range len(name) {
			if name[i] == '.' || name[i] == '/' {
				before[name[i+1:]] = append(before[name[i+1:]], name[:i+1])
			}
		}
	}
	type change struct{ add, strip string }
	votes := map[change]int{}
	for _, w := range want {
		// A variable votes once for each change, even if several of its names agree.
		mine := map[change]bool{}
		for _, c := range w.candidates() {
			if _, ok := src.Resolve(c.Name); ok {
				mine[change{}] = true
			}
			for _, add := range before[c.Name] {
				mine[change{add: add}] = true
			}
			for _, root := range roots {
				if _, ok := src.Resolve(root + c.Name); ok {
					mine[change{add: root}] = true
				}
			}
			for i := range len(c.Name) {
				if c.Name[i] != '.' && c.Name[i] != '/' {
					continue
				}
				if _, ok := src.Resolve(c.Name[i+1:]); ok {
					mine[change{strip: c.Name[:i+1]}] = true
				}
			}
		}
		for ch := range mine {
			votes[ch]++
		}
	}
	best := change{}
	for ch, n := range votes {
		a, b := votes[best], len(ch.add)+len(ch.strip)
		shorter := b < len(best.add)+len(best.strip)
		if n > a || n == a && (shorter || b == len(best.add)+len(best.strip) && ch.add+"\x00"+ch.strip < best.add+"\x00"+best.strip) {
			best = ch
		}
	}
	return best.add, best.strip
}
