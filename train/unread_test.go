package train

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/vfstest"
	"github.com/gorbit-ml/gorbit/internal/data/layout"
	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
	"github.com/gorbit-ml/gorbit/train/params"
)

// reader is a reader of a file, with all that it opens on the way.
type reader struct {
	file string
	read func() (any, error)
}

// readers lists the readers of the files of a run, of an export, of records and of what users give.
func readers(t *testing.T) map[string]reader {
	run := openTrained(t, quiet()).Folder
	graph, data := fixture(t)
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		writeFile(t, path, content)
		return path
	}
	prefix := filepath.Join(run, runfolder.Checkpoints, "ckpt-1")
	restore := func() (any, error) {
		m, err := checkpoint.OpenManager(checkpoint.ManagerConfig{Dir: filepath.Dir(prefix), State: checkpoint.StateVariable, ReadOnly: true})
		if err != nil {
			return nil, err
		}
		defer m.Close()
		latest, err := m.Latest()
		if err != nil {
			return nil, err
		}
		all, err := m.All()
		if err != nil {
			return nil, err
		}
		r, err := m.Restore(context.Background(), nil)
		if err != nil {
			return nil, err
		}
		return fmt.Sprint(latest.Step, len(all), r.Step, len(r.Skipped), len(r.Tensors)), nil
	}
	shard := filepath.Join(data, "dev-00000-of-00001.tfrecord")
	indexed := func() (any, error) {
		f, err := tfrecord.OpenIndexed(shard, tfrecord.OnCorrupt(tfrecord.Skip))
		if err != nil {
			return nil, err
		}
		defer f.Close()
		_, err = f.Record(7, nil)
		return f.Len(), err
	}
	header := `{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`
	tensors := write("a.safetensors", string(binary.LittleEndian.AppendUint64(nil, uint64(len(header))))+header+"\x00\x00\x80\x3f")
	graphPB, contract := filepath.Join(graph, "saved_model.pb"), filepath.Join(graph, filepath.FromSlash(graphs.ContractFile))
	export := func() (any, error) {
		e, err := graphs.Open(graph)
		if err != nil {
			return nil, err
		}
		return len(e.Contract.Variables), nil
	}
	kept := func() (any, error) { return runfolder.ReadKeptGraph(run) }
	served := write("served/"+layout.DescriptionFile, "{}")
	write("served/"+layout.ModelFile, "")
	write("served/"+layout.VariablesPrefix+".index", "")
	vocab := write("vocab.txt", "[UNK]\n[CLS]\n[SEP]\n")
	manifest := write(convert.ManifestName, "{")
	rows := write("rows.tsv", "a\tb\n1\t2\n")
	return map[string]reader{
		"index of a checkpoint": {checkpoint.IndexPath(prefix), restore},
		"data of a checkpoint":  {checkpoint.DataPath(prefix, 0, 1), restore},
		"weights of a run folder": {filepath.Join(filepath.Dir(prefix), checkpoint.StateName), func() (any, error) {
			s, closing, err := checkpoint.OpenSource(filepath.Dir(prefix))
			if err != nil {
				return nil, err
			}
			return s.Path(), closing()
		}},
		"safetensors": {tensors, func() (any, error) {
			s, err := checkpoint.OpenSafetensors(tensors)
			if err != nil {
				return nil, err
			}
			defer s.Close()
			values, _, err := s.Float32("a")
			return values, err
		}},
		"records":          {shard, indexed},
		"index of records": {shard + ".index", indexed},
		"records one by one": {shard, func() (any, error) {
			r, err := tfrecord.Open(shard, tfrecord.OnCorrupt(tfrecord.Skip))
			if err != nil {
				return nil, err
			}
			defer r.Close()
			for err == nil {
				_, err = r.Next()
			}
			if err != io.EOF {
				return nil, err
			}
			return r.Records(), nil
		}},
		"graph":                {graphPB, export},
		"contract":             {contract, export},
		"list of a kept graph": {filepath.Join(run, runfolder.GraphFolder, runfolder.KeptFile), kept},
		"kept graph":           {filepath.Join(run, runfolder.GraphFolder, "saved_model.pb"), kept},
		"params":               {filepath.Join(run, runfolder.Params), func() (any, error) { return runfolder.ReadParams(run) }},
		"whether there are params": {filepath.Join(run, runfolder.Params), func() (any, error) {
			return prepare.Exists(filepath.Join(run, runfolder.Params)), nil // as a served version of a model is looked for
		}},
		"metrics": {filepath.Join(run, runfolder.Metrics), func() (any, error) {
			l := runfolder.NewLog()
			return l.Step, l.Follow(run)
		}},
		"description of a served model": {served, func() (any, error) { return layout.Read(filepath.Join(dir, "served")) }},
		"variables of a served model":   {filepath.Join(dir, "served", filepath.FromSlash(layout.VariablesPrefix)+".index"), func() (any, error) { return layout.Read(filepath.Join(dir, "served")) }},
		"vocabulary":                    {vocab, func() (any, error) { return text.LoadVocab(vocab) }},
		"manifest":                      {manifest, func() (any, error) { return convert.ReadManifest(dir) }},
		"table": {rows, func() (any, error) {
			t, err := table.Open(context.Background(), rows, table.Config{Format: table.TSV})
			if err != nil {
				return nil, err
			}
			defer t.Close()
			row, _, _, err := t.Next()
			return string(row), err
		}},
	}
}

// TestUnread lets every read of every reader fail, once and for good. What passes changes nothing; what
// stays is an error of the machine, never damage, and nothing else is taken instead.
func TestUnread(t *testing.T) {
	for name, r := range readers(t) {
		t.Run(name, func(t *testing.T) {
			try := func(from, times int, errno syscall.Errno) (got any, err error, reached bool) {
				failing := &vfstest.Unread{WorkFS: vfs.OS{}, From: from, Times: times, Err: errno}
				defer vfs.Mount(r.file, failing)()
				synctest.Test(t, func(*testing.T) { got, err = r.read() }) // the pauses between tries take no time
				return got, err, failing.Count() >= from
			}
			want, wantErr, _ := try(1, 0, 0)
			for from := 1; ; from++ {
				got, err, reached := try(from, 1, syscall.EIO)
				if !reached {
					if from == 1 {
						t.Fatalf("%s is not read", r.file)
					}
					return
				}
				if !reflect.DeepEqual(got, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
					t.Errorf("read %d fails once: %v, %v; expected %v, %v", from, got, err, want, wantErr)
				}
				for _, errno := range []syscall.Errno{syscall.EIO, syscall.EMFILE, syscall.ENOMEM} {
					got, err, _ = try(from, math.MaxInt, errno)
					if reflect.DeepEqual(got, want) && fmt.Sprint(err) == fmt.Sprint(wantErr) {
						continue // as without an index of records, which is made again
					}
					if !fault.OfMachine(err) || fault.Of(err) != fault.Failed || !strings.Contains(err.Error(), r.file) {
						t.Errorf("read %d and all later ones fail: %v, %v; expected %s and %q in the error, of class %s", from, got, err, r.file, errno, fault.Failed)
					}
				}
			}
		})
	}
}

// TestUnreadCheckpoint evaluates a run whose newest checkpoint cannot be read, once and for good.
func TestUnreadCheckpoint(t *testing.T) {
	long(t)
	p := testParams(t)
	p.Train.Steps, p.Train.Epochs, p.Checkpoint.Interval = 4, 0, 2
	run := filepath.Join(t.TempDir(), "run")
	mustTrain(t, p, run)
	newest := filepath.Join(run, runfolder.Checkpoints, "ckpt-4")
	evaluate := func(times int) (string, error) {
		failing := &vfstest.Unread{WorkFS: vfs.OS{}, From: 1, Times: times, Err: syscall.EIO}
		defer vfs.Mount(checkpoint.DataPath(newest, 0, 1), failing)()
		r, err := OpenRun(t.Context(), run, nil, quiet())
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		at, err := r.Load(t.Context(), params.Latest)
		if err != nil {
			return "", err
		}
		_, err = r.Evaluate(t.Context(), "")
		return fmt.Sprint(at), err
	}
	whole, err := evaluate(0)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := evaluate(1); err != nil || got != whole {
		t.Errorf("after one error: %s, %v; expected %s", got, err, whole)
	}
	if got, err := evaluate(math.MaxInt); fault.ExitCode(err) != fault.ExitFailed || !strings.Contains(err.Error(), newest) {
		t.Errorf("with errors only: %s, %v; expected exit code %d and %s in the error", got, err, fault.ExitFailed, newest)
	}
}
