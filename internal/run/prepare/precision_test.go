package prepare

import (
	"errors"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/train/params"
)

// TestImpossibleFP16IsRefused gives the verdict on CPUs where a product of float16 would end the process.
func TestImpossibleFP16IsRefused(t *testing.T) {
	no := map[string]string{graphs.FP16: "oneDNN has no way"}
	for _, tt := range []struct {
		precision, device, oneDNN string
		refused                   bool
	}{
		{graphs.FP16, "/device:CPU:0", "on", true},
		{graphs.FP16, "/device:CPU:0", "off", false},
		{graphs.FP16, "/device:GPU:0", "on", false},
		{graphs.BF16, "/device:CPU:0", "on", false},
	} {
		p := params.Defaults()
		p.Runtime.OneDNN = tt.oneDNN
		err := PossiblePrecision(p, tt.precision, []Computer{{Device: tt.device, no: no}})
		if refused := new(params.NoPrecisionError); errors.As(err, &refused) != tt.refused || tt.refused && refused.Why != no[graphs.FP16] {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

func TestSlowPrecision(t *testing.T) {
	const cpu, gpu = "/job:localhost/replica:0/task:0/device:CPU:0", "/job:localhost/replica:0/task:0/device:GPU:0"
	for _, c := range []struct {
		precision, device string
		native, slow      bool
	}{
		{graphs.Float32, cpu, false, false},
		{graphs.BF16, cpu, true, false},
		{graphs.BF16, cpu, false, true},
		{graphs.BF16, gpu, false, false},
		{graphs.FP16, cpu, true, true},
		{graphs.FP16, gpu, false, false},
	} {
		err := SlowPrecision(c.precision, Computer{Device: c.device, Bf16: c.native})
		var slow *params.SlowPrecisionError
		if errors.As(err, &slow) != c.slow {
			t.Errorf("%+v: %v", c, err)
		}
		if c.slow && (slow.Precision != c.precision || strings.Count(err.Error(), ". ")+strings.Count(err.Error(), "\n") > 0 || !strings.Contains(err.Error(), "--allow-slow-precision")) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
