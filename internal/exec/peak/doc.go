// Package peak measures how fast a device multiplies matrices through TensorFlow's library, and
// remembers it for the machine. The share of it that a training reaches is its model FLOPs
// utilization (MFU). Files that a training has instead of memory go at the pace of their disk, which is
// measured, too.
//
// It is measured by request only, as it takes a second or two of all cores.
package peak
