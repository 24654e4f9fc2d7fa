package tfrecord

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// ShardName returns the name of a shard of a set, such as
// train-00002-of-00010.tfrecord for shard 2 of 10 with base train. Shards count from 0.
func ShardName(base string, shard, count int) string {
	return fmt.Sprintf("%s-%05d-of-%05d.tfrecord", base, shard, count)
}

// The known forms: base-00000-of-00010.tfrecord, optionally with another ending such as
// .gz; base.tfrecord-00000-of-00010 of TensorFlow Datasets and Beam; and
// base-0-10.tfrecord, which is shard 0 of 10 or, as Keras' examples write it, shard 0 with 10 records.
var (
	shardOf     = regexp.MustCompile(`^(.+)-(\d{1,9})-of-(\d{1,9})((?:\.[A-Za-z_]\w*)*)$`)
	shardSimple = regexp.MustCompile(`^(.+)-(\d{1,9})-(\d{1,9})(\.tf_?records?(?:\.\w+)*)$`)
)

// yearEnd distinguishes the date 2024-05-12 from shard 5 of 12 with base 2024.
var yearEnd = regexp.MustCompile(`(^|\D)(19|20)\d\d$`)

type shardParts struct {
	base, suffix string
	shard, count int
	format       string // format of the names of the set's shards
	simple       bool   // count may be the number of the shard's records
}

func parseShard(name string) (shardParts, bool) {
	if strings.HasSuffix(name, indexSuffix) {
		return shardParts{}, false
	}
	dir, file := filepath.Split(name)
	m, sep := shardOf.FindStringSubmatch(file), "-of-"
	if m == nil {
		m, sep = shardSimple.FindStringSubmatch(file), "-"
		if m == nil || len(m[2]) == 2 && len(m[3]) == 2 && yearEnd.MatchString(m[1]) {
			return shardParts{}, false
		}
	}
	p := shardParts{base: dir + m[1], suffix: m[4]}
	p.shard, _ = strconv.Atoi(m[2])
	p.count, _ = strconv.Atoi(m[3])
	p.simple = sep == "-"
	if p.count == 0 || p.shard > p.count && !p.simple {
		return shardParts{}, false
	}
	p.format = fmt.Sprintf("%%s-%%0%dd%s%%0%dd%%s", len(m[2]), sep, len(m[3]))
	return p, true
}

func (p shardParts) sibling(shard int) string {
	return fmt.Sprintf(p.format, p.base, shard, p.count, p.suffix)
}

// ParseShardName splits the name of a shard into its parts. The base includes the folder
// of the name. In addition to the form of ShardName it accepts base.tfrecord-00002-of-00010 and
// base-2-10.tfrecord. In sets that count from 1, the last shard equals the count.
func ParseShardName(name string) (base string, shard, count int, ok bool) {
	p, ok := parseShard(name)
	if !ok || p.shard > p.count {
		return "", 0, 0, false
	}
	return p.base, p.shard, p.count, true
}

// ShardError reports a set of shards that is incomplete or inconsistent.
type ShardError struct {
	Path   string // an existing shard
	Reason string // what is wrong with the set
}

// Error names the set and the reason.
func (e *ShardError) Error() string { return fmt.Sprintf("shards of %s: %s", e.Path, e.Reason) }

// Is reports whether the target is the error's class, fault.Damaged.
func (e *ShardError) Is(target error) bool { return target == fault.Damaged }

var recordFile = regexp.MustCompile(`\.tf_?records?(-\d+-of-\d+)?(\.(gz|gzip|z|zlib))?$`)

// HasRecordName reports whether a file has a name of TFRecord files, as Glob takes them of a folder.
func HasRecordName(name string) bool { return recordFile.MatchString(name) }

// Glob returns the TFRecord files that match a pattern, sorted by base name and shard
// number. The pattern is the first of these that fits:
//
//   - a file, which is returned as is;
//   - a folder: the record files directly in it, which have .tfrecord, .tfrecords or
//     .tf_record in their names;
//   - a pattern of path/filepath, in which {shard} and {count} stand for numbers;
//   - a base: the shards base-00000-of-00010.tfrecord and so on, or base.tfrecord.
//
// The sets of shards among the files must be complete: a ShardError names the missing
// shards. A pattern may select some shards of a complete set. In names such as base-2-10.tfrecord, 10
// is the number of shards if there are so many, and otherwise that of the records of the shard. If no file matches, the
// error is fs.ErrNotExist.
func Glob(pattern string) ([]string, error) {
	st, err := vfs.Stat(pattern)
	switch {
	case err != nil && vfs.Scheme(pattern) != "" && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err == nil && !st.IsDir():
		return []string{pattern}, nil
	case err == nil:
		return glob(pattern, vfs.Join(escapeGlob(pattern), "*"), HasRecordName)
	case strings.ContainsAny(pattern, "*?[") || strings.Contains(pattern, "{shard}"):
		p := strings.NewReplacer("{shard}", "[0-9]*", "{count}", "[0-9]*").Replace(pattern)
		return glob(pattern, p, func(name string) bool {
			if p == pattern {
				return !strings.HasSuffix(name, indexSuffix)
			}
			_, ok := parseShard(name)
			return ok && !strings.HasSuffix(name, indexSuffix)
		})
	}
	names, err := glob(pattern, escapeGlob(pattern)+"*", func(name string) bool {
		if p, ok := parseShard(name); ok {
			return p.base == pattern && (p.suffix == "" || recordFile.MatchString(name)) || stem(p.base) == pattern
		}
		return stem(name) == pattern
	})
	if err != nil {
		return nil, err
	}
	for _, name := range names[1:] {
		a, aok := parseShard(names[0])
		b, bok := parseShard(name)
		if !aok || !bok || a.base != b.base {
			return nil, &ShardError{pattern, fmt.Sprintf("both %s and %s match; give the full name of one", names[0], name)}
		}
	}
	return names, nil
}

// stem returns the name without the ending of a record file, or "" if it has no such
// ending.
func stem(name string) string {
	if at := recordFile.FindStringIndex(name); at != nil {
		return name[:at[0]]
	}
	return ""
}

func glob(asked, pattern string, keep func(name string) bool) ([]string, error) {
	matches := localMatches
	if vfs.Scheme(pattern) != "" {
		matches = remoteMatches
	}
	names, err := matches(pattern, func(name string) bool {
		return keep(name) && !strings.HasPrefix(filepath.Base(name), ".")
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", asked, err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: no TFRecord files: %w", asked, fs.ErrNotExist)
	}
	if err := sortShards(names); err != nil {
		return nil, err
	}
	return names, nil
}

// localMatches returns the files that match a pattern.
func localMatches(pattern string, keep func(name string) bool) ([]string, error) {
	names, err := filepath.Glob(pattern)
	return slices.DeleteFunc(names, func(name string) bool {
		if !keep(name) {
			return true
		}
		st, err := os.Stat(name)
		return err != nil || st.IsDir()
	}), err
}

// remoteMatches is localMatches for a pattern with a scheme, with one listing of the folder.
func remoteMatches(pattern string, keep func(name string) bool) ([]string, error) {
	dir, base := filepath.Split(pattern)
	if strings.ContainsAny(dir, `*?[\`) {
		return nil, errors.New("a pattern in the name of a folder is not supported here; expected one in the file's name only")
	}
	entries, err := vfs.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		ok, err := filepath.Match(base, e.Name())
		if err != nil {
			return nil, err
		}
		if name := dir + e.Name(); ok && !e.IsDir() && keep(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// sortShards sorts names by base and shard number, and checks that the sets are
// complete.
func sortShards(names []string) error {
	files := make([]shardFile, len(names))
	for i, n := range names {
		files[i] = shardFile{name: n, set: n}
		if p, ok := parseShard(n); ok {
			files[i] = shardFile{name: n, set: p.base, shardParts: p}
		}
	}
	slices.SortFunc(files, func(a, b shardFile) int {
		return cmp.Or(cmp.Compare(a.set, b.set), cmp.Compare(a.count, b.count), cmp.Compare(a.shard, b.shard), cmp.Compare(a.name, b.name))
	})
	for rest := files; len(rest) > 0; {
		set := rest[:setLength(rest)]
		if set[0].count > 0 {
			if err := checkSet(set); err != nil {
				return err
			}
		}
		rest = rest[len(set):]
	}
	for i, f := range files {
		names[i] = f.name
	}
	return nil
}

// setLength returns how many of the sorted files are of the first one's set.
func setLength(files []shardFile) int {
	n := 1
	for n < len(files) && files[n].set == files[0].set {
		n++
	}
	return n
}

// shardFile is a file found by Glob: a shard of a set, or a single file, whose count is
// 0.
type shardFile struct {
	name, set string
	shardParts
}

// checkSet checks the sorted shards of one base. It sorts those whose names say how many records they
// have by their number.
func checkSet(files []shardFile) error {
	if counted(files) {
		return checkCounted(files)
	}
	one, count := files[0], files[0].count
	have := map[int]bool{}
	for i, f := range files {
		if f.count != count {
			return &ShardError{one.name, fmt.Sprintf("there is a set of %d and one of %d (%s); remove one", count, f.count, f.name)}
		}
		if have[f.shard] {
			return &ShardError{files[i-1].name, fmt.Sprintf("%s is the same shard; remove one", f.name)}
		}
		have[f.shard] = true
	}
	// A pattern may select some shards of a set that is complete in its folder.
	for _, p := range siblings(one.shardParts) {
		if p.count == count {
			have[p.shard] = true
		}
	}
	first := 0
	if have[count] {
		if first = 1; have[0] {
			return &ShardError{one.name, fmt.Sprintf("there are shards 0 and %d of %d, which is one too many; remove one", count, count)}
		}
	}
	total := count - len(have)
	var missing []string
	for i := first; len(missing) < min(total, 3); i++ {
		if !have[i] {
			missing = append(missing, filepath.Base(one.sibling(i)))
		}
	}
	if total == 0 {
		return nil
	}
	list := strings.Join(missing, ", ")
	if total > len(missing) {
		list += fmt.Sprintf(" and %d more", total-len(missing))
	}
	return &ShardError{one.name, fmt.Sprintf("%d of %d missing: %s", total, count, list)}
}

// siblings returns the shards of a base that are in its folder.
func siblings(one shardParts) []shardParts {
	prefix, _ := filepath.Split(one.base)
	entries, _ := vfs.ReadDir(cmp.Or(prefix, "."))
	var out []shardParts
	for _, e := range entries {
		if p, ok := parseShard(prefix + e.Name()); ok && p.base == one.base {
			out = append(out, p)
		}
	}
	return out
}

// counted reports whether the names of a base's shards say how many records each has, and not how many
// shards there are.
func counted(files []shardFile) bool {
	one := files[0]
	numbers := map[int]bool{}
	for _, p := range siblings(one.shardParts) {
		if !p.simple {
			return false
		}
		if p.count != one.count {
			return true
		}
		numbers[p.shard] = true
	}
	switch n := len(numbers); {
	case !one.simple || n >= one.count && !numbers[one.count+1]:
		return false
	case n > one.count:
		return true
	}
	// All shards have the same number, and there are fewer: shards are missing, or that is how many
	// records each has.
	f, err := OpenIndexed(one.name)
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Len() == one.count
}

// checkCounted checks the shards of one base whose names say how many records they have. Shards that
// count from 0 or 1 have no gaps; others are single files.
func checkCounted(files []shardFile) error {
	slices.SortFunc(files, func(a, b shardFile) int { return cmp.Or(cmp.Compare(a.shard, b.shard), cmp.Compare(a.count, b.count)) })
	for i, f := range files[1:] {
		if f.shard == files[i].shard {
			return &ShardError{files[i].name, fmt.Sprintf("%s is the same shard; remove one", f.name)}
		}
	}
	numbers := map[int]bool{}
	for _, p := range siblings(files[0].shardParts) {
		numbers[p.shard] = true
	}
	if !numbers[0] && !numbers[1] {
		return nil
	}
	for i := 1; i < len(numbers); i++ {
		if !numbers[i] {
			return &ShardError{files[0].name, fmt.Sprintf("their names end in the number of records, and shard %d is missing", i)}
		}
	}
	return nil
}

// RecordsInNames returns how many records shards have by their names, which are of sets that Glob
// returned. Shards whose names do not say so are not in the map.
func RecordsInNames(names []string) map[string]int64 {
	sets := map[string][]shardFile{}
	for _, n := range names {
		if p, ok := parseShard(n); ok && p.simple {
			sets[p.base] = append(sets[p.base], shardFile{name: n, set: p.base, shardParts: p})
		}
	}
	out := map[string]int64{}
	for _, files := range sets {
		if first := slices.MinFunc(files, func(a, b shardFile) int { return cmp.Compare(a.shard, b.shard) }); first.shard > 1 || !counted(files) {
			continue
		}
		for _, f := range files {
			out[f.name] = int64(f.count)
		}
	}
	return out
}

// escapeGlob turns a path into a pattern that matches only that path.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
