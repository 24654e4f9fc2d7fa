package reclaim

import (
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/exec/tfprocess"
)

// TestMemory frees a graph that nobody holds any more, and gives its memory back.
func TestMemory(t *testing.T) {
	const size = 256 << 20
	if !tfprocess.MallocKeeps() {
		t.Skip("the environment says how malloc is to behave")
	}
	value, err := tf.ReadTensor(tf.Float, []int64{size / 4}, zeros{})
	if err != nil {
		t.Fatal(err)
	}
	debug.FreeOSMemory()
	before := resident(t)
	func() {
		graph := tf.NewGraph()
		spec := tf.OpSpec{Type: "Const", Attrs: map[string]any{"dtype": tf.Float, "value": value}}
		if _, err := graph.AddOperation(spec); err != nil {
			t.Fatal(err)
		}
		if with := resident(t); with < before+size {
			t.Fatalf("%d bytes before and %d with a graph of %d", before, with, size)
		}
		runtime.KeepAlive(graph)
	}()
	// On a machine with more to do than processors, a finalizer may take longer than Memory waits.
	after := 0
	for range 10 {
		Memory()
		if after = resident(t); after <= before+size/2 {
			break
		}
	}
	if after > before+size/2 {
		t.Errorf("%d bytes before a graph of %d, %d after it", before, size, after)
	}
	runtime.KeepAlive(value)
}

// TestFiles gives back what loading TensorFlow's library has read, which then works as before.
func TestFiles(t *testing.T) {
	tf.Version()
	before := resident(t)
	Files()
	if after := resident(t); after > before-(32<<20) {
		t.Errorf("%d bytes before, %d after", before, after)
	}
	graph := tf.NewGraph()
	value, err := tf.NewTensor([]float32{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	op, err := graph.AddOperation(tf.OpSpec{Type: "Const", Attrs: map[string]any{"dtype": tf.Float, "value": value}})
	if err != nil {
		t.Fatal(err)
	}
	session, err := tf.NewSession(graph, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if got, err := session.Run(nil, []tf.Output{op.Output(0)}, nil); err != nil || !slices.Equal(got[0].Value().([]float32), []float32{1, 2}) {
		t.Errorf("%v, %v", got, err)
	}
}

// zeros reads as zeros without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// resident returns how many bytes of the process are in memory.
func resident(t *testing.T) int {
	t.Helper()
	content, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skipf("the system does not say what the process has in memory: %v", err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(content))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}
