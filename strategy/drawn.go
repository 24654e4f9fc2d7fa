package strategy

// Drawn is a batch that the workers have read and keep, until two more have been
// drawn.
type Drawn struct {
	// Examples, Labeled (those with a label), Truncated (those that were shortened),
	// Tokens and Rows are the batch's; Skipped is the number of damaged records left
	// out of it.
	Examples, Labeled, Truncated, Tokens, Rows int
	Skipped                                    int64
	// Accumulate is how many micro-batches every replica has of it, and Micro how many
	// examples each has, those that are computed together one after the other.
	Accumulate int
	Micro      []int

	ticket int64
	rows   map[string][][]int32
}
