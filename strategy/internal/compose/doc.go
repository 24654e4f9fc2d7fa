// Package compose makes the graph of a training step, of evaluation and of prediction for
// the replicas of a model: a Layout says what for, and a Plan holds the graph with the
// names of the nodes that calls feed, fetch and run. It runs nothing and knows no session.
//
// The files, each of which uses only those below it:
//
//	compose.go    the whole graph
//	step.go       the replicas' gradients, and the ways from there to the variables
//	update.go     norm, clipping, whether a step is applied, and the variables' updates
//	reduce.go     the sums of all replicas' gradients
//	clocks.go     readings of the replicas' clocks
//	local.go      features that workers read themselves
//	feed.go       features that are fed
//	variables.go  variables, their readings and assignments
//	composer.go   what the parts of a graph share
//	plan.go       Layout and Plan
package compose
