// Tests from outside: a package with tests inside is compiled twice, and the kernels take longest.
package kernels_test

import (
	"strings"
	"testing"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
)

func TestRegister(t *testing.T) {
	for range 2 {
		if err := kernels.Register(); err != nil {
			t.Fatal(err)
		}
	}
	if name := kernels.Instructions(); name != "avx512" && name != "avx2" && name != "generic" {
		t.Errorf("instructions %q", name)
	}
}

func TestUse(t *testing.T) {
	defer kernels.Use("")
	if err := kernels.Use("generic"); err != nil || kernels.Instructions() != "generic" {
		t.Errorf("%v, instructions %s", err, kernels.Instructions())
	}
	if err := kernels.Use("mmx"); err == nil || !strings.Contains(err.Error(), `"mmx"`) {
		t.Errorf("got %v", err)
	}
	if kernels.Instructions() != "generic" {
		t.Errorf("instructions %s after a refusal", kernels.Instructions())
	}
}

func TestOps(t *testing.T) {
	seen := make(map[string]bool)
	for _, op := range kernels.Ops() {
		seen[op.Implements] = true
		if len(op.Inputs) == 0 {
			t.Errorf("%s has no inputs", op.Name)
		}
		for _, a := range append(op.Inputs, op.Outputs...) {
			if a.Name == "" || a.DType == dtpb.DataType_DT_INVALID {
				t.Errorf("%s: argument %q of dtype %v", op.Name, a.Name, a.DType)
			}
		}
	}
	for _, name := range []string{"gorbit.gelu", "gorbit.residual_norm_dropout_gradient", "gorbit.attention", "gorbit.adamw", "gorbit.sgd", "gorbit.lion"} {
		if !seen[name] {
			t.Errorf("no operation for %s", name)
		}
	}
}
