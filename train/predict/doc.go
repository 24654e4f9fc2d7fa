// Package predict classifies texts: it reads and encodes them, groups them by length into calls,
// runs a model, and returns the answers in order. Both commands that predict use it, and so can a
// server.
//
// A model is any type that implements [Model]: a run of package train, or an exported model of
// package served. These two use different TensorFlow bindings, so this package depends on neither.
//
// A [Predictor] keeps no state between calls. Several goroutines may use one at the same time.
package predict
