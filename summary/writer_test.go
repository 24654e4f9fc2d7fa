package summary

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	eventpb "github.com/wamuir/graft/tensorflow/core/util/event_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// start is what the tests' clocks begin with; each look adds a second.
var start = time.Unix(1_700_000_000, 250_000_000)

func ticking() Option {
	now := start
	return Clock(func() time.Time {
		t := now
		now = now.Add(time.Second)
		return t
	})
}

func open(t *testing.T, dir string, opts ...Option) *Writer {
	t.Helper()
	w, err := NewWriter(dir, append([]Option{ticking(), FlushEvery(0)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func closeWriter(t *testing.T, w *Writer) {
	t.Helper()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// events reads a whole event file.
func events(t *testing.T, path string) []*eventpb.Event {
	t.Helper()
	rd, err := tfrecord.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	var all []*eventpb.Event
	for {
		record, err := rd.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		e := new(eventpb.Event)
		if err := proto.Unmarshal(record, e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
}

// sampleValues are those of testdata/generate.py.
func sampleValues() []float32 {
	values := make([]float32, 500)
	for i := range values {
		values[i] = float32(float64(i*37%101-50) / 7)
	}
	return values
}

// TestGolden writes the events that TensorFlow wrote to the golden file.
func TestGolden(t *testing.T) {
	want := events(t, "testdata/events.golden")
	w := open(t, t.TempDir())
	for i, v := range []float64{0.5, -1.25, 1e-10, math.Inf(-1), math.NaN(), 0} {
		w.Scalar("loss/total", int64(10*i), v)
	}
	w.Text("params", 0, "**größe**: 1\n")
	w.Histogram("weights", 3, sampleValues(), 30)
	w.Histogram("few", 3, sampleValues(), 7)
	w.Histogram("empty", 4, nil, 2)
	w.Histogram("single", 1<<40, []float32{2.5, 2.5}, 3)
	w.Graph(want[len(want)-1].GetGraphDef())
	closeWriter(t, w)

	got := events(t, w.Path())
	if len(got) != len(want) {
		t.Fatalf("wrote %d events, want %d", len(got), len(want))
	}
	for i, e := range got {
		if at := float64(1_700_000_001) + float64(i) + 0.25; e.WallTime != at {
			t.Errorf("event %d has wall time %f, want %f", i, e.WallTime, at)
		}
		e.WallTime, want[i].WallTime = 0, 0
		if i == 0 {
			if e.SourceMetadata.GetWriter() != sourceName {
				t.Errorf("source %v", e.SourceMetadata)
			}
			e.SourceMetadata, want[i].SourceMetadata = nil, nil
		}
		// TensorFlow computes edges in its own order; the last bits may differ.
		if h, wh := histogramOf(e), histogramOf(want[i]); h != nil && len(h) == len(wh) {
			for j := range h {
				if math.Abs(h[j]-wh[j]) > 1e-14*math.Abs(wh[j]) {
					t.Errorf("histogram %d: %v\nwant %v", i, h, wh)
					break
				}
			}
			e.GetSummary().Value[0].GetTensor().TensorContent = nil
			want[i].GetSummary().Value[0].GetTensor().TensorContent = nil
		}
		if !proto.Equal(e, want[i]) {
			t.Errorf("event %d is %v\nwant %v", i, e, want[i])
		}
	}
}

func histogramOf(e *eventpb.Event) []float64 {
	values := e.GetSummary().GetValue()
	if len(values) != 1 || values[0].GetMetadata().GetPluginData().GetPluginName() != "histograms" {
		return nil
	}
	b := values[0].GetTensor().TensorContent
	rows := make([]float64, len(b)/8)
	for i := range rows {
		rows[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return rows
}

func TestHistogramLaws(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, tt := range []struct {
		values []float32
		finite int
	}{
		{nil, 0},
		{[]float32{nan, inf, -inf}, 0},
		{[]float32{nan, 1, inf, 2, -inf}, 2},
		{[]float32{math.MaxFloat32, -math.MaxFloat32, 0}, 3},
		{[]float32{math.SmallestNonzeroFloat32, 0}, 2},
		{[]float32{-1}, 1},
		{sampleValues(), 500},
	} {
		for _, buckets := range []int{1, 2, 30} {
			rows := histogram(tt.values, buckets)
			total := 0.0
			for i := range buckets {
				total += rows[3*i+2]
				if rows[3*i] > rows[3*i+1] || i > 0 && rows[3*i] != rows[3*i-2] {
					t.Errorf("%v in %d: edges %v", tt.values, buckets, rows)
				}
			}
			if total != float64(tt.finite) {
				t.Errorf("%v in %d: %v counted", tt.values, buckets, total)
			}
		}
	}
}

var fileName = regexp.MustCompile(`^events\.out\.tfevents\.(\d{10})\.[^/]+\.\d+\.\d+\.v2$`)

// The files of a run sort in the order in which they were made, whatever the
// clock and the process numbers do.
func TestFileNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "runs", "train")
	fixed := Clock(func() time.Time { return start })
	var made []string
	for range 3 {
		made = append(made, filepath.Base(open(t, dir, fixed).Path()))
	}
	earlier := Clock(func() time.Time { return start.Add(-time.Hour) })
	made = append(made, filepath.Base(open(t, dir, earlier).Path()))
	// Names of others, some of them absurd, are no obstacle.
	for _, name := range []string{"events.out.tfevents.x", "events.out.tfevents.99999999999999999999.h", "events.out.tfevents.9999999999.h", "notes"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	made = append(made, filepath.Base(open(t, dir, fixed).Path()))
	if !slices.IsSorted(made) {
		t.Errorf("not in order: %q", made)
	}
	for i, name := range made {
		m := fileName.FindStringSubmatch(name)
		if want := fmt.Sprint(start.Unix() + int64(i)); m == nil || m[1] != want {
			t.Errorf("name %q, want second %s", name, want)
		}
	}
}

func TestFlush(t *testing.T) {
	w := open(t, t.TempDir())
	count := func() int { return len(events(t, w.Path())) }
	if n := count(); n != 1 {
		t.Errorf("%d events in a new file, want the version", n)
	}
	w.Scalar("a", 1, 1)
	if n := count(); n != 1 {
		t.Errorf("%d events before Flush", n)
	}
	if err := w.Flush(); err != nil || count() != 2 {
		t.Errorf("%d events after Flush, %v", count(), err)
	}
	w.Scalar("a", 2, 1)
	closeWriter(t, w)
	if n := count(); n != 3 {
		t.Errorf("%d events after Close", n)
	}
	w.Scalar("a", 3, 1)
	if err := w.Flush(); !errors.Is(err, os.ErrClosed) || count() != 3 || len(w.pending) != 0 {
		t.Errorf("Flush after Close: %v, %d bytes pending", err, len(w.pending))
	}
	if err := w.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestFlushEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := NewWriter(t.TempDir(), FlushEvery(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		w.Scalar("a", 1, 1)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if n := len(events(t, w.Path())); n != 1 {
			t.Errorf("%d events before the minute is over", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := len(events(t, w.Path())); n != 2 {
			t.Errorf("%d events after a minute", n)
		}
	})
}

// A lot at once does not gather without limit.
func TestPendingIsBounded(t *testing.T) {
	w := open(t, t.TempDir())
	w.limit = 2 * maxSpare
	w.Graph(make([]byte, maxSpare))
	if len(w.pending) <= maxSpare || len(events(t, w.Path())) != 1 {
		t.Errorf("%d bytes pending below the limit", len(w.pending))
	}
	w.Graph(make([]byte, maxSpare))
	if len(w.pending) != 0 || cap(w.spare) > maxSpare {
		t.Errorf("%d bytes pending, %d spare", len(w.pending), cap(w.spare))
	}
	if n := len(events(t, w.Path())); n != 3 {
		t.Errorf("%d events in the file", n)
	}
}

func TestFailure(t *testing.T) {
	w := open(t, t.TempDir())
	w.file.Close() // stands for any failure of the disk
	w.Scalar("a", 1, 1)
	err := w.Flush()
	if err == nil || !strings.Contains(err.Error(), w.Path()) {
		t.Errorf("Flush gives %v", err)
	}
	w.Scalar("a", 2, 1)
	if len(w.pending) != 0 {
		t.Error("a failed writer gathers events")
	}
	if again := w.Flush(); again != err {
		t.Errorf("the second Flush gives %v", again)
	}
	if cerr := w.Close(); !errors.Is(cerr, err) {
		t.Errorf("Close gives %v", cerr)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := NewWriter(filepath.Join(file, "run")); err == nil {
		t.Error("a file passes for a folder")
	}
}

// TestFullDisk holds that a failure in the middle of an event leaves the whole
// events before it. A limit on the size of files stands for the disk's end.
func TestFullDisk(t *testing.T) {
	w := open(t, t.TempDir())
	var unlimited syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &unlimited); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	w.Scalar("a", 1, 1)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 4096, Max: unlimited.Max}); err != nil {
		t.Fatal(err)
	}
	w.Text("b", 2, strings.Repeat("x", 10_000))
	err := w.Flush()
	if lerr := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &unlimited); lerr != nil {
		t.Fatal(lerr)
	}
	if !errors.Is(err, syscall.EFBIG) {
		t.Errorf("Flush gives %v", err)
	}
	w.Scalar("a", 3, 1)
	if cerr := w.Close(); !errors.Is(cerr, err) {
		t.Errorf("Close gives %v", cerr)
	}
	if all := events(t, w.Path()); len(all) != 2 || all[1].Step != 1 {
		t.Errorf("the file holds %v", all)
	}
}

func TestConcurrentUse(t *testing.T) {
	w, err := NewWriter(t.TempDir(), FlushEvery(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 500 {
				w.Scalar(fmt.Sprint(g), int64(i), float64(i))
				if i%100 == 0 {
					if err := w.Flush(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	wg.Go(func() { w.Close() })
	wg.Go(func() { w.Close() })
	wg.Wait()
	all := events(t, w.Path())
	next := map[string]int64{}
	for i, e := range all[1:] {
		v := e.GetSummary().Value[0]
		if e.Step != next[v.Tag] {
			t.Fatalf("step %d of %s, want %d", e.Step, v.Tag, next[v.Tag])
		}
		next[v.Tag]++
		if e.WallTime < all[i].WallTime {
			t.Fatalf("wall time falls to %f", e.WallTime)
		}
	}
	if len(all) != 2001 {
		t.Errorf("%d events", len(all))
	}
}

func TestInvalidUTF8(t *testing.T) {
	w := open(t, t.TempDir())
	w.Text("a\xff", 1, "b\xff")
	closeWriter(t, w)
	v := events(t, w.Path())[1].GetSummary().Value[0]
	if v.Tag != "a\ufffd" || string(v.GetTensor().StringVal[0]) != "b\ufffd" {
		t.Errorf("%v", v)
	}
}

// TestTensorBoardReads writes a run that is killed, continues at step 3, and goes
// back to step 4 later, and lets TensorBoard's two readers tell what they see:
// the one of its server, and the one that scripts use, which knows no restarts.
func TestTensorBoardReads(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir)
	w.Graph([]byte{0x22, 3, 8, 0xca, 0x0f}) // versions { producer: 1994 }
	w.Text("params", 0, "lr: 1")
	for step := range 5 {
		w.Scalar("loss", int64(step), float64(step))
		w.Scalar("old", int64(step), 7)
	}
	w.Histogram("h", 1, []float32{1, 2, 3, 4}, 2)
	closeWriter(t, w)
	tear(t, w.Path())
	w = open(t, dir, ResumeAt(3))
	w.Scalar("loss", 3, 30)
	w.Scalar("loss", 4, 40)
	w.Restart(4)
	w.Scalar("loss", 4, 41)
	w.Histogram("h", 4, []float32{1, 2, 3, 4}, 2)
	closeWriter(t, w)

	const script = `
import sys, types
sys.modules["tensorboard.compat.notf"] = types.ModuleType("notf")  # TensorBoard without TensorFlow: faster
from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
from tensorboard.util import tensor_util
for module in plugin_event_accumulator, event_accumulator:
    acc = module.EventAccumulator(sys.argv[1], {"tensors": 0})
    acc.Reload()
    print(acc.FirstEventTimestamp(), len(acc.Graph().SerializeToString()))
    for tag in sorted(set(acc.Tags()["tensors"]) - {"__run_graph__"}):
        plugin = acc.SummaryMetadata(tag).plugin_data.plugin_name
        print(plugin, tag, [(e.step, tensor_util.make_ndarray(e.tensor_proto).tolist()) for e in acc.Tensors(tag)])
`
	const want = `1700000001.25 5
histograms h [(4, [[1.0, 2.5, 2.0], [2.5, 4.0, 2.0]])]
scalars loss [(0, 0.0), (1, 1.0), (2, 2.0), (3, 30.0), (4, 41.0)]
scalars old [(0, 7.0), (1, 7.0), (2, 7.0)]
text params [(0, b'lr: 1')]
`
	plain := strings.Replace(want, "(4, 41.0)", "(4, 40.0), (4, 41.0)", 1)
	got := testkit.RunPython(t, script, dir)
	if got != want+plain {
		t.Errorf("TensorBoard reads\n%s\nwant\n%s\n%s", got, want, plain)
	}

	// A restart alone, after files without any.
	dir = t.TempDir()
	for first := range 2 {
		w := open(t, dir)
		if first > 0 {
			w.Restart(2)
		}
		for step := 2 * first; step < 4; step++ {
			w.Scalar("loss", int64(step), float64(first))
		}
		w.Graph([]byte{0x22, 0})
		closeWriter(t, w)
	}
	got, _, _ = strings.Cut(testkit.RunPython(t, script, dir), "]")
	if !strings.HasSuffix(got, "scalars loss [(0, 0.0), (1, 0.0), (2, 1.0), (3, 1.0)") {
		t.Errorf("TensorBoard reads\n%s", got)
	}
}

// tear cuts the last event of a file, as a kill may.
func tear(t *testing.T, path string) {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, st.Size()-5); err != nil {
		t.Fatal(err)
	}
}

func TestResumeAt(t *testing.T) {
	dir := t.TempDir()
	write := func(first, last int64, opts ...Option) string {
		w := open(t, dir, opts...)
		for step := first; step <= last; step++ {
			w.Scalar("a", step, float64(step))
		}
		closeWriter(t, w)
		return w.Path()
	}
	steps := func(path string) (got []int64) {
		for _, e := range events(t, path) {
			if e.GetSummary() != nil {
				got = append(got, e.Step)
			}
		}
		return got
	}
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	one := write(0, 5)
	if err := os.Chmod(one, 0o640); err != nil {
		t.Fatal(err)
	}
	two := write(4, 9, ResumeAt(4))
	tear(t, two)
	whole := read(one)
	three := write(8, 10, ResumeAt(8))
	if read(one) != whole {
		t.Error("a file that has nothing to lose was touched")
	}
	for path, want := range map[string][]int64{one: {0, 1, 2, 3}, two: {4, 5, 6, 7}, three: {8, 9, 10}} {
		if got := steps(path); !slices.Equal(got, want) {
			t.Errorf("steps %v, want %v", got, want)
		}
	}
	// A torn end alone is reason enough to rewrite a file.
	tear(t, three)
	five := write(11, 12, ResumeAt(11))
	if got := steps(three); !slices.Equal(got, []int64{8, 9}) {
		t.Errorf("steps %v of a torn file", got)
	}
	four := write(0, 1, ResumeAt(0))
	if st, err := os.Stat(one); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("permissions %v of a rewritten file, %v", st.Mode(), err)
	}
	for _, path := range []string{one, two, three, five} {
		if all := events(t, path); len(all) != 1 || all[0].GetFileVersion() != fileVersion {
			t.Errorf("%v are left", all)
		}
	}
	if got := steps(four); !slices.Equal(got, []int64{0, 1}) {
		t.Errorf("steps %v", got)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 5 {
		t.Errorf("files %v, %v", entries, err)
	}
}
