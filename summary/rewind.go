package summary

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	eventpb "github.com/wamuir/graft/tensorflow/core/util/event_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// rewindName is the prefix of the temporary file of a rewind. TensorBoard treats every
// file with "tfevents" in its name as an event file.
const rewindName = ".rewind"

// rewind removes the events of the given step and later ones from the event files of a
// folder, and also incomplete events left by a killed process. Files without such
// events do not change, and files that become empty are removed.
func rewind(dir string, step int64) error {
	entries, err := vfs.ReadDir(dir)
	if err != nil {
		return err
	}
	changed := false
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case !e.Type().IsRegular():
		case strings.HasPrefix(e.Name(), rewindName): // left by a killed rewind
			err = vfs.Remove(path)
			changed = true
		case strings.HasPrefix(e.Name(), filePrefix):
			var done bool
			done, err = rewindFile(path, step)
			changed = changed || done
		}
		if err != nil {
			return err
		}
	}
	if !changed {
		return nil
	}
	return vfs.SyncDir(dir)
}

// rewindFile rewinds one file, and reports whether it has changed.
func rewindFile(path string, step int64) (changed bool, err error) {
	kept := 0
	needed, err := eachEvent(path, step, func([]byte) error {
		kept++
		return nil
	})
	switch {
	case err != nil:
		return false, err
	case kept == 0:
		return true, vfs.Remove(path)
	case !needed:
		return false, nil
	}
	temp := filepath.Join(filepath.Dir(path), rewindName)
	if err := rewrite(path, temp, step); err != nil {
		_ = vfs.Remove(temp) // the first error is the one to report
		return false, err
	}
	return true, vfs.Rename(temp, path)
}

// rewrite copies the events of a file that are older than the step to another file.
func rewrite(path, temp string, step int64) error {
	st, err := vfs.Stat(path)
	if err != nil {
		return err
	}
	tmp, err := vfs.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, st.Mode().Perm())
	if err != nil {
		return err
	}
	if c, ok := tmp.(interface{ Chmod(fs.FileMode) error }); ok { // undo the umask
		if err := c.Chmod(st.Mode().Perm()); err != nil {
			return errors.Join(err, tmp.Close())
		}
	}
	out := bufio.NewWriter(tmp)
	var framed []byte
	if _, err = eachEvent(path, step, func(record []byte) error {
		framed = tfrecord.AppendRecord(framed[:0], record)
		_, err := out.Write(framed)
		return err
	}); err != nil {
		return errors.Join(err, tmp.Close())
	}
	return errors.Join(out.Flush(), tmp.Sync(), tmp.Close())
}

// eachEvent calls keep for each intact event that is older than the step, and reports
// whether the file contains anything else.
func eachEvent(path string, step int64, keep func(record []byte) error) (other bool, err error) {
	rd, err := tfrecord.Open(path, tfrecord.OnCorrupt(tfrecord.Skip))
	if err != nil {
		return false, err
	}
	defer rd.Close()
	for {
		record, err := rd.Next()
		if err == io.EOF {
			return other || rd.Skipped().Records > 0, nil
		}
		if err != nil {
			return false, err
		}
		var e eventpb.Event
		if proto.Unmarshal(record, &e) == nil && e.Step >= step && e.GetFileVersion() == "" {
			other = true
			continue
		}
		if err := keep(record); err != nil {
			return false, err
		}
	}
}
