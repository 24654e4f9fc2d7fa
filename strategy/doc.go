// Package strategy composes training graphs from an export for the hardware at
// hand, and runs their steps through the TensorFlow C API.
//
// OneDevice is one copy of the model on one device. Its step is one session call:
// the gradients of the summed weighted losses, their global norm, clipping, and
// one call of the export's update per variable.
//
// A step whose loss or gradient norm is not finite changes no variable and
// is not counted, and its result says that it was not applied.
//
// Tensors go to the graph stacked: the features of one dtype and one set of axes
// are one feed. TensorFlow caches an executor under every order in which
// a call's feeds come, and the binding hands them over in a random order; a
// handful of feeds keeps that cache small.
package strategy
