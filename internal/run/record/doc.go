// Package record has what a training writes of itself while it runs: metrics.jsonl, the event files for
// TensorBoard, and what replicas, memory and devices do.
package record
