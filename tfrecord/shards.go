package tfrecord

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ShardName returns the name of one shard of a set, such as
// train-00002-of-00010.tfrecord for shard 2 of 10 of the base train. Shards
// count from 0.
func ShardName(base string, shard, count int) string {
	return fmt.Sprintf("%s-%05d-of-%05d.tfrecord", base, shard, count)
}

// The names in use: base-00000-of-00010.tfrecord, with or without a further
// .gz or the like; base.tfrecord-00000-of-00010, as TensorFlow Datasets and
// Beam write it; and base-0-10.tfrecord.
var (
	shardOf     = regexp.MustCompile(`^(.+)-(\d{1,9})-of-(\d{1,9})((?:\.[A-Za-z_]\w*)*)$`)
	shardSimple = regexp.MustCompile(`^(.+)-(\d{1,9})-(\d{1,9})(\.tf_?records?(?:\.\w+)*)$`)
)

type shardParts struct {
	base, suffix string
	shard, count int
	format       string // prints a sibling's name
}

func parseShard(name string) (shardParts, bool) {
	dir, file := filepath.Split(name)
	m, sep := shardOf.FindStringSubmatch(file), "-of-"
	if m == nil {
		m, sep = shardSimple.FindStringSubmatch(file), "-"
	}
	if m == nil {
		return shardParts{}, false
	}
	p := shardParts{base: dir + m[1], suffix: m[4]}
	p.shard, _ = strconv.Atoi(m[2])
	p.count, _ = strconv.Atoi(m[3])
	if p.shard >= p.count {
		return shardParts{}, false
	}
	p.format = fmt.Sprintf("%%s-%%0%dd%s%%0%dd%%s", len(m[2]), sep, len(m[3]))
	return p, true
}

func (p shardParts) sibling(shard int) string {
	return fmt.Sprintf(p.format, p.base, shard, p.count, p.suffix)
}

// ParseShardName takes the name of a shard apart. The base keeps the folder of
// the name. Besides ShardName's own form it knows base.tfrecord-00002-of-00010
// and base-2-10.tfrecord.
func ParseShardName(name string) (base string, shard, count int, ok bool) {
	p, ok := parseShard(name)
	return p.base, p.shard, p.count, ok
}

// ShardError reports a set of shards that is not whole.
type ShardError struct {
	Path   string // a shard that is there
	Reason string // what is wrong with the set
}

// Error names the set and the reason.
func (e *ShardError) Error() string { return fmt.Sprintf("shards of %s: %s", e.Path, e.Reason) }

var recordFile = regexp.MustCompile(`\.tf_?records?(-\d+-of-\d+)?(\.(gz|gzip|z|zlib))?$`)

// Glob returns the TFRecord files that a pattern means, sorted by base name and
// shard number. The pattern is one of these, the first that fits:
//
//   - a file, which is returned as it is;
//   - a folder: the record files directly in it, known by .tfrecord, .tfrecords
//     or .tf_record in their names;
//   - a pattern of path/filepath, in which {shard} and {count} stand for numbers;
//   - a base: the shards base-00000-of-00010.tfrecord and so on, or base.tfrecord.
//
// The sets of shards among the files must be whole: a ShardError names the
// shards that are missing. A pattern may pick some shards of a set that is. A
// pattern that means no file gives an error that is fs.ErrNotExist.
func Glob(pattern string) ([]string, error) {
	st, err := os.Stat(pattern)
	switch {
	case err == nil && !st.IsDir():
		return []string{pattern}, nil
	case err == nil:
		return glob(pattern, filepath.Join(escapeGlob(pattern), "*"), func(name string) bool { return recordFile.MatchString(name) })
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
	return glob(pattern, escapeGlob(pattern)+"*", func(name string) bool {
		if !recordFile.MatchString(name) {
			return false
		}
		if p, ok := parseShard(name); ok {
			return p.base == pattern || recordFile.ReplaceAllString(p.base, "") == pattern
		}
		return recordFile.ReplaceAllString(name, "") == pattern
	})
}

func glob(asked, pattern string, keep func(name string) bool) ([]string, error) {
	names, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", asked, err)
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		if !keep(name) || strings.HasPrefix(filepath.Base(name), ".") {
			return true
		}
		st, err := os.Stat(name)
		return err != nil || st.IsDir()
	})
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: no TFRecord files: %w", asked, fs.ErrNotExist)
	}
	return names, sortShards(names)
}

// sortShards sorts names by base and shard number and checks that the sets are
// whole.
func sortShards(names []string) error {
	type set struct {
		base  string
		parts []shardParts
		names []string
	}
	slices.SortFunc(names, func(a, b string) int {
		pa, oka := parseShard(a)
		pb, okb := parseShard(b)
		if !oka || !okb || pa.base != pb.base {
			ka, kb := a, b
			if oka {
				ka = pa.base
			}
			if okb {
				kb = pb.base
			}
			return cmp.Or(cmp.Compare(ka, kb), cmp.Compare(a, b))
		}
		return cmp.Or(cmp.Compare(pa.count, pb.count), cmp.Compare(pa.shard, pb.shard), cmp.Compare(a, b))
	})
	var sets []*set
	for _, n := range names {
		p, ok := parseShard(n)
		if !ok {
			continue
		}
		if len(sets) == 0 || sets[len(sets)-1].base != p.base {
			sets = append(sets, &set{base: p.base})
		}
		s := sets[len(sets)-1]
		s.parts, s.names = append(s.parts, p), append(s.names, n)
	}
	for _, s := range sets {
		if err := checkSet(s.parts, s.names); err != nil {
			return err
		}
	}
	return nil
}

// checkSet checks the shards of one base, which are sorted.
func checkSet(parts []shardParts, names []string) error {
	have := map[int]bool{}
	for i, p := range parts {
		if p.count != parts[0].count {
			return &ShardError{names[0], fmt.Sprintf("there is a set of %d and one of %d, as %s: remove one", parts[0].count, p.count, names[i])}
		}
		if have[p.shard] {
			return &ShardError{names[i-1], fmt.Sprintf("%s is the same shard: remove one", names[i])}
		}
		have[p.shard] = true
	}
	var missing []string
	total := 0
	for i := range parts[0].count {
		if have[i] {
			continue
		}
		name := parts[0].sibling(i)
		if _, err := os.Stat(name); err == nil {
			continue
		}
		if total++; total <= 3 {
			missing = append(missing, filepath.Base(name))
		}
	}
	if total == 0 {
		return nil
	}
	list := strings.Join(missing, ", ")
	if total > len(missing) {
		list += fmt.Sprintf(" and %d more", total-len(missing))
	}
	return &ShardError{names[0], fmt.Sprintf("%d of %d missing: %s", total, parts[0].count, list)}
}

// escapeGlob makes a path a pattern that matches only itself.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
