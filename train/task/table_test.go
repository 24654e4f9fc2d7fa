package task

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/gorbit-ml/gorbit/train/evaluation"
)

// TestTable compares tables of classes with those of scikit-learn and seqeval. A class that does not
// occur is in none of them.
func TestTable(t *testing.T) {
	b, err := os.ReadFile("testdata/tables.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name   string
		Names  []string
		Counts [][3]float64
		Want   map[string]evaluation.Class
	}
	if err := json.Unmarshal(b, &cases); err != nil || len(cases) == 0 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, c := range cases {
		var flat []float64
		for _, row := range c.Counts {
			flat = append(flat, row[:]...)
		}
		all, err := CountsOf("counts", flat)
		if err != nil {
			t.Fatal(err)
		}
		table := Table(evaluation.OfLabel, all, c.Names)
		if len(table.Each) != len(c.Names) || len(table.Averages) != 3 {
			t.Errorf("%s: %d classes and %d averages; expected %d and 3", c.Name, len(table.Each), len(table.Averages), len(c.Names))
		}
		for _, got := range append(table.Each, table.Averages...) {
			want, ok := c.Want[got.Name]
			if !ok {
				t.Errorf("%s: %s is not in the report", c.Name, got.Name)
			}
			for _, v := range [][2]float64{{got.Precision, want.Precision}, {got.Recall, want.Recall}, {got.F1, want.F1}, {got.Support, want.Support}} {
				if !(math.Abs(v[0]-v[1]) < 1e-12*max(1, v[1])) {
					t.Errorf("%s: %s is %v, expected %v", c.Name, got.Name, got, want)
				}
			}
		}
	}
	// No report has what does not occur.
	never := Table(evaluation.OfEntity, []Counts{{2, 2, 2}, {}}, []string{"a"})
	if macro := never.Averages[1]; never.Each[1] != (evaluation.Class{Name: "1"}) || macro.F1 != 1 || macro.Support != 2 {
		t.Errorf("%v", never)
	}
}
