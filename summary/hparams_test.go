package summary

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// readHParams reads sessions as TensorBoard's HParams tab does, through the plugin itself: its rows
// of several runs, with their metrics. It also writes a session by the plugin, whose messages those of
// a Writer must equal.
const readHParams = `
import json, sys
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups, get_experiment, metadata, summary

m = plugin_event_multiplexer.EventMultiplexer(tensor_size_guidance={"scalars": 10, "hparams": 10})
m.AddRunsFromDirectory(sys.argv[1])
m.Reload()
provider = data_provider.MultiplexerDataProvider(m, sys.argv[1])
ctx = backend_context.Context(base_plugin.TBContext(data_provider=provider))
request = RequestContext()
data = ctx.hparams_metadata(request, "")
experiment = get_experiment.Handler(request, ctx, "", api_pb2.GetExperimentRequest(include_metrics=True)).run()
listing = api_pb2.ListSessionGroupsRequest(
    allowed_statuses=[0, 1, 2, 3], start_index=0, slice_size=100,
    col_params=[api_pb2.ColParams(metric=i.name) for i in experiment.metric_infos])
groups = list_session_groups.Handler(request, ctx, "", listing).run().session_groups
rows = {}
for g in groups:
    s = g.sessions[0]
    rows[s.name] = dict(
        status=s.status, started=s.start_time_secs, ended=s.end_time_secs,
        hparams={k: getattr(v, v.WhichOneof("kind")) for k, v in g.hparams.items()},
        metrics={e.name.group + ":" + e.name.tag: e.value for e in s.metric_values})
content = data["a"][metadata.SESSION_START_INFO_TAG]
ours = metadata.parse_session_start_info_plugin_data(content)
own = metadata.parse_session_start_info_plugin_data(summary.session_start_pb(
    dict(rate=0.5, steps=3, name="x", on=True), start_time_secs=ours.start_time_secs).value[0].metadata.plugin_data.content)
print(json.dumps(dict(rows=rows, same=ours == own)))
`

func TestHParamsAsTensorBoardReadsThem(t *testing.T) {
	dir := t.TempDir()
	write := func(folder string, fill func(w *Writer)) {
		w, err := NewWriter(filepath.Join(dir, folder), Clock(func() time.Time { return time.Unix(1700000000, 0) }))
		if err != nil {
			t.Fatal(err)
		}
		fill(w)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	start := func(w *Writer, hparams map[string]any) {
		if err := w.SessionStart(hparams); err != nil {
			t.Fatal(err)
		}
	}
	write("a", func(w *Writer) {
		start(w, map[string]any{"rate": 0.5, "steps": int64(3), "name": "x", "on": true})
		w.SessionEnd(3)
	})
	write("b", func(w *Writer) { start(w, map[string]any{"rate": 0.25, "steps": 4, "name": "", "on": false}) })
	for folder, loss := range map[string]float64{"a/eval": 0.125, "b/eval": 2} {
		write(folder, func(w *Writer) {
			w.Scalar("loss", 1, 7)
			w.Scalar("loss", 3, loss)
		})
	}
	var got struct {
		Rows map[string]struct {
			Status         int
			Started, Ended float64
			HParams        map[string]any
			Metrics        map[string]float64
		}
		Same bool
	}
	if err := json.Unmarshal([]byte(testkit.RunPython(t, readHParams, dir)), &got); err != nil {
		t.Fatal(err)
	}
	if !got.Same {
		t.Error("the session is not what TensorBoard's plugin writes")
	}
	a, b := got.Rows["a"], got.Rows["b"]
	if len(got.Rows) != 2 || a.Status != 1 || a.Started != 1700000000 || a.Ended != 1700000000 || b.Status != 0 {
		t.Errorf("the sessions are %+v; expected a, which has ended, and b", got.Rows)
	}
	if a.HParams["rate"] != 0.5 || a.HParams["steps"] != 3.0 || a.HParams["name"] != "x" || a.HParams["on"] != true || b.HParams["on"] != false {
		t.Errorf("the hyperparameters are %v and %v", a.HParams, b.HParams)
	}
	if a.Metrics["eval:loss"] != 0.125 || b.Metrics["eval:loss"] != 2 {
		t.Errorf("the metrics are %v and %v; expected the last loss of each", a.Metrics, b.Metrics)
	}
}
