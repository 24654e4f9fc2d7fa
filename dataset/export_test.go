package dataset

import "context"

// What the tests in package dataset_test use: they cannot be of package dataset, which the layouts
// that they need import.

// Files are records in memory.
type Files = files

const MaxParts = maxParts

func (f *files) Add(path string, s source) { f.add(path, s) }
func (f *files) Find(n int64) RecordID     { return f.find(n) }
func (f *files) Len() int64                { return f.len() }
func (f *files) Paths() []string           { return f.paths }

// Number returns the number of a record among all.
func (f *files) Number(id RecordID) int {
	n := int(id.Record)
	if id.File > 0 {
		n += int(f.ends[id.File-1])
	}
	return n
}

// OpenFiles returns a Dataset of records in memory.
func OpenFiles(cfg Config, f Files) (*Dataset, error) {
	cfg.Files = f.paths
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return newDataset(context.Background(), cfg.withDefaults(), f, "hash")
}

var (
	EncodeSizes = encodeSizes
	DecodeSizes = decodeSizes
)

// Ahead returns the default of Prefetch.
func (c Config) Ahead() int { return c.ahead() }
