package train

// Names of the run's own persistent states.
const (
	metricsState  = "metrics"
	graphState    = "graph"
	frozenNames   = "frozen_variables"
	bestState     = "best"
	stoppingState = "early_stopping"
)
