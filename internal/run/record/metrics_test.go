package record_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/run/record"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/runner"
)

// TestMetricsMended continues a metrics file that lost bytes: the torn line is cut and
// the log says so.
func TestMetricsMended(t *testing.T) {
	const one, two = `{"phase":"train","step":1}` + "\n", `{"phase":"train","step":2}` + "\n"
	for _, test := range []struct {
		name, content, want string
		size                int
		told                bool
	}{
		{"whole", one + two, one + two, len(one + two), false},
		{"longer", one + two, one, len(one), false},
		{"a torn line", one + two[:9], one, len(one + two), true},
		{"without the end of line", one + two[:len(two)-1], one, len(one + two), true},
		{"a line is missing", one, one, len(one + two), true},
		{"only a torn line", one[:9], "", len(one + two), true},
		{"a long torn line", one + strings.Repeat("x", 10000), one, 20000, true},
		{"gone", "", "", len(one), true},
		{"other bytes", one + two, one, len(one) + 4, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), runfolder.Metrics)
			if err := os.WriteFile(path, []byte(test.content), 0o666); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			m, err := record.OpenMetrics(path, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if err := m.Restore(fmt.Appendf(nil, "%d", test.size)); err != nil {
				t.Fatal(err)
			}
			if told := strings.Contains(log.String(), "lacks lines"); told != test.told {
				t.Errorf("log: %q", log.String())
			}
			if err := m.Action("train")(context.Background(), 3, runner.Outputs{"loss": 1}); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if want := test.want + `{"phase":"train","step":3,"outputs":{"loss":1}}` + "\n"; string(got) != want {
				t.Errorf("the file is\n%swant\n%s", got, want)
			}
		})
	}
}
