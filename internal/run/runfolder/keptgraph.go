package runfolder

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/stream"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"

	"github.com/gorbit-ml/gorbit/train/params"
)

const (
	// GraphFolder is the folder of a run with its own copy of the graph.
	GraphFolder = "graph"
	// KeptFile lists the files of the copy. It is written after them and removed before them, so that
	// a copy with a list is complete.
	KeptFile = "kept.json"
	// ValuesFolder has the initial values of the variables. A run needs them until its first
	// checkpoint.
	ValuesFolder = "variables"
)

// KeptGraph lists the files of a run's copy of its graph.
type KeptGraph struct {
	// From is the export that was copied.
	From  string     `json:"from"`
	Files []KeptPart `json:"files"`
}

// KeptPart is a file of the copy.
type KeptPart struct {
	// Name is the path in the folder, with slashes.
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	// SHA256 is the checksum of the content; "" for variables, which have checksums of their own.
	SHA256 string `json:"sha256,omitempty"`
}

// values reports whether the file belongs to the initial values of the variables.
func (k KeptPart) values() bool { return strings.HasPrefix(k.Name, ValuesFolder+"/") }

// GraphToRead returns the folder of the graph with which a run is read: the one that the settings
// name, or else the run's own copy, or else the export.
func GraphToRead(p params.Params, folder string, settings []string, log *slog.Logger) (string, error) {
	if slices.ContainsFunc(settings, func(s string) bool { return strings.HasPrefix(s, "graph=") }) {
		return p.Graph, nil
	}
	kept, err := ReadKeptGraph(folder)
	if err != nil {
		return "", fmt.Errorf("%w; name an export of the same model with --set graph=FOLDER", err)
	}
	if kept == nil {
		if _, err := vfs.Stat(p.Graph); errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("graph %s: no such folder, and run %s has no copy of it; name an export of the same model with --set graph=FOLDER", p.Graph, folder)
		}
		return p.Graph, nil
	}
	if now, err := partsOf(p.Graph); err == nil && !kept.same(p.Graph, folder, now) {
		log.Warn("the export was changed since the run used it; using the run's own copy of the graph", "export", p.Graph, "to_use_it", "--set graph="+p.Graph)
	}
	return filepath.Join(folder, GraphFolder), nil
}

// GraphToTrain returns the folder of the graph with which a run is trained: the export, or the run's
// own copy if the export is gone.
func GraphToTrain(p params.Params, folder string, log *slog.Logger) (string, error) {
	if _, err := vfs.Stat(p.Graph); !errors.Is(err, fs.ErrNotExist) {
		return p.Graph, nil
	}
	kept, err := ReadKeptGraph(folder)
	if err != nil {
		return "", fmt.Errorf("%w; name an export of the same model with --graph", err)
	}
	if kept == nil {
		return p.Graph, nil
	}
	own := filepath.Join(folder, GraphFolder)
	log.Info("the export is gone; continuing with the run's own copy of the graph", "export", p.Graph, "copy", own)
	return own, nil
}

// ReadKeptGraph returns the list of a run's copy of its graph, whose files it has verified. It
// returns nil if the run has none, or one that was not completed.
func ReadKeptGraph(folder string) (*KeptGraph, error) {
	own := filepath.Join(folder, GraphFolder)
	list := filepath.Join(own, KeptFile)
	content, err := vfs.ReadFile(list)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	kept := new(KeptGraph)
	if err := json.Unmarshal(content, kept); err != nil {
		return nil, fault.Damagedf("%s: %w", list, err)
	}
	for _, part := range kept.Files {
		if !filepath.IsLocal(filepath.FromSlash(part.Name)) {
			return nil, fault.Damagedf("%s: file %q is not in the folder", list, part.Name)
		}
		name := filepath.Join(own, filepath.FromSlash(part.Name))
		now, err := partOf(name, part.Name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, fault.Damagedf("the run's copy of the graph is damaged: %s is missing", name)
		case err != nil:
			return nil, err
		case now != part:
			return nil, fault.Damagedf("the run's copy of the graph is damaged: %s is not the file that was copied (%d bytes, SHA-256 %.12s; expected %d, %.12s)",
				name, now.Bytes, cmp.Or(now.SHA256, "none"), part.Bytes, cmp.Or(part.SHA256, "none"))
		}
	}
	return kept, nil
}

// partsOf lists the files of an export that a run needs, sorted, the values of the variables last.
func partsOf(export string) ([]KeptPart, error) {
	var out, values []KeptPart
	export, err := filepath.EvalSymlinks(export) // WalkDir does not follow a link
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(export, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(export, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		top, _, _ := strings.Cut(rel, "/")
		if !slices.Contains([]string{"saved_model.pb", "assets", "serving", ValuesFolder}, top) {
			return nil
		}
		part, err := partOf(name, rel)
		if part.values() {
			values = append(values, part)
		} else {
			out = append(out, part)
		}
		return err
	})
	return append(out, values...), err
}

// partOf describes a file.
func partOf(name, rel string) (KeptPart, error) {
	part := KeptPart{Name: rel}
	info, err := vfs.Stat(name)
	if err == nil {
		err = stream.Check(name, info, math.MaxInt64, fault.Damaged)
	}
	if err != nil {
		return part, err
	}
	if part.Bytes = info.Size(); part.values() {
		return part, nil
	}
	f, err := vfs.Open(name)
	if err != nil {
		return part, err
	}
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	part.SHA256 = fmt.Sprintf("%x", sum.Sum(nil))
	return part, err
}

// same reports whether the copy in a run's folder has the graph of an export with the given files.
// Initial values do not matter: a run has its own.
func (k *KeptGraph) same(export, folder string, now []KeptPart) bool {
	if SameFile(export, filepath.Join(folder, GraphFolder)) {
		return true
	}
	graph := func(parts []KeptPart) []KeptPart {
		return slices.DeleteFunc(slices.Clone(parts), KeptPart.values)
	}
	return slices.Equal(graph(k.Files), graph(now))
}

func SameFile(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// KeepGraph makes the run's own copy of the graph that is trained, unless the run has it. Files are
// linked, or, where the file system cannot, copied but for the initial values: a checkpoint takes
// their place. from is the export as the params name it.
func KeepGraph(folder, export, from string) error {
	own := filepath.Join(folder, GraphFolder)
	if SameFile(export, own) {
		return nil
	}
	parts, err := partsOf(export)
	if err != nil {
		return fmt.Errorf("graph: %w", err)
	}
	// A damaged copy is made again.
	if before, err := ReadKeptGraph(folder); err == nil && before != nil && before.same(export, folder, parts) {
		return nil
	}
	if err := vfs.Remove(filepath.Join(own, KeptFile)); err == nil {
		err = vfs.SyncDir(own)
		if err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := vfs.RemoveAll(own); err != nil {
		return err
	}
	kept := KeptGraph{From: from}
	var folders []string
	links := true
	for _, part := range parts {
		if part.values() && !links {
			break
		}
		to := filepath.Join(own, filepath.FromSlash(part.Name))
		if dir := filepath.Dir(to); !slices.Contains(folders, dir) {
			if err := vfs.MkdirAll(dir, 0o777); err != nil {
				return err
			}
			folders = append(folders, dir)
		}
		linked, err := LinkOrCopy(filepath.Join(export, filepath.FromSlash(part.Name)), to, links, part.values())
		if err != nil {
			return fmt.Errorf("the run's copy of the graph: %w", err)
		}
		if links = linked; links || !part.values() {
			kept.Files = append(kept.Files, part)
		}
	}
	if !links {
		// A part of the values is of no use.
		kept.Files = slices.DeleteFunc(kept.Files, KeptPart.values)
		if err := vfs.RemoveAll(filepath.Join(own, ValuesFolder)); err != nil {
			return err
		}
		folders = slices.DeleteFunc(folders, func(dir string) bool { return path.Base(filepath.ToSlash(dir)) == ValuesFolder })
	}
	for _, dir := range append(folders, own) {
		if err := vfs.SyncDir(dir); err != nil {
			return err
		}
	}
	list, err := json.MarshalIndent(kept, "", "  ")
	if err != nil {
		return err
	}
	return vfs.ReplaceFile(filepath.Join(own, KeptFile), append(list, '\n'))
}

// LinkOrCopy gives a file a second name, if try is set and the file system can. Otherwise it copies
// the file, unless linkOnly is set. It reports whether the file is linked.
func LinkOrCopy(from, to string, try, linkOnly bool) (linked bool, err error) {
	if try {
		from, err := filepath.EvalSymlinks(from) // another name for a link would lead nowhere
		if err != nil {
			return false, err
		}
		err = vfs.Link(from, to)
		if err == nil {
			return true, vfs.SyncFile(to)
		}
		if !vfs.CannotLink(err) {
			return false, err
		}
	}
	if linkOnly {
		return false, nil
	}
	return false, vfs.CopyFile(from, to)
}
