package receipt

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/params"
)

// mostIntervals is how many intervals between two checkpoints Replay takes: the first, the last, and others
// that are drawn.
const mostIntervals = 3

// Interval is a part of a training that is made again, from one kept checkpoint on.
type Interval struct {
	// From is the step of the checkpoint that it begins with. To is that of the next one, or 0 if that
	// is not within the steps to make.
	From, To int64
}

// Replay makes steps of a run again and compares what comes out.
type Replay struct {
	// Steps is the most steps of an interval.
	Steps int64
	// Data is where the data are now, if they were moved.
	Data string
}

// Replayed is what came of an interval.
type Replayed struct {
	Interval
	// End is the last step that was made.
	End int64
	// Tensors are how many of the next checkpoint are the same, and Lines how many of metrics.jsonl.
	Tensors, Lines int
	// Difference is what differs first, a sentence; "" for nothing.
	Difference string
}

// Run makes intervals of a run again, each in a folder that is removed, and calls done after each. A run
// on another kind of machine is refused with an error of class fault.Usage, because its bits may differ.
func (r Replay) Run(ctx context.Context, folder string, env train.Env, done func(Replayed) error) error {
	run, err := runfolder.Read(folder, false, time.Now())
	if err != nil {
		return err
	}
	p, err := runfolder.ReadParams(folder)
	if err != nil {
		return err
	}
	if s := p.Strategy; s.Workers != "" || s.TPU != "" {
		return fault.Usagef("run %s was trained with workers or a TPU, which other programs hold; a replay takes this machine alone", folder)
	}
	if p.Graph, err = runfolder.GraphToRead(p, folder, nil, env.Log); err != nil {
		return err
	}
	p.Data.Dir = cmp.Or(r.Data, p.Data.Dir)
	intervals, err := r.intervals(folder, p)
	if err != nil {
		return err
	}
	for _, i := range intervals {
		out, err := r.replay(ctx, folder, p, i, processesOf(run, i.From, cmp.Or(i.To, i.From+r.Steps)), env)
		if err != nil {
			return fmt.Errorf("replay from step %d: %w", i.From, err)
		}
		if err := done(*out); err != nil {
			return err
		}
	}
	return nil
}

// intervals chooses what is made again.
func (r Replay) intervals(folder string, p params.Params) ([]Interval, error) {
	m, err := checkpoint.OpenManager(checkpoint.ManagerConfig{Dir: filepath.Join(folder, runfolder.Checkpoints), ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	kept, err := m.All()
	if err != nil {
		return nil, err
	}
	changes, err := runfolder.ReadChanges(folder)
	if err != nil {
		return nil, err
	}
	var changed int64 // no step before it was made with the params of now
	for _, c := range changes {
		changed = max(changed, c.Step)
	}
	var all []Interval
	for i := 0; i+1 < len(kept); i++ {
		if kept[i].Step < changed {
			continue
		}
		next := Interval{From: kept[i].Step}
		if to := kept[i+1].Step; to-next.From <= r.Steps {
			next.To = to
		}
		all = append(all, next)
	}
	if len(all) == 0 {
		var steps []string
		for _, c := range kept {
			steps = append(steps, fmt.Sprint(c.Step))
		}
		why := ""
		if changed > 0 {
			why = fmt.Sprintf(" of step %d or later, when its params were changed last", changed)
		}
		return nil, fault.Usagef("run %s has the checkpoints %s; expected two or more%s, so that steps can be made again from one to the next; checkpoint.max_to_keep says how many a training keeps", folder, cmp.Or(strings.Join(steps, ", "), "of none"), why)
	}
	if len(all) <= mostIntervals {
		return all, nil
	}
	between := rand.New(rand.NewPCG(uint64(p.Seed), 0)).Perm(len(all) - 2)[:mostIntervals-2]
	slices.Sort(between)
	out := []Interval{all[0]}
	for _, i := range between {
		out = append(out, all[1+i])
	}
	return append(out, all[len(all)-1]), nil
}

// processesOf returns the processes that made the steps between two: the one that made the first of them, of
// several that did, because the run went back, the last, and those that went on before the last of them. It
// returns nothing if the first is not known.
func processesOf(run *runfolder.Run, from, to int64) (of []*runfolder.Start) {
	for i := range run.Processes {
		switch s := &run.Processes[i].Start; {
		case s.Step <= from:
			of = []*runfolder.Start{s}
		case s.Step < to && len(of) > 0:
			of = append(of, s)
		}
	}
	return of
}

// errReplayed ends the training of an interval.
var errReplayed = errors.New("the steps were made")

// replay makes an interval again and compares.
func (r Replay) replay(ctx context.Context, folder string, p params.Params, i Interval, by []*runfolder.Start, env train.Env) (*Replayed, error) {
	scratch, err := os.MkdirTemp("", "gorbit-replay-")
	if err != nil {
		return nil, err
	}
	defer vfs.RemoveAll(scratch)
	again := filepath.Join(scratch, "run")
	out := &Replayed{Interval: i}
	within, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	last := cmp.Or(i.To, i.From+r.Steps)
	env.Out, env.Observer = nil, nil
	env.ResumeFrom = filepath.Join(folder, runfolder.Checkpoints, fmt.Sprintf("ckpt-%d", i.From))
	env.TrainActions = []runner.Action{func(_ context.Context, step int64, _ runner.Outputs) error {
		if out.End = step; step >= last {
			stop(errReplayed) // and what is due at the step is saved
		}
		return nil
	}}
	_, err = train.Train(within, p, again, env)
	if err != nil && (ctx.Err() != nil || !errors.Is(err, runner.ErrStopped)) {
		return nil, err
	}
	if err := sameMachine(again, by); err != nil {
		return nil, err
	}
	if out.Lines, out.Difference, err = compareMetrics(folder, again, i.From); err != nil || out.Difference != "" {
		return out, err
	}
	if i.To == 0 || out.End != i.To {
		out.To = 0 // a checkpoint that was saved because of a signal, within a loop
		return out, nil
	}
	name := fmt.Sprintf("ckpt-%d", i.To)
	out.Tensors, out.Difference, err = compareBundles(ctx, filepath.Join(folder, runfolder.Checkpoints, name), filepath.Join(again, runfolder.Checkpoints, name))
	return out, err
}

// sameMachine returns an error if a run was made again on another kind of machine than by processes.
func sameMachine(again string, by []*runfolder.Start) error {
	run, err := runfolder.Read(again, false, time.Now())
	if err != nil {
		return err
	}
	if len(by) == 0 || len(run.Processes) == 0 {
		return fault.Usagef("the run does not say on which machine it was trained (%s), so that its steps cannot be compared", runfolder.Journal)
	}
	now := run.Processes[len(run.Processes)-1].Start
	for _, then := range by {
		for _, part := range []struct{ what, then, now string }{
			{"processor", then.Processor, now.Processor},
			{"kernels", cmp.Or(then.Kernels, "off"), cmp.Or(now.Kernels, "off")},
			{"cores", fmt.Sprint(then.Cores), fmt.Sprint(now.Cores)},
			{"devices", strings.Join(then.Devices, ", "), strings.Join(now.Devices, ", ")},
			{"precision", then.Precision, now.Precision},
			{"TensorFlow", then.TensorFlow, now.TensorFlow},
			{"gorbit", then.Gorbit, now.Gorbit},
		} {
			if part.then != part.now {
				return fault.Usagef("the run was trained with %s %s, and this machine has %s, so that bits may differ; replay it where it was trained", part.what, part.then, part.now)
			}
		}
	}
	return nil
}

// compareMetrics compares the lines of metrics.jsonl after a step with those of the run. Each run's file
// begins with the lines up to that step.
func compareMetrics(folder, again string, from int64) (lines int, difference string, err error) {
	var content [2][]byte
	for i, of := range []string{folder, again} {
		if content[i], err = readAll(filepath.Join(of, runfolder.Metrics)); err != nil {
			return 0, "", err
		}
	}
	kept, made := bytes.SplitAfter(content[0], []byte("\n")), bytes.SplitAfter(content[1], []byte("\n"))
	for i, line := range made {
		switch {
		case len(line) == 0:
		case i >= len(kept) || !bytes.Equal(line, kept[i]):
			was := "missing"
			if i < len(kept) && len(kept[i]) > 0 {
				was = string(bytes.TrimSpace(kept[i]))
			}
			return lines, fmt.Sprintf("line %d of %s is %s and was %s", i+1, runfolder.Metrics, bytes.TrimSpace(line), was), nil
		case stepOf(line) > from:
			lines++
		}
	}
	return lines, "", nil
}

// readAll reads a file of any size.
func readAll(path string) ([]byte, error) {
	f, err := vfs.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// stepOf returns the step of a line of metrics, or 0.
func stepOf(line []byte) int64 {
	var l struct{ Step int64 }
	_ = json.Unmarshal(line, &l) // what is no line is compared all the same
	return l.Step
}

// readAtOnce is about how many bytes of a checkpoint are read at a time.
const readAtOnce = 64 << 20

// compareBundles compares the numbers of two checkpoints, bit for bit. The first that differs is named.
func compareBundles(ctx context.Context, was, is string) (tensors int, difference string, err error) {
	a, err := checkpoint.OpenBundle(was)
	if err != nil {
		return 0, "", err
	}
	b, err := checkpoint.OpenBundle(is)
	if err != nil {
		return 0, "", err
	}
	var some []checkpoint.Entry
	var bytes int64
	for _, e := range a.Entries() {
		if e.DType == tf.String { // the state of the run, which has times
			continue
		}
		other, ok := b.Entry(e.Name)
		if !ok || other.DType != e.DType || !slices.Equal(other.Shape, e.Shape) {
			return tensors, fmt.Sprintf("%s has %v, which was not made again", was, e), nil
		}
		if bytes += e.Size; len(some) > 0 && bytes > readAtOnce {
			if difference, err := compareTensors(ctx, a, b, some); err != nil || difference != "" {
				return tensors, difference, err
			}
			some, bytes = some[:0], e.Size
		}
		some, tensors = append(some, e), tensors+1
	}
	if len(some) == 0 {
		return 0, "", fault.Damagedf("checkpoint %s has no numbers", was)
	}
	difference, err = compareTensors(ctx, a, b, some)
	return tensors, difference, err
}

// compareTensors names the first element of tensors that differs.
func compareTensors(ctx context.Context, a, b *checkpoint.Bundle, some []checkpoint.Entry) (string, error) {
	var names []string
	for _, e := range some {
		names = append(names, e.Name)
	}
	var read [2]map[string]*tf.Tensor
	for i, of := range []*checkpoint.Bundle{a, b} {
		var err error
		if read[i], err = of.Read(ctx, names...); err != nil {
			return "", err
		}
	}
	for _, e := range some {
		var content [2]bytes.Buffer
		for i := range content {
			if _, err := read[i][e.Name].WriteContentsTo(&content[i]); err != nil {
				return "", err
			}
		}
		was, is := content[0].Bytes(), content[1].Bytes()
		if bytes.Equal(was, is) {
			continue
		}
		n := int64(1)
		for _, size := range e.Shape {
			n *= size
		}
		size := int64(len(was)) / n
		for i := range n {
			then, now := was[i*size:][:size], is[i*size:][:size]
			if !bytes.Equal(then, now) {
				return fmt.Sprintf("%v: element %d is %s and was %s", e, i, number(e.DType, now), number(e.DType, then)), nil
			}
		}
	}
	return "", nil
}

// number shows the bytes of an element.
func number(t tf.DataType, b []byte) string {
	switch t {
	case tf.Float:
		x := math.Float32frombits(binary.LittleEndian.Uint32(b))
		return fmt.Sprintf("%v (%#08x)", x, math.Float32bits(x))
	case tf.Int64:
		return fmt.Sprint(int64(binary.LittleEndian.Uint64(b)))
	case tf.Int32:
		return fmt.Sprint(int32(binary.LittleEndian.Uint32(b)))
	}
	return fmt.Sprintf("%#x", b)
}

// String says what came of an interval.
func (r Replayed) String() string {
	what := fmt.Sprintf("steps %d to %d: ", r.From+1, r.End)
	switch {
	case r.Difference != "":
		return what + r.Difference
	case r.Tensors > 0:
		return fmt.Sprintf("%s%s of the checkpoint and %s of %s are the same, bit for bit", what, words.Count(int64(r.Tensors), "tensor"), words.Count(int64(r.Lines), "line"), runfolder.Metrics)
	}
	return fmt.Sprintf("%s%s of %s are the same; no checkpoint of step %d is kept to compare with", what, words.Count(int64(r.Lines), "line"), runfolder.Metrics, r.End)
}
