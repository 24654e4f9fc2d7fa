package runfolder

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"sort"
	"strconv"

	"github.com/gorbit-ml/gorbit/internal/base/crc32c"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// Series are the values of a metric by step, in rising order of the steps. Values may be NaN or
// infinite.
type Series struct {
	Steps  []int64
	Values []float64
}

// Len returns the number of points; 0 for nil.
func (s *Series) Len() int {
	if s == nil {
		return 0
	}
	return len(s.Steps)
}

// add adds a point. It replaces points of the same and of later steps, which a run that went back to
// a checkpoint has made again.
func (s *Series) add(step int64, value float64) {
	if n := len(s.Steps); n > 0 && s.Steps[n-1] >= step {
		keep := sort.Search(n, func(i int) bool { return s.Steps[i] >= step })
		s.Steps, s.Values = s.Steps[:keep], s.Values[:keep]
	}
	s.Steps, s.Values = append(s.Steps, step), append(s.Values, value)
}

// Log is the content of a metrics.jsonl.
type Log struct {
	// Train and Eval are the series by metric.
	Train, Eval map[string]*Series
	// Step is the last step of all lines.
	Step int64
	// Size is the number of bytes that were read: complete lines.
	Size int64
	// Damaged are the numbers of the first lines that could not be read, at most ten, and
	// DamagedLines is how many there are.
	Damaged      []int
	DamagedLines int
	lines        int
	said         string // by News
}

// NewLog returns a log without lines.
func NewLog() *Log { return &Log{Train: map[string]*Series{}, Eval: map[string]*Series{}} }

// maxLine limits the length of a line of metrics.
const maxLine = 1 << 20

// Follow reads the lines of a run's metrics that were added since it was last called. If the file is
// shorter now, as the run went back to a checkpoint, it is read again. A folder without metrics has
// none. The last line may be incomplete, as another process may be writing it; it is left for later.
func (l *Log) Follow(folder string) error {
	path := filepath.Join(folder, Metrics)
	f, err := vfs.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() < l.Size {
		*l = *NewLog()
	}
	return l.read(io.NewSectionReader(f, l.Size, math.MaxInt64-l.Size))
}

// read adds lines.
func (l *Log) read(r io.Reader) error {
	in := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return nil // what is left has no newline yet
		}
		long := errors.Is(err, bufio.ErrBufferFull)
		l.Size += int64(len(line))
		for errors.Is(err, bufio.ErrBufferFull) {
			var rest []byte
			rest, err = in.ReadSlice('\n')
			l.Size += int64(len(rest))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		l.lines++
		if long || !l.add(line) {
			if l.DamagedLines++; len(l.Damaged) < 10 {
				l.Damaged = append(l.Damaged, l.lines)
			}
		}
	}
}

// number is a value of a metric. Those that are not finite are strings.
type number float64

// UnmarshalJSON decodes a number or one of the strings NaN, +Inf and -Inf.
func (n *number) UnmarshalJSON(b []byte) error {
	b = bytes.Trim(b, `"`)
	v, err := strconv.ParseFloat(string(b), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return err
	}
	*n = number(v)
	return nil
}

// line is a line of metrics.jsonl. Phase is train or eval.
type line struct {
	Phase   string            `json:"phase"`
	Step    *int64            `json:"step"`
	Outputs map[string]number `json:"outputs"`
}

// sum is the name of the last field of a line: the CRC-32C of what is before its comma.
const sum = `,"crc32c":`

// SumLine returns a line of metrics, an object of JSON, with its checksum as the last field.
func SumLine(object []byte) []byte { return sumLine(bytes.TrimSuffix(object, []byte("}"))) }

// sumLine returns a line that begins so.
func sumLine(begin []byte) []byte {
	return fmt.Appendf(bytes.Clone(begin), "%s%d}\n", sum, crc32.Checksum(begin, crc32c.Table))
}

// intact reports whether a line has its checksum. Lines of older versions have none.
func intact(text []byte) bool {
	i := bytes.LastIndex(text, []byte(sum))
	return i < 0 || bytes.Equal(sumLine(text[:i]), text)
}

// parseLine returns false if a line is damaged.
func parseLine(text []byte) (m line, ok bool) {
	if !intact(text) || json.Unmarshal(text, &m) != nil || m.Step == nil || *m.Step < 0 {
		return line{}, false
	}
	return m, m.Phase == "train" || m.Phase == "eval"
}

// add adds a line. It returns false if the line is damaged.
func (l *Log) add(text []byte) bool {
	m, ok := parseLine(text)
	if !ok {
		return false
	}
	of := l.Train
	if m.Phase == "eval" {
		of = l.Eval
	}
	for name, v := range m.Outputs {
		s := of[name]
		if s == nil {
			s = new(Series)
			of[name] = s
		}
		s.add(*m.Step, float64(v))
	}
	l.Step = *m.Step
	return true
}

// Problem says in a sentence what is damaged; "" if nothing is.
func (l *Log) Problem() string {
	if l.DamagedLines == 0 {
		return ""
	}
	at := fmt.Sprintf("line %d", l.Damaged[0])
	if l.DamagedLines > 1 {
		at = fmt.Sprintf("%d lines, the first of them line %d", l.DamagedLines, l.Damaged[0])
	}
	return fmt.Sprintf("%s: cannot read %s; expected {\"phase\": \"train\" or \"eval\", \"step\": ..., \"outputs\": {...}} with its checksum", Metrics, at)
}

// News returns what Problem says if it is another sentence than at the last call, and else "".
func (l *Log) News() string {
	now := l.Problem()
	if now == l.said {
		return ""
	}
	l.said = now
	return now
}

// Best returns the best value of a metric of the evaluations and its step. mode is max or min. The
// first of equal values is the best; NaN never is.
func (l *Log) Best(metric, mode string) (value float64, step int64, ok bool) {
	s := l.Eval[metric]
	if s == nil {
		return 0, 0, false
	}
	for i, v := range s.Values {
		if math.IsNaN(v) || ok && (mode == "min" && v >= value || mode != "min" && v <= value) {
			continue
		}
		value, step, ok = v, s.Steps[i], true
	}
	return value, step, ok
}

// At returns the value at a step, and false if there is none.
func (s *Series) At(step int64) (float64, bool) {
	if s == nil {
		return 0, false
	}
	i, ok := slices.BinarySearch(s.Steps, step)
	if !ok {
		return 0, false
	}
	return s.Values[i], true
}

// End returns the last value and its step, and false if there is none.
func (s *Series) End() (value float64, step int64, ok bool) {
	if s == nil || len(s.Steps) == 0 {
		return 0, 0, false
	}
	n := len(s.Steps) - 1
	return s.Values[n], s.Steps[n], true
}
