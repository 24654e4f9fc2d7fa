package runfolder

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/runner"
)

// GrowingTrainerState keeps trainer_state.json up to date while one process trains in a folder. What a
// checkpoint adds to the log is written into the file, so that its cost does not grow with the run. The
// file is the one of WriteTrainerState but for spaces, which are room for the values before the log.
type GrowingTrainerState struct {
	Folder string

	mu     sync.Mutex
	course Course
	// What the file has: its size, where its parts begin, and whether the log has entries. The size is
	// 0 if nothing can be added to it.
	size, log, end int64
	some           bool
	// How much of the metrics is in it, how much of the journal was read since it was rewritten, and
	// the last evaluations in that which are not in the file.
	metrics, journal int64
	evaluations      map[int64]Phase
}

// room is how many bytes the values before the log may grow by.
const room = 256

// The beginning and the end of the log in the file.
var (
	beginLog = []byte("\n  \"log_history\": [")
	endLog   = []byte("],\n  \"logging_steps\"")
)

// Write brings the file to the state of the run's newest checkpoint, durably. A file to which lines
// cannot be added is rewritten: at first, after the run went back to a checkpoint, and at its end.
func (g *GrowingTrainerState) Write(c Course, state runner.RunState) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	metrics, known := sizeOf(state.Persistent["metrics"])
	if state.Complete(c.MaxSteps, c.Evaluates) || !known {
		g.size = 0
		return WriteTrainerState(g.Folder, c, state)
	}
	if g.size > 0 && c == g.course && metrics >= g.metrics {
		if grown, err := g.grow(c, state, metrics); grown && err == nil {
			return nil
		}
	}
	return g.begin(c, state, metrics)
}

// Forget makes the next Write rewrite the file: the metrics are no longer those that it has.
func (g *GrowingTrainerState) Forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.size = 0
}

// parts are those of a trainer state's text: what is before the log with its bracket, the entries, and
// what is after them, from the bracket on.
func parts(content []byte) (head, entries, tail []byte, err error) {
	begin, end := bytes.Index(content, beginLog), bytes.LastIndex(content, endLog)
	if begin < 0 || end < begin {
		return nil, nil, nil, errors.New("a trainer state has no log")
	}
	begin += len(beginLog)
	return content[:begin], bytes.TrimRight(content[begin:end], " \n"), content[end:], nil
}

// begin rewrites the file, with room.
func (g *GrowingTrainerState) begin(c Course, state runner.RunState, metrics int64) error {
	g.size = 0
	made, err := newTrainerState(g.Folder, c, state)
	if err != nil {
		return err
	}
	content, err := made.text()
	if err != nil {
		return err
	}
	head, entries, tail, err := parts(content)
	if err != nil {
		return err
	}
	g.course, g.some, g.metrics, g.journal = c, len(entries) > 0, metrics, 0
	g.evaluations = map[int64]Phase{}
	g.log = int64(len(head) + room)
	g.end = g.log + int64(len(entries))
	text := append(withRoom(head, g.log), entries...)
	text = append(text, closing(tail, g.some)...)
	to := filepath.Join(g.Folder, Trainer)
	if err := vfs.ReplaceFile(to, text); err != nil {
		return err
	}
	g.size = int64(len(text))
	return nil
}

// withRoom returns the text before the log with spaces, so that the log begins at a given place.
func withRoom(head []byte, at int64) []byte {
	before := head[:len(head)-len(beginLog)]
	out := append(bytes.Clone(before), bytes.Repeat([]byte(" "), int(at)-len(head))...)
	return append(out, beginLog...)
}

// closing returns the text after the log's entries, if there are some.
func closing(tail []byte, some bool) []byte {
	if !some {
		return tail
	}
	return append([]byte("\n  "), tail...)
}

// grow adds to the file what was logged since, and changes the values before and after the log. It
// returns false if there is no room, or if the file is another one.
func (g *GrowingTrainerState) grow(c Course, state runner.RunState, metrics int64) (grown bool, err error) {
	made, _ := c.withoutHistory(state)
	content, err := made.text()
	if err != nil {
		return false, err
	}
	head, _, tail, err := parts(content)
	if err != nil || int64(len(head)) > g.log {
		return false, err
	}
	added, err := g.entries(c, metrics)
	if err != nil {
		return false, err
	}
	text := append(bytes.Clone(added), closing(tail, g.some || len(added) > 0)...)
	if shorter := g.size - g.end - int64(len(text)); shorter > 0 { // by a digit; spaces are as good
		text = append(text, bytes.Repeat([]byte(" "), int(shorter))...)
	}
	path := filepath.Join(g.Folder, Trainer)
	f, err := vfs.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if info, err := f.Stat(); err != nil || info.Size() != g.size {
		return false, err
	}
	// After each of these writes the file is whole.
	g.size = 0 // in case of an error
	if _, err := f.WriteAt(text, g.end); err != nil {
		return false, err
	}
	if _, err := f.WriteAt(withRoom(head, g.log), 0); err != nil {
		return false, err
	}
	if err := f.Sync(); err != nil {
		return false, err
	}
	g.size = g.end + int64(len(text))
	g.end += int64(len(added))
	g.some, g.metrics = g.some || len(added) > 0, metrics
	maps.DeleteFunc(g.evaluations, func(step int64, _ Phase) bool { return step < state.Step })
	return true, nil
}

// entries returns the text of the log's entries for the metrics that the file does not have.
func (g *GrowingTrainerState) entries(c Course, metrics int64) (text []byte, err error) {
	phases, err := readFrom(filepath.Join(g.Folder, Journal), g.journal, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	phases = phases[:bytes.LastIndexByte(phases, '\n')+1]
	g.journal += int64(len(phases))
	for line := range bytes.Lines(phases) {
		var p Phase
		if json.Unmarshal(line, &p) == nil && p.Event == "phase" {
			addEvaluations(g.evaluations, []Phase{p})
		}
	}
	lines, err := readFrom(filepath.Join(g.Folder, Metrics), g.metrics, metrics-g.metrics)
	if err != nil {
		return nil, err
	}
	some := g.some
	for _, l := range parseLines(lines) {
		entry, err := json.MarshalIndent(c.entry(l, g.evaluations), "    ", "  ")
		if err != nil {
			return nil, err
		}
		if some {
			text = append(text, ',')
		}
		text, some = append(append(text, "\n    "...), entry...), true
	}
	return text, nil
}

// readFrom reads a part of a file, at most n bytes. One that is not there is empty.
func readFrom(path string, at, n int64) (content []byte, err error) {
	f, err := vfs.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return io.ReadAll(io.NewSectionReader(f, at, n))
}
