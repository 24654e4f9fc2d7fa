package fault_test

import (
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

func TestLast(t *testing.T) {
	for _, c := range []struct {
		printed, want string
		ok            bool
	}{
		{"", "", false},
		{"step 1\n\n  step 2 \n\n", "step 2", false},
		{"gorbit: first\ntext\ngorbit: no space left\nlevel=INFO msg=closed\n", "no space left", true},
		{"a gorbit: x", "a gorbit: x", false},
	} {
		if got, ok := fault.Last(c.printed); got != c.want || ok != c.ok {
			t.Errorf("%q: %q, %v; expected %q, %v", c.printed, got, ok, c.want, c.ok)
		}
	}
}
