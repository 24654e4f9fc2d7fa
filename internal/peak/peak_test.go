package peak

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/devices"
)

func TestMeasure(t *testing.T) {
	for precision := range dtypes {
		if precision == "bf16" && devices.NoBF16() != "" {
			continue
		}
		rate, err := products(t.Context(), "CPU", dtypes[precision], 32, 32, 2, 0)
		if err != nil || !(rate > 0) {
			t.Errorf("%s: %v FLOPs per second, %v", precision, rate, err)
		}
	}
	if _, err := Measure(t.Context(), Key{Kind: "CPU", Precision: "int8"}, 0); err == nil {
		t.Error("a precision that is none was measured")
	}
}

func TestStore(t *testing.T) {
	s := Store{filepath.Join(t.TempDir(), "new", "peaks.json")}
	key := CPU("float32")
	if key.Cores < 1 || key.TensorFlow == "" {
		t.Errorf("this machine is %+v", key)
	}
	other := key
	other.Precision = "bf16"
	if _, ok := s.Find(key); ok {
		t.Error("an empty store has a peak")
	}
	for _, p := range []Peak{{Key: key, FLOPS: 1}, {Key: other, FLOPS: 2}, {Key: key, FLOPS: 3}} {
		if err := s.Keep(p); err != nil {
			t.Fatal(err)
		}
	}
	for k, want := range map[Key]float64{key: 3, other: 2} {
		if p, ok := s.Find(k); !ok || p.FLOPS != want {
			t.Errorf("the peak in %s is %v, %v; expected %v", k.Precision, p.FLOPS, ok, want)
		}
	}
	// What is damaged is measured again.
	if err := os.WriteFile(s.Path, []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Find(key); ok {
		t.Error("a damaged store has a peak")
	}
	if err := s.Keep(Peak{Key: key, FLOPS: 4}); err != nil {
		t.Fatal(err)
	}
	if p, _ := s.Find(key); p.FLOPS != 4 {
		t.Errorf("the peak is %v; expected 4", p.FLOPS)
	}
}
