package tracking

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/web"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
)

// StateFile is the file of a run's folder that says what MLflow has of the run.
const StateFile = "tracking.json"

// MLflow is a sink for a tracking server of MLflow
// (https://mlflow.org/docs/latest/rest-api.html). A run of gorbit is one run there; metrics are
// named PHASE/METRIC, and params as in params.yaml.
type MLflow struct {
	// URL is the server's address.
	URL string
	// Experiment is the experiment's name; it is created if it is not there.
	Experiment string
	// Name is the run's name there.
	Name string
	// Token, or User and Password, are for servers that ask who it is.
	Token, User, Password string
	// Version is that of gorbit.
	Version string

	folder string
	id     string
	sent   map[string]int64
	http   http.Client
}

// Validate returns an error of class fault.Usage if a field cannot be.
func (m *MLflow) Validate() error {
	u, err := url.Parse(m.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fault.Usagef("the address of MLflow is %q; expected one such as http://127.0.0.1:5000", m.URL)
	}
	if u.User != nil {
		return fault.Usagef("the address of MLflow holds a password; set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead")
	}
	if u.Scheme == "http" && !web.IsLoopback(u.Hostname()) && m.Token+m.Password != "" {
		return fault.Usagef("the address of MLflow is %q, and anyone on the way could read the password; expected https://", m.URL)
	}
	if m.Experiment == "" {
		return fault.Usagef("the experiment has no name; expected one, such as Default")
	}
	return nil
}

// state is the content of StateFile.
type state struct {
	MLflow []server `json:"mlflow"`
}

// server is what one server of MLflow has of the run.
type server struct {
	URL        string `json:"url"`
	Experiment string `json:"experiment"`
	RunID      string `json:"run_id"`
	// Sent are the last steps that were sent, by phase.
	Sent map[string]int64 `json:"sent"`
}

func (m *MLflow) readState(folder string) (state, error) {
	var s state
	path := filepath.Join(folder, StateFile)
	content, err := vfs.ReadBounded(path, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(content, &s); err != nil {
		return s, fault.Damagedf("%s is damaged: %w; remove it, and MLflow gets the run once more", path, err)
	}
	return s, nil
}

func (m *MLflow) writeState() error {
	s, err := m.readState(m.folder)
	if err != nil {
		return err
	}
	s.MLflow = slices.DeleteFunc(s.MLflow, m.mine)
	s.MLflow = append(s.MLflow, server{m.URL, m.Experiment, m.id, m.sent})
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(m.folder, StateFile)
	return vfs.ReplaceFile(path, append(content, '\n'))
}

func (m *MLflow) mine(s server) bool { return s.URL == m.URL && s.Experiment == m.Experiment }

// pair is a tag or a param.
type pair struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Begin implements Sink. A run that the server has already is continued.
func (m *MLflow) Begin(ctx context.Context, run *runfolder.Run) (map[string]int64, error) {
	m.folder, m.http.Timeout = run.Folder, 30*time.Second
	m.sent = make(map[string]int64)
	s, err := m.readState(m.folder)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(s.MLflow, m.mine); i >= 0 {
		err := m.call(ctx, http.MethodGet, "runs/get?run_id="+url.QueryEscape(s.MLflow[i].RunID), nil, nil)
		if err == nil {
			m.id = s.MLflow[i].RunID
			for phase, step := range s.MLflow[i].Sent {
				m.sent[phase] = step
			}
			if err := m.update(ctx, "RUNNING", time.Time{}); err != nil || len(m.sent) > 0 {
				return m.sent, err
			}
			return nil, m.params(ctx, run) // the first attempt may have ended before it
		}
		if e := (*answerError)(nil); !errors.As(err, &e) || e.status != http.StatusNotFound {
			return nil, err
		}
		// Somebody deleted it: it is sent again.
	}
	experiment, err := m.experiment(ctx)
	if err != nil {
		return nil, err
	}
	start := run.Written
	if len(run.Processes) > 0 {
		start = run.Processes[0].Start.Time
	}
	tags := []pair{{"mlflow.source.name", "gorbit"}, {"mlflow.source.type", "LOCAL"}, {"gorbit.folder", run.Folder}, {"gorbit.version", m.Version}}
	if len(run.Processes) > 0 {
		p := run.Processes[0].Start
		tags = append(tags, pair{"gorbit.host", p.Host}, pair{"gorbit.model", p.Model}, pair{"gorbit.tensorflow", p.TensorFlow})
	}
	var out struct {
		Run struct {
			Info struct {
				RunID string `json:"run_id"`
			}
		}
	}
	err = m.call(ctx, http.MethodPost, "runs/create", map[string]any{"experiment_id": experiment, "start_time": start.UnixMilli(),
		"run_name": cmp.Or(m.Name, filepath.Base(run.Folder)), "tags": clipped(tags, 5000)}, &out)
	if err != nil {
		return nil, err
	}
	if m.id = out.Run.Info.RunID; m.id == "" {
		return nil, errors.New("MLflow's answer has no id of the new run; expected one")
	}
	if err := m.writeState(); err != nil {
		return nil, err
	}
	return nil, m.params(ctx, run)
}

// params sends the run's params. The same ones may be sent again, others may not.
func (m *MLflow) params(ctx context.Context, run *runfolder.Run) error {
	var params []pair
	for name, value := range run.Params {
		params = append(params, pair{name, cmp.Or(value, `""`)})
	}
	slices.SortFunc(params, func(a, b pair) int { return strings.Compare(a.Key, b.Key) })
	for some := range slices.Chunk(clipped(params, 500), 100) {
		if err := m.call(ctx, http.MethodPost, "runs/log-batch", map[string]any{"run_id": m.id, "params": some}, nil); err != nil {
			return err
		}
	}
	return nil
}

// clipped returns the pairs that have a value, cut to what MLflow takes.
func clipped(pairs []pair, limit int) []pair {
	var kept []pair
	for _, p := range pairs {
		if len(p.Value) > limit {
			p.Value = strings.ToValidUTF8(p.Value[:limit-3], "") + "..."
		}
		if p.Value != "" {
			kept = append(kept, p)
		}
	}
	return kept
}

// experiment returns the id of the experiment.
func (m *MLflow) experiment(ctx context.Context) (string, error) {
	find := func() (string, error) {
		var out struct {
			Experiment struct {
				ID string `json:"experiment_id"`
			}
		}
		err := m.call(ctx, http.MethodGet, "experiments/get-by-name?experiment_name="+url.QueryEscape(m.Experiment), nil, &out)
		return out.Experiment.ID, err
	}
	id, err := find()
	if e := (*answerError)(nil); errors.As(err, &e) && e.status == http.StatusNotFound {
		var out struct {
			ID string `json:"experiment_id"`
		}
		if err := m.call(ctx, http.MethodPost, "experiments/create", map[string]string{"name": m.Experiment}, &out); err == nil {
			return out.ID, nil
		}
		return find() // another run has just created it
	}
	return id, err
}

// Points implements Sink.
func (m *MLflow) Points(ctx context.Context, points []Point) error {
	type metric struct {
		Key       string `json:"key"`
		Value     any    `json:"value"`
		Timestamp int64  `json:"timestamp"`
		Step      int64  `json:"step"`
	}
	now := time.Now().UnixMilli()
	var metrics []metric
	for _, p := range points {
		metrics = append(metrics, metric{p.Phase + "/" + p.Metric, Number(p.Value), now, p.Step})
	}
	if err := m.call(ctx, http.MethodPost, "runs/log-batch", map[string]any{"run_id": m.id, "metrics": metrics}, nil); err != nil {
		return err
	}
	for _, p := range points {
		m.sent[p.Phase] = p.Step
	}
	return m.writeState()
}

// Number returns a value for JSON, which has no NaN and no infinities: Python's names of them, which
// MLflow reads as well.
func Number(v float64) any {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	}
	return v
}

// End implements Sink.
func (m *MLflow) End(ctx context.Context, run *runfolder.Run) error {
	var tags []pair
	if run.Best.Known {
		tags = []pair{{"gorbit.best", fmt.Sprintf("%s %.6g at step %d", run.Best.Metric, run.Best.Value, run.Best.Step)}}
	}
	if tags != nil {
		if err := m.call(ctx, http.MethodPost, "runs/log-batch", map[string]any{"run_id": m.id, "tags": tags}, nil); err != nil {
			return err
		}
	}
	switch run.State {
	case runfolder.Finished:
		return m.update(ctx, "FINISHED", run.Written)
	case runfolder.Failed:
		return m.update(ctx, "FAILED", run.Written)
	case runfolder.Stopped:
		return m.update(ctx, "KILLED", run.Written)
	}
	return nil
}

func (m *MLflow) update(ctx context.Context, status string, end time.Time) error {
	in := map[string]any{"run_id": m.id, "status": status}
	if !end.IsZero() {
		in["end_time"] = end.UnixMilli()
	}
	return m.call(ctx, http.MethodPost, "runs/update", in, nil)
}

// answerError is an answer with a status other than success.
type answerError struct {
	call    string
	status  int
	message string
}

func (e *answerError) Error() string {
	text := fmt.Sprintf("MLflow answers %s with %d %s", e.call, e.status, http.StatusText(e.status))
	if e.message != "" {
		text += ": " + e.message
	}
	if e.status == http.StatusUnauthorized || e.status == http.StatusForbidden {
		text += "; set MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
	}
	return text
}

// maxAnswer bounds how much of an answer is read.
const maxAnswer = 16 << 20

// call makes a call of the REST API.
func (m *MLflow) call(ctx context.Context, method, name string, in, out any) error {
	var body io.Reader
	if in != nil {
		content, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(content)
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(m.URL, "/")+"/api/2.0/mlflow/"+name, body)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	switch {
	case m.Token != "":
		request.Header.Set("Authorization", "Bearer "+m.Token)
	case m.User != "":
		request.SetBasicAuth(m.User, m.Password)
	}
	short, _, _ := strings.Cut(name, "?")
	response, err := m.http.Do(request)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return fmt.Errorf("MLflow at %s does not answer: %w", m.URL, err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("MLflow's answer to %s: %w", short, err)
	}
	if response.StatusCode/100 != 2 {
		var said struct{ Message string }
		_ = json.Unmarshal(content, &said) // a page of a proxy has no message
		message := strings.Join(strings.Fields(said.Message), " ")
		return &answerError{short, response.StatusCode, message[:min(len(message), 300)]}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(content, out); err != nil {
		return fmt.Errorf("MLflow's answer to %s is not what was expected: %w", short, err)
	}
	return nil
}
