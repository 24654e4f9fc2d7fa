// Package launch starts a training run over several processes and machines: the
// workers of this machine, and the one process that trains with them, the chief.
//
// A Plan lists the hosts and their devices. It is a small YAML file, or the answers to Ask. Make
// turns it into command lines, and Run runs the commands of this machine until the chief ends.
//
// The processes do not depend on this package. A worker serves until it is told to stop. The chief
// waits for workers that have not started yet, and waits again for a worker that it lost. So the
// processes can be started in any order, and a worker that died only has to be restarted.
package launch
