// Package launch starts a training run over several processes and machines: the
// workers of this machine, and the one process that trains with them, the chief.
//
// A Plan says which hosts there are and what each has; it is a small YAML file, or
// the answers to Ask. Make turns it into command lines, and Run runs those of
// this machine until the chief ends.
//
// The processes know nothing of this package: a worker serves until it is told to stop, and the
// chief waits for workers that are not there yet, and again for one that went away. So there
// is no order in which to start them, and a worker that died needs no more than to be
// started again.
package launch
