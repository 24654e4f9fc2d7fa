package tfprocess

import (
	"math"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	tf "github.com/wamuir/graft/tensorflow"
	"golang.org/x/sys/unix"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

const lastWords = "; report it with the lines above; the same command continues a run from its last checkpoint\n"

// crashes are the ways to crash. Each has the signal that ends the process, none for one that does not
// crash, and what its dump has.
var crashes = map[string]struct {
	do     func()
	signal syscall.Signal
	says   string
}{
	"panic of a goroutine": {func() { go panic("of a goroutine"); time.Sleep(time.Hour) }, syscall.SIGABRT, "panic: of a goroutine\n"},
	"fatal error of Go":    {func() { debug.SetMaxStack(1 << 20); panic(deeper(0)) }, syscall.SIGABRT, "fatal error: stack overflow\n"},
	"in C":                 {func() { new(tf.Operation).Name() }, syscall.SIGSEGV, "TF_OperationName"},
	"in TensorFlow's":      {abortInTensorFlow, syscall.SIGABRT, "Check failed: "},
	"sent":                 {func() { send(syscall.SIGSEGV) }, syscall.SIGSEGV, ""},
	"asked for its calls":  {func() { send(syscall.SIGQUIT) }, syscall.SIGQUIT, "\ngoroutine 1 "},
	"recovered":            {func() { defer func() { _ = recover() }(); **new(*int) = 1 }, 0, ""},
}

func deeper(n int) int {
	if n == math.MaxInt {
		return 0 // never
	}
	return deeper(n+1) + 1
}

func send(s syscall.Signal) {
	_ = syscall.Kill(os.Getpid(), s)
	time.Sleep(time.Hour)
}

// abortInTensorFlow runs an operation that checks one of its inputs by ending the process, on a thread
// of TensorFlow's.
func abortInTensorFlow() {
	graph := tf.NewGraph()
	add := func(kind, name string, attrs map[string]any, inputs ...tf.Input) tf.Output {
		op, err := graph.AddOperation(tf.OpSpec{Type: kind, Name: name, Attrs: attrs, Input: inputs})
		if err != nil {
			panic(err)
		}
		return op.Output(0)
	}
	image := add("Placeholder", "image", map[string]any{"dtype": tf.Float})
	at := add("Placeholder", "at", map[string]any{"dtype": tf.Int64})
	one := []int64{1, 1, 1, 1}
	y := add("MaxPoolGradWithArgmax", "y", map[string]any{"ksize": one, "strides": one, "padding": "SAME"}, image, image, at)
	session, err := tf.NewSession(graph, nil)
	if err != nil {
		panic(err)
	}
	zero, _ := tf.NewTensor([][][][]float32{{{{0}}}})
	far, _ := tf.NewTensor([][][][]int64{{{{99999}}}})
	_, err = session.Run(map[tf.Output]*tf.Tensor{image: zero, at: far}, []tf.Output{y}, nil)
	panic(err)
}

// TestCrashes checks that no crash ends with an exit code, such as that of wrong usage, or leaves a
// file with the memory, and that the last line says what it was.
func TestCrashes(t *testing.T) {
	for name, c := range crashes {
		t.Run(name, func(t *testing.T) {
			cmd := testkit.Command(t, os.Args[0])
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), child+"="+name)
			var log strings.Builder
			cmd.Stderr = &log
			_ = cmd.Run()
			status := cmd.ProcessState.Sys().(syscall.WaitStatus)
			last := "crashed with " + unix.SignalName(c.signal) + ", by a defect or for want of memory" + lastWords
			if c.signal == 0 || c.signal == syscall.SIGQUIT {
				last = ""
			}
			if status.Signaled() != (c.signal != 0) || status.Signaled() && status.Signal() != c.signal || status.CoreDump() ||
				!strings.Contains(log.String(), c.says) || !strings.HasSuffix(log.String(), last) {
				t.Errorf("%v; expected %v, %q and at the end %q in\n%s", cmd.ProcessState, c.signal, c.says, last, log.String())
			}
		})
	}
}
