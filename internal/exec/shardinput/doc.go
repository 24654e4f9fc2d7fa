// Package shardinput lets a worker's TensorFlow process read its own part of every batch. Otherwise
// the chief reads all data and sends it.
//
// Two operations bring the data into the graph. They run on the worker's CPU, call Go functions, and
// share the data that the process reads:
//
//	GorbitDraw  config uint8 [C], request int64 [4] -> stats int64 [6 + F + M], rows int32 [N]
//	GorbitTake  request int64 [3], place int64 [2] -> int32s, float32s, layout int64 [L], int64s, uint8s, bools
//
// The inputs of Draw are a [Config] as JSON, and a request: a ticket, an epoch, a position in the
// epoch and a number of rounds. Draw reads the worker's part of the batch at that position, divides
// it into micro-batches, one for each round and replica of the worker, and keeps them under the
// ticket. Its stats are the number of examples, examples with a label, cut examples, tokens, rows,
// and skipped damaged records. For each of the F features in Config.Rows follows the number of its
// distinct values, which are in rows, sorted. For each of the M micro-batches follows its number of
// examples, round by round. Batches at consecutive positions are read ahead.
//
// A draw with ticket 0 reads nothing but opens the data. The first of the stats says whether that is
// done. It returns within half a second, so that a call does not take as long as indexing large
// files.
//
// Take returns one micro-batch of a ticket. Its request is the ticket, the round and the number of
// rounds; its place is the replica and the number of replicas of the worker. The values of all
// features of a dtype are one vector. The layout is the sizes of the features in the order of
// Config.Features, followed by all their dimensions. The last three tickets are kept.
//
// Failures are errors of the operations. [Find] returns the original message from such an error. The
// kernels are synchronous, because in TensorFlow's C API the callback of an asynchronous kernel is
// not valid after the call.
package shardinput
