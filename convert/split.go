package convert

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/data/table"
)

// splitter decides which split a row of the training file goes to.
type splitter struct {
	// devIDs are the ids of the rows for the dev split, tab-separated.
	devIDs map[string]bool
	// below is the hash from which on a row stays in the training split; 0 if rows are
	// not split by hash.
	below uint64
}

func newSplitter(ctx context.Context, cfg *Config) (*splitter, error) {
	s := &splitter{}
	if cfg.SplitByHash != "" {
		fraction := cfg.DevFraction
		if fraction == 0 {
			fraction = DefaultDevFraction
		}
		s.below = uint64(math.Ceil(math.Ldexp(fraction, 64)))
	}
	if cfg.DevIDs == "" {
		return s, nil
	}
	s.devIDs = map[string]bool{}
	n := len(cfg.task().ids)
	ids := *cfg
	// The list has no header, whatever the task's files have.
	ids.Schema, ids.Task, ids.NoHeader, ids.Format, ids.Charset, ids.Delimiter = "", TextTask, true, TSV, UTF8, 0
	var columns []table.Column
	for i := range n {
		columns = append(columns, table.Column{Name: fmt.Sprint(i + 1)})
	}
	t, err := openTable(ctx, &ids, cfg.DevIDs, columns, nil)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	if len(t.Names()) != n {
		return nil, &RowError{cfg.DevIDs, 1, fmt.Sprintf("has %s; expected %d, the ids of a row", table.Count(len(t.Names()), "column"), n)}
	}
	c := t.NewCutter()
	for {
		text, line, _, err := t.Next()
		if err == io.EOF {
			return s, nil
		}
		if err != nil {
			return nil, inputError(err)
		}
		fields, err := c.Cut(string(text), line)
		if err != nil {
			return nil, inputError(err)
		}
		s.devIDs[joinIDs(fields)] = true
	}
}

// columns returns the columns that the splitter needs.
func (s *splitter) columns(cfg *Config) []table.Column {
	var out []table.Column
	if s.devIDs != nil {
		for _, id := range cfg.task().ids {
			out = append(out, table.Column{Name: id})
		}
	}
	if s.below > 0 {
		out = append(out, table.Column{Name: cfg.SplitByHash, Flag: "--split-by-hash", Files: true, Lists: cfg.SplitByHash == cfg.ChatColumn})
	}
	return out
}

// inDev reports whether a row of the training file goes to the dev split. fields are the
// splitter's columns of the row.
func (s *splitter) inDev(fields []table.Field) bool {
	switch {
	case s.devIDs != nil:
		return s.devIDs[joinIDs(fields)]
	case s.below > 0:
		return hashOf(fields[0].Text) < s.below
	}
	return false
}

// hashOf returns the first eight bytes of the SHA-256 of a text as a big-endian number.
func hashOf(s string) uint64 {
	sum := sha256.Sum256([]byte(s))
	return binary.BigEndian.Uint64(sum[:])
}

func joinIDs(fields []table.Field) string {
	var b strings.Builder
	for i, f := range fields {
		if i > 0 {
			b.WriteByte('\t')
		}
		b.WriteString(strings.TrimSpace(f.Text))
	}
	return b.String()
}
