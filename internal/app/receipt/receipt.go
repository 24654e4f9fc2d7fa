// Package receipt writes down what a training read and wrote, by checksums, and says later what has
// changed. A receipt is an in-toto statement (https://in-toto.io/Statement/v1): its subjects are the
// files of the run, its predicate says what they were made of, by which program and on which machine.
// It may be signed, as a DSSE envelope.
package receipt

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/stream"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// Name is the name of a receipt in the folder of its run.
const Name = "receipt.json"

// The types of a receipt.
const (
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://github.com/gorbit-ml/gorbit/docs/reference/receipt.md"
)

// Statement is a receipt.
type Statement struct {
	Type          string     `json:"_type"`
	Subject       []Resource `json:"subject"` // the files of the run, by name
	PredicateType string     `json:"predicateType"`
	Predicate     Predicate  `json:"predicate"`
}

// Resource is a file.
type Resource struct {
	// Name is the path in the run, or of the data in their folder, with slashes.
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// Predicate says how a run came to be.
type Predicate struct {
	// Data are the files of records that were trained and evaluated on, and Folder is where they were.
	Data   []Resource `json:"data"`
	Folder string     `json:"dataFolder"`
	// Processes trained, one after the other.
	Processes []Process `json:"processes"`
	// Metrics has a link for each line of metrics.jsonl: the first half of the SHA-256 of the sum before it
	// and the line, in hexadecimal digits.
	Metrics []string `json:"metrics"`
}

// Process is a process that trained.
type Process struct {
	Gorbit     string   `json:"gorbit"`
	Go         string   `json:"go"`
	TensorFlow string   `json:"tensorflow"`
	Processor  string   `json:"processor,omitempty"`
	Cores      int      `json:"cores"`
	Devices    []string `json:"devices"`
	Kernels    string   `json:"kernels,omitempty"`
	Precision  string   `json:"precision,omitempty"`
	// FromStep is the number of steps that were made before.
	FromStep int64 `json:"fromStep"`
}

// Make reads a run and its data. Nothing may train in the run meanwhile. Data that are not as their
// manifest says, and a run that did not end, are errors.
func Make(ctx context.Context, folder string) (*Statement, error) {
	run, err := runfolder.Read(folder, false, time.Now())
	if err != nil {
		return nil, err
	}
	if len(run.Problems) > 0 {
		return nil, fault.Damagedf("run %s: %s; a receipt is of a run without damage", folder, run.Problems[0])
	}
	s := &Statement{Type: statementType, PredicateType: predicateType}
	for _, p := range run.Processes {
		b := p.Start
		s.Predicate.Processes = append(s.Predicate.Processes, Process{b.Gorbit, b.Go, b.TensorFlow, b.Processor, b.Cores, b.Devices, b.Kernels, b.Precision, b.Step})
	}
	p, err := runfolder.ReadParams(folder)
	if err != nil {
		return nil, err
	}
	s.Predicate.Folder = p.Data.Dir
	names, sums, err := dataFiles(folder, p.Data.Dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		sum, err := hash(ctx, vfs.Join(p.Data.Dir, name))
		if err != nil {
			return nil, fmt.Errorf("data: %w", err)
		}
		if want := sums[name]; want != "" && want != sum {
			return nil, fault.Damagedf("data %s: SHA-256 is %s; expected %s by the manifest that the run was trained with", vfs.Join(p.Data.Dir, name), sum, want)
		}
		s.Predicate.Data = append(s.Predicate.Data, resource(name, sum))
	}
	files, err := filesOf(folder)
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		sum, err := hash(ctx, filepath.Join(folder, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		s.Subject = append(s.Subject, resource(name, sum))
	}
	s.Predicate.Metrics, err = links(filepath.Join(folder, runfolder.Metrics))
	return s, err
}

func resource(name, sum string) Resource {
	return Resource{name, map[string]string{"sha256": sum}}
}

// dataFiles returns the names of the files of a run's data, and the checksums of those that its manifest
// has.
func dataFiles(run, dir string) (names []string, sums map[string]string, err error) {
	m, err := runfolder.ReadManifest(run)
	if err != nil {
		return nil, nil, err
	}
	if m == nil {
		files, err := tfrecord.Glob(dir)
		for _, f := range files {
			names = append(names, filepath.Base(f))
		}
		return names, nil, err
	}
	sums = map[string]string{convert.ManifestName: ""}
	if m.HasVocab() {
		sums[m.Vocab.File] = m.Vocab.SHA256
	}
	for _, split := range m.Splits {
		for _, f := range split.Files {
			sums[f.Name] = f.SHA256
		}
		if q := split.Questions; q != nil {
			sums[q.Name] = q.SHA256
		}
	}
	return slices.Sorted(maps.Keys(sums)), sums, nil
}

// filesOf lists the files of a run but its receipt.
func filesOf(folder string) ([]string, error) {
	files, err := runfolder.Files(folder)
	return slices.DeleteFunc(files, func(name string) bool { return name == Name }), err
}

// hash returns the SHA-256 of a file in hexadecimal digits.
func hash(ctx context.Context, path string) (string, error) {
	f, err := vfs.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.CopyBuffer(sum, stream.WithContext(ctx, f), make([]byte, 1<<20)); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// links returns the chain of the lines of a file; nothing of one that is not there.
func links(path string) ([]string, error) {
	f, err := vfs.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []string
	var sum [sha256.Size]byte
	for in := bufio.NewReader(f); ; {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			sum = sha256.Sum256(append(sum[:], line...))
			out = append(out, hex.EncodeToString(sum[:sha256.Size/2]))
		}
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
	}
}

// Checked is what came of a check.
type Checked struct {
	// Files is how many files have the bytes that the receipt says.
	Files int
	// Changed names what has other bytes or is missing, and Notes says what could not be checked or is not in
	// the receipt: a sentence each.
	Changed, Notes []string
}

// Check compares a run and its data, which are looked for in the folder data, with a receipt.
func (s *Statement) Check(ctx context.Context, folder, data string) (*Checked, error) {
	c := new(Checked)
	known := make(map[string]bool, len(s.Subject))
	for _, r := range s.Subject {
		known[r.Name] = true
		more := ""
		same, err := c.compare(ctx, r, folder)
		if err != nil {
			return nil, err
		}
		if !same && r.Name == runfolder.Metrics {
			if more, err = s.brokenLink(filepath.Join(folder, runfolder.Metrics)); err != nil {
				return nil, err
			}
			c.Changed[len(c.Changed)-1] += more
		}
	}
	files, err := filesOf(folder)
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		if !known[name] {
			c.Notes = append(c.Notes, name+" is not in the receipt")
		}
	}
	named := data != ""
	data = cmp.Or(data, s.Predicate.Folder)
	if _, err := vfs.Stat(data); errors.Is(err, fs.ErrNotExist) && len(s.Predicate.Data) > 0 {
		if named {
			return nil, fault.Usagef("there is no %s; expected the folder of the data", data)
		}
		c.Notes = append(c.Notes, fmt.Sprintf("the data were not checked: there is no %s; name their folder with --data", data))
		return c, nil
	}
	for _, r := range s.Predicate.Data {
		if _, err := c.compare(ctx, r, data); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// compare compares a file below a folder with what a receipt says of it.
func (c *Checked) compare(ctx context.Context, r Resource, folder string) (same bool, err error) {
	path := vfs.Join(folder, r.Name)
	sum, err := hash(ctx, path)
	want := r.Digest["sha256"]
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.Changed = append(c.Changed, path+" is missing")
	case err != nil:
		return false, err
	case sum != want:
		c.Changed = append(c.Changed, fmt.Sprintf("%s has SHA-256 %s; expected %s", path, sum, want))
	default:
		c.Files++
		return true, nil
	}
	return false, nil
}

// brokenLink says from which line on a file of metrics differs.
func (s *Statement) brokenLink(path string) (string, error) {
	now, err := links(path)
	if err != nil {
		return "", err
	}
	for i, link := range s.Predicate.Metrics {
		if i >= len(now) {
			return fmt.Sprintf("; lines from %d on are missing", i+1), nil
		}
		if link != now[i] {
			return fmt.Sprintf("; line %d is the first that differs", i+1), nil
		}
	}
	return fmt.Sprintf("; lines from %d on were added", len(s.Predicate.Metrics)+1), nil
}

// Parse reads a statement, and checks that it is a receipt whose names stay in their folders.
func Parse(content []byte) (*Statement, error) {
	s := new(Statement)
	d := json.NewDecoder(bytes.NewReader(content))
	d.DisallowUnknownFields()
	if err := d.Decode(s); err != nil {
		return nil, fault.Damagedf("is no receipt: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fault.Damagedf("is no receipt: there is more after its end, at byte %d", d.InputOffset())
	}
	if s.Type != statementType || s.PredicateType != predicateType || len(s.Subject) == 0 {
		return nil, fault.Damagedf("is no receipt of gorbit: its types are %q and %q; expected %q and %q, and subjects", s.Type, s.PredicateType, statementType, predicateType)
	}
	for _, r := range slices.Concat(s.Subject, s.Predicate.Data) {
		if sum, err := hex.DecodeString(r.Digest["sha256"]); err != nil || len(sum) != sha256.Size || !filepath.IsLocal(r.Name) {
			return nil, fault.Damagedf("is no receipt: it names %q with the SHA-256 %q; expected a file in the folder, with 64 hexadecimal digits", r.Name, r.Digest["sha256"])
		}
	}
	return s, nil
}
