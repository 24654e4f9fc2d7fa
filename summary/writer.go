package summary

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	summarypb "github.com/wamuir/graft/tensorflow/core/framework/summary_go_proto"
	tensorpb "github.com/wamuir/graft/tensorflow/core/framework/tensor_go_proto"
	shapepb "github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	typespb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	eventpb "github.com/wamuir/graft/tensorflow/core/util/event_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

const (
	fileVersion = "brain.Event:2"
	sourceName  = "github.com/gorbit-ml/gorbit/summary"
	filePrefix  = "events.out.tfevents."
	fileSuffix  = ".v2"

	defaultInterval = 10 * time.Second
	defaultLimit    = 64 << 20
	maxSpare        = 1 << 20 // maximum size of a buffer kept for reuse
)

// Option is a setting of NewWriter.
type Option func(*Writer)

// FlushEvery sets the interval at which events are written to the file. The default is
// 10 seconds; with 0 only Flush and Close write. Set it lower to see points sooner.
func FlushEvery(d time.Duration) Option {
	return func(w *Writer) { w.interval = d }
}

// Clock sets the clock for the wall times of events and for the time in the file's name.
// The default is time.Now. Set it to write events with the times of an earlier run, or with
// fixed times in a test.
func Clock(now func() time.Time) Option {
	return func(w *Writer) { w.now = now }
}

// ResumeAt says that the run in the folder continues at the given step, the first step
// to be repeated. The events of this step and later ones are removed from the existing
// event files, so that each point is in the folder once. A TensorBoard that has already
// read them is notified as with Restart.
func ResumeAt(step int64) Option {
	return func(w *Writer) { w.resume, w.resumeAt = true, step }
}

// Writer writes one event file. It is safe for concurrent use.
type Writer struct {
	interval time.Duration
	limit    int // maximum buffered bytes before a caller has to wait
	now      func() time.Time
	resume   bool
	resumeAt int64
	file     vfs.WorkFile
	synced   bool          // whether the file's name is durable
	stop     chan struct{} // closed by Close
	stopped  sync.WaitGroup

	// io is held while the file is written; mu never is.
	io    sync.Mutex
	spare []byte
	size  int64

	mu      sync.Mutex
	pending []byte // framed events not yet written to the file
	err     error  // error of the file; sticky
	closed  bool
}

// NewWriter creates a new event file in a folder, and the folder if necessary. Existing
// files do not change. The name of the new file sorts after theirs, because TensorBoard
// reads the files of a run in that order.
func NewWriter(dir string, opts ...Option) (*Writer, error) {
	w := &Writer{interval: defaultInterval, limit: defaultLimit, now: time.Now, stop: make(chan struct{})}
	for _, o := range opts {
		o(w)
	}
	if err := vfs.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	if w.resume {
		if err := rewind(dir, w.resumeAt); err != nil {
			return nil, err
		}
	}
	var err error
	if w.file, err = create(dir, w.now()); err != nil {
		return nil, err
	}
	w.add(&eventpb.Event{
		What:           &eventpb.Event_FileVersion{FileVersion: fileVersion},
		SourceMetadata: &eventpb.SourceMetadata{Writer: sourceName},
	})
	if w.resume {
		w.Restart(w.resumeAt)
	}
	if err := w.Flush(); err != nil {
		w.file.Close()
		return nil, err
	}
	if w.interval > 0 {
		w.stopped.Go(w.flushAtIntervals)
	}
	return w, nil
}

// create creates an event file with a name as TensorFlow's:
// events.out.tfevents.SECONDS.HOST.PROCESS.NUMBER.v2.
func create(dir string, now time.Time) (vfs.WorkFile, error) {
	host, err := os.Hostname()
	if err != nil || strings.ContainsRune(host, filepath.Separator) {
		host = "localhost"
	}
	secs, err := secondsBehind(dir, now.Unix())
	if err != nil {
		return nil, err
	}
	for n := 0; ; n++ {
		name := fmt.Sprintf("%s%010d.%s.%d.%d%s", filePrefix, secs, host, os.Getpid(), n, fileSuffix)
		f, err := vfs.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err == nil || !errors.Is(err, os.ErrExist) {
			return f, err
		}
	}
}

// secondsBehind returns the given time, or the first second after those in the names of
// the folder's event files, whichever is later. Otherwise the files of a run that is
// killed and restarted within a second would sort by process number.
func secondsBehind(dir string, secs int64) (int64, error) {
	entries, err := vfs.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), filePrefix)
		digits, _, _ := strings.Cut(rest, ".")
		// Ten digits last until the year 2286, and more would not sort.
		if s, err := strconv.ParseInt(digits, 10, 64); ok && err == nil && len(digits) == 10 && s < 9_999_999_999 {
			secs = max(secs, s+1)
		}
	}
	return secs, nil
}

// Path returns the path of the event file.
func (w *Writer) Path() string { return w.file.Name() }

// Scalar adds a point to the time series of a tag. It is stored as a float32.
func (w *Writer) Scalar(tag string, step int64, value float64) {
	w.summary("scalars", tag, step, &tensorpb.TensorProto{
		Dtype:         typespb.DataType_DT_FLOAT,
		TensorShape:   &shapepb.TensorShapeProto{},
		TensorContent: binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(value))),
	})
}

// Text adds a text, which TensorBoard shows as Markdown.
func (w *Writer) Text(tag string, step int64, text string) {
	w.summary("text", tag, step, &tensorpb.TensorProto{
		Dtype:       typespb.DataType_DT_STRING,
		TensorShape: &shapepb.TensorShapeProto{},
		StringVal:   [][]byte{[]byte(strings.ToValidUTF8(text, "\ufffd"))},
	})
}

// Histogram adds the distribution of the values in buckets of equal width; 30 is
// TensorFlow's default number. Values that are not finite are left out.
func (w *Writer) Histogram(tag string, step int64, values []float32, buckets int) {
	buckets = max(buckets, 1)
	rows := histogram(values, buckets)
	content := make([]byte, 0, 8*len(rows))
	for _, x := range rows {
		content = binary.LittleEndian.AppendUint64(content, math.Float64bits(x))
	}
	w.summary("histograms", tag, step, &tensorpb.TensorProto{
		Dtype: typespb.DataType_DT_DOUBLE,
		TensorShape: &shapepb.TensorShapeProto{Dim: []*shapepb.TensorShapeProto_Dim{
			{Size: int64(buckets)}, {Size: 3},
		}},
		TensorContent: content,
	})
}

// Graph adds a serialized GraphDef, which TensorBoard draws.
func (w *Writer) Graph(graphDef []byte) {
	w.add(&eventpb.Event{What: &eventpb.Event_GraphDef{GraphDef: graphDef}})
}

// Restart says that the run continues at the given step, the first step to be repeated,
// for instance after a return to an earlier checkpoint. TensorBoard drops the points of
// this step and later ones that it has already read. They stay in the files, where other
// readers see the old points first and the new ones after them.
func (w *Writer) Restart(step int64) {
	// For TensorBoard, the first start in a folder is the beginning of the run, and only
	// the next one is a restart. The first may be missing here.
	for range 2 {
		w.add(&eventpb.Event{
			Step: step,
			What: &eventpb.Event_SessionLog{SessionLog: &eventpb.SessionLog{Status: eventpb.SessionLog_START}},
		})
	}
}

func (w *Writer) summary(plugin, tag string, step int64, tensor *tensorpb.TensorProto) {
	w.add(&eventpb.Event{
		Step: step,
		What: &eventpb.Event_Summary{Summary: &summarypb.Summary{Value: []*summarypb.Summary_Value{{
			Tag:      strings.ToValidUTF8(tag, "\ufffd"),
			Value:    &summarypb.Summary_Value_Tensor{Tensor: tensor},
			Metadata: &summarypb.SummaryMetadata{PluginData: &summarypb.SummaryMetadata_PluginData{PluginName: plugin}},
		}}}},
	})
}

// add sets the wall time of an event and buffers it.
func (w *Writer) add(e *eventpb.Event) {
	w.mu.Lock()
	if w.err != nil || w.closed {
		w.mu.Unlock()
		return
	}
	// Read the clock under the lock, so that wall times rise in the file.
	e.WallTime = float64(w.now().UnixMicro()) / 1e6
	record, err := proto.Marshal(e)
	if err != nil {
		w.err = fmt.Errorf("%s: %w", w.file.Name(), err)
	} else {
		w.pending = tfrecord.AppendRecord(w.pending, record)
	}
	full := len(w.pending) > w.limit
	w.mu.Unlock()
	if full {
		_ = w.flush() // sticky, and reported by the caller's own Flush
	}
}

// Flush writes all events so far to the file, and returns the first error of any write
// so far.
func (w *Writer) Flush() error {
	w.mu.Lock()
	closed := w.closed
	w.mu.Unlock()
	if closed {
		return fmt.Errorf("%s: %w", w.file.Name(), os.ErrClosed)
	}
	return w.flush()
}

// Sync flushes and waits until all events so far are on disk, so that a crash of the
// machine does not lose them.
func (w *Writer) Sync() error {
	if err := w.Flush(); err != nil {
		return err
	}
	w.io.Lock()
	defer w.io.Unlock()
	if err := w.file.Sync(); err != nil {
		return err
	}
	if w.synced {
		return nil
	}
	dir := filepath.Dir(w.file.Name())
	if err := vfs.SyncDir(dir); err != nil {
		return err
	}
	w.synced = true
	return nil
}

func (w *Writer) flush() error {
	w.io.Lock()
	defer w.io.Unlock()
	w.mu.Lock()
	b, err := w.pending, w.err
	w.pending = w.spare[:0]
	w.mu.Unlock()

	if err == nil && len(b) > 0 {
		if _, err = w.file.Write(b); err == nil {
			w.size += int64(len(b))
		} else {
			// The file stays readable up to here.
			_ = w.file.Truncate(w.size)
			w.mu.Lock()
			w.err = err
			w.mu.Unlock()
		}
	}
	if w.spare = b; cap(b) > maxSpare {
		w.spare = nil
	}
	return err
}

func (w *Writer) flushAtIntervals() {
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = w.flush() // sticky, and reported by the caller's own Flush
		case <-w.stop:
			return
		}
	}
}

// Close flushes and closes the file, and returns the first error of any write so far. A
// second Close does nothing.
func (w *Writer) Close() error {
	w.mu.Lock()
	again := w.closed
	w.closed = true
	w.mu.Unlock()
	if again {
		return nil
	}
	close(w.stop)
	w.stopped.Wait()
	return errors.Join(w.flush(), w.file.Close())
}
