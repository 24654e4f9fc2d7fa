// Package dataset draws batches for packed token models from TFRecord files,
// deterministically and from any position.
//
// # From records to batches
//
// The records of all files form one sequence. Each epoch draws each record once,
// in an order that depends only on the seed and the epoch ([Shuffle]). BatchSize
// consecutive draws make a batch. The last batch of an epoch has the remaining
// records, unless remainders are dropped. A batch never spans two epochs. Its
// examples are packed into rows of several examples each ([Packing]), which only
// changes how much is computed for padding: examples keep the order in which they
// were drawn, and their number is BatchSize.
//
// The content of a batch is a function of the files, the settings, the epoch and
// the position in it. So it does not depend on the number of readers, and
// [Dataset.Restore] moves to a position without reading anything. [State] is a
// position together with the settings it depends on. A Dataset with other settings
// refuses it. Several hosts can draw the same batches together, each host a [Part]
// of every batch.
//
// # Records
//
// A record is a tf.train.Example with int64 lists: token ids including special
// tokens, type ids of the same length, one label, and a mask that is 0 in padding
// if the records have a fixed length, as those of BERT and the Model Garden do
// (official/nlp/data/classifier_data_lib.py). Padding is dropped, and so are
// records with is_real_example 0, which only fill up a batch. [FeatureNames] lists
// the names.
//
// # Batches
//
// All features are int32, except for the weights, which are float32. With R rows of
// S positions and B examples:
//
//	input_ids         [R, S]  token ids
//	type_ids          [R, S]  segment of each token
//	sequence_ids      [R, S]  number of the example in its row, from 1; 0 is padding
//	position_ids      [R, S]  position in the example, from 0
//	cls_positions     [B]     index of the example's first token in the flattened rows
//	labels            [B]     class number
//	example_weights   [B]     1
//
// Padding is 0 in all of them. Lengths count tokens, including special tokens.
//
// # Errors
//
// A record with unexpected features is a [RecordError] that names the file, the
// record, the feature and what was expected. A damaged record is a CorruptError of
// tfrecord, and one that is not an Example wraps its ExampleError. Under
// tfrecord.Skip both leave their batch with one example less, so that all other
// batches stay the same, and the State counts them. A State of other data or
// settings is a [StateError].
//
// docs/design/input.md explains the permutation and the packing step by step.
package dataset
