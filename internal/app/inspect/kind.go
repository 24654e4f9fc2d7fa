package inspect

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/gguf"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/layout"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// Kind is what a path is.
type Kind string

// The kinds.
const (
	Export      Kind = "training export"
	Served      Kind = "served model"
	SavedModel  Kind = "SavedModel"
	Run         Kind = "run folder"
	Checkpoint  Kind = "checkpoint"
	Safetensors Kind = "safetensors"
	GGUF        Kind = "GGUF"
	Dataset     Kind = "dataset"
	Records     Kind = "records"
)

// Found is what a path was recognised as.
type Found struct {
	Kind Kind
	// Path is what to read: of a folder of checkpoints, the prefix of one.
	Path string
	// Note says which of several things was taken; "" if there was no choice.
	Note string
}

// expected lists what can be inspected.
const expected = "an export, a served model or another SavedModel, a run folder, a checkpoint, safetensors, GGUF, or TFRecords"

// Recognise returns what a path is. The error for anything else is of class fault.Usage and says what
// it is and what to do.
func Recognise(path string) (Found, error) {
	info, err := vfs.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if exists(checkpoint.IndexPath(path)) {
			return Found{Kind: Checkpoint, Path: path}, nil
		}
		return Found{}, fault.Usagef("%s: no such file or folder", path)
	case err != nil:
		return Found{}, err
	case info.IsDir():
		return folder(path)
	case !info.Mode().IsRegular():
		return Found{}, fault.Usagef("%s is neither a file nor a folder; expected %s", path, expected)
	}
	return file(path, info.Size())
}

func exists(elem ...string) bool {
	_, err := os.Stat(filepath.Join(elem...))
	return err == nil
}

// folder recognises a folder.
func folder(dir string) (Found, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return Found{}, err
	}
	if len(entries) == 0 {
		return Found{}, fault.Usagef("%s is an empty folder; expected %s", dir, expected)
	}
	var found []Found
	add := func(kind Kind, path string) { found = append(found, Found{Kind: kind, Path: path}) }
	if exists(dir, "params.yaml") && exists(dir, "checkpoints") {
		add(Run, dir)
	}
	if exists(dir, layout.ModelFile) {
		switch {
		case exists(dir, filepath.FromSlash(graphs.ContractFile)):
			add(Export, dir)
		case exists(dir, filepath.FromSlash(layout.DescriptionFile)):
			add(Served, dir)
		default:
			add(SavedModel, dir)
		}
	}
	if exists(dir, convert.ManifestName) {
		add(Dataset, dir)
	}
	notes, err := weights(dir, entries, add)
	if err != nil && len(found) == 0 {
		return Found{}, err
	}
	if len(found) == 0 && slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.Contains(e.Name(), ".tfrecord") }) {
		add(Dataset, dir)
	}
	if len(found) == 0 {
		return Found{}, unknownFolder(dir, entries)
	}
	one := found[0]
	if notes != "" && one.Kind == Checkpoint {
		one.Note = notes
	}
	if len(found) > 1 {
		var others []string
		for _, f := range found[1:] {
			others = append(others, string(f.Kind)+" "+f.Path)
		}
		one.Note = fmt.Sprintf("taken as a %s; it also holds %s, which can be named itself", one.Kind, strings.Join(others, " and "))
	}
	return one, nil
}

// weights adds the checkpoint or the safetensors in a folder. The note says which of several was taken.
func weights(dir string, entries []fs.DirEntry, add func(Kind, string)) (note string, err error) {
	var indexes, tensors []string
	for _, e := range entries {
		if prefix, ok := strings.CutSuffix(e.Name(), ".index"); ok && checkpoint.IsTable(filepath.Join(dir, e.Name())) {
			indexes = append(indexes, prefix)
		}
		if strings.HasSuffix(e.Name(), ".safetensors") {
			tensors = append(tensors, e.Name())
		}
	}
	if len(indexes) > 0 {
		src, closing, err := checkpoint.OpenSource(dir)
		prefix := filepath.Join(dir, indexes[len(indexes)-1])
		if err == nil {
			if _, ok := src.(*checkpoint.Bundle); ok {
				prefix = src.Path()
			}
			closing()
		}
		add(Checkpoint, prefix)
		if len(indexes) > 1 {
			note = fmt.Sprintf("%d checkpoints are there, and this is the newest; the others are %s", len(indexes), list(indexes, filepath.Base(prefix)))
		}
	}
	switch {
	case len(tensors) == 1:
		add(Safetensors, filepath.Join(dir, tensors[0]))
	case len(tensors) > 1:
		return note, fault.Usagef("%s has %d files of safetensors; expected one of them, such as %s", dir, len(tensors), filepath.Join(dir, tensors[0]))
	}
	return note, nil
}

// list joins names without one of them.
func list(names []string, without string) string {
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == without })
	const most = 6
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// unknownFolder says what a folder is that cannot be inspected.
func unknownFolder(dir string, entries []fs.DirEntry) error {
	var names []string
	for _, e := range entries {
		name := e.Name()
		names = append(names, name)
		switch {
		case name == "saved_model.pbtxt" || name == "saved_model.cpb":
			return fault.Usagef("%s is a SavedModel in %s; expected saved_model.pb: load and save it again with tf.saved_model", dir, name)
		case strings.HasSuffix(name, ".bin") && strings.HasPrefix(name, "pytorch_model"):
			return fault.Usagef("%s is a model of PyTorch (%s); expected safetensors: save it with save_pretrained(safe_serialization=True)", dir, name)
		case strings.HasSuffix(name, ".h5") || strings.HasSuffix(name, ".keras"):
			return fault.Usagef("%s has a model of Keras, %s; export it with python -m gorbit_export keras", dir, name)
		}
	}
	return fault.Usagef("%s contains %s, which cannot be inspected; expected %s", dir, list(names, ""), expected)
}

// file recognises a file by its first and last bytes.
func file(path string, size int64) (Found, error) {
	f, err := vfs.Open(path)
	if err != nil {
		return Found{}, err
	}
	defer f.Close()
	head := make([]byte, 512)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return Found{}, err
	}
	head = head[:n]
	if n == 0 {
		return Found{}, fault.Usagef("%s is an empty file; expected %s", path, expected)
	}
	if prefix, ok := strings.CutSuffix(path, ".index"); ok {
		if !checkpoint.IsTable(path) && exists(prefix) {
			return Found{}, fault.Usagef("%s is the index of a file of records; name that, %s", path, prefix)
		}
		return Found{Kind: Checkpoint, Path: prefix}, nil
	}
	if i := strings.LastIndex(path, ".data-"); i >= 0 && exists(checkpoint.IndexPath(path[:i])) {
		return Found{Kind: Checkpoint, Path: path[:i]}, nil
	}
	if what, remedy := foreign(head, path, size); what != "" {
		return Found{}, fault.Usagef("%s is %s; %s", path, what, remedy)
	}
	if n > 8 && binary.LittleEndian.Uint64(head) <= uint64(size) && head[8] == '{' {
		return Found{Kind: Safetensors, Path: path}, nil
	}
	if strings.HasPrefix(string(head), gguf.Magic) {
		return Found{Kind: GGUF, Path: path}, nil
	}
	if strings.HasSuffix(path, ".safetensors") {
		return Found{}, fault.Damagedf("%s is not a safetensors file, although its name says so: it does not begin with the length of a header and the header", path)
	}
	if isRecords(path) || strings.Contains(filepath.Base(path), ".tfrecord") {
		return Found{Kind: Records, Path: path}, nil
	}
	if checkpoint.IsTable(path) { // of TensorFlow 1
		return Found{Kind: Checkpoint, Path: path}, nil
	}
	if filepath.Base(path) == layout.ModelFile {
		return Found{}, fault.Usagef("%s is a file of a SavedModel; name its folder, %s", path, filepath.Dir(path))
	}
	if utf8.Valid(trimmed(head)) && !slices.Contains(head, 0) {
		return Found{}, fault.Usagef("%s is a text file; expected %s: gorbit convert makes TFRecords of tables and texts", path, expected)
	}
	return Found{}, fault.Usagef("%s cannot be inspected: its kind is not known; expected %s", path, expected)
}

// trimmed leaves out a character that was cut at the end.
func trimmed(head []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(head); i++ {
		if utf8.RuneStart(head[len(head)-i]) {
			if !utf8.FullRune(head[len(head)-i:]) {
				return head[:len(head)-i]
			}
			break
		}
	}
	return head
}

// isRecords reports whether a file begins with a record whose checksums are right.
func isRecords(path string) bool {
	r, err := tfrecord.Open(path, tfrecord.MaxRecordBytes(1<<30))
	if err != nil {
		return false
	}
	defer r.Close()
	_, err = r.Next()
	return err == nil
}

// foreign recognises files of other programs and returns what to do with them.
func foreign(head []byte, path string, size int64) (what, remedy string) {
	const asSafetensors = "save the weights as safetensors"
	begins := func(magic string) bool { return strings.HasPrefix(string(head), magic) }
	switch {
	case begins("version https://git-lfs.github.com/spec/"):
		return "a Git LFS pointer, not the file itself", "fetch the file with git lfs pull"
	case begins("PK\x03\x04"):
		return archive(path)
	case begins("\x80\x02"), begins("\x80\x03"), begins("\x80\x04"), begins("\x80\x05"):
		return "a pickle of Python, such as PyTorch writes", "it runs code when it is loaded; " + asSafetensors
	case begins("\x89HDF\r\n\x1a\n"):
		return "an HDF5 file, such as Keras writes", "export the model with python -m gorbit_export keras, or " + asSafetensors
	case begins("PAR1"):
		return "a Parquet file", "write it as CSV or JSON lines and use gorbit convert"
	case begins("ustar") || len(head) > 262 && string(head[257:262]) == "ustar":
		return "a tar archive", "unpack it"
	}
	return "", ""
}

// archive recognises what a zip archive is by the names in it.
func archive(path string) (what, remedy string) {
	what, remedy = "a zip archive", "unpack it"
	z, err := zip.OpenReader(path)
	if err != nil {
		return what + " that cannot be read", "fetch it again"
	}
	defer z.Close()
	for _, f := range z.File {
		switch {
		case f.Name == "model.weights.h5":
			return "a .keras file", "export the model with python -m gorbit_export keras"
		case strings.HasSuffix(f.Name, "/data.pkl"):
			return "a PyTorch file", "save the weights as safetensors"
		}
	}
	return what, remedy
}
