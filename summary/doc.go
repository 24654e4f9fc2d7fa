// Package summary writes TensorBoard event files, as the writers of
// tf.summary.create_file_writer do.
//
// An event file is a TFRecord file of tensorflow.Event messages. It begins with
// an event of the file version "brain.Event:2". Scalars, texts and histograms
// are summary events: a tag, a tensor, and the name of the TensorBoard plugin
// that shows it. A scalar is a float32, a text a string, a histogram a float64
// matrix [buckets, 3] of left edge, right edge and count (tf.summary.histogram).
// docs/reference/events.md holds all of it.
//
// Steps are those of the optimizer. Wall times are seconds since 1970, with the
// precision of a float64. Tags and texts are UTF-8; bytes that are not are
// replaced.
//
// Writing does not wait for the disk until 64 MiB have gathered: events stay in
// memory and reach the file at intervals, on [Writer.Flush] and on
// [Writer.Close], which also report if that has failed. After a failure the
// writer drops what it is given.
package summary
