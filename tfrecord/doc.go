// Package tfrecord reads and writes TFRecord files, finds the shards of a set, reads
// single records of a shard through an index of their offsets, and encodes and decodes
// tf.train.Example records without reflection.
//
// # Format
//
// A TFRecord file is a plain sequence of records with no header of its own
// (tensorflow/core/lib/io/record_writer.h). All numbers are little-endian:
//
//	uint64  length of the data in bytes
//	uint32  masked CRC-32C of the eight length bytes
//	byte    data[length]
//	uint32  masked CRC-32C of the data
//
// The CRC is Castagnoli's (RFC 3720, appendix B.4); masking rotates it right
// by 15 bits and adds 0xa282ead8 (tensorflow/core/lib/hash/crc32c.h). A whole
// file may be compressed with gzip (RFC 1952) or zlib (RFC 1950). Readers detect this
// from the content, never from the name.
//
// An Example is the protocol buffer message of tensorflow/core/example: a map
// from feature names to lists of bytes, float32 or int64. A SequenceExample also has lists of such
// features, one for each step of a sequence. docs/reference/tfrecord.md describes all of it byte by
// byte, including the index file.
//
// # Units
//
// Record numbers count from 0 within a file. Offsets and sizes are bytes of
// the uncompressed record stream, which for a plain file are bytes of the file.
//
// # Errors
//
// Damaged framing is a [CorruptError] that names the file, the record, the offset and
// what was expected there. A record with a valid checksum that is not an Example is an
// [ExampleError]. A feature that is missing or has another kind of list than requested
// is a [FeatureError]. Disk errors are wrapped, and are none of these.
package tfrecord
