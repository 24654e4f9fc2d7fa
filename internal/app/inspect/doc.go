// Package inspect tells what a file or folder is and what it holds: weights, records, and models that
// need no run. What it is is seen by its content. Nothing is changed, and nothing in a graph is run.
package inspect
