package runfolder

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	_ "github.com/gorbit-ml/gorbit/internal/base/vfs/gcs"   // paths that begin with gs://
	_ "github.com/gorbit-ml/gorbit/internal/base/vfs/hubfs" // paths that begin with hub:
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/train/params"
)

// Rename returns a writer of lines in which the local folder of a run has the name of its folder in a
// bucket.
func Rename(out io.Writer, local, remote string) io.Writer {
	return &renamed{out, []byte(local), []byte(remote)}
}

// renamed replaces the name of a local folder by that of the folder in a bucket in every line.
type renamed struct {
	w        io.Writer
	from, to []byte
}

func (r *renamed) Write(line []byte) (int, error) {
	if _, err := r.w.Write(bytes.ReplaceAll(line, r.from, r.to)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// LocalRun returns a folder of this machine with what is needed to evaluate a checkpoint of a run:
// the run's own folder, or a copy of a part of a run in a bucket, which another process may be
// training. which is one of the names above or a step; "" copies all checkpoints.
func LocalRun(ctx context.Context, folder, which string) (string, error) {
	remote, err := vfs.RemoteOf(folder)
	if err != nil || remote == nil {
		return folder, err
	}
	var protected []int64
	if which == params.Best || which == params.BestOrLatest {
		if protected, err = protectedSteps(ctx, remote, folder); err != nil {
			return "", err
		}
	}
	var failed error
	local, err := remote.Copy(ctx, folder, func(paths []string) []string {
		var chosen []string
		chosen, failed = ofRun(paths, which, protected)
		return chosen
	})
	if failed != nil {
		return "", fmt.Errorf("run %s %w", folder, failed)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", &NotRunError{Folder: folder}
	}
	return local, err
}

// protectedSteps lists the steps of the checkpoints that a run in a bucket keeps in addition to the
// newest.
func protectedSteps(ctx context.Context, remote vfs.Remote, folder string) ([]int64, error) {
	local, err := remote.Copy(ctx, folder, func(paths []string) []string {
		return slices.DeleteFunc(slices.Clone(paths), func(p string) bool {
			_, _, ok := StepIn(p)
			return ok || path.Dir(p) != Checkpoints
		})
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	manager, err := checkpoint.OpenManager(checkpoint.ManagerConfig{Dir: filepath.Join(local, Checkpoints), ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer manager.Close()
	return manager.Protected()
}

// ofRun chooses the files of a run without its events, and of the checkpoints those of which.
// protected lists the steps of the checkpoints that are kept in addition to the newest.
func ofRun(paths []string, which string, protected []int64) ([]string, error) {
	var steps []int64
	for _, p := range paths {
		if _, step, ok := StepIn(p); ok && path.Dir(p) == Checkpoints && path.Ext(p) == ".index" {
			steps = append(steps, step)
		}
	}
	slices.Sort(steps)
	wanted := steps
	switch {
	case len(steps) == 0 || which == "":
	case which == "latest" || which == params.Best || which == params.BestOrLatest:
		wanted = append(slices.Clone(protected), steps[len(steps)-1])
	default:
		step, err := strconv.ParseInt(strings.TrimPrefix(which, "ckpt-"), 10, 64)
		if err != nil {
			return nil, &params.Error{Err: fmt.Errorf("checkpoint is %q; expected latest, best, best-or-latest or a step%s", which, words.DidYouMean(which, []string{params.Latest, params.Best, params.BestOrLatest}))}
		}
		if len(steps) == 0 {
			return nil, fmt.Errorf("has no checkpoint %s; it has none at all: train it first", which)
		}
		if !slices.Contains(steps, step) {
			return nil, fmt.Errorf("has no checkpoint %s; expected one of %s", which, strings.Trim(fmt.Sprint(steps), "[]"))
		}
		wanted = []int64{step}
	}
	return slices.DeleteFunc(slices.Clone(paths), func(p string) bool {
		_, step, ok := StepIn(p)
		return IsEvents(p) || isSetAside(p) || ok && path.Dir(p) == Checkpoints && !slices.Contains(wanted, step)
	}), nil
}

// FilesAt lists the files of a run on this machine that another run needs to train on from one of its
// checkpoints, by paths with slashes: without those of other checkpoints and without events.
func FilesAt(folder string, step int64) ([]string, error) {
	files, err := Files(folder)
	if err != nil {
		return nil, err
	}
	return ofRun(files, strconv.FormatInt(step, 10), nil)
}

// Files lists the files of a run on this machine, by paths with slashes, but hidden ones and what the run
// was before it went back.
func Files(folder string) ([]string, error) {
	var out []string
	var list func(dir string) error
	list = func(dir string) error {
		entries, err := vfs.ReadDir(filepath.Join(folder, filepath.FromSlash(dir)))
		for _, e := range entries {
			name := path.Join(dir, e.Name())
			switch {
			case strings.HasPrefix(e.Name(), ".") || name == SetAside:
			case e.IsDir():
				err = cmp.Or(err, list(name))
			default:
				out = append(out, name)
			}
		}
		return err
	}
	err := list("")
	slices.Sort(out)
	return out, err
}

// checkpointPart is the name of a file of a checkpoint: the prefix, the step and the ending.
var checkpointPart = regexp.MustCompile(`^(.*)-(\d+)\.(index|data-\d+-of-\d+)$`)

// StepIn returns the checkpoint of which a path is a file, and its step.
func StepIn(p string) (series string, step int64, ok bool) {
	m := checkpointPart.FindStringSubmatch(p)
	if m == nil {
		return "", 0, false
	}
	step, err := strconv.ParseInt(m[2], 10, 64)
	return m[1], step, err == nil
}

// NewestOnly leaves out all but the newest of several checkpoints in a folder, and the event
// files of a run. It chooses what initial weights need of a folder that must be copied.
func NewestOnly(paths []string) []string {
	newest := map[string]int64{}
	for _, p := range paths {
		if series, step, ok := StepIn(p); ok && path.Ext(p) == ".index" {
			newest[series] = max(newest[series], step)
		}
	}
	var out []string
	for _, p := range paths {
		series, step, ok := StepIn(p)
		if IsEvents(p) || isSetAside(p) || ok && step != newest[series] {
			continue
		}
		out = append(out, p)
	}
	return out
}

var eventFile = regexp.MustCompile(`(^|/)events\.out\.tfevents\.[^/]*$`)

func IsEvents(p string) bool { return eventFile.MatchString(p) }

// SetAside is the folder of a run with what it was before it went back to an earlier checkpoint: run
// folders, each named by its last step.
const SetAside = "set-aside"

// isSetAside reports whether a path in a run is that of what the run was before it went back.
func isSetAside(p string) bool { return strings.HasPrefix(p, SetAside+"/") }
