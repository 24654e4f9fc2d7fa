package record

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	sspb "github.com/wamuir/graft/tensorflow/core/framework/step_stats_go_proto"

	"github.com/gorbit-ml/gorbit/strategy"
)

// TestTogether cuts calls of updates at the borders of a profile, and before and after histograms.
func TestTogether(t *testing.T) {
	for _, c := range []struct {
		first int64
		n     int
		// of a profile of updates 5 to 7, and of histograms after every 4
		profile, histograms int
	}{
		{1, 10, 4, 3}, {4, 10, 1, 1}, {5, 10, 3, 3}, {6, 10, 2, 2}, {7, 1, 1, 1}, {8, 10, 10, 1}, {9, 2, 2, 2}, {100, 9, 9, 1},
	} {
		p, h := &Profile{First: 5, Last: 7}, &Histograms{Interval: 4}
		if got := p.Together(c.first, c.n); got != c.profile {
			t.Errorf("profile: %d of %d updates from %d on, expected %d", got, c.n, c.first, c.profile)
		}
		if got := h.Together(c.first, c.n); got != c.histograms {
			t.Errorf("histograms: %d of %d updates from %d on, expected %d", got, c.n, c.first, c.histograms)
		}
	}
}

// TestProfileContinued traces the rest of a profile whose first update was made before: the profile says so,
// and leaves that of the others alone.
func TestProfileContinued(t *testing.T) {
	var out strings.Builder
	p := &Profile{First: 5, Last: 7, Folder: t.TempDir(), Out: &out}
	for first := int64(6); first <= 7; first++ {
		if _, err := p.Before(t.Context(), first, nil); err != nil {
			t.Fatal(err)
		}
		if err := p.After(t.Context(), first, []strategy.Result{{Applied: true, Iterations: first}}); err != nil {
			t.Fatal(err)
		}
	}
	of, err := os.ReadDir(filepath.Join(p.Folder, "profile"))
	if err != nil || len(of) != 1 || of[0].Name() != "6-7" || !strings.HasPrefix(out.String(), "profile of steps 6 to 7 in ") {
		t.Errorf("the profile is in %v, %v, with\n%s", of, err, &out)
	}
}

func TestLanes(t *testing.T) {
	all := []event{{op: "e", start: 12, took: 3}, {op: "a", start: 0, took: 10}, {op: "b", start: 1, took: 4}, {op: "c", start: 2, took: 2}, {op: "d", start: 3, took: 9}, {op: "f", start: 12, took: 1}}
	var got [][]string
	for _, lane := range lanes(all, true) {
		var names []string
		for _, e := range lane {
			names = append(names, e.op)
		}
		got = append(got, names)
	}
	if want := [][]string{{"a", "b", "c", "e", "f"}, {"d"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("lanes %v, expected %v", got, want)
	}
	if n := len(lanes(all, false)); n != 4 {
		t.Errorf("%d lanes without nesting, expected 4", n)
	}
}

// TestTimeline lays out a call on a worker and on this machine.
func TestTimeline(t *testing.T) {
	now := time.Unix(100, 0)
	node := func(name, label string, start, took int64, thread uint32) *sspb.NodeExecStats {
		return &sspb.NodeExecStats{NodeName: name, TimelineLabel: label, AllStartNanos: now.UnixNano() + start, AllEndRelNanos: took, ThreadId: thread}
	}
	call := strategy.TracedCall{Began: now, Ended: now.Add(time.Millisecond), Stats: &sspb.StepStats{DevStats: []*sspb.DeviceStepStats{
		{Device: "/job:localhost/replica:0/task:0/device:CPU:0", NodeStats: []*sspb.NodeExecStats{
			node("gradients", "gradients = StatefulPartitionedCall(a, b)", 10, 900_000, 1),
			node("gradients/MatMul", "[cpu 2.0MB 2.0MB] gradients/MatMul = MatMul(a, b)", 20, 400_000, 1),
			node("update", "update = GorbitAdamw(a)", 500_000, 100_000, 2),
		}},
		{Device: "/job:worker/replica:0/task:1/device:GPU:0", NodeStats: []*sspb.NodeExecStats{node("product", "product = MatMul(a, b)", 30, 500_000, 7)}},
	}}}
	line := timelineOf([]strategy.TracedCall{call}, []span{{"step 1", now, now.Add(2 * time.Millisecond)}})
	var rows []string
	for _, r := range line.rows {
		rows = append(rows, strings.TrimPrefix(fmt.Sprint(r.host, " ", r.device, " ", r.name, " ", len(r.events)), hostName()+" "))
	}
	want := []string{"gorbit loop 1", "gorbit calls of TensorFlow 1", "CPU:0 thread 1 2", "CPU:0 thread 2 1", "worker_1 GPU:0 thread 7 1"}
	if hostName() > "worker_1" {
		want = []string{want[0], want[1], want[4], want[2], want[3]}
	}
	if !reflect.DeepEqual(rows, want) {
		t.Errorf("rows %q, expected %q", rows, want)
	}
	var out bytes.Buffer
	if err := line.table(&out, "title"); err != nil {
		t.Fatal(err)
	}
	const table = `title
    operation  count  total ms  share
       MatMul      2      0.90  90.0%
  GorbitAdamw      1      0.10  10.0%
`
	if !reflect.DeepEqual(strings.Fields(out.String()), strings.Fields(table)) {
		t.Errorf("table\n%s\nexpected\n%s", out.String(), table)
	}
}
