// Package dense makes batches of features of any type: numbers, images, sequences. Its [Config] is a
// [dataset.Layout].
//
// # Features
//
// Each feature is a [dataset.Spec], which says how the values of a record become those of a batch. The
// first axis of every feature of a batch are the examples.
//
// A feature of a fixed shape is stacked: shape [28, 28, 1] becomes [examples, 28, 28, 1]. At most one
// axis may be open, that is, each example has its own length there. All features that have it have the
// same length in an example. In a batch they are as long as the longest example, and the rest has the
// Pad of the feature. Two features are made from that length, whatever the records have:
//
//	mask     [examples, length]  1 where an example has a value, 0 in the padding
//	length   [examples]          the length of each example
//
// # Weights
//
// A feature of the role Weight is 1 in records that do not have it. Examples of weight 0 fill batches
// of a fixed number of examples, and micro-batches of a batch with fewer examples than there are
// micro-batches. Their other features have the Pad, which is 0 by default, and the length 1.
//
// # Micro-batches
//
// [Config.Divide] divides a batch. Without an open axis, micro-batches have consecutive examples and
// share the memory of the batch. With one, examples of similar lengths come together, so that every
// micro-batch has about the same number of values, padding included.
package dense
