package loop

// Names of the run's own persistent states.
const (
	MetricsState  = "metrics"
	GraphState    = "graph"
	FrozenNames   = "frozen_variables"
	NamesState    = "names"
	BestState     = "best"
	StoppingState = "early_stopping"
	TextsState    = "generated_texts"
	PlateauState  = "plateau"
	AveragedState = "averaged_from"
)
