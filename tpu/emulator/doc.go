// Package emulator is a server that a TensorFlow session takes for that of a TPU. No TPU
// is behind it, but TensorFlow's own server, which computes on the CPU.
//
// It is a master service (tensorflow/core/protobuf/master_service.proto) that passes requests
// on and changes these things on the way:
//
//   - Devices: each task of the cluster that the session names has the devices CPU:0,
//     TPU_SYSTEM:0 and TPU:0 to TPU:n-1. All are CPU devices of the server behind it. The
//     device TPU_EMULATOR:0, which no TPU has, says what this is.
//   - ConfigureDistributedTPU becomes a constant, the serialized topology.
//   - ShutdownDistributedTPU becomes a NoOp.
//   - A replicated computation, as tf.compat.v1.tpu.replicate writes it (attribute
//     _tpu_replicate), becomes a copy for each replica, on the CPU device that stands for its
//     core. CrossReplicaSum becomes a sum of the copies' values. Loops and calls with sums in
//     them become one for all replicas. See docs/design/emulator.md.
//
// It refuses what TensorFlow's passes for TPUs refuse, in their words. So it shows that a client
// finds, starts and uses a TPU, what the client does when that fails, and that a graph says
// what it is meant to. It shows nothing about compiling for TPUs, their precision, memory or
// speed.
package emulator
