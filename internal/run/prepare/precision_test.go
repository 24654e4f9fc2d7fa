package prepare

import (
	"errors"
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
