// Package strategy composes training graphs from an export for the hardware at
// hand, and runs their steps through the TensorFlow C API.
//
// Strategy is what a training loop sees of it. A Model is the Strategy of one device
// (NewOneDevice), of several of this process (NewMirrored), and of those of several
// TensorFlow servers (NewMultiWorker). One graph holds all replicas, and one session
// runs it; docs/design/strategy.md says what the parts are and how a step is made. A
// step is the gradients of the summed weighted losses of every replica's micro-batch,
// their sum over all, the global norm, clipping, and one call of the export's update per
// variable: on every replica, which then all hold the same bits, or, with a sharded
// optimizer, on the variable's owner. Micro-batches beyond one per replica are added up
// in accumulators first.
//
// A step whose loss or gradient norm is not finite changes no variable and
// is not counted, and its result says that it was not applied.
//
// Features go to the graph flat: those of one dtype, of all replicas, are one feed.
// TensorFlow caches an executor under every order in which a call's feeds come, and
// the binding hands them over in a random order; a handful of feeds keeps that cache
// small.
package strategy
