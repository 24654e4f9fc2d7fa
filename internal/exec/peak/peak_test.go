package peak

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/exec/devices"
)

func TestMeasure(t *testing.T) {
	for precision := range dtypes {
		if precision == "bf16" && devices.NoBF16() != "" || precision == "fp16" && devices.NoFP16() != "" {
			continue
		}
		rate, err := products(t.Context(), "CPU", dtypes[precision], 32, 32, 2, 0)
		if errors.As(err, new(*BusyError)) {
			continue // what else the machine does is not this test's
		}
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

// TestFastest times calls of which some have to wait for a core.
func TestFastest(t *testing.T) {
	const busy, quiet = 50, 5 // percent of the time in threads that is waited
	for _, c := range []struct {
		name    string
		waiting []int // in percent, of each call; the last is that of all after it
		calls   int
		want    time.Duration
		wrong   bool
	}{
		{"quiet", []int{quiet}, 10, 95 * time.Millisecond, false},
		{"busy for a while", []int{quiet, busy}, 10, 95 * time.Millisecond, false},
		{"busy at first", append(slices.Repeat([]int{busy}, 20), quiet), 21, 95 * time.Millisecond, false},
		{"busy", []int{busy}, 40, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var clock time.Duration
			var used usage
			calls := 0
			m := meter{now: func() time.Time { return time.Time{}.Add(clock) }, threads: func() usage { return used }}
			got, err := m.fastest(t.Context(), func() error {
				waited := time.Duration(c.waiting[min(calls, len(c.waiting)-1)]) * time.Millisecond
				calls++
				clock += 95 * time.Millisecond
				if waited > 5*time.Millisecond {
					clock += 5 * time.Millisecond
				}
				used.waited += waited
				used.ran += 100*time.Millisecond - waited
				return nil
			}, 950*time.Millisecond)
			if wrong := (*BusyError)(nil); got != c.want || errors.As(err, &wrong) != c.wrong || err != nil && !c.wrong {
				t.Errorf("the fastest call took %v, %v; expected %v, a busy machine: %v", got, err, c.want, c.wrong)
			}
			if calls != c.calls && !c.wrong && len(c.waiting) != 2 {
				t.Errorf("%d calls; expected %d", calls, c.calls)
			}
		})
	}
}

// TestThreads reads what the system says of this process.
func TestThreads(t *testing.T) {
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Skip("the system does not say how long threads wait for a core")
	}
	before := threads()
	u := threads()
	for u.ran <= before.ran {
		u = threads()
	}
	if u.since(before) < 0 || u.since(before) > 1 {
		t.Errorf("the threads' usage went from %+v to %+v", before, u)
	}
}

func TestCompareProducts(t *testing.T) {
	for _, tt := range []struct {
		float32, bf16 float64
		emulated      string
		want          string
	}{
		{310e9, 190e9, "", "products in bf16 are slower than in float32 on this machine: 190 GFLOP/s against 310 GFLOP/s"},
		{310e9, 300e9, "", "products in bf16 are as fast as in float32 on this machine: 300 GFLOP/s against 310 GFLOP/s"},
		{0.9e12, 1.8e12, "", "products in bf16 are 2.0 times as fast as in float32 on this machine: 1.8 TFLOP/s against 900 GFLOP/s"},
		{310e9, 190e9, "no instructions", "products in bf16 are slower than in float32 on this machine, which emulates them: no instructions"},
	} {
		measure := func(_ context.Context, k Key) (Peak, error) {
			if tt.emulated != "" {
				t.Error("products that are emulated were measured")
			}
			return Peak{Key: k, FLOPS: map[string]float64{"float32": tt.float32, "bf16": tt.bf16}[k.Precision]}, nil
		}
		if p, err := CompareProducts(t.Context(), tt.emulated, measure); err != nil || p.String() != tt.want {
			t.Errorf("%v, %v; expected %s", p, err, tt.want)
		}
	}
	busy := func(context.Context, Key) (Peak, error) { return Peak{}, &BusyError{1} }
	if _, err := CompareProducts(t.Context(), "", busy); !errors.As(err, new(*BusyError)) {
		t.Errorf("%v; expected a BusyError", err)
	}
}
