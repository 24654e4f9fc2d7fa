package job

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/summary"
)

// histogramBuckets is TensorBoard's own number.
const histogramBuckets = 30

// board is what TensorBoard shows of a run: scalars under train/ and eval/ as
// Orbit lays them out, the graph, the params, and histograms of the variables.
type board struct {
	train, eval events
}

// events is an event file that is opened once it is known where the run goes on.
type events struct{ *summary.Writer }

// open opens both files for a run that goes on behind a step.
func (b *board) open(folder string, step int64, p Params, s *strategy.OneDevice) error {
	for name, e := range map[string]*events{"train": &b.train, "eval": &b.eval} {
		w, err := summary.NewWriter(filepath.Join(folder, name), summary.ResumeAt(step+1))
		if err != nil {
			return fmt.Errorf("summaries: %w", err)
		}
		e.Writer = w
	}
	if step > 0 {
		return nil
	}
	text, err := p.YAML()
	if err != nil {
		return err
	}
	b.train.Text("params", 0, "```yaml\n"+string(text)+"```")
	graph, err := s.GraphDef()
	if err != nil {
		return err
	}
	b.train.Graph(graph)
	return nil
}

func (b *board) close(log *slog.Logger) {
	for _, e := range []events{b.train, b.eval} {
		if e.Writer == nil {
			continue
		}
		if err := e.Close(); err != nil {
			log.Error("summaries", "error", err)
		}
	}
}

// histograms returns an action that writes the distribution of every trained
// variable.
func (b *board) histograms(m *model) runner.Action {
	return func(ctx context.Context, step int64, _ runner.Outputs) error {
		for _, v := range m.Variables() {
			if v.Slot {
				continue
			}
			values, err := m.Read(ctx, v.Name)
			if err != nil {
				return err
			}
			flat, err := float32s(values[0])
			if err != nil {
				return fmt.Errorf("histogram of %s: %w", v.Name, err)
			}
			b.eval.Histogram(v.Name, step, flat, histogramBuckets)
		}
		return nil
	}
}

// float32s returns the elements of a float32 tensor.
func float32s(t *tf.Tensor) ([]float32, error) {
	var content bytes.Buffer
	if _, err := t.WriteContentsTo(&content); err != nil {
		return nil, err
	}
	out := make([]float32, content.Len()/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.NativeEndian.Uint32(content.Bytes()[4*i:]))
	}
	return out, nil
}
