package packed

import (
	"reflect"
	"strings"
	"testing"
)

// TestTexts packs examples of two texts. Positions begin anew with each, and a text may have as many tokens
// as there are positions, but not more.
func TestTexts(t *testing.T) {
	config := Config{RowLength: 8, MaxTokens: 4, Texts: 2, NumTypes: 2, Labels: LabelsOptional, Packing: PackFirstFit, FixedRowLength: true}
	of := func(types ...int32) Example { return Example{IDs: make([]int32, len(types)), TypeIDs: types} }
	b, err := FromExamples(config, []Example{of(0, 0, 0, 1, 1), of(0, 1, 1), of(0, 0, 0, 0, 1, 1, 1, 1)})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := b.Feature(PositionIDs).Int32, []int32{0, 1, 2, 0, 1, 0, 0, 1, 0, 1, 2, 3, 0, 1, 2, 3}; !reflect.DeepEqual(got, want) {
		t.Errorf("positions %v; expected %v", got, want)
	}
	parts, err := config.Split(b, 2)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := parts[0].Feature(PositionIDs).Int32, []int32{0, 1, 2, 3, 0, 1, 2, 3}; !reflect.DeepEqual(got, want) {
		t.Errorf("positions of a part %v; expected %v", got, want)
	}
	for _, test := range []struct {
		example Example
		want    string
	}{
		{of(0, 0, 0, 0, 0, 1), "has more than 4 tokens in text 0"},
		{of(0, 0), "has 1 texts; expected 2, which type_ids tells apart"},
		{of(1, 1), "has a token of text 1 at position 0, in text 0; expected texts 0 to 1, one after the other, in type_ids"},
		{of(0, 1, 0), "has a token of text 0 at position 2, in text 1"},
		{of(0, 2), "expected 0 to 1"},
		{of(0, 0, 0, 0, 1, 1, 1, 1, 1), "has 9 tokens, more than the row length of 8"},
	} {
		if _, err := FromExamples(config, []Example{test.example}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v; expected %q", test.example.TypeIDs, err, test.want)
		}
	}
	single := config
	single.Labels = LabelsNone // of predictions, which are of one text
	if _, err := FromExamples(single, []Example{of(0, 0)}); err != nil {
		t.Error(err)
	}
	config.Truncate = true
	if _, err := FromExamples(config, []Example{of(0, 1)}); err == nil || !strings.Contains(err.Error(), "and of several texts type_ids and no truncation") {
		t.Errorf("truncated: %v", err)
	}
}
