package checkpoint

import (
	"slices"
	"testing"
)

// TestProtectedIsReadByOthers looks at the list from a manager that was opened for
// reading before it was written.
func TestProtectedIsReadByOthers(t *testing.T) {
	dir := t.TempDir()
	writer, err := OpenManager(ManagerConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := OpenManager(ManagerConfig{Dir: dir, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]int64{{3}, {5, 7}} {
		if err := writer.Protect(want...); err != nil {
			t.Fatal(err)
		}
		for name, m := range map[string]*Manager{"writer": writer, "reader": reader} {
			got, err := m.Protected()
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %v, %v, want %v", name, got, err, want)
			}
		}
	}
}
