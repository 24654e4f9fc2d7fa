// Package prepare makes ready what a run needs before its first step, and before it is read: the graph and
// the data of its params (Setup), how records become batches, what is wrong with them (Preflight), and
// the model on its devices (Placed).
package prepare
