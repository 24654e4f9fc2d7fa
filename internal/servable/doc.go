// Package servable writes models to serve: SavedModels with a trained model's
// variables in them, the vocabulary and the labels beside them.
//
// An export holds, in its folder serving, the SavedModel of the signature
// serving_default without variables. [Write] puts those of a run into it: the graph
// is copied as it is, and the variables are written as the tensor bundle that the
// graph's own restore function reads, with the object graph that Python's
// tf.saved_model.load wants. docs/guide/serving.md describes the folder; package layout
// reads its description without TensorFlow.
package servable
