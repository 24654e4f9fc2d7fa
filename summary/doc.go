// Package summary writes TensorBoard event files, as the writers of
// tf.summary.create_file_writer do.
//
// An event file is a TFRecord file of tensorflow.Event messages. The first event is the
// file version "brain.Event:2". Scalars, texts and histograms are summary events: a tag,
// a tensor, and the name of the TensorBoard plugin that shows it. A scalar is a float32,
// a text a string, and a histogram a float64 matrix [buckets, 3] of left edge, right
// edge and count (tf.summary.histogram). docs/reference/events.md describes all of it.
//
// Steps are those of the optimizer. Wall times are seconds since 1970, with the
// precision of a float64. Tags and texts are UTF-8; invalid bytes are replaced.
//
// Adding an event does not wait for the disk until 64 MiB are buffered. Events stay in
// memory and are written to the file at intervals and by [Writer.Flush] and
// [Writer.Close], which also report errors of earlier writes. After an error the writer
// drops all events.
package summary
