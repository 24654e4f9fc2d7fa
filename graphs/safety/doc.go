// Package safety tells which operations of a TensorFlow graph reach beyond its tensors
// and variables: to files, processes, the network or Python. A SavedModel is a program,
// and neither training nor serving has a need of those.
//
// Reason judges one operation, Check a whole SavedModel before it is loaded. Neither
// depends on a binding of TensorFlow: a SavedModel is any generated type of the message
// tensorflow.SavedModel, whichever binding it comes with.
package safety
