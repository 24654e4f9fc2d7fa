// Package tracking sends what a run's folder says of it to an experiment tracker: MLflow by its REST
// API, or a command that reads lines of JSON.
//
// It reads metrics.jsonl, which a training writes anyway, so that the file is the queue between them.
// A training neither waits for a tracker nor loses a point because it is away: what was not sent is
// sent later, by this process or by the next. What was sent to MLflow is remembered in the run's
// folder (StateFile), so that no point is sent twice. A run that went back to a checkpoint repeats the
// same values, and these are not sent again.
package tracking
