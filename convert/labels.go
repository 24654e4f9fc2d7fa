package convert

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/table"
)

// labels turns the values of a label column into ids.
type labels struct {
	names     []string // in id order
	ids       map[string]int64
	threshold *float64
	guessed   bool   // the names are those of the first rows; there may be more
	separator string // of several labels in a field
	many      bool   // a record may have several labels
}

// errNewLabel reports a row whose label is not among the guessed ones.
var errNewLabel = errors.New("convert: there are more labels than those of the first rows")

// id returns the id of a label, or the reason why it is invalid.
func (l *labels) id(s string) (int64, string) {
	s = strings.TrimSpace(s)
	if s == "" {
		return 0, "the label is empty"
	}
	if l.threshold == nil {
		id, ok := l.ids[s]
		if !ok {
			return 0, fmt.Sprintf("label is %q; expected one of %s", table.Clip(s), table.List(l.names))
		}
		return id, ""
	}
	score, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(score) || math.IsInf(score, 0) {
		return 0, fmt.Sprintf("score is %q; expected a number", table.Clip(s))
	}
	if score < *l.threshold {
		return 0, ""
	}
	return 1, ""
}

// newLabels returns the labels of a conversion. If the configuration does not list them,
// it collects them from the inputs, or guesses them if allowed. Without a label column
// there are none.
func newLabels(ctx context.Context, cfg *Config, guess bool) (*labels, error) {
	t := cfg.task()
	if t.label == "" || t.kind == Regression {
		return &labels{}, nil
	}
	l := &labels{names: t.names, threshold: cfg.LabelThreshold, separator: cfg.separator(), many: t.kind == MultiLabel || t.kind == Tokens}
	values := t.values
	if values == nil {
		if err := checkTwice(cfg, "labels with --labels"); err != nil {
			return nil, err
		}
		if guess && (t.kind == Classification || t.kind == Choices) {
			values = guessLabels(ctx, cfg, t.label)
			l.guessed = values != nil
		}
		if values == nil {
			var err error
			if values, err = collectLabels(ctx, cfg, t.label); err != nil {
				return nil, err
			}
		}
		if err := refuseAlike(t.label, values, "with --labels"); err != nil {
			return nil, err
		}
		l.names = values
	}
	l.ids = make(map[string]int64, len(values))
	for i, v := range values {
		l.ids[v] = int64(i)
	}
	return l, nil
}

// checkTwice returns an error if a file cannot be read twice, for its labels and for its
// rows. list says what can be listed instead, and where.
func checkTwice(cfg *Config, list string) error {
	for _, in := range cfg.Inputs {
		info, err := vfs.Stat(in.Path)
		if err != nil {
			return fmt.Errorf("convert: %w", err)
		}
		if !info.Mode().IsRegular() {
			return fault.Usagef("convert: %s is not a regular file, so it can be read only once; list the %s", in.Path, list)
		}
	}
	return nil
}

// refuseAlike returns an error if labels differ only in case, or are the same number. Usually they are
// the same label, written in two ways. Otherwise the user can list them; how says where.
func refuseAlike(column string, values []string, how string) error {
	seen := make(map[string]string, len(values))
	for _, v := range values {
		key, what := strings.ToLower(v), "differ only in case"
		if number, ok := decimal(v); ok {
			key, what = number, "are the same number"
		}
		if other, ok := seen[key]; ok {
			return fault.Usagef("convert: column %q has the labels %s, which %s; write them in the same way, or list all labels %s to keep both",
				column, table.List([]string{other, v}), what, how)
		}
		seen[key] = v
	}
	return nil
}

// decimal returns the one way to write a number that stands for all others, such as 1 for 1.0, +1 and
// 01, and whether a label is a number.
func decimal(s string) (string, bool) {
	if v, err := strconv.ParseFloat(s, 64); err != nil || math.IsNaN(v) || math.IsInf(v, 0) || strings.ContainsAny(s, "xXpP_") {
		return "", false
	} else if strings.ContainsAny(s, "eE") {
		s = strconv.FormatFloat(v, 'f', -1, 64)
	}
	sign := ""
	if s[0] == '-' || s[0] == '+' {
		sign, s = strings.TrimPrefix(s[:1], "+"), s[1:]
	}
	whole, part, _ := strings.Cut(s, ".")
	whole, part = strings.TrimLeft(whole, "0"), strings.TrimRight(part, "0")
	if whole == "" && part == "" {
		sign = ""
	}
	return sign + whole + "." + part, true
}

// collectLabels returns the labels of the inputs, in order.
func collectLabels(ctx context.Context, cfg *Config, name string) ([]string, error) {
	seen := map[string]bool{}
	var names []string
	rows := 0
	for _, in := range cfg.Inputs {
		if cfg.has(Train) && in.Split != Train {
			continue
		}
		n, err := collectFrom(ctx, cfg, in, name, seen)
		if err != nil {
			return nil, err
		}
		rows, names = rows+n, append(names, in.Path)
	}
	if rows == 0 {
		return nil, fault.Damagedf("convert: %s has no rows; expected rows with labels", strings.Join(names, ", "))
	}
	if len(seen) == 0 {
		return nil, fault.Damagedf("convert: column %q has no labels", name)
	}
	if reason := noLabels(seen, rows); reason != "" {
		return nil, fault.Usagef("convert: column %q has %d different values in %d rows%s; expected at most %d labels; name the label column, list the labels, or give a threshold for scores",
			name, len(seen), rows, reason, maxLabels)
	}
	return inOrder(seen), nil
}

// inOrder returns labels in the order of their ids.
func inOrder(seen map[string]bool) []string {
	values := make([]string, 0, len(seen))
	numbers := true
	for v := range seen {
		values = append(values, v)
		n, err := strconv.ParseInt(v, 10, 64)
		numbers = numbers && err == nil && strconv.FormatInt(n, 10) == v
	}
	if !numbers {
		slices.Sort(values)
		return values
	}
	slices.SortFunc(values, func(a, b string) int {
		m, _ := strconv.ParseInt(a, 10, 64)
		n, _ := strconv.ParseInt(b, 10, 64)
		if m < n {
			return -1
		}
		return 1
	})
	return values
}

// guessRows is how many rows labels are guessed from.
const guessRows = 4096

// guessLabels returns the labels of the first rows, in order. Usually there are no others,
// and reading the whole file for them is unnecessary. It returns nil if the guess is
// unreliable: a single label may mean that the file is sorted by label, many values may
// not be labels at all, and a row skipped for another error may have a new label.
func guessLabels(ctx context.Context, cfg *Config, name string) []string {
	if cfg.SkipBadRows {
		return nil
	}
	i := slices.IndexFunc(cfg.Inputs, func(in Input) bool { return in.Split == Train || !cfg.has(Train) })
	t, err := openTable(ctx, cfg, cfg.Inputs[i].Path, []table.Column{{Name: name}}, nil)
	if err != nil {
		return nil
	}
	defer t.Close()
	seen := map[string]bool{}
	for c := t.NewCutter(); t.Rows() < guessRows; {
		text, line, _, err := t.Next()
		if err == io.EOF {
			break
		}
		var fields []table.Field
		if err == nil {
			fields, err = c.Cut(string(text), line)
		}
		if err != nil {
			return nil
		}
		if s := strings.TrimSpace(fields[0].Text); s != "" {
			seen[s] = true
		}
	}
	if len(seen) < 2 || len(seen) > plentyLabels {
		return nil
	}
	return inOrder(seen)
}

// plentyLabels is the number of different values up to which they are not checked.
const plentyLabels = 100

// noLabels returns the reason why many values are probably not labels: most occur in a
// single row, or they are fractions.
func noLabels(seen map[string]bool, rows int) string {
	if len(seen) <= plentyLabels {
		return ""
	}
	if 2*len(seen) > rows {
		return ", most of them in only one row"
	}
	fractions := false
	for v := range seen {
		n, err := strconv.ParseFloat(v, 64)
		if err != nil {
			return ""
		}
		fractions = fractions || n != math.Trunc(n)
	}
	if fractions {
		return ", which are fractional numbers"
	}
	return ""
}

// collectFrom adds the labels of a file and returns how many rows have one.
func collectFrom(ctx context.Context, cfg *Config, in Input, name string, seen map[string]bool) (rows int, err error) {
	column := table.Column{Name: name, Optional: !needsLabels(in.Split), Lists: true, Flag: cfg.flagOf("--label-column")}
	labelsIn := func(f table.Field) ([]string, string) { return cfg.labelsIn(f.Text) }
	if cfg.task().kind == Tokens {
		format, err := cfg.formatOf(in.Path)
		if err != nil {
			return 0, err
		}
		if !table.Format(format).Objects() {
			column.Name = table.TextField
		}
		labelsIn = func(f table.Field) ([]string, string) { return cfg.tagsIn(format, f) }
	}
	t, err := openTable(ctx, cfg, in.Path, []table.Column{column}, nil)
	if err != nil {
		return 0, err
	}
	defer t.Close()
	newWorker := func() func(*chunk, *row, []table.Field) {
		return func(_ *chunk, r *row, fields []table.Field) {
			var reason string
			if !fields[0].OK {
				return
			}
			if r.value, reason = labelsIn(fields[0]); reason != "" {
				r.bad = &RowError{in.Path, r.line, reason}
			}
		}
	}
	err = each(ctx, t, cfg.Workers, chunkRows, newWorker, func(k *chunk) error {
		for i := range k.rows {
			r := &k.rows[i]
			if r.bad != nil && !cfg.SkipBadRows {
				return r.bad
			}
			for _, value := range r.value {
				switch {
				case r.bad != nil || value == "":
				case seen[value]:
					rows++
				case len(seen) == maxLabels:
					return &RowError{in.Path, r.line, fmt.Sprintf("column %q has more than %d different labels; list the labels, or give a threshold for scores", name, maxLabels)}
				default:
					rows++
					seen[strings.Clone(value)] = true // not the whole row
				}
			}
		}
		if k.err != io.EOF {
			return k.err
		}
		return nil
	})
	return rows, err
}
