// Package cluster connects a chief, the process that trains, with workers on this machine and
// others.
//
// A worker is a Supervisor, which serves one chief at a time. For each session it starts a child
// process of its own program, which runs TensorFlow's gRPC server. Such a server cannot be stopped
// cleanly, and cannot be used after a collective operation has failed, but a process can be killed.
// The chief connects to all workers (Connect) and sends every child the addresses of the others. It
// then uses all devices in one TensorFlow session with Cluster.Target.
//
// The chief, the supervisor and the child send each other a message once a second. If one of them
// receives nothing for the session's timeout, it gives up: the chief closes Cluster.Failed, the
// supervisor kills the child and listens again, and the child ends.
//
// docs/guide/workers.md describes the protocol.
package cluster
