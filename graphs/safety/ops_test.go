package safety

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

var update = flag.Bool("update", false, "write safe_ops.txt from TensorFlow's registry; read the difference before you commit it")

const registry = `
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session as c
ops = op_def_pb2.OpList()
ops.ParseFromString(c.TF_GetBuffer(c.TF_GetAllOpList()))
print("\n".join(sorted(op.name for op in ops.op)))
`

// TestEveryOpIsClassified holds the lists against all operations that TensorFlow
// registers: each is either named as unsafe, or listed as safe, or internal.
func TestEveryOpIsClassified(t *testing.T) {
	registered := strings.Fields(testkit.RunPython(t, registry))
	if len(registered) < 1000 {
		t.Fatalf("%d operations registered", len(registered))
	}
	var named []string
	for _, ops := range unsafeOps {
		named = append(named, ops...)
	}
	for op := range unsafeAttrs {
		named = append(named, op)
	}
	slices.Sort(named)
	for i, op := range named {
		if i > 0 && named[i-1] == op {
			t.Errorf("%s is named twice", op)
		}
		if !slices.Contains(registered, op) {
			t.Errorf("%s is no operation of TensorFlow", op)
		}
	}
	var safe []string
	for _, op := range registered {
		if !slices.Contains(named, op) && !strings.HasPrefix(op, "_") {
			safe = append(safe, op)
		}
	}
	want := strings.Join(safe, "\n") + "\n"
	if *update {
		if err := os.WriteFile("safe_ops.txt", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	listed := strings.Fields(safeOpsText)
	for _, op := range safe {
		if !slices.Contains(listed, op) {
			t.Errorf("%s is in no list: what can it do? If nothing, run go test -run %s -update", op, t.Name())
		}
	}
	for _, op := range listed {
		if !slices.Contains(safe, op) {
			t.Errorf("%s is listed as safe, but is not registered or is named as unsafe", op)
		}
	}
}
