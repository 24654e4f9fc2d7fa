package shardinput

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/dense"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/exec/flat"
)

// Data describes the data that the workers of a run read, as the chief has opened it.
type Data struct {
	// Dir is the chief's data folder. Files are its files in order; the paths of files in Dir
	// are relative to it. A worker's files must have the same contents.
	Dir   string             `json:"dir"`
	Files []dataset.FileInfo `json:"files"`
	// Dataset says how to draw batches from the files. Its Files, Part and Layout are ignored.
	Dataset dataset.Config `json:"dataset"`
	// Layout says how to lay out batches: a packed.Config or a dense.Config.
	Layout dataset.Layout `json:"-"`
	// Settings are the chief's settings. A worker's must be equal.
	Settings dataset.Settings `json:"settings"`
	// Workers are the names of the workers in errors, by index.
	Workers []string `json:"workers"`
}

// plainData are Data without their methods.
type plainData Data

// sentData are Data as JSON. One of the layouts is set.
type sentData struct {
	plainData
	Packed *packed.Config `json:"packed,omitempty"`
	Dense  *dense.Config  `json:"dense,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (d Data) MarshalJSON() ([]byte, error) {
	sent := sentData{plainData: plainData(d)}
	switch layout := d.Layout.(type) {
	case packed.Config:
		sent.Packed = &layout
	case dense.Config:
		sent.Dense = &layout
	default:
		return nil, fmt.Errorf("layout is a %T; expected a packed.Config or a dense.Config", layout)
	}
	return json.Marshal(sent)
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *Data) UnmarshalJSON(text []byte) error {
	var sent sentData
	if err := json.Unmarshal(text, &sent); err != nil {
		return err
	}
	*d = Data(sent.plainData)
	switch {
	case sent.Packed != nil && sent.Dense == nil:
		d.Layout = *sent.Packed
	case sent.Dense != nil && sent.Packed == nil:
		d.Layout = *sent.Dense
	default:
		return errors.New("the data have no layout, or two layouts; expected one")
	}
	return nil
}

// Config is the configuration of one worker.
type Config struct {
	Data Data `json:"data"`
	// Worker is the index of the worker.
	Worker int `json:"worker"`
	// Part is the part of its replicas among all, and Replicas their number.
	Part     dataset.Part `json:"part"`
	Replicas int          `json:"replicas"`
	// Features are the inputs of the graph, in the order of flat.DTypes.
	Features []flat.Feature `json:"features"`
	// LongRows is the number of tokens that a row of a micro-batch may have at no extra cost;
	// 0 means as many as the rows of the data.
	LongRows int `json:"long_rows"`
	// Rows are the features whose distinct values a draw returns.
	Rows []string `json:"rows"`
}

const (
	// maxConfig limits the JSON of a Config: about a hundred thousand files.
	maxConfig = 16 << 20
	// maxMicro limits the micro-batches of a worker.
	maxMicro = 1 << 16
	// maxRow limits the tokens of a row.
	maxRow = 1 << 16
	// maxAhead limits the readers, and the batches that they read ahead.
	maxAhead = 1 << 12
)

// Validate returns an error that names the first invalid field.
func (c Config) Validate() error {
	switch {
	case len(c.Data.Files) == 0:
		return errors.New("the data has no files")
	case c.Replicas < 1 || c.Replicas > maxMicro:
		return fmt.Errorf("number of replicas is %d; expected 1 to %d", c.Replicas, maxMicro)
	case c.Worker < 0 || c.Worker >= len(c.Data.Workers):
		return fmt.Errorf("worker is %d; expected 0 to %d", c.Worker, len(c.Data.Workers)-1)
	case c.Part.Of == 0:
		return errors.New("the part is not set")
	case c.LongRows < 0 || c.LongRows > maxRow:
		return fmt.Errorf("tokens of long rows are %d; expected 0 to %d", c.LongRows, maxRow)
	case c.Data.Dataset.Readers < 0 || c.Data.Dataset.Readers > maxAhead || c.Data.Dataset.Prefetch < 0 || c.Data.Dataset.Prefetch > maxAhead:
		return fmt.Errorf("readers and prefetch are %d and %d; expected 0 to %d", c.Data.Dataset.Readers, c.Data.Dataset.Prefetch, maxAhead)
	}
	return flat.Check(c.Features)
}

// JSON returns the configuration in the form of GorbitDraw's input.
func (c Config) JSON() ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("local input: %w", err)
	}
	text, err := json.Marshal(c)
	if err == nil && len(text) > maxConfig {
		err = fmt.Errorf("local input: the names of %d files have %d bytes; expected at most %d; use fewer and larger files", len(c.Data.Files), len(text), maxConfig)
	}
	return text, err
}

func parseConfig(text []byte) (Config, error) {
	var c Config
	if len(text) > maxConfig {
		return c, fmt.Errorf("the configuration has %d bytes; expected at most %d", len(text), maxConfig)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, err
	}
	return c, c.Validate()
}

// Error means that a worker cannot read its part because of the data, not of the worker.
type Error struct {
	Text  string
	Class fault.Class // of the error at the worker
}

func (e *Error) Error() string { return e.Text }

// Is reports whether the target is the class of the error at the worker.
func (e *Error) Is(target error) bool { return target == e.Class }

const (
	// marker is the start of an Error in TensorFlow's message about a failed operation. The
	// class and the quoted text follow.
	marker = "gorbit local input: "
	// maxText limits the text of an Error: gRPC truncates longer ones.
	maxText = 3 << 10
)

// mark returns the text of an error for the status of an operation.
func mark(err error) string {
	text := err.Error()
	return marker + fault.Of(err).Error() + ": " + strconv.Quote(text[:min(len(text), maxText)])
}

// Find returns the Error in the error of an operation, or nil if there is none.
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
