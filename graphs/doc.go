// Package graphs reads exports: SavedModels that follow the training contract in
// docs/reference/contract.md.
//
// Open reads saved_model.pb, its object graph and assets/gorbit.json, and checks that all functions
// of the contract exist and have the right inputs and outputs. It does not run TensorFlow: an
// export is treated as data that may be damaged or hostile. Inspect and Dot describe an export.
// RefuseUnsafe rejects one whose operations can access files, processes or Python. Package
// graphs/build makes GraphDefs from an export's functions and single operations, and package
// strategy uses it to compose training graphs.
//
// The name of a variable is its path in the object graph, for example
// "model/encoder/layers/0/attention/query/kernel". Checkpoints use the same names.
//
// Formats: saved_model.proto, saved_object_graph.proto, struct.proto and
// function.proto of TensorFlow 2.18 (tensorflow/core/protobuf and
// tensorflow/core/framework).
package graphs
