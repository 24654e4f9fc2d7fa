// Package dataset draws batches for packed token models from TFRecord files,
// deterministically and from any position.
//
// # From records to batches
//
// The records of all files form one sequence. In every epoch each is drawn
// once, in an order that depends on the seed and the epoch alone ([Shuffle]).
// BatchSize consecutive draws make a batch; the last one of an epoch has what
// is left, unless remainders are dropped. A batch never spans two epochs. Its
// examples are laid into rows of several examples each ([Packing]), which
// changes what is computed for padding and nothing else: examples keep the
// order in which they were drawn, and their number is what BatchSize says.
//
// The content of a batch is a function of the files, the settings, the epoch
// and the position in it. Therefore the number of readers does not matter, and
// [Dataset.Restore] goes to a position by naming it: nothing is read again to
// get there. [State] is that position together with the settings that it
// depends on, and is refused by a Dataset of others. Several hosts can draw the same
// batches together, each a [Part] of every one.
//
// # Records
//
// A record is a tf.train.Example with int64 lists: token ids with their special
// tokens, type ids of the same length, one label, and, in records of a fixed
// length as BERT and the Model Garden write them
// (official/nlp/data/classifier_data_lib.py), a mask that is 0 in padding.
// Padding is dropped, and so are records with is_real_example 0, which only
// fill up a batch. [FeatureNames] lists the names.
//
// # Batches
//
// All features are int32 but the weights, which are float32. With R rows of S
// positions and B examples:
//
//	input_ids         [R, S]  token ids
//	type_ids          [R, S]  segment of each token
//	sequence_ids      [R, S]  number of the example in its row, from 1; 0 is padding
//	position_ids      [R, S]  position in the example, from 0
//	cls_positions     [B]     index of the example's first token in the flattened rows
//	labels            [B]     class number
//	example_weights   [B]     1
//
// Padding is 0 in all of them. Lengths count tokens, special tokens included.
//
// # Errors
//
// A record whose features are not as expected is a [RecordError] naming file,
// record, feature and expectation. A damaged record is tfrecord's CorruptError,
// and one that is no Example wraps its ExampleError; under tfrecord.Skip both
// leave their batch with an example less, so that all other batches stay what
// they are, and are counted in the State. A State that does not fit is a
// [StateError].
//
// docs/design/input.md gives the permutation and the packing step by step.
package dataset
