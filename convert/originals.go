package convert

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"

	"github.com/gorbit-ml/gorbit/internal/table"
	"github.com/gorbit-ml/gorbit/internal/vfs"
	"github.com/gorbit-ml/gorbit/text"
)

// mostOriginals is the largest size in bytes of the sources of a split whose texts are read into memory.
const mostOriginals = 256 << 20

// Originals reads the texts that the records of a split were made of, by the numbers of their rows
// (ExampleID). It looks for each source of the split, by its name, in the folders, and takes the first
// file that is the one of the manifest. It returns an error that says why there are none: a source was
// not found or has changed, is too large, or its layout cannot be told from its name and the manifest.
//
// The manifest does not say how a source was encoded or quoted, so the caller has to compare what a
// text gives with its record.
func (m *Manifest) Originals(ctx context.Context, split string, folders []string) ([]text.Pair, error) {
	cfg := &Config{Task: m.Task}
	if cfg.free() {
		cfg.TextColumn, cfg.PairColumn, cfg.LabelColumn = m.Columns.Text, m.Columns.Pair, m.Columns.Label
		_, err := strconv.Atoi(cfg.TextColumn)
		cfg.NoHeader = err == nil
	}
	if !slices.Contains([]Kind{Classification, MultiLabel, Regression}, m.Kind()) || m.Task == SchemaTask {
		return nil, fmt.Errorf("records of task %s are not made of whole texts", m.Task)
	}
	split = m.sourceSplit(split)
	var out []text.Pair
	left := int64(mostOriginals)
	for _, s := range m.Sources {
		if s.Split != split {
			continue
		}
		if left -= s.Bytes; left < 0 {
			return nil, fmt.Errorf("the sources have more than %d MiB", mostOriginals>>20)
		}
		path, err := s.find(folders)
		if err != nil {
			return nil, err
		}
		if out, err = s.texts(ctx, cfg, path, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// find returns the path of the source: that of the first file of its name and size.
func (s *Source) find(folders []string) (string, error) {
	changed := ""
	for _, folder := range folders {
		path := vfs.Join(folder, s.Name)
		info, err := vfs.At(path).Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return "", err
		case info.Mode().IsRegular() && info.Size() == s.Bytes:
			return path, nil
		default:
			changed = path
		}
	}
	if changed != "" {
		return "", fmt.Errorf("%s is not the file that the data were made of", changed)
	}
	return "", fmt.Errorf("%s was not found", s.Name)
}

// texts appends the texts of the source's rows; those of a row that cannot be read are empty.
func (s *Source) texts(ctx context.Context, cfg *Config, path string, out []text.Pair) ([]text.Pair, error) {
	sum := sha256.New()
	t := cfg.task()
	from, err := openTable(ctx, cfg, path, []table.Column{{Name: t.text, Words: true}, {Name: t.pair, Words: true, Optional: t.pair == ""}}, sum)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	cutter := from.NewCutter()
	first := len(out)
	for {
		row, line, _, err := from.Next()
		if err == io.EOF {
			break
		}
		if bad := (*table.Error)(nil); err != nil && !errors.As(err, &bad) {
			return nil, err
		}
		pair := text.Pair{}
		if err == nil {
			if fields, err := cutter.Cut(string(row), line); err == nil {
				pair = text.Pair{A: fields[0].Text, B: fields[1].Text}
			}
		}
		out = append(out, pair)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != s.SHA256 || int64(len(out)-first) != s.Rows {
		return nil, fmt.Errorf("%s is not the file that the data were made of", path)
	}
	return out, nil
}
