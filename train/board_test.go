package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	eventpb "github.com/wamuir/graft/tensorflow/core/util/event_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/internal/run/record"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// TestFollowedGoesBack follows a run that goes back to an earlier step.
func TestFollowedGoesBack(t *testing.T) {
	f := &record.Followed{Folder: filepath.Join(t.TempDir(), "eval-dev")}
	if err := f.Close(); err != nil {
		t.Errorf("closing what was never opened: %v", err)
	}
	for _, step := range []int64{10, 20, 15} {
		for _, tag := range []string{"accuracy", "loss"} {
			f.Scalar(tag, step, float64(step))
		}
		if err := f.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	second := &record.Followed{Folder: f.Folder}
	second.Scalar("loss", 15, 1)
	if err := second.Flush(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("eval-dev is in use by process %d on ", os.Getpid())) {
		t.Errorf("a second process follows the run: %v", err)
	}
	if err := errors.Join(second.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	var scalars, restarts []int64
	for _, e := range readEvents(t, f.Folder) {
		switch e.What.(type) {
		case *eventpb.Event_Summary:
			scalars = append(scalars, e.Step)
		case *eventpb.Event_SessionLog:
			restarts = append(restarts, e.Step)
		}
	}
	if want := []int64{10, 10, 20, 20, 15, 15}; !slices.Equal(scalars, want) {
		t.Errorf("scalars of steps %v, want %v", scalars, want)
	}
	if want := []int64{10, 10, 15, 15}; !slices.Equal(restarts, want) {
		t.Errorf("restarts at %v, want %v", restarts, want)
	}
}

func TestFollowedSaysWhatFails(t *testing.T) {
	f := &record.Followed{Folder: filepath.Join("/proc", "nowhere")}
	f.Scalar("loss", 1, 1)
	if f.Flush() == nil {
		t.Error("no error of a folder that cannot be made")
	}
	if err := f.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
}

// readEvents returns the events of a folder with one file of them.
func readEvents(t *testing.T, folder string) []*eventpb.Event {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "events.*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("event files %v, %v", files, err)
	}
	file, err := tfrecord.OpenIndexed(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var out []*eventpb.Event
	for i := range file.Len() {
		record, err := file.Record(i, nil)
		if err != nil {
			t.Fatal(err)
		}
		e := new(eventpb.Event)
		if err := proto.Unmarshal(record, e); err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}
