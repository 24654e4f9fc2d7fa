// Package compose builds the graph for training, evaluation and prediction with all replicas of a
// model. Its input is a Layout. The result is a Plan, which holds the graph and the names of the
// nodes to feed, fetch and run. The package does not run the graph.
//
// Each file uses only those below it:
//
//	compose.go    the whole graph
//	tpu.go        the whole graph for a TPU
//	tpustep.go    the training steps of a TPU's cores, one or a loop of them
//	tpuparts.go   feeds and variables of the programs of a TPU's cores
//	tpucluster.go the nodes that make a program one of a TPU's cores
//	loop.go       several training steps in a call
//	step.go       the replicas' gradients, and their paths to the variables
//	program.go    the same as one program that XLA compiles, for a single replica
//	update.go     norm, clipping, whether a step is applied, and the variables' updates
//	reduce.go     the sums of all replicas' gradients
//	clocks.go     readings of the replicas' clocks
//	local.go      features that workers read themselves
//	feed.go       features that are fed
//	variables.go  variables, and how to read and assign them
//	composer.go   state shared by the parts above
//	plan.go       Layout and Plan
//	tpuplan.go    TPULayout and the calls of its Plan
package compose
