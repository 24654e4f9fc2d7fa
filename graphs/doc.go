// Package graphs reads exports: SavedModels that hold the training contract
// described in docs/reference/contract.md.
//
// Open reads saved_model.pb, its object graph and assets/gorbit.json, and
// checks that the functions are there and take and give what the contract
// says. Nothing of TensorFlow runs for that: an export is data to this package,
// and one that may be damaged or hostile. Inspect and Dot describe it;
// RefuseUnsafe stops one whose operations reach files, processes or Python.
// Package graphs/build makes GraphDefs of an export's functions and single operations;
// package strategy composes training graphs with it.
//
// A variable is named by its path in the object graph, with slashes, for
// instance "model/encoder/layers/0/attention/query/kernel". Checkpoints use the
// same names.
//
// Formats: saved_model.proto, saved_object_graph.proto, struct.proto and
// function.proto of TensorFlow 2.18 (tensorflow/core/protobuf and
// tensorflow/core/framework).
package graphs
