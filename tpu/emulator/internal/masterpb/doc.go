// Package masterpb has the messages of TensorFlow's master service
// (tensorflow/core/protobuf/master.proto of TensorFlow 2.18), which the Go binding lacks.
// tools/gen_master.py generates them.
package masterpb
