// Package tpuemulator is a server that a TensorFlow session takes for that of a TPU. No TPU
// is behind it, but TensorFlow's own server, which computes on the CPU.
//
// It is a master service (tensorflow/core/protobuf/master_service.proto) that passes requests
// on and changes three things on the way:
//
//   - Devices: each task of the cluster that the session names has the devices CPU:0,
//     TPU_SYSTEM:0 and TPU:0 to TPU:n-1. All are CPU devices of the server behind it. The
//     device TPU_EMULATOR:0, which no TPU has, says what this is.
//   - ConfigureDistributedTPU becomes a constant, the serialized topology.
//   - ShutdownDistributedTPU becomes a NoOp.
//
// What it says about clusters, devices and sessions is what TensorFlow's server says. It
// runs no program for a TPU: a graph with operations of a replicated computation (attribute
// _tpu_replicate) is refused. So it shows that a client finds and starts a TPU, and what the
// client does when that fails. It shows nothing about computing on TPUs.
package tpuemulator
