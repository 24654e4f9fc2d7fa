package servable

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/crashtest"
)

// noExchange is a file system that cannot exchange two names.
type noExchange struct{ vfs.WorkFS }

func (noExchange) Exchange(string, string) error { return errors.ErrUnsupported }

// TestCrashAnywhere crashes an export at every file operation.
func TestCrashAnywhere(t *testing.T) {
	_, o := fixture(t)
	export := func(dir string, overwrite bool, labels ...string) error {
		o := o
		o.Out, o.Overwrite, o.Labels = filepath.Join(dir, "served", "model"), overwrite, labels
		return Write(context.Background(), o)
	}
	old := func(dir string) error { return export(dir, false, "x", "y", "z") }
	overwrite := func(dir string) error { return export(dir, true, o.Labels...) }
	phase := func(operation string) string {
		switch {
		case operation == "":
			return "after the end"
		case strings.HasPrefix(operation, "remove"):
			return "old model removed"
		case strings.Contains(operation, ".part-"):
			return "made aside"
		}
		return "moved into place"
	}
	for name, p := range map[string]crashtest.Program{
		"new": {Run: func(dir string) error { return export(dir, false, o.Labels...) },
			Complete: func(err error) bool { return strings.Contains(err.Error(), "already exists") }},
		"overwrite":                  {Prepare: old, Run: overwrite},
		"overwrite without exchange": {Prepare: old, Run: overwrite, Wrap: func(f vfs.WorkFS) vfs.WorkFS { return noExchange{f} }},
	} {
		t.Run(name, func(t *testing.T) {
			p.Phase = phase
			crashtest.Survives(t, p)
		})
	}
}
