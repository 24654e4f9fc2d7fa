// Package serve answers requests over HTTP with models: JSON in and out, in a form of its own and in
// that of TensorFlow Serving's REST API.
//
// The examples of all requests for a model wait in one queue. Whenever one of the model's lanes is
// free it takes a batch of them, which ends when it is full or when nothing else waits; see batcher. A
// batch of texts is packed rows, so that examples of different lengths share a call without padding.
// The answers do not depend on what else was in the batch, to the tolerance that package predict
// promises.
//
// The package knows no TensorFlow. A [Model] says how its examples are answered.
package serve
