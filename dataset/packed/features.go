package packed

// The names of a batch's features, in the order in which it holds them. R is
// the number of rows, S their length and B the number of examples.
const (
	InputIDs       = "input_ids"       // int32 [R, S]: token ids, 0 in padding
	TypeIDs        = "type_ids"        // int32 [R, S]: segment of the token, 0 in padding
	SequenceIDs    = "sequence_ids"    // int32 [R, S]: number of the example in its row, from 1; 0 is padding
	PositionIDs    = "position_ids"    // int32 [R, S]: position in the example, from 0; 0 in padding
	ClsPositions   = "cls_positions"   // int32 [B]: index of the example's first token in the flattened rows
	LabelIDs       = "labels"          // int32 [B]: class number, 0 if there is none
	ExampleWeights = "example_weights" // float32 [B]: 1
)

// Features of targets, see Targets.
const (
	TargetIDs         = "target_ids"          // int32 [R, T]: token ids, 0 in padding
	TargetSequenceIDs = "target_sequence_ids" // int32 [R, T]: number of the example in its row, as in SequenceIDs
	TargetPositionIDs = "target_position_ids" // int32 [R, T]: position in the target, from 0; 0 in padding
)

// standard are the standard features, in the order in which a batch holds them.
var standard = [standardFeatures]string{InputIDs, TypeIDs, SequenceIDs, PositionIDs, ClsPositions, LabelIDs, ExampleWeights}

const standardFeatures = 7
