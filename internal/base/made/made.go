// Package made tells what gorbit made, so that a command fills and replaces only that. It looks at what
// files say, and not only at their names.
package made

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"slices"
	"syscall"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// Kind is what a folder was made as.
type Kind string

// The kinds.
const (
	Run     Kind = "a run"
	Study   Kind = "a study"
	Dataset Kind = "a dataset"
	Export  Kind = "an export"
	Model   Kind = "a model" // in the form of Hugging Face's transformers

	// Tokenizer is what no folder is taken for: all others may have a tokenizer.json in them.
	Tokenizer Kind = "a tokenizer"
)

// Generator is what the pages of gorbit report say that they were made by.
const Generator = `<meta name="generator" content="gorbit `

// WeightsMark is what the metadata of the safetensors that gorbit export writes say that they were made by.
const WeightsMark = "gorbit export"

// file is a file that a command writes, and what is in it if gorbit wrote it. Without marks, its name is
// all that tells.
type file struct {
	name  string
	marks []string
}

// in reports whether the file is in a folder, and whether gorbit wrote it. An empty one has nothing to
// lose.
func (f file) in(dir string) (there, ours bool, err error) {
	path := vfs.Join(dir, f.name)
	if len(f.marks) == 0 {
		_, err := vfs.Stat(path)
		return err == nil, err == nil, missing(err)
	}
	head, err := readHead(path)
	if err != nil || len(head) == 0 {
		return false, false, missing(err)
	}
	ours = !slices.ContainsFunc(f.marks, func(mark string) bool { return !bytes.Contains(head, []byte(mark)) })
	return true, ours, nil
}

// missing is an error, or nil if it says that there is no such file.
func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	return err
}

var (
	// A file of params that was written by hand seldom has all sections, in this order.
	params  = file{"params.yaml", []string{"\ndata:", "\ntrain:", "\ncheckpoint:", "\nstrategy:", "\nruntime:"}}
	metrics = file{"metrics.jsonl", []string{`{"phase":"`}}
	data    = file{"data.json", []string{"gorbit-dataset"}}
	journal = file{"journal.log", []string{`"op_code"`}}
	page    = file{"report.html", []string{Generator}}
)

// kinds say by which files a folder of a kind is known: it has all of a set. The first file of the set
// is what an error names.
var kinds = []struct {
	kind Kind
	sets [][]file
}{
	{Run, [][]file{
		{{name: params.name}, {name: "checkpoints"}}, {{name: params.name}, {name: "processes.jsonl"}},
		{{name: params.name}, metrics}, {{name: params.name}, data},
	}},
	{Study, [][]file{{journal}, {{name: "lr-range.yaml"}}}},
	{Dataset, [][]file{{{name: "manifest.json"}}}},
	{Export, [][]file{{{name: "saved_model.pb"}}}},
	{Model, [][]file{{{name: "model.safetensors"}, {name: "config.json"}}}},
}

// replaced are the files that something of a kind replaces, in a folder that is not yet of the kind.
var replaced = map[Kind][]file{
	Run:   {params, data, metrics},
	Study: {{name: "base.yaml"}, {name: "best.yaml"}, {name: "lr-range.json"}, {name: "lr-range.log"}, page},
}

// Folder returns what a folder was made as, and a file that tells. It returns "" for a folder of which
// nothing is known, and for none.
func Folder(dir string) (Kind, string, error) {
	for _, k := range kinds {
		for _, set := range k.sets {
			all, err := hasAll(dir, set)
			if err != nil {
				return "", "", err
			}
			if all {
				return k.kind, set[0].name, nil
			}
		}
	}
	return "", "", nil
}

// hasAll reports whether a folder has all of the files, as gorbit writes them.
func hasAll(dir string, set []file) (bool, error) {
	for _, f := range set {
		if _, ours, err := f.in(dir); err != nil || !ours {
			return false, err
		}
	}
	return true, nil
}

// Room returns an error of class fault.Usage if a folder is of another kind than what is to be written
// into it, or if it has files that this would replace and that gorbit did not write. overwrite allows
// the latter. A folder that does not exist has room for everything.
func Room(dir string, as Kind, overwrite bool) error {
	kind, name, err := Folder(dir)
	switch {
	case err != nil:
		return err
	case kind != "" && kind != as:
		return fault.Usagef("folder %s is %s (it has %s); expected a folder of its own for %s", dir, kind, name, as)
	case kind == as || overwrite:
		return nil
	}
	for _, f := range replaced[as] {
		there, ours, err := f.in(dir)
		if err != nil {
			return err
		}
		if there && (!ours || len(f.marks) == 0) {
			return fault.Usagef("folder %s has a file %s that gorbit did not write, and %s there would replace it; expected another folder for %[3]s", dir, f.name, as)
		}
	}
	return nil
}

// Create begins a file. One that exists is replaced if ours says by its beginning that the same command
// wrote it, or if overwrite is set; any other is refused with an error of class fault.Usage.
func Create(name string, ours func(head []byte) bool, overwrite bool) (*vfs.Whole, error) {
	overwrite, err := Replaceable(name, ours, overwrite)
	if err != nil {
		return nil, err
	}
	return vfs.CreateWhole(name, overwrite)
}

// Replaceable reports whether there is a file that [Create] would replace, and returns the error with which
// it would refuse to.
func Replaceable(name string, ours func(head []byte) bool, overwrite bool) (bool, error) {
	info, err := vfs.Stat(name)
	if err != nil || !info.Mode().IsRegular() || overwrite {
		return overwrite, nil // CreateWhole says what is wrong
	}
	head, err := readHead(name)
	if err != nil {
		return false, err
	}
	if len(head) > 0 && !ours(head) {
		return false, fault.Usagef("%s already exists and has something else in it; choose another name, or add --overwrite to replace it", name)
	}
	return true, nil
}

// headBytes is how much of a file is read to tell what it is.
const headBytes = 4 << 20

func readHead(path string) ([]byte, error) {
	f, err := vfs.Open(path)
	if err != nil {
		return nil, err
	}
	head, err := io.ReadAll(io.LimitReader(f, headBytes))
	return head, errors.Join(err, f.Close())
}
