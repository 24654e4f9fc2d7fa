package tune

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
)

// The operations of a journal, as JournalOperation in Optuna numbers them.
const (
	opCreateStudy = iota
	opDeleteStudy
	opStudyUserAttr
	opStudySystemAttr
	opCreateTrial
	opTrialParam
	opTrialState
	opTrialReport
	opTrialUserAttr
	opTrialSystemAttr
	opDiscardTrials // reserved there
)

// State is the state of a trial, as Optuna numbers it.
type State int

// The states of a trial.
const (
	Running State = iota
	Complete
	Pruned
	Failed
	Waiting // made by Optuna's enqueue_trial, which has it run by optuna
)

// String returns the name of a state.
func (s State) String() string {
	if s < Running || s > Waiting {
		return strconv.Itoa(int(s))
	}
	return [...]string{"running", "complete", "pruned", "failed", "waiting"}[s]
}

// finished reports whether nothing changes any more.
func (s State) finished() bool { return s == Complete || s == Pruned || s == Failed }

// The attributes that say what Optuna has no place for.
const (
	studyAttr = "gorbit"       // of a study: its Config
	runAttr   = "gorbit:run"   // of a trial that gorbit runs: the folder of its run, from that of the study
	errorAttr = "gorbit:error" // of a trial that failed: why
)

// metricNames is the attribute in which Optuna keeps the names of objectives.
const metricNames = "study:metric_names"

// worker is who wrote a line. Optuna has the process and thread there, to know its own lines again.
const worker = "gorbit"

// Op is a line of the journal. It is written as it is, with a newline after it.
type Op []byte

// number is a float64 that may be none: NaN and infinities are bare words in Python's JSON.
type number float64

// UnmarshalJSON reads a number, or one of the words that decode put into quotes.
func (n *number) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseFloat(string(bytes.Trim(b, `"`)), 64)
	*n = number(v)
	return err
}

func (n number) text() string {
	switch v := float64(n); {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	default:
		b, _ := json.Marshal(v) // a finite number
		return string(b)
	}
}

// operation has the fields of all operations.
type operation struct {
	Code       *int                       `json:"op_code"`
	StudyID    int                        `json:"study_id"`
	TrialID    int                        `json:"trial_id"`
	Name       string                     `json:"study_name"`
	Directions []int                      `json:"directions"`
	UserAttr   map[string]json.RawMessage `json:"user_attr"`
	UserAttrs  map[string]json.RawMessage `json:"user_attrs"`

	State         *State            `json:"state"`
	Value         *number           `json:"value"`
	Values        []number          `json:"values"`
	Distributions map[string]string `json:"distributions"`
	Params        map[string]number `json:"params"`
	Reports       map[string]number `json:"intermediate_values"`

	ParamName    string `json:"param_name"`
	ParamValue   number `json:"param_value_internal"`
	Distribution string `json:"distribution"`
	Step         int64  `json:"step"`
	Report       number `json:"intermediate_value"`
}

// decode reads a line of the journal.
func decode(line []byte) (op operation, err error) {
	if err := json.Unmarshal(quoteWords(line), &op); err != nil {
		return op, fmt.Errorf("is not a line of an Optuna journal: %w", err)
	}
	if op.Code == nil {
		return op, fmt.Errorf("is not a line of an Optuna journal: has no op_code")
	}
	return op, nil
}

// quoteWords puts NaN, Infinity and -Infinity into quotes where they are numbers.
func quoteWords(line []byte) []byte {
	if !bytes.Contains(line, []byte("NaN")) && !bytes.Contains(line, []byte("Infinity")) {
		return line
	}
	out := make([]byte, 0, len(line)+16)
	for inside := false; len(line) > 0; {
		switch {
		case inside && line[0] == '\\' && len(line) > 1:
			out, line = append(out, line[:2]...), line[2:]
			continue
		case line[0] == '"':
			inside = !inside
		case !inside:
			if word := leadingWord(line); word != "" {
				out, line = append(out, `"`+word+`"`...), line[len(word):]
				continue
			}
		}
		out, line = append(out, line[0]), line[1:]
	}
	return out
}

func leadingWord(line []byte) string {
	for _, word := range []string{"NaN", "Infinity", "-Infinity"} {
		if bytes.HasPrefix(line, []byte(word)) {
			return word
		}
	}
	return ""
}

// encode writes an operation. fields are names and values in turn.
func encode(code int, fields ...any) Op {
	out := fmt.Appendf(nil, `{"op_code":%d,"worker_id":%q`, code, worker)
	for i := 0; i < len(fields); i += 2 {
		text, isNumber := "", false
		if n, ok := fields[i+1].(number); ok {
			text, isNumber = n.text(), true
		}
		if !isNumber {
			b, err := json.Marshal(fields[i+1])
			if err != nil {
				panic(fmt.Sprintf("tune: %v", err)) // only values of our own come here
			}
			text = string(b)
		}
		out = fmt.Appendf(out, `,%q:%s`, fields[i], text)
	}
	return append(out, '}')
}

// stamp writes a time as Optuna does.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000+00:00") }

// createTrial writes a trial with all its params in one line, so that no trial has some of them.
func createTrial(study int, params map[string]float64, space []Param, run string, now time.Time) Op {
	distributions, values := map[string]string{}, map[string]float64{}
	for _, p := range space {
		b, err := json.Marshal(p.Distribution)
		if err != nil {
			panic(fmt.Sprintf("tune: %v", err)) // Validate has seen it
		}
		distributions[p.Name], values[p.Name] = string(b), params[p.Name]
	}
	return encode(opCreateTrial, "study_id", study, "datetime_start", stamp(now), "state", Running, "value", nil, "values", nil,
		"distributions", distributions, "params", values, "user_attrs", map[string]string{runAttr: run}, "system_attrs", struct{}{}, "intermediate_values", struct{}{})
}

// reportsOf returns the reports of a trial that was added as a whole, in the order of the steps.
func reportsOf(values map[string]number) ([]Report, error) {
	var out []Report
	for _, text := range slices.Sorted(maps.Keys(values)) {
		step, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("step %q of intermediate_values is not a whole number", text)
		}
		out = append(out, Report{step, float64(values[text])})
	}
	slices.SortFunc(out, func(a, b Report) int { return int(min(1, max(-1, a.Step-b.Step))) })
	return out, nil
}
