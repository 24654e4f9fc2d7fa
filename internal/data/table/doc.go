// Package table reads rows of named columns from files of tab-separated values, comma-separated
// values (RFC 4180) and JSON lines, which may be compressed, from Parquet, and from other forms of rows.
//
// A [Table] is opened with a [Config]. Select chooses columns by name, and Next and a [Cutter]
// then return one row after the other. Splitting a row into fields is apart from reading it, so
// that several goroutines can do it.
//
// A row that cannot be read is an [Error], after which reading can continue. Lines and rows have a
// maximum size, so a file without line feeds, or with a quotation mark that is never closed, is
// an error and not a full memory.
package table
