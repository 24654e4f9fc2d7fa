package train

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/train/params"
)

// Cluster describes the machines that train together, as the environment variable TF_CONFIG does.
type Cluster struct {
	// Workers holds the addresses, host:port, the chief's first.
	Workers []string
	// Task is the index of this machine in Workers; 0 is the chief.
	Task int
}

// ParseTFConfig reads the value of TF_CONFIG:
//
//	{"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": 0}}
//
// If there is no chief, the first worker is the chief. The error for an invalid value is a
// *params.Error. Source: TensorFlow's guide to distributed training, "Setting up the TF_CONFIG
// environment variable".
func ParseTFConfig(value string) (Cluster, error) {
	var config struct {
		Cluster map[string][]string `json:"cluster"`
		Task    struct {
			Type  string `json:"type"`
			Index int    `json:"index"`
		} `json:"task"`
	}
	bad := func(format string, args ...any) (Cluster, error) {
		return Cluster{}, &params.Error{Err: fmt.Errorf("TF_CONFIG: "+format, args...)}
	}
	if err := json.Unmarshal([]byte(value), &config); err != nil {
		return bad("%w", plainJSON(err))
	}
	for kind := range config.Cluster {
		if kind != "chief" && kind != "worker" {
			return bad("the cluster has tasks of type %q; expected chief or worker", kind)
		}
	}
	chiefs, task := config.Cluster["chief"], config.Task
	c := Cluster{Workers: slices.Concat(chiefs, config.Cluster["worker"])}
	switch {
	case len(chiefs) > 1:
		return bad("the cluster has %d chiefs; expected at most 1", len(chiefs))
	case len(c.Workers) == 0:
		return bad("the cluster has no workers; expected at least 1")
	case task.Type != "chief" && task.Type != "worker":
		return bad("task.type is %q; expected chief or worker", task.Type)
	case task.Index < 0 || task.Index >= len(config.Cluster[task.Type]):
		return bad("task.index is %d; expected 0 or more and less than %d, the number of tasks of type %s", task.Index, len(config.Cluster[task.Type]), task.Type)
	}
	c.Task = task.Index
	if task.Type == "worker" {
		c.Task += len(chiefs)
	}
	return c, nil
}

// Strategy returns the params s adapted to the cluster: its machines are the workers, and each
// chooses its own devices. If the cluster has only one machine, it trains without workers and the
// training process reads the data itself.
func (c Cluster) Strategy(s params.Strategy) params.Strategy {
	if len(c.Workers) > 1 {
		s.Workers, s.Devices = strings.Join(c.Workers, ","), ""
		return s
	}
	s.Name, s.Workers = devices.Auto, ""
	if s.Input == params.InputLocal {
		s.Input = params.InputChief
	}
	return s
}

// plainJSON returns an error of encoding/json without the names of Go types.
func plainJSON(err error) error {
	var kind *json.UnmarshalTypeError
	if !errors.As(err, &kind) {
		return fmt.Errorf("invalid JSON: %w", err)
	}
	field, expected := cmp.Or(kind.Field, "the value"), "an object"
	switch kind.Type.Kind() {
	case reflect.Slice:
		field, expected = "a task type of "+field, "a list of addresses, HOST:PORT"
	case reflect.Int:
		expected = "a whole number, 0 or more"
	case reflect.String:
		if expected = "text"; field == "cluster" {
			field = "an address in cluster"
		}
	}
	return fmt.Errorf("%s is %s; expected %s", field, jsonWord(kind.Value), expected)
}

// jsonWord returns a phrase for encoding/json's description of a value, such as "number 1.5".
func jsonWord(value string) string {
	kind, rest, _ := strings.Cut(value, " ")
	switch kind {
	case "array":
		return "a list"
	case "object":
		return "an object"
	case "bool":
		return "true or false"
	case "string":
		return "text"
	}
	if rest == "" {
		return "a " + kind
	}
	return "the " + kind + " " + rest
}
