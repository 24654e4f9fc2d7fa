package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"math"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/gorbit-ml/gorbit/internal/base/crc32c"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// The format of a file of sizes; docs/design/input.md describes it byte by byte.
const (
	sizesSuffix      = ".lengths.index"
	sizesMagic       = "GORBITSZ"
	sizesVersion     = 1
	sizesHeaderBytes = 40
	maxSize          = math.MaxUint16
)

// digested is a source whose records are identified by a hash.
type digested interface {
	Path() string
	Digest() uint64
}

// measured is a number that is kept of each record.
type measured struct {
	// suffix is that of the file next to a file of records, and what names the numbers in messages.
	suffix, what string
	// key and measurers are as in a Fit.
	key       string
	measurers func() Measurer
}

// measure returns a number of each record of the set. Those of a file's records are kept in a file next to it,
// and are read from there the next time.
func measure(ctx context.Context, f *files, m measured, log *slog.Logger) ([]uint16, error) {
	all := make([]uint16, f.all())
	for i, s := range f.sources {
		sizes := all[f.ends[i]-int64(s.Len()) : f.ends[i]]
		if err := sizesOf(ctx, s, m, sizes, log); err != nil {
			return nil, fmt.Errorf("%s: %s of the records: %w", f.paths[i], m.what, err)
		}
	}
	if f.taken == nil {
		return all, nil
	}
	taken := make([]uint16, len(f.taken))
	for i, n := range f.taken {
		taken[i] = all[n]
	}
	return taken, nil
}

// roomsOf returns the room that each record takes.
func roomsOf(ctx context.Context, f *files, fit *Fit, log *slog.Logger) ([]uint16, error) {
	all, err := measure(ctx, f, measured{sizesSuffix, "lengths", fit.Key, fit.Measurers}, log)
	for i, n := range all {
		if n > 0 {
			all[i] = uint16(fit.Room(int(n)))
		}
	}
	return all, err
}

// sizesOf sets the sizes of a file's records.
func sizesOf(ctx context.Context, s source, m measured, sizes []uint16, log *slog.Logger) error {
	file, kept := s.(digested)
	if kept {
		err := loadSizes(file.Path()+m.suffix, file.Digest(), m.key, sizes)
		if err == nil {
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			log.Debug(m.what+" of records are measured again", "file", file.Path(), "reason", err)
		}
	}
	intact, err := sizesByReading(ctx, s, m.measurers, sizes)
	if err != nil || !intact || !kept {
		return err
	}
	path := file.Path() + m.suffix
	if err := writeSizes(path, encodeSizes(file.Digest(), m.key, sizes)); err != nil {
		log.Debug(m.what+" of records are kept in memory", "file", path, "reason", err)
	}
	return nil
}

// sizesByReading measures the records of a file. It reports whether all of them could be decoded.
// The size of one that cannot is 0: readers find the damage again and do what the configuration
// says.
func sizesByReading(ctx context.Context, s source, measurers func() Measurer, sizes []uint16) (bool, error) {
	const piece = 1 << 14
	var bad atomic.Bool
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for from := 0; from < len(sizes); from += piece {
		g.Go(func() error {
			size := measurers()
			var buf []byte
			for i := from; i < min(from+piece, len(sizes)); i++ {
				if i%1024 == 0 && ctx.Err() != nil {
					return ctx.Err()
				}
				data, err := s.Record(i, buf)
				n := 0
				if err == nil {
					buf = data
					n, err = size(data)
				}
				if err != nil {
					if !damaged(err) {
						return err
					}
					bad.Store(true)
				}
				sizes[i] = uint16(min(n, maxSize))
			}
			return nil
		})
	}
	err := g.Wait()
	return !bad.Load(), err
}

// encodeSizes returns the content of a file of sizes.
func encodeSizes(digest uint64, key string, sizes []uint16) []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, sizesHeaderBytes+2*len(sizes)+4)
	b = append(b, sizesMagic...)
	b = le.AppendUint64(b, sizesVersion)
	b = le.AppendUint64(b, digest)
	b = le.AppendUint64(b, keyHash(key))
	b = le.AppendUint64(b, uint64(len(sizes)))
	for _, n := range sizes {
		b = le.AppendUint16(b, n)
	}
	return le.AppendUint32(b, crc32.Checksum(b, crc32c.Table))
}

// keyHash returns the beginning of a key's SHA-256.
func keyHash(key string) uint64 {
	sum := sha256.Sum256([]byte(key))
	return binary.LittleEndian.Uint64(sum[:])
}

// decodeSizes is the inverse of encodeSizes. It refuses the sizes of other records, or of records
// that were measured in another way.
func decodeSizes(b []byte, digest uint64, key string, sizes []uint16) error {
	le := binary.LittleEndian
	if want := sizesHeaderBytes + 2*len(sizes) + 4; len(b) != want {
		return fmt.Errorf("has %d bytes; expected %d", len(b), want)
	}
	body, sum := b[:len(b)-4], le.Uint32(b[len(b)-4:])
	switch crc := crc32.Checksum(body, crc32c.Table); {
	case string(b[:8]) != sizesMagic:
		return fmt.Errorf("begins with %q; expected %q", b[:8], sizesMagic)
	case le.Uint64(b[8:]) != sizesVersion:
		return fmt.Errorf("version is %d; expected %d", le.Uint64(b[8:]), sizesVersion)
	case crc != sum:
		return fmt.Errorf("checksum is %#08x; expected %#08x", sum, crc)
	case le.Uint64(b[16:]) != digest:
		return errors.New("belongs to other records")
	case le.Uint64(b[24:]) != keyHash(key):
		return errors.New("the records were measured with other names of features")
	case le.Uint64(b[32:]) != uint64(len(sizes)):
		return fmt.Errorf("has %d lengths; expected %d", le.Uint64(b[32:]), len(sizes))
	}
	for i := range sizes {
		sizes[i] = le.Uint16(body[sizesHeaderBytes+2*i:])
	}
	return nil
}

func loadSizes(path string, digest uint64, key string, sizes []uint16) error {
	b, err := vfs.ReadFile(path)
	if err != nil {
		return err
	}
	return decodeSizes(b, digest, key, sizes)
}

// writeSizes writes a file of sizes. The checksum detects what a killed process leaves, and what is
// read during the write.
func writeSizes(path string, content []byte) error {
	f, err := vfs.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Close()); err != nil {
		_ = vfs.Remove(path) // the first error is the one to report
		return err
	}
	return nil
}
