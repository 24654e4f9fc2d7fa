package convert

import (
	"fmt"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/data/table"
)

// warn logs what is suspicious about the data and adds it to the manifest.
func (c *conversion) warn(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	c.log.Warn(line)
	c.manifest.Warnings = append(c.manifest.Warnings, line)
}

// unbalanced is how many times more records the most frequent label has than the rarest one, from
// which on labels are unbalanced.
const unbalanced = 10

// shortened is how many times more records a split has than shortened ones, up to which it is warned of.
const shortened = 10

// warnings warns of labels, of records that are shortened and of those that are in two splits.
func (c *conversion) warnings(splits []string) {
	for _, name := range splits {
		if needsLabels(name) {
			c.warnLabels(name, c.writers[name].info)
		}
	}
	for _, name := range splits {
		if s := c.writers[name].info; s.Truncated > 0 && shortened*s.Truncated >= s.Records {
			c.warn("%s: %d of %d records are shortened to the maximum length, so a model sees only their beginnings", name, s.Truncated, s.Records)
		}
	}
	if b, ok := c.maker.(*blocks); ok {
		for _, name := range splits {
			if n := b.left[name]; n != nil && n.empty > 0 {
				c.warn("%s: left out %s", name, table.Count(int(n.empty), "empty text"))
			}
		}
	}
	if c.twice != nil {
		c.twice.warn(splits, c.warn)
	}
}

// warnLabels warns of the labels of a split.
func (c *conversion) warnLabels(split string, s Split) {
	for _, f := range c.manifest.Features {
		st := s.Features[f.Name]
		if f.Role == RoleLabel && f.Kind == KindNumber && st != nil && st.Records > 1 && st.Min != nil && *st.Min == *st.Max {
			c.warn("%s: feature %q, a label, is %v in all %d records, so there is nothing to learn from it", split, f.Name, *st.Min, st.Records)
		}
	}
	counts := s.LabelCounts
	if len(counts) == 0 || slices.Max(counts) == 0 {
		return
	}
	names := c.manifest.Labels
	var total int64
	for _, n := range counts {
		total += n
	}
	most, least := 0, -1
	var none []string
	for i, n := range counts {
		if n > counts[most] {
			most = i
		}
		if n == 0 {
			none = append(none, names[i])
		} else if least < 0 || n < counts[least] {
			least = i
		}
	}
	kind := c.cfg.task().kind
	switch {
	case kind == MultiLabel || kind == Tokens: // a record has several labels, or none, so the counts are not shares
	case counts[most] == total && total > 1:
		c.warn("%s: all %d labels are %s, so there is nothing to learn from them", split, total, quoted(names[most]))
		return
	case split == Train && counts[most] >= unbalanced*counts[least]:
		c.warn("%s: the labels are unbalanced: of %d records, %d have %s and %d have %s; judge by F1 rather than by accuracy", split, total, counts[most], quoted(names[most]), counts[least], quoted(names[least]))
	}
	if split == Train && len(none) > 0 {
		c.warn("%s: no record has %s %s, so a model cannot learn it", split, plural(len(none), "label"), table.List(none))
	}
}

func quoted(s string) string { return table.Clip(fmt.Sprintf("%q", s)) }

func plural(n int, what string) string {
	if n == 1 {
		return what
	}
	return what + "s"
}

// mostContents is how many different contents of records are compared. Their memory is about 100 MB.
const mostContents = 2 << 20

// twice counts records that are in two splits, labels and ids aside. A content is known by a hash of
// 64 bits. If there are too many of them, only those are kept whose hash ends in a number of zero
// bits, a sample that depends on the contents alone, and the counts are scaled up.
type twice struct {
	splits int
	most   int
	zero   uint64           // the last bits, which are 0
	index  map[uint64]int32 // of a content in counts
	counts []uint32         // records of each split, content after content
}

func newTwice(splits, most int) *twice {
	return &twice{splits: splits, most: most, index: map[uint64]int32{}}
}

// add counts a record of a split.
func (t *twice) add(split int, hash uint64) {
	if hash&t.zero != 0 {
		return
	}
	i, ok := t.index[hash]
	if !ok {
		if len(t.index) == t.most {
			t.thin()
			t.add(split, hash)
			return
		}
		i = int32(len(t.index))
		t.index[hash] = i
		for range t.splits {
			t.counts = append(t.counts, 0)
		}
	}
	t.counts[int(i)*t.splits+split]++
}

// thin drops about half of the contents.
func (t *twice) thin() {
	t.zero = t.zero<<1 | 1
	kept := newTwice(t.splits, t.most)
	for hash, i := range t.index {
		if hash&t.zero == 0 {
			kept.index[hash] = int32(len(kept.index))
			kept.counts = append(kept.counts, t.counts[int(i)*t.splits:][:t.splits]...)
		}
	}
	t.index, t.counts = kept.index, kept.counts
}

// count returns how many records of the second split are in the first one.
func (t *twice) count(first, second int) int64 {
	var n int64
	for i := 0; i < len(t.counts); i += t.splits {
		if t.counts[i+first] > 0 {
			n += int64(t.counts[i+second])
		}
	}
	return n * int64(t.zero+1)
}

// warn warns of each two splits that share records.
func (t *twice) warn(splits []string, warn func(string, ...any)) {
	about := ""
	if t.zero != 0 {
		about = "about "
	}
	for first, a := range splits {
		for i, b := range splits[first+1:] {
			if n := t.count(first, first+1+i); n > 0 {
				warn("%s: %s%s also in %s, labels aside; a model is not judged by what it was trained with", b, about, are(n), a)
			}
		}
	}
}

func are(n int64) string {
	if n == 1 {
		return "1 record is"
	}
	return fmt.Sprintf("%d records are", n)
}
