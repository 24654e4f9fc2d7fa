package fault_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

type corrupt struct{}

func (corrupt) Error() string        { return "corrupt" }
func (corrupt) Is(target error) bool { return target == fault.Damaged }

func TestClasses(t *testing.T) {
	for _, c := range []struct {
		err   error
		class fault.Class
		code  int
	}{
		{errors.New("some"), fault.Failed, fault.ExitFailed},
		{fault.Usagef("flag %d", 1), fault.Usage, fault.ExitUsage},
		{fmt.Errorf("read: %w", fault.Damagedf("row %d", 1)), fault.Damaged, fault.ExitDamaged},
		{fmt.Errorf("read: %w", corrupt{}), fault.Damaged, fault.ExitDamaged},
		{fault.Damagedf("read: %w", syscall.EIO), fault.Failed, fault.ExitFailed},
		{fault.Damagedf("load: %w", fault.Numbered(errors.New("v.data; Input/output error"))), fault.Failed, fault.ExitFailed},
		{errors.Join(errors.New("close"), fmt.Errorf("read: %w", corrupt{})), fault.Damaged, fault.ExitDamaged},
		{fmt.Errorf("train: %w", context.Canceled), fault.Stopped, fault.ExitStopped},
		{errors.Join(context.Canceled, corrupt{}), fault.Stopped, fault.ExitStopped},
		{&fault.Error{Class: fault.Class("usage"), Err: errors.New("from a peer")}, fault.Usage, fault.ExitUsage},
	} {
		if got := fault.Of(c.err); got != c.class {
			t.Errorf("%v is %s, want %s", c.err, got, c.class)
		}
		if got := fault.ExitCode(c.err); got != c.code {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.code)
		}
	}
	if got := fault.ExitCode(nil); got != fault.ExitDone {
		t.Errorf("exit code of nil is %d", got)
	}
}
