// Package trackingtest provides a tracking server in memory for tests, with the calls of MLflow's that
// package tracking makes, and the rules of theirs that matter to it.
package trackingtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
)

// MLflow is a server with one experiment, Default.
type MLflow struct {
	// URL is the server's address.
	URL string

	server      *httptest.Server
	mu          sync.Mutex
	down        bool
	fail        func(call int) bool
	calls       int
	created     int
	experiments map[string]string
	runs        map[string]*Run
}

// Run is a run of an experiment.
type Run struct {
	Name, Status, Experiment string // Experiment is its name
	Params                   map[string]string
	Metrics                  map[string][]Value // by key, such as train/loss
}

// Value is a value of a metric.
type Value struct {
	Step  int64
	Value float64
}

// New starts a server. Close ends it.
func New() *MLflow {
	m := &MLflow{experiments: map[string]string{"Default": "0"}, runs: make(map[string]*Run)}
	m.server = httptest.NewServer(m)
	m.URL = m.server.URL
	return m
}

// Close ends the server.
func (m *MLflow) Close() { m.server.Close() }

// Down makes the server cut every connection, or take calls again.
func (m *MLflow) Down(down bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = down
}

// Fail sets what is asked before each call, by its number from 1 on: true cuts the connection.
func (m *MLflow) Fail(fail func(call int) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = fail
}

// Delete removes a run.
func (m *MLflow) Delete(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.runs, id)
}

// Calls returns how many calls came, those that were cut included.
func (m *MLflow) Calls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

// Runs returns copies of all runs, by their ids: run0, run1 and so on, in the order of their creation.
func (m *MLflow) Runs() map[string]Run {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[string]Run, len(m.runs))
	for id, r := range m.runs {
		c := *r
		c.Params, c.Metrics = maps.Clone(r.Params), make(map[string][]Value, len(r.Metrics))
		for key, values := range r.Metrics {
			c.Metrics[key] = slices.Clone(values)
		}
		out[id] = c
	}
	return out
}

// pair is a param or a tag.
type pair struct{ Key, Value string }

// call is the body of any call.
type call struct {
	Name         string `json:"name"`
	ExperimentID string `json:"experiment_id"`
	RunName      string `json:"run_name"`
	RunID        string `json:"run_id"`
	Status       string
	Params       []pair
	Metrics      []struct {
		Key   string
		Value any
		Step  int64
	}
}

// ServeHTTP answers a call.
func (m *MLflow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if m.down || m.fail != nil && m.fail(m.calls) {
		panic(http.ErrAbortHandler)
	}
	var in call
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	status, out := m.answer(strings.TrimPrefix(r.URL.Path, "/api/2.0/mlflow/"), r, in)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(out)
}

func refusal(status int, message string) (int, any) {
	return status, map[string]string{"error_code": "X", "message": message}
}

// answer returns the status and the body of the answer to a call.
func (m *MLflow) answer(name string, r *http.Request, in call) (int, any) {
	done := map[string]string{}
	run := m.runs[in.RunID]
	switch name {
	case "experiments/get-by-name":
		if id, ok := m.experiments[r.URL.Query().Get("experiment_name")]; ok {
			return http.StatusOK, map[string]any{"experiment": map[string]string{"experiment_id": id}}
		}
		return refusal(http.StatusNotFound, "no such experiment")
	case "experiments/create":
		m.experiments[in.Name] = fmt.Sprint(len(m.experiments))
		return http.StatusOK, map[string]string{"experiment_id": m.experiments[in.Name]}
	case "runs/create":
		id := fmt.Sprintf("run%d", m.created)
		m.created++
		m.runs[id] = &Run{Name: in.RunName, Status: "RUNNING", Params: make(map[string]string), Metrics: make(map[string][]Value)}
		for experiment, number := range m.experiments {
			if number == in.ExperimentID {
				m.runs[id].Experiment = experiment
			}
		}
		return http.StatusOK, map[string]any{"run": map[string]any{"info": map[string]string{"run_id": id}}}
	case "runs/get":
		if m.runs[r.URL.Query().Get("run_id")] == nil {
			return refusal(http.StatusNotFound, "no such run")
		}
		return http.StatusOK, done
	}
	switch {
	case run == nil:
		return refusal(http.StatusNotFound, "no such run, or no such call "+name)
	case name == "runs/update":
		run.Status = in.Status
		return http.StatusOK, done
	case name == "runs/log-batch":
		if message := run.log(in); message != "" {
			return refusal(http.StatusBadRequest, message)
		}
		return http.StatusOK, done
	}
	return refusal(http.StatusNotFound, "no such call "+name)
}

// log adds the params and metrics of a call, or says what MLflow would refuse.
func (r *Run) log(in call) (refused string) {
	if len(in.Metrics) > 1000 || len(in.Params) > 100 {
		return "too many"
	}
	for _, p := range in.Params {
		if old, ok := r.Params[p.Key]; ok && old != p.Value {
			return "a param may not change"
		}
		r.Params[p.Key] = p.Value
	}
	for _, m := range in.Metrics {
		value, ok := m.Value.(float64)
		if !ok && m.Value != "NaN" {
			return "not a number"
		} else if !ok {
			value = math.NaN()
		}
		r.Metrics[m.Key] = append(r.Metrics[m.Key], Value{Step: m.Step, Value: value})
	}
	return ""
}
