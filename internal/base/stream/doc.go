// Package stream reads and writes what may be too long, may never end, or is compressed.
//
// Check and ReadAll are for files that should be small, such as params, vocabularies and descriptions:
// they refuse devices and pipes, and files that are larger than any valid one. Open and WithContext read
// files that may block or never end, such as pipes and terminals, and stop when a context is done.
// Decompress and Compress are for files whose names say how they are compressed: with gzip if they
// end in .gz, with Zstandard if they end in .zst.
package stream
