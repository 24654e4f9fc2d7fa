package train

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
)

func TestAwaitRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := filepath.Join(t.TempDir(), "run")
		var out bytes.Buffer
		env := Env{Out: &out}
		err := AwaitRun(t.Context(), folder, 10*time.Second, env)
		if err == nil || !strings.Contains(err.Error(), "no run started in "+folder+" within 10s") {
			t.Errorf("error %v", err)
		}

		time.AfterFunc(time.Hour, func() {
			if err := errors.Join(os.Mkdir(folder, 0o755), os.WriteFile(filepath.Join(folder, runfolder.Params), nil, 0o644)); err != nil {
				t.Error(err)
			}
		})
		out.Reset()
		start := time.Now()
		if err := AwaitRun(t.Context(), folder, 0, env); err != nil {
			t.Error(err)
		}
		if waited := time.Since(start); waited < time.Hour || waited > time.Hour+2*time.Second {
			t.Errorf("waited %v for a run that began after an hour", waited)
		}
		if want := "waiting for a run in " + folder + "...\n"; out.String() != want {
			t.Errorf("said %q, want %q", out.String(), want)
		}
		out.Reset()
		if err := AwaitRun(t.Context(), folder, 0, env); err != nil || out.Len() > 0 {
			t.Errorf("a run that has begun: error %v, said %q", err, out.String())
		}

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		if err := AwaitRun(ctx, folder+"2", 0, env); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want that of the context", err)
		}
	})
}
