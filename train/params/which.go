package params

// Names of checkpoints of a run, as users type them.
const (
	Latest       = "latest"         // the newest complete one
	Best         = "best"           // the best by checkpoint.best
	BestOrLatest = "best-or-latest" // the best if the run kept one, otherwise the latest
)
