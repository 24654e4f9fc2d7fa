package shardinput

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/internal/fault"
	"github.com/gorbit-ml/gorbit/internal/flat"
)

// Data says what the workers of a run read. The chief makes it of what it has opened.
type Data struct {
	// Dir is the chief's folder of the data, and Files are its files, in order, the paths
	// of those in the folder from there. A worker's files must hold the same.
	Dir   string             `json:"dir"`
	Files []dataset.FileInfo `json:"files"`
	// Dataset is how batches are drawn from them; its Files, Part and Layout do not count.
	Dataset dataset.Config `json:"dataset"`
	// Layout is how batches are laid out.
	Layout packed.Config `json:"layout"`
	// Settings are the chief's, which a worker's must equal.
	Settings dataset.Settings `json:"settings"`
	// Workers are what the workers are called in errors, by their number.
	Workers []string `json:"workers"`
}

// Config is what one worker is told.
type Config struct {
	Data Data `json:"data"`
	// Worker is its number.
	Worker int `json:"worker"`
	// Part is that of its replicas among all, and Replicas is how many these are.
	Part     dataset.Part `json:"part"`
	Replicas int          `json:"replicas"`
	// Features are those that the graph takes, Int32s of them of int32 and first.
	Features []flat.Feature `json:"features"`
	Int32s   int            `json:"int32s"`
	// LongRows is how many tokens the rows of a micro-batch may have at no cost; 0: as
	// many as the data's.
	LongRows int `json:"long_rows"`
	// Rows are the features whose different numbers a draw tells.
	Rows []string `json:"rows"`
}

const (
	// maxConfig bounds the JSON of a Config: a hundred thousand files.
	maxConfig = 16 << 20
	// maxMicro bounds the micro-batches of a worker.
	maxMicro = 1 << 16
	// maxRow bounds the tokens of a row.
	maxRow = 1 << 16
	// maxAhead bounds readers and what they read ahead.
	maxAhead = 1 << 12
)

// Validate reports the first thing in the configuration that cannot be.
func (c Config) Validate() error {
	switch {
	case len(c.Data.Files) == 0:
		return errors.New("no files")
	case c.Replicas < 1 || c.Replicas > maxMicro:
		return fmt.Errorf("%d replicas", c.Replicas)
	case c.Worker < 0 || c.Worker >= len(c.Data.Workers):
		return fmt.Errorf("worker %d of %d", c.Worker, len(c.Data.Workers))
	case c.Part.Of == 0:
		return errors.New("no part")
	case c.Int32s < 0 || c.Int32s > len(c.Features):
		return fmt.Errorf("%d features of int32 among %d", c.Int32s, len(c.Features))
	case c.LongRows < 0 || c.LongRows > maxRow:
		return fmt.Errorf("rows of %d tokens", c.LongRows)
	case c.Data.Dataset.Readers < 0 || c.Data.Dataset.Readers > maxAhead || c.Data.Dataset.Prefetch < 0 || c.Data.Dataset.Prefetch > maxAhead:
		return fmt.Errorf("%d readers, %d batches ahead", c.Data.Dataset.Readers, c.Data.Dataset.Prefetch)
	}
	return nil
}

// JSON returns the configuration as GorbitDraw takes it.
func (c Config) JSON() ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("local input: %w", err)
	}
	text, err := json.Marshal(c)
	if err == nil && len(text) > maxConfig {
		err = fmt.Errorf("local input: the names of %d files are %d bytes, and %d are the most: use fewer and larger files", len(c.Data.Files), len(text), maxConfig)
	}
	return text, err
}

func parseConfig(text []byte) (Config, error) {
	var c Config
	if len(text) > maxConfig {
		return c, fmt.Errorf("a configuration of %d bytes", len(text))
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, err
	}
	return c, c.Validate()
}

// Error is why a worker cannot read its part: the data, not the worker, is at fault.
type Error struct {
	Text  string
	Class fault.Class // of the error at the worker
}

func (e *Error) Error() string { return e.Text }

// Is reports whether the target is the class of the error at the worker.
func (e *Error) Is(target error) bool { return target == e.Class }

const (
	// marker begins an Error within what TensorFlow says of an operation's failure. The
	// class follows, and then the text in quotes.
	marker = "gorbit local input: "
	// maxText bounds an Error's text: gRPC cuts longer ones off.
	maxText = 3 << 10
)

// mark returns the text for an operation's status.
func mark(err error) string {
	text := err.Error()
	return marker + fault.Of(err).Error() + ": " + strconv.Quote(text[:min(len(text), maxText)])
}

// Find returns the Error that an operation failed with, or nil where err is of something
// else.
func Find(err error) *Error {
	_, rest, found := strings.Cut(err.Error(), marker)
	if !found {
		return nil
	}
	word, rest, found := strings.Cut(rest, ": ")
	class := fault.Class(word)
	switch class {
	case fault.Damaged, fault.Usage, fault.Failed:
	case fault.Stopped:
		class = fault.Failed // a worker that was stopped has saved nothing
	default:
		return nil
	}
	quoted, err := strconv.QuotedPrefix(rest)
	if !found || err != nil {
		return nil
	}
	text, err := strconv.Unquote(quoted)
	if err != nil {
		return nil
	}
	return &Error{text, class}
}
