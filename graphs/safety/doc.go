// Package safety finds the operations of a TensorFlow graph that can do more than work with its
// tensors and variables: access files, processes, the network or Python. A SavedModel is a program,
// and neither training nor serving needs such operations.
//
// Reason checks one operation, Check a whole SavedModel before it is loaded. Neither depends on a
// TensorFlow binding: Check accepts the generated type tensorflow.SavedModel of any binding.
package safety
