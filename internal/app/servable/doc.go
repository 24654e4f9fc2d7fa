// Package servable writes models for serving: SavedModels with a trained model's
// variables, the vocabulary and the labels.
//
// The folder serving of an export has the SavedModel of the signature serving_default
// without variables. [Write] adds the variables of a run: it copies the graph as it is,
// and writes the variables as the tensor bundle that the graph's own restore function
// reads, with the object graph that Python's tf.saved_model.load needs.
// docs/guide/serving.md describes the folder; package layout reads its description
// without TensorFlow.
package servable
