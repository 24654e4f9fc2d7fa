package convert

import (
	"testing"
)

func TestOrigin(t *testing.T) {
	m := &Manifest{Task: TextTask, Sources: []Source{
		{Split: Train, Name: "a.csv", Rows: 5},
		{Split: "test", Name: "t.csv", Rows: 2},
		{Split: Train, Name: "b.csv", Rows: 3},
	}}
	// Row 2 of a.csv has three lines.
	for number, line := range []int64{2, 3, 4, 7, 8} {
		m.Sources[0].noteLine(int64(number), line)
	}
	for number, line := range []int64{1, 2, 3} {
		m.Sources[2].noteLine(int64(number), line)
	}
	if n := len(m.Sources[0].Lines); n != 2 || len(m.Sources[2].Lines) != 1 {
		t.Errorf("a.csv has %v, b.csv %v; expected two entries and one", m.Sources[0].Lines, m.Sources[2].Lines)
	}
	for _, c := range []struct {
		split string
		id    int64
		file  string
		line  int64
	}{
		{Train, 0, "a.csv", 2}, {Train, 2, "a.csv", 4}, {Train, 3, "a.csv", 7}, {Train, 4, "a.csv", 8},
		{Train, 5, "b.csv", 1}, {Train, 7, "b.csv", 3}, {Train, 8, "", 0}, {Train, -1, "", 0},
		{Dev, 3, "a.csv", 7}, // taken from the training split
		{"test", 1, "t.csv", 0},
	} {
		if file, line := m.Origin(c.split, c.id); file != c.file || line != c.line {
			t.Errorf("example %d of %s is from %s:%d, expected %s:%d", c.id, c.split, file, line, c.file, c.line)
		}
	}
	if file, _ := (&Manifest{Task: "mlm", Sources: m.Sources}).Origin(Train, 1); file != "" {
		t.Errorf("a block of documents is from %s; expected nothing", file)
	}
	s := Source{}
	for i := range int64(mostLines + 2) {
		s.noteLine(i, 2*i+1)
	}
	if s.endLines(); s.Lines != nil {
		t.Errorf("%d entries are kept; expected none of so many", len(s.Lines))
	}
}
