// Package convert turns tables into a dataset: shards of tf.train.Example records, and a
// manifest that describes them. The tables have labelled texts, which are tokenized, or, with
// a schema (Config.Schema), any columns.
//
// [Run] reads the files named by a [Config], which are tab-separated (as published by
// GLUE, without quoting), CSV (RFC 4180) or JSON, and writes one set of shards per
// split. docs/guide/datasets.md describes the layout of a dataset folder, of its records
// and of its manifest. The columns and quirks of the GLUE tasks (Wang et al., "GLUE: A
// Multi-Task Benchmark and Analysis Platform for Natural Language Understanding", 2018)
// are a table in this package; for other files the configuration names the columns.
//
// The same input and settings give the same bytes, on any machine and with any number of
// cores. A dataset appears only once it is complete: files are written to a temporary
// folder and moved into place, the manifest last.
//
// A row that cannot be used is a [RowError], which names the file and the line; a
// dataset that does not match its manifest is a [ManifestError].
package convert
