// Package loop has what the loop of package runner needs to train a graph: batches of a dataset
// (Source), the steps of a strategy (Model), the variables' first values (Initialize), checkpoints that
// belong to the graph (Checkpoints) and the metrics of its task (NewTask).
//
// Package train puts them together for a run. A program with a loop of its own uses them as
// examples/customloop does.
package loop
