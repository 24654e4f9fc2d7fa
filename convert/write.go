package convert

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"log/slog"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/made"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/tokenizers"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

const (
	lockName   = ".convert.lock"
	asideName  = ".convert.tmp" // the temporary folder in the output folder
	indexAlias = ".index"       // what tfrecord appends to the name of a file's index
)

// output is the dataset's folder while it is written. Files are written to a temporary
// folder and moved into place at the end.
type output struct {
	dir, aside string
	overwrite  bool
	unlock     func() error
	made       bool // whether dir did not exist before
}

// openOutput locks the folder of a dataset for this program, and refuses a folder with
// files that are in the way.
func openOutput(cfg *Config) (_ *output, err error) {
	o := &output{dir: cfg.Out, aside: filepath.Join(cfg.Out, asideName), overwrite: cfg.Overwrite}
	switch info, err := vfs.Stat(cfg.Out); {
	case errors.Is(err, fs.ErrNotExist):
		o.made = true
	case err == nil && !info.IsDir():
		return nil, fault.Usagef("convert: %s is a file; expected a folder or the name of a new one", cfg.Out)
	}
	if err := made.Room(cfg.Out, made.Dataset, cfg.Overwrite); err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	if err := vfs.MkdirAll(cfg.Out, 0o777); err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	var other *vfs.LockHolder
	o.unlock, other, err = vfs.Lock(filepath.Join(cfg.Out, lockName))
	if err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	if other != nil {
		return nil, fmt.Errorf("convert: %s is in use by %v, which writes a dataset there", cfg.Out, other)
	}
	defer func() {
		if err != nil {
			_ = o.close() // the first error is the one to report
		}
	}()
	if err := o.takeBack(); err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	if err := o.refuse(cfg.splits()); err != nil {
		return nil, err
	}
	// Remove the files of a killed conversion.
	if err := vfs.RemoveAll(o.aside); err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	if err := vfs.Mkdir(o.aside, 0o777); err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	return o, nil
}

// old returns the names of the files of a dataset in the folder, the manifest first, and
// of other files that would look like shards of the given splits.
func (o *output) old(splits []string) ([]string, error) {
	var names []string
	if m, err := ReadManifest(o.dir); err == nil {
		for split, s := range m.Splits {
			splits = append(slices.Clip(splits), split)
			if s.Questions != nil {
				names = append(names, s.Questions.Name)
			}
		}
		slices.Sort(names)
	}
	entries, err := vfs.ReadDir(o.dir)
	if err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		if name == ManifestName {
			names = slices.Insert(names, 0, name)
			continue
		}
		base, _, _, ok := tfrecord.ParseShardName(strings.TrimSuffix(name, indexAlias))
		if ok && slices.Contains(splits, base) {
			names = append(names, name)
		}
	}
	return names, nil
}

// refuse returns an error if there is a file to keep, or a folder with the name of one.
func (o *output) refuse(splits []string) error {
	old, err := o.old(splits)
	if err != nil {
		return err
	}
	if len(old) > 0 && !o.overwrite {
		return &ExistsError{filepath.Join(o.dir, old[0])}
	}
	for _, name := range append(old, tokenizers.Names...) {
		path := filepath.Join(o.dir, name)
		if info, err := vfs.Stat(path); err == nil && info.IsDir() {
			return fault.Usagef("convert: %s is a folder; expected a file, because a file of the dataset has that name; choose another folder", path)
		}
	}
	return nil
}

// refuseVocab returns an error if there is a different vocabulary to keep. The given one
// may be the one in the folder. It is nil if there is none.
func (o *output) refuseVocab(vocab *tokenizers.File) error {
	if o.overwrite || vocab == nil {
		return nil
	}
	path := filepath.Join(o.dir, vocab.Name)
	there, err := vfs.ReadBounded(path, tokenizers.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) || err == nil && bytes.Equal(there, vocab.Content) {
		return nil
	}
	return &ExistsError{path}
}

// publish moves the new files into place, the manifest last.
func (o *output) publish(names, splits []string, vocab *tokenizers.File) error {
	// Check again, because another program may have written since.
	if err := errors.Join(o.refuse(splits), o.refuseVocab(vocab)); err != nil {
		return err
	}
	old, err := o.old(splits)
	if err != nil {
		return err
	}
	if err := o.move(old, names); err != nil {
		return fmt.Errorf("convert: %w", err)
	}
	return nil
}

// close removes the temporary folder and unlocks the output folder. If it created the
// output folder and it is empty, it removes it too.
func (o *output) close() error {
	err := o.takeBack()
	if err == nil { // otherwise the next conversion undoes the moves
		err = vfs.RemoveAll(o.aside)
	}
	os.Remove(filepath.Join(o.dir, lockName))
	o.unlock()
	if o.made {
		_ = vfs.Remove(o.dir) // if it is empty
	}
	return err
}

// writeFile writes a small file to the temporary folder.
func (o *output) writeFile(name string, data []byte) error {
	if err := vfs.WriteFile(filepath.Join(o.aside, name), data); err != nil {
		return fmt.Errorf("convert: %w", err)
	}
	return nil
}

// shard is a record file being written.
type shard struct {
	path  string
	file  vfs.WorkFile
	w     *tfrecord.Writer
	hash  hash.Hash
	bytes int64
	sent  int64 // bytes sent to disk
}

// sendBytes is how many bytes are sent to disk at a time, so that there is little to wait
// for at the end.
const sendBytes = 4 << 20

func newShard(path string, compression tfrecord.Compression) (*shard, error) {
	f, err := vfs.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	s := &shard{path: path, file: f, hash: sha256.New()}
	s.w = tfrecord.NewWriter(s, tfrecord.Compress(compression))
	return s, nil
}

// Write writes bytes of the file.
func (s *shard) Write(p []byte) (int, error) {
	n, err := s.file.Write(p)
	s.hash.Write(p[:n])
	if s.bytes += int64(n); s.bytes-s.sent >= sendBytes {
		if f, ok := s.file.(*os.File); ok {
			sendToDisk(f, s.sent, s.bytes-s.sent)
		}
		s.sent = s.bytes
	}
	return n, err
}

// finish completes the file and describes it.
func (s *shard) finish() (File, error) {
	err := s.w.Close()
	if err == nil {
		err = s.file.Sync()
	}
	if err := errors.Join(err, s.file.Close()); err != nil {
		return File{}, fmt.Errorf("convert: %w", err)
	}
	return File{Records: s.w.Records(), Bytes: s.bytes, SHA256: hex.EncodeToString(s.hash.Sum(nil))}, nil
}

// splitWriter writes the records of a split to its shards in turn.
type splitWriter struct {
	name   string
	number int // among the splits
	out    *output
	shards []*shard
	compr  tfrecord.Compression
	spool  *tfrecord.Writer // stores records that are to be shuffled
	info   Split
	next   int
}

func newSplitWriter(out *output, name string, cfg *Config) (*splitWriter, error) {
	s := &splitWriter{name: name, out: out, compr: cfg.Compression}
	s.info.Lengths = Lengths{Step: lengthStep, Histogram: []int64{}}
	if cfg.Shuffle {
		var err error
		if s.spool, err = tfrecord.Create(s.spoolPath()); err != nil {
			return nil, fmt.Errorf("convert: %w", err)
		}
	}
	for i := range max(1, cfg.Shards) {
		sh, err := newShard(filepath.Join(out.aside, fmt.Sprintf("%s.%d", name, i)), cfg.Compression)
		if err != nil {
			s.abandon()
			return nil, err
		}
		s.shards = append(s.shards, sh)
	}
	return s, nil
}

func (s *splitWriter) spoolPath() string { return filepath.Join(s.out.aside, s.name+".spool") }

// add adds a framed record.
func (s *splitWriter) add(framed []byte) error {
	if s.spool != nil {
		if err := s.spool.WriteFramed(framed); err != nil {
			return fmt.Errorf("convert: %w", err)
		}
		return nil
	}
	return s.deal(framed)
}

func (s *splitWriter) deal(framed []byte) error {
	if err := s.shards[s.next].w.WriteFramed(framed); err != nil {
		return fmt.Errorf("convert: %w", err)
	}
	s.next = (s.next + 1) % len(s.shards)
	return nil
}

// finish completes the shards and gives them their names.
func (s *splitWriter) finish(ctx context.Context, seed uint64, log *slog.Logger) error {
	if s.spool != nil {
		if err := s.shuffle(ctx, seed, log); err != nil {
			return err
		}
	}
	n := int(min(int64(len(s.shards)), max(1, s.info.Records)))
	for i, sh := range s.shards {
		f, err := sh.finish()
		if err != nil {
			return err
		}
		if i >= n {
			// Records are dealt in turn, so the last shards run out of them first.
			if err := vfs.Remove(sh.path); err != nil {
				return fmt.Errorf("convert: %w", err)
			}
			continue
		}
		f.Name = tfrecord.ShardName(s.name, i, n)
		if err := vfs.Rename(sh.path, filepath.Join(s.out.aside, f.Name)); err != nil {
			return fmt.Errorf("convert: %w", err)
		}
		s.info.Files = append(s.info.Files, f)
	}
	return nil
}

// shuffle deals the stored records to the shards, in an order that depends on the seed,
// the split's name and the number of records.
func (s *splitWriter) shuffle(ctx context.Context, seed uint64, log *slog.Logger) error {
	err := s.spool.Close()
	if err != nil {
		return fmt.Errorf("convert: %w", err)
	}
	spool, err := tfrecord.OpenIndexed(s.spoolPath(), tfrecord.Logger(log))
	if err != nil {
		return fmt.Errorf("convert: %w", err)
	}
	defer spool.Close()
	var record, framed []byte
	for i, k := range permutation(spool.Len(), seed, hashOf(s.name)) {
		if i%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if record, err = spool.Record(int(k), record); err != nil {
			return fmt.Errorf("convert: %w", err)
		}
		framed = tfrecord.AppendRecord(framed[:0], record)
		if err := s.deal(framed); err != nil {
			return err
		}
	}
	return nil
}

// abandon closes everything after an error.
func (s *splitWriter) abandon() {
	if s.spool != nil {
		s.spool.Close()
	}
	for _, sh := range s.shards {
		sh.file.Close()
	}
}

// permutation returns the numbers below n, shuffled by the method of Fisher and Yates with
// a PCG-DXSM generator, which gives the same order on every machine.
func permutation(n int, seed, stream uint64) []int64 {
	rng := rand.NewPCG(seed, stream)
	p := make([]int64, n)
	for i := range p {
		p[i] = int64(i)
	}
	for i := n - 1; i > 0; i-- {
		j, _ := bits.Mul64(rng.Uint64(), uint64(i+1))
		p[i], p[j] = p[j], p[i]
	}
	return p
}
