// Package cluster connects a chief, the process that trains, with workers on this
// machine and others.
//
// A worker is a Supervisor, which listens for one chief at a time. For each session
// it starts a child process of its own program that runs TensorFlow's gRPC
// server: such a server can neither be stopped cleanly nor used after a collective
// operation has failed, but a process can be killed. The chief connects to all workers
// (Connect), which tells every child where the others are, and then reaches all
// devices by one TensorFlow session to Cluster.Target.
//
// The chief, the supervisor and the child speak to each other once a second. Whoever
// hears nothing for the session's timeout gives up: the chief by Cluster.Failed, the
// supervisor by killing the child and listening again, the child by ending.
//
// docs/guide/workers.md has the protocol byte by byte.
package cluster
