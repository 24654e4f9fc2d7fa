package strategy

// Drawn is a batch that the workers have read. They keep it until two more have been drawn.
type Drawn struct {
	// Examples, Labeled (examples with a label), Truncated (examples that were cut), Tokens
	// and Rows count the contents of the batch. Skipped is the number of damaged records
	// that were left out.
	Examples, Labeled, Truncated, Tokens, Rows int
	Skipped                                    int64
	// Pairs, TargetTokens and TargetPairs are as those of a dataset.Batch.
	Pairs        int64
	TargetTokens int
	TargetPairs  int64
	// Accumulate is the number of micro-batches per replica. Micro is the number of
	// examples of each micro-batch; those that are computed in parallel are adjacent.
	Accumulate int
	Micro      []int

	ticket int64
	rows   map[string][][]int32
}
