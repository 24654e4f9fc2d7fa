package record_test

import (
	"bytes"
	"context"
	"errors"
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
			if want := test.want + string(runfolder.SumLine([]byte(`{"phase":"train","step":3,"outputs":{"loss":1}}`))); string(got) != want {
				t.Errorf("the file is\n%swant\n%s", got, want)
			}
		})
	}
}

// TestMetricsRemoved takes the metrics file away while a run writes it, whole and in part.
func TestMetricsRemoved(t *testing.T) {
	line := func(step int) string {
		return string(runfolder.SumLine(fmt.Appendf(nil, `{"phase":"train","step":%d,"outputs":{"loss":1}}`, step)))
	}
	for _, test := range []struct {
		name string
		take func(path string) error
		want string
		told string
	}{
		{"removed", os.Remove, line(1) + line(2) + line(3), "the metrics file was removed while the run trained; it is made anew, with its lines"},
		{"replaced", func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, []byte("other"), 0o666))
		}, line(1) + line(2) + line(3), "it is made anew"},
		{"emptied", func(path string) error { return os.Truncate(path, 0) }, line(3), "lines were removed from the metrics file while the run trained"},
		{"cut", func(path string) error { return os.Truncate(path, int64(len(line(1)))+5) }, line(1) + line(3), "lines were removed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), runfolder.Metrics)
			var log bytes.Buffer
			m, err := record.OpenMetrics(path, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			write := func(step int64) {
				if err := m.Action("train")(t.Context(), step, runner.Outputs{"loss": 1}); err != nil {
					t.Fatal(err)
				}
			}
			write(1)
			write(2)
			if err := test.take(path); err != nil {
				t.Fatal(err)
			}
			if err := m.Sync(); err != nil {
				t.Fatal(err)
			}
			write(3)
			got, err := os.ReadFile(path)
			if size, sizeErr := m.State(); string(got) != test.want || err != nil || string(size) != fmt.Sprint(len(test.want)) || sizeErr != nil {
				t.Errorf("the file is, with size %s,\n%s(%v), expected\n%s", size, got, err, test.want)
			}
			if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), test.told) {
				t.Errorf("log: %q", log.String())
			}
		})
	}
}

// TestMetricsDamaged continues a run one digit of whose metrics has changed.
func TestMetricsDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), runfolder.Metrics)
	content := string(runfolder.SumLine([]byte(`{"phase":"train","step":1,"outputs":{"loss":0.25}}`))) + `{"phase":"train","step":2,"outputs":{"loss":0.5}}` + "\n" // of an older version
	content += strings.Replace(string(runfolder.SumLine([]byte(`{"phase":"train","step":3,"outputs":{"loss":0.75}}`))), "0.75", "0.15", 1)
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	m, err := record.OpenMetrics(path, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Restore(fmt.Appendf(nil, "%d", len(content))); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "metrics.jsonl: cannot read line 3;") {
		t.Errorf("log: %q", log.String())
	}
	read := runfolder.NewLog()
	if err := read.Follow(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if _, step, ok := read.Train["loss"].End(); step != 2 || !ok {
		t.Errorf("the last loss is of step %d, %t", step, ok)
	}
}
