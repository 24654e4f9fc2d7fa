// Package crc32c has the checksum of TensorFlow's files and of Cloud Storage: CRC-32 with Castagnoli's
// polynomial. TFRecord files and tensor bundles store it masked (tensorflow/core/lib/hash/crc32c.h), so
// that a file that holds checksums of its own can be summed again.
package crc32c

import "hash/crc32"

// Table is the table for functions of package crc32.
var Table = crc32.MakeTable(crc32.Castagnoli)

const maskDelta = 0xa282ead8

// Mask returns a checksum as it is stored.
func Mask(crc uint32) uint32 { return (crc>>15 | crc<<17) + maskDelta }

// Unmask returns the checksum that is stored as masked.
func Unmask(masked uint32) uint32 {
	rotated := masked - maskDelta
	return rotated>>17 | rotated<<15
}
