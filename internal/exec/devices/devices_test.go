package devices

import (
	"errors"
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Spec{"cpu": {"CPU", 1}, "cpu:4": {"CPU", 4}, "gpu": {"GPU", 0}, "gpu:2": {"GPU", 2}} {
		got, err := Parse(text)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %v, %v; want %v", text, got, err, want)
		}
		if again, err := Parse(got.String()); err != nil || again != want {
			t.Errorf("Parse(%q).String() = %q, which is parsed as %v, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"tpu", "tpu:8", "TPU:0"} {
		if _, err := Parse(text); !errors.Is(err, ErrTPU) {
			t.Errorf("Parse(%q): got error %v, want ErrTPU", text, err)
		}
	}
	for _, text := range []string{"", "cpu:", "cpu:0", "cpu:-1", "cpu:x", "tpus", "CPU:1", "gpu:1025", "cpu:99999999999999999999"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", text, got)
		}
	}
}

func TestNames(t *testing.T) {
	if got, want := (Spec{"GPU", 2}).Names(), []string{"/device:GPU:0", "/device:GPU:1"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
