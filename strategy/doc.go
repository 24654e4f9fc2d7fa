// Package strategy builds training graphs from an export for the available devices and runs
// their steps through the TensorFlow C API.
//
// Training loops use the Strategy interface. Model implements it for one device
// (NewOneDevice), for several devices of this process (NewMirrored), and for the devices of
// several TensorFlow servers (NewMultiWorker). One graph holds all replicas, and one session
// runs it. docs/design/strategy.md describes the parts and how a step runs.
//
// In a step, every replica computes the gradients of the weighted loss sum of its micro-batch.
// The gradients are summed over all replicas and clipped by their global norm, and the
// export's update function is called once per variable. It runs on every replica, so that all
// of them hold the same bits, or, with a sharded optimizer, only on the variable's owner. If a
// replica has more than one micro-batch, the gradients are first summed in accumulators.
//
// If the loss or the gradient norm is not finite, the step changes no variable and is not
// counted. Result.Applied is then false.
//
// Features are fed flat: one feed per dtype holds the features of all replicas. TensorFlow
// caches one executor for every order of a call's feeds, and the binding passes the feeds in
// random order, so few feeds keep this cache small.
package strategy
