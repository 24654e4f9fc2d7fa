// Package packed packs tokenized texts into rows of several examples each. Its [Config] is a
// [dataset.Layout].
//
// Packing only changes how much is computed for padding. Examples keep their order on the example
// axis, and their number is the batch size.
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
// # Fixed rows
//
// With Rows in the [Config], all batches have features of one [Shape]: R is Rows and S RowLength, and B
// is RowExamples for each row. The places of B after the last example have weight 0, and 0 in
// the other features.
//
// # Micro-batches
//
// [Config.Split] and [Config.Divide] split a batch into micro-batches. [FromExamples] makes a batch
// from examples that are not in files.
//
// docs/design/input.md describes the packing step by step.
package packed
