package tune

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Report is an evaluation of a trial.
type Report struct {
	Step  int64
	Value float64
}

// Trial is a trial of a study.
type Trial struct {
	// Number is the trial's position in the study, from 0.
	Number int
	State  State
	// Params are values by the names of params, and Distributions where each came from.
	Params        map[string]float64
	Distributions map[string]Distribution
	// Reports are the evaluations, in the order in which they came.
	Reports []Report
	// Value is that of the objective, if HasValue is set: of a complete trial that of the best
	// evaluation, of a pruned one that of the last.
	Value    float64
	HasValue bool
	// Run is the folder of the trial's run, from that of the study; "" if gorbit does not run it.
	Run string
	// Error says why the trial failed; "" if it did not, or if Optuna says nothing of it.
	Error string
	// Prune says that the pruner wants the trial to end. It is set by the last report.
	Prune bool

	id    int       // in the journal, over all its studies
	rungs []float64 // values at the rungs of asha that were reached
}

// Own reports whether gorbit runs the trial.
func (t *Trial) Own() bool { return t.Run != "" }

// Study is a study: what its journal says.
type Study struct {
	name   string
	config Config
	trials []*Trial

	directions []int          // in the journal; nil before the study is there
	live       map[int]string // the studies in the journal that were not deleted, with their names
	studies    int            // all that were ever in the journal
	configured bool
	byID       map[int]*Trial // of this study
	all        int            // trials of all studies in the journal
	lines      int
}

// own is the study in the journal that is gorbit's: the first one.
const own = 0

// NewStudy returns the study of an empty journal, which will have the given name. In a journal that
// has a study, the first one is taken, whatever its name.
func NewStudy(name string) *Study {
	return &Study{name: name, live: make(map[int]string), byID: make(map[int]*Trial)}
}

// Name returns the study's name in the journal.
func (s *Study) Name() string { return s.name }

// Config returns the study's configuration, and whether the journal has one.
func (s *Study) Config() (Config, bool) { return s.config, s.configured }

// Trials returns the trials, in the order of their numbers. They are the study's own.
func (s *Study) Trials() []*Trial { return s.trials }

// Apply applies a line of the journal.
func (s *Study) Apply(line []byte) error {
	s.lines++
	op, err := decode(line)
	if err == nil {
		err = s.apply(op)
	}
	if err != nil {
		return fmt.Errorf("line %d: %w", s.lines, err)
	}
	return nil
}

func (s *Study) apply(op operation) error {
	switch *op.Code {
	case opCreateStudy:
		s.createStudy(op)
	case opDeleteStudy:
		delete(s.live, op.StudyID)
	case opStudyUserAttr:
		return s.configure(op)
	case opCreateTrial:
		return s.createTrial(op)
	case opTrialParam, opTrialState, opTrialReport, opTrialUserAttr:
		t := s.byID[op.TrialID]
		if t == nil || t.State.finished() { // of another study, or refused by Optuna as well
			return nil
		}
		return s.applyTrial(t, op)
	case opStudySystemAttr, opTrialSystemAttr, opDiscardTrials:
	default:
		return fmt.Errorf("has op_code %d; expected 0 to %d", *op.Code, opDiscardTrials)
	}
	return nil
}

func (s *Study) createStudy(op operation) {
	for _, name := range s.live {
		if name == op.Name { // refused by Optuna as well
			return
		}
	}
	if s.studies == own {
		s.name, s.directions = op.Name, op.Directions
	}
	s.live[s.studies] = op.Name
	s.studies++
}

// deleted reports whether the study was deleted from the journal.
func (s *Study) deleted() bool {
	_, lives := s.live[own]
	return s.studies > own && !lives
}

// configure takes the configuration of the study.
func (s *Study) configure(op operation) error {
	text, ok := op.UserAttr[studyAttr]
	if !ok || op.StudyID != own {
		return nil
	}
	var c Config
	if err := json.Unmarshal(text, &c); err != nil {
		return fmt.Errorf("attribute %s is not the configuration of a study: %w", studyAttr, err)
	}
	if err := c.Validate(); err != nil {
		return fmt.Errorf("attribute %s: %w", studyAttr, err)
	}
	s.config, s.configured = c, true
	return nil
}

func (s *Study) createTrial(op operation) error {
	if _, lives := s.live[op.StudyID]; !lives { // refused by Optuna as well
		return nil
	}
	id := s.all
	s.all++
	if op.StudyID != own {
		return nil
	}
	t := &Trial{Number: len(s.trials), id: id, Params: map[string]float64{}, Distributions: map[string]Distribution{}}
	if op.State != nil {
		t.State = *op.State
	}
	for name, v := range op.Params {
		if err := t.set(name, float64(v), op.Distributions[name]); err != nil {
			return err
		}
	}
	if op.Value != nil {
		op.Values = []number{*op.Value}
	}
	t.value(op.Values)
	if err := t.attributes(op.UserAttrs); err != nil {
		return err
	}
	s.trials = append(s.trials, t)
	s.byID[id] = t
	reports, err := reportsOf(op.Reports)
	for _, r := range reports {
		s.report(t, r)
	}
	return err
}

func (s *Study) applyTrial(t *Trial, op operation) error {
	switch *op.Code {
	case opTrialParam:
		return t.set(op.ParamName, float64(op.ParamValue), op.Distribution)
	case opTrialState:
		if op.State == nil {
			return errors.New("has no state")
		}
		t.State = *op.State
		t.value(op.Values)
	case opTrialReport:
		s.report(t, Report{op.Step, float64(op.Report)})
	case opTrialUserAttr:
		return t.attributes(op.UserAttr)
	}
	return nil
}

// set gives a trial a param.
func (t *Trial) set(name string, v float64, distribution string) error {
	var d Distribution
	if err := json.Unmarshal(quoteWords([]byte(distribution)), &d); err != nil {
		return fmt.Errorf("distribution of param %s: %w", name, err)
	}
	t.Params[name], t.Distributions[name] = v, d
	return nil
}

// value gives a trial the value of the objective. Studies of several objectives are not gorbit's.
func (t *Trial) value(values []number) {
	if len(values) == 1 {
		t.Value, t.HasValue = float64(values[0]), true
	}
}

// attributes takes the attributes that gorbit knows.
func (t *Trial) attributes(attrs map[string]json.RawMessage) error {
	for name, to := range map[string]*string{runAttr: &t.Run, errorAttr: &t.Error} {
		if text, ok := attrs[name]; ok {
			if err := json.Unmarshal(text, to); err != nil {
				return fmt.Errorf("attribute %s: %w", name, err)
			}
		}
	}
	return nil
}

// report takes an evaluation of a trial and judges it.
func (s *Study) report(t *Trial, r Report) {
	t.Reports = append(t.Reports, r)
	if s.configured && !t.Prune {
		t.Prune = s.judge(t)
	}
}

// ConfigError says that a study continues with another configuration than it began with.
type ConfigError struct{ Field string }

func (e *ConfigError) Error() string {
	return fmt.Sprintf("%s is not what the study began with", e.Field)
}

// Begin returns the operations that begin a study, or none if the journal has it with this
// configuration. The number of trials may be another one. Base must be the study's own, if it has
// one. The error is a *ConfigError if the study has another configuration.
func (s *Study) Begin(c Config) ([]Op, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if s.deleted() {
		return nil, errors.New("the study was deleted from its journal; expected another folder for a new one")
	}
	if field := s.config.differs(c); s.configured && field != "" {
		return nil, &ConfigError{field}
	}
	if s.configured && s.config.Trials == c.Trials {
		return nil, nil
	}
	directions := []int{1}
	if c.Direction == Maximize {
		directions = []int{2}
	}
	var ops []Op
	switch {
	case s.studies == own:
		ops = append(ops, encode(opCreateStudy, "study_name", s.name, "directions", directions))
	case !slices.Equal(s.directions, directions):
		return nil, &ConfigError{"direction"}
	}
	if !s.configured {
		ops = append(ops, encode(opStudySystemAttr, "study_id", own, "system_attr", map[string]any{metricNames: []string{c.Objective}}))
	}
	return append(ops, encode(opStudyUserAttr, "study_id", own, "user_attr", map[string]any{studyAttr: c})), nil
}

// begun returns the number of trials that gorbit runs or ran.
func (s *Study) begun() int {
	n := 0
	for _, t := range s.trials {
		if t.Own() {
			n++
		}
	}
	return n
}

// Ask returns the operation that begins the next trial, or nil if there is none to begin.
func (s *Study) Ask(now time.Time) Op {
	if !s.configured || s.deleted() || s.begun() >= s.config.most() {
		return nil
	}
	number := len(s.trials)
	return createTrial(own, s.sample(number), s.config.Space, RunFolder(number), now)
}

// RunFolder returns the folder of the run of a trial of gorbit's, with slashes, in that of the study.
func RunFolder(trial int) string { return fmt.Sprintf("trials/%04d", trial) }

// Report returns the operation that tells of an evaluation of a trial, or nil if the journal has it,
// or has a later one, or the trial is over.
func (s *Study) Report(trial int, r Report) Op {
	t := s.trials[trial]
	if n := len(t.Reports); t.State != Running || t.Prune || n > 0 && t.Reports[n-1].Step >= r.Step {
		return nil
	}
	return encode(opTrialReport, "trial_id", t.id, "step", r.Step, "intermediate_value", number(r.Value))
}

// End returns the operations that end a trial of gorbit's: pruned if the pruner wants that, failed
// with a sentence if there is one, and complete otherwise. It returns none if the trial is over.
func (s *Study) End(trial int, sentence string, now time.Time) []Op {
	t := s.trials[trial]
	if t.State.finished() {
		return nil
	}
	state := func(state State, values any) Op {
		return encode(opTrialState, "trial_id", t.id, "state", state, "values", values, "datetime_complete", stamp(now))
	}
	if t.Prune {
		last := t.Reports[len(t.Reports)-1].Value
		if math.IsNaN(last) || math.IsInf(last, 0) {
			return []Op{state(Pruned, nil)}
		}
		return []Op{state(Pruned, []float64{last})}
	}
	best, ok := s.bestReport(t)
	if sentence == "" && !ok {
		sentence = fmt.Sprintf("no evaluation has a finite %s", s.config.Objective)
	}
	if sentence != "" {
		return []Op{encode(opTrialUserAttr, "trial_id", t.id, "user_attr", map[string]string{errorAttr: sentence}), state(Failed, nil)}
	}
	return []Op{state(Complete, []float64{best})}
}

// better reports whether a is better than b. NaN is worse than all.
func (c Config) better(a, b float64) bool {
	switch {
	case math.IsNaN(a):
		return false
	case math.IsNaN(b):
		return true
	case c.Direction == Minimize:
		return a < b
	}
	return a > b
}

// compare orders the better of two values first.
func (c Config) compare(a, b float64) int {
	switch {
	case c.better(a, b):
		return -1
	case c.better(b, a):
		return 1
	}
	return 0
}

// bestReport returns the best of a trial's evaluations that is finite.
func (s *Study) bestReport(t *Trial) (best float64, ok bool) {
	for _, r := range t.Reports {
		if !math.IsNaN(r.Value) && !math.IsInf(r.Value, 0) && (!ok || s.config.better(r.Value, best)) {
			best, ok = r.Value, true
		}
	}
	return best, ok
}

// Done reports whether gorbit has no trial to begin or to continue with.
func (s *Study) Done() bool {
	for _, t := range s.trials {
		if t.Own() && !t.State.finished() {
			return false
		}
	}
	return s.configured && s.begun() >= s.config.most()
}

// Most returns the number of trials that gorbit runs in all.
func (s *Study) Most() int { return s.config.most() }

// Best returns the best of the complete trials, the first of equals, or nil if there is none.
func (s *Study) Best() *Trial {
	var best *Trial
	for _, t := range s.trials {
		if t.State == Complete && t.HasValue && (best == nil || s.config.better(t.Value, best.Value)) {
			best = t
		}
	}
	return best
}

// hopeless is the number of trials that fail before any other that ends a study.
const hopeless = 3

// Hopeless returns the error of the last trial if the study is not worth continuing: the first
// trials of gorbit's all failed. It returns "" otherwise.
func (s *Study) Hopeless() string {
	failed, last := 0, ""
	for _, t := range s.trials {
		switch {
		case t.Own() && t.State == Failed:
			failed++
			last = t.Error
		case t.State == Complete || t.State == Pruned:
			return ""
		}
	}
	if failed < min(hopeless, s.config.most()) {
		return ""
	}
	return last
}
