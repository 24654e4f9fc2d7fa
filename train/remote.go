package train

import (
	"path"
	"regexp"
	"strconv"

	_ "github.com/gorbit-ml/gorbit/internal/vfs/gcs" // paths that begin with gs://
)

// checkpointPart is the name of a file of a checkpoint: the prefix, the step and the ending.
var checkpointPart = regexp.MustCompile(`^(.*)-(\d+)\.(index|data-\d+-of-\d+)$`)

// stepIn returns the checkpoint of which a path is a file, and its step.
func stepIn(p string) (series string, step int64, ok bool) {
	m := checkpointPart.FindStringSubmatch(p)
	if m == nil {
		return "", 0, false
	}
	step, err := strconv.ParseInt(m[2], 10, 64)
	return m[1], step, err == nil
}

// newestOnly leaves out all but the newest of several checkpoints in a folder, and the event
// files of a run. It chooses what initial weights need of a folder that must be copied.
func newestOnly(paths []string) []string {
	newest := map[string]int64{}
	for _, p := range paths {
		if series, step, ok := stepIn(p); ok && path.Ext(p) == ".index" {
			newest[series] = max(newest[series], step)
		}
	}
	var out []string
	for _, p := range paths {
		series, step, ok := stepIn(p)
		if isEvents(p) || ok && step != newest[series] {
			continue
		}
		out = append(out, p)
	}
	return out
}

var eventFile = regexp.MustCompile(`(^|/)events\.out\.tfevents\.[^/]*$`)

func isEvents(p string) bool { return eventFile.MatchString(p) }
