package tfprocess

import (
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"
	"golang.org/x/sys/unix"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// The test binary starts itself with this variable set to do what a program does.
const child = "GORBIT_TFENV_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) == "" {
		os.Exit(m.Run())
	}
	if c, ok := crashes[os.Getenv(child)]; ok {
		_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
		c.do()
		return
	}
	graph := tf.NewGraph()
	op, err := graph.AddOperation(tf.OpSpec{Type: "NoOp", Name: "nothing"})
	if err != nil {
		panic(err)
	}
	session, err := tf.NewSession(graph, nil)
	if err != nil {
		panic(err)
	}
	// The first run logs from the passes over the graph, through Abseil.
	if _, err := session.Run(nil, nil, []*tf.Operation{op}); err != nil {
		panic(err)
	}
	level, ok := os.LookupEnv("TF_CPP_MIN_LOG_LEVEL")
	os.Stdout.WriteString(level)
	if !ok {
		os.Stdout.WriteString("unset")
	}
}

// start runs a session in a new process, whose environment is this one's
// less every variable of TensorFlow's, with some added. It returns what went to
// standard output and to standard error.
func start(t *testing.T, env ...string) (stdout, stderr string) {
	t.Helper()
	cmd := testkit.Command(t, os.Args[0])
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "TF_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(append(cmd.Env, child+"=1"), env...)
	var out, log strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	return out.String(), log.String()
}

// TF_ENABLE_ONEDNN_OPTS is set for the line about oneDNN, which the library's
// constructors write.
func TestQuietByDefault(t *testing.T) {
	level, log := start(t, "TF_ENABLE_ONEDNN_OPTS=1")
	if log != "" {
		t.Errorf("TensorFlow logged:\n%s", log)
	}
	if level != "unset" {
		t.Errorf("the environment says %q; it is to stay as it was", level)
	}
}

func TestUserDecides(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("TensorFlow has nothing to log on this kind of CPU")
	}
	level, log := start(t, "TF_ENABLE_ONEDNN_OPTS=1", "TF_CPP_MIN_LOG_LEVEL=0")
	for _, want := range []string{"oneDNN", "absl::InitializeLog", "MLIR V1 optimization pass"} {
		if !strings.Contains(log, want) {
			t.Errorf("TF_CPP_MIN_LOG_LEVEL=0 is set, and the log does not speak of %s:\n%s", want, log)
		}
	}
	if level != "0" {
		t.Errorf("the environment says %q, want 0", level)
	}
}
