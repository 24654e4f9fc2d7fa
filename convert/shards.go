package convert

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/data/table"
)

// The names of a split's shards, as data sets of the Hub have them: train-00000-of-00002.parquet, in older ones
// with a hash before the ending, and 0000.parquet in a folder of the split's own.
var (
	shardForm    = regexp.MustCompile(`^(.+)-(\d{5})-of-(\d{5})(?:-[0-9a-f]{16})?\.`)
	numberedForm = regexp.MustCompile(`^(\d{4,5})\.`)
)

// devNames are what others call the split Dev.
var devNames = []string{Dev, "validation", "valid", "val"}

// expand puts the shards of a folder in the place of the folder.
func (c *Config) expand() error {
	var out []Input
	for _, in := range c.Inputs {
		info, err := vfs.Stat(in.Path)
		if err != nil {
			return fmt.Errorf("convert: %w", err)
		}
		folder := info.IsDir()
		if folder && c.images() {
			if folder, err = hasParquet(in.Path); err != nil {
				return fmt.Errorf("convert: %w", err)
			}
		}
		if !folder {
			out = append(out, in)
			continue
		}
		names, err := c.shards(in)
		if err != nil {
			return fmt.Errorf("convert: %w", err)
		}
		for _, name := range names {
			out = append(out, Input{in.Split, vfs.Join(in.Path, name)})
		}
	}
	c.Inputs = out
	return nil
}

// hasParquet reports whether a folder has Parquet files in place of folders of images.
func hasParquet(dir string) (bool, error) {
	entries, err := vfs.ReadDir(dir)
	if err != nil {
		return false, err
	}
	folder, file := "", ""
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasPrefix(name, "."):
		case e.IsDir():
			folder = name
		case table.FormatOf(name) == table.Parquet:
			file = name
		}
	}
	if folder != "" && file != "" {
		return false, fault.Usagef("%s has the folder %s and the file %s; expected folders of images, or Parquet files; name the files one by one", dir, folder, file)
	}
	return file != "", nil
}

// shards returns the names of a split's files in a folder, in order.
func (c *Config) shards(in Input) ([]string, error) {
	entries, err := vfs.ReadDir(in.Path)
	if err != nil {
		return nil, err
	}
	sets := make(map[string]*shardSet) // by split; "" for files with numbers alone
	var others []string
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() || strings.HasPrefix(name, ".") || table.FormatOf(name) == "" {
			continue
		}
		split, number, of := "", "", "0"
		if m := shardForm.FindStringSubmatch(name); m != nil {
			split, number, of = m[1], m[2], m[3]
		} else if m := numberedForm.FindStringSubmatch(name); m != nil {
			number = m[1]
		} else {
			others = append(others, name)
			continue
		}
		if sets[split] == nil {
			sets[split] = &shardSet{files: make(map[int]string)}
		}
		if err := sets[split].add(name, number, of); err != nil {
			return nil, fault.Usagef("%s: %w", in.Path, err)
		}
	}
	wanted := []string{in.Split}
	if in.Split == Dev {
		wanted = devNames
	}
	var found []string
	for split := range maps.Keys(sets) {
		if split == "" || slices.Contains(wanted, split) {
			found = append(found, split)
		}
	}
	switch slices.Sort(found); {
	case len(found) == 0 && len(sets) > 0:
		return nil, fault.Usagef("%s has no shards of the %s split; it has those of %s; name files of another split one by one", in.Path, in.Split, table.List(slices.Sorted(maps.Keys(sets))))
	case len(found) == 0 && len(others) > 0:
		return nil, fault.Usagef("%s is a folder with %s; expected shards, such as %s-00000-of-00002.parquet; name its files one by one", in.Path, table.List(others), in.Split)
	case len(found) == 0:
		return nil, fault.Usagef("%s is a folder without tables; expected shards, such as %s-00000-of-00002.parquet", in.Path, in.Split)
	case len(found) > 1:
		return nil, fault.Usagef("%s has shards of %s, each of which may be the %s split; name their files one by one", in.Path, table.List(found), in.Split)
	}
	names, missing := sets[found[0]].inOrder()
	if missing != "" {
		return nil, fault.Damagedf("%s lacks %s; download it, or name the files one by one", in.Path, missing)
	}
	return names, nil
}

// shardSet is the files of a split.
type shardSet struct {
	files map[int]string // by number
	of    int            // how many there should be; 0 if the names do not say
}

// add adds a file.
func (s *shardSet) add(name, number, of string) error {
	i, _ := strconv.Atoi(number) // digits, by its form
	n, _ := strconv.Atoi(of)
	if other := s.files[i]; other != "" {
		return fmt.Errorf("%s and %s are the same shard; name the files one by one", other, name)
	}
	if len(s.files) > 0 && n != s.of {
		return fmt.Errorf("%s is one of %d shards, and others are of %d; name the files one by one", name, n, s.of)
	}
	s.files[i], s.of = name, n
	return nil
}

// inOrder returns the names, or which are missing.
func (s *shardSet) inOrder() (names []string, missing string) {
	n := s.of
	if n == 0 {
		n = slices.Max(slices.Collect(maps.Keys(s.files))) + 1
	}
	var lacks []string
	for i := range n {
		if name := s.files[i]; name != "" {
			names = append(names, name)
		} else {
			lacks = append(lacks, strconv.Itoa(i))
		}
	}
	if len(lacks) > 0 {
		return nil, fmt.Sprintf("%s of the %s, that of number %s", words.Count(int64(len(lacks)), "file"), words.Count(int64(n), "shard"), lacks[0])
	}
	return names, ""
}
