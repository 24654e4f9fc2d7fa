// Package shardinput lets a worker's TensorFlow process read its own part of every
// batch, where a chief would otherwise read all and send it.
//
// Two operations bring the numbers into the graph. They run on the worker's CPU, call
// back into Go, and share what one process reads:
//
//	GorbitDraw  config uint8 [C], request int64 [4] -> stats int64 [6 + F + M], rows int32 [N]
//	GorbitTake  request int64 [3], place int64 [2] -> int32s, float32s, layout int64 [L]
//
// Draw takes a [Config] as JSON, and a ticket, an epoch, a position in it and a number
// of rounds. It reads the worker's part of the batch at that position, divides it into
// micro-batches, one for every round and replica of the worker, and keeps them under the
// ticket. The stats are the numbers of examples, of those with a label, of those that were
// shortened, of tokens, of rows and of damaged records left out, and for each of the F
// features that Config.Rows names, how many of the N numbers in rows are its own: the
// different ones that it holds, in order; then, for each of the M micro-batches, round
// after round, its number of examples. Batches at positions one after the other are
// read ahead.
//
// Ticket 0 reads nothing: it opens the data, and the first of the stats says whether
// that is done. It answers within half a second, so that a call never takes as long as an
// index of large files does.
//
// Take gives one micro-batch of a ticket: request is the ticket, the round and the number
// of rounds, place the replica and how many the worker has. The numbers of all features
// of a type are one vector; the layout is their sizes in the order of Config.Features,
// then all their dimensions. The last three tickets are kept.
//
// What goes wrong is the operation's error, in a form from which [Find] gets the sentence
// back. The kernels are synchronous: through TensorFlow's C interface, the callback of an
// asynchronous one does not outlast the call.
package shardinput
