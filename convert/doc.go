// Package convert turns labelled text files into a dataset: shards of tokenized
// tf.train.Example records, the vocabulary, and a manifest that describes both.
//
// [Run] reads the files that a [Config] names, which are tab-separated (as GLUE
// publishes them: no quoting), CSV (RFC 4180) or JSON lines, and writes one set of
// shards per split. The layout of a dataset folder, of its records and of its
// manifest is in docs/guide/datasets.md. The columns and quirks of the GLUE tasks (Wang et
// al., "GLUE: A Multi-Task Benchmark and Analysis Platform for Natural Language
// Understanding", 2018) are a table here; other files are described by naming their
// columns.
//
// The same input and settings give the same bytes, on any machine and with any
// number of cores. A dataset appears whole: files are written aside and moved into
// place, the manifest last, so that a folder with a manifest is complete.
//
// A row that cannot be used is a [RowError], which names the file and the line; a
// dataset that does not match its manifest is a [ManifestError].
package convert
