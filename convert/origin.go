package convert

import (
	"slices"
	"sort"
)

// mostLines is the maximum number of entries of Source.Lines. A file that needs more has none.
const mostLines = 1 << 16

// noteLine adds the line on which a row begins. Rows come in order.
func (s *Source) noteLine(number, line int64) {
	n := len(s.Lines)
	if n > mostLines || n > 0 && line-s.Lines[n-1][1] == number-s.Lines[n-1][0] {
		return
	}
	s.Lines = append(s.Lines, [2]int64{number, line})
}

// endLines drops the lines of a file that has too many entries.
func (s *Source) endLines() {
	if len(s.Lines) > mostLines {
		s.Lines = nil
	}
}

// line returns the line on which a row begins, from 1, or 0 if it is not known.
func (s *Source) line(number int64) int64 {
	i := sort.Search(len(s.Lines), func(i int) bool { return s.Lines[i][0] > number }) - 1
	if i < 0 {
		return 0
	}
	return s.Lines[i][1] + number - s.Lines[i][0]
}

// sourceSplit returns the split whose sources have the rows of a split.
func (m *Manifest) sourceSplit(split string) string {
	if !slices.ContainsFunc(m.Sources, func(s Source) bool { return s.Split == split }) {
		return Train // of which the examples of split were taken
	}
	return split
}

// Origin returns the file, without its folder, and the line, from 1, that the example of a split with
// the given ExampleID comes from. The file is "" if that is not known, as for examples that are not
// made of a single row or have ids of their own, and the line is 0 for data that were converted before lines were kept.
func (m *Manifest) Origin(split string, id int64) (file string, line int64) {
	if kind := m.Kind(); kind.texts() || kind == QuestionAnswering || id < 0 || !m.numbered() {
		return "", 0
	}
	split = m.sourceSplit(split)
	for i := range m.Sources {
		s := &m.Sources[i]
		if s.Split != split {
			continue
		}
		if id < s.Rows {
			return s.Name, s.line(id)
		}
		id -= s.Rows
	}
	return "", 0
}
