// Package predict takes texts to answers: it reads and encodes them, makes calls of like
// lengths, runs a model, and hands the answers on in order. Both programs that predict
// stand on it, and so can a server.
//
// The model is whatever implements [Model]: a run of package train, or a served model of
// package served, which stands on another binding of TensorFlow. So this package
// depends on neither.
//
// A [Predictor] has no state of its own between calls: many goroutines may use one.
package predict
