package main

import (
	"slices"
	"testing"
)

// TestLabelCounts holds that a line names all of a few labels in their order, and of many the most
// frequent.
func TestLabelCounts(t *testing.T) {
	few := labelCounts([]string{"no", "yes"}, []int64{1, 2})
	if want := []string{"no: 1", "yes: 2"}; !slices.Equal(few, want) {
		t.Errorf("labelCounts of two labels: %q, expected %q", few, want)
	}
	var names []string
	var counts []int64
	for i := range mostLabels + 1 {
		names = append(names, string(rune('a'+i)))
		counts = append(counts, int64(i))
	}
	many := labelCounts(names, counts)
	if len(many) != mostLabels || many[0] != "m: 12" || many[mostLabels-1] != "and 2 other labels" {
		t.Errorf("labelCounts of %d labels: %q", len(names), many)
	}
}
