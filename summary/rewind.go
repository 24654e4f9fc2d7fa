package summary

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	eventpb "github.com/wamuir/graft/tensorflow/core/util/event_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/tfrecord"
)

// rewind takes the events of the given step and later ones out of the event
// files of a folder, and with them what a killed process left behind of an
// event. Files without any stay as they are.
func rewind(dir string, step int64) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filePrefix) && e.Type().IsRegular() {
			if err := rewindFile(filepath.Join(dir, e.Name()), step); err != nil {
				return err
			}
		}
	}
	return nil
}

func rewindFile(path string, step int64) (err error) {
	needed, err := eachEvent(path, step, func([]byte) error { return nil })
	if err != nil || !needed {
		return err
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	// TensorBoard takes every name with "tfevents" in it for an event file.
	tmp, err := os.CreateTemp(filepath.Dir(path), ".rewind-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			tmp.Close()
			os.Remove(tmp.Name())
		}
	}()
	out := bufio.NewWriter(tmp)
	var framed []byte
	if _, err = eachEvent(path, step, func(record []byte) error {
		framed = tfrecord.AppendRecord(framed[:0], record)
		_, err := out.Write(framed)
		return err
	}); err != nil {
		return err
	}
	if err := errors.Join(out.Flush(), tmp.Chmod(st.Mode().Perm()), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// eachEvent calls keep for every whole event that is older than the step, and
// tells whether there is anything else in the file.
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
