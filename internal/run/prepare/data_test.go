package prepare_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/text/chat"
	"github.com/gorbit-ml/gorbit/train/params"
)

func TestRowLengthOfData(t *testing.T) {
	for _, test := range []struct{ longest, positions, want int }{
		{0, 0, 128}, {0, 512, 128}, {15, 512, 128}, {128, 512, 128}, {129, 512, 192}, {300, 512, 320}, {500, 512, 512}, {500, 510, 510}, {15, 32, 32}, {300, 0, 320},
	} {
		c := new(graphs.Contract)
		if below := int64(test.positions); below > 0 {
			c.Features = []graphs.Feature{{Name: packed.PositionIDs, Below: &below}}
		}
		m := &convert.Manifest{Splits: map[string]*convert.Split{"a": {Lengths: convert.Lengths{Max: test.longest}}, "b": {Lengths: convert.Lengths{Max: 3}}}}
		if test.longest == 0 {
			m = nil
		}
		if got := prepare.RowLengthOf(m, c); got != test.want {
			t.Errorf("longest %d, %d positions: got %d, want %d", test.longest, test.positions, got, test.want)
		}
	}
}

func TestRowExamplesOf(t *testing.T) {
	p := params.Defaults()
	p.Data.RowLength = 128
	m := &convert.Manifest{Splits: map[string]*convert.Split{"train": {Lengths: convert.Lengths{Mean: 53.2}}}}
	if got := prepare.RowExamplesOf(m, p); got != 5 {
		t.Errorf("rows have at most %d examples of 53.2 tokens, expected 5", got)
	}
	if got := prepare.RowExamplesOf(nil, p); got != 0 {
		t.Errorf("rows have at most %d examples of unknown length, expected the default", got)
	}
	m.Splits["train"].Lengths.Mean = 1
	if got := prepare.RowExamplesOf(m, p); got != 128 {
		t.Errorf("rows have at most %d examples of 1 token, expected 128", got)
	}
}

// What numbers mean differs in names, columns and the tokenizer; other things may.
func TestDifferences(t *testing.T) {
	contract := &graphs.Contract{Input: graphs.InputDense, Features: []graphs.Feature{
		{Name: "colour", Role: graphs.RoleInput}, {Name: "sizes", Role: graphs.RoleInput}, {Name: "words", Role: graphs.RoleInput}, {Name: "sort", Role: graphs.RoleLabel}}}
	zero, one := "0", "1"
	made := func() *convert.Manifest {
		return &convert.Manifest{Labels: []string{"a", "b"}, Columns: convert.Columns{Chat: "c"}, Chat: &chat.Format{Template: "t"}, Vocab: convert.Vocab{File: "vocab.txt", Size: 9, SHA256: "aa", Lowercase: true},
			Features: []convert.Feature{
				{Name: "colour", Kind: convert.KindCategory, Categories: []string{"red", "blue"}, Columns: []string{"c"}},
				{Name: "sizes", Kind: convert.KindNumber, Columns: []string{"x", "y"}, Missing: &zero},
				{Name: "words", Kind: convert.KindText, Columns: []string{"w"}},
				{Name: "sort", Kind: convert.KindCategory, Role: convert.RoleLabel, Categories: []string{"a", "b"}},
				{Name: "unread", Kind: convert.KindCategory, Categories: []string{"p", "q"}}}}
	}
	for _, test := range []struct {
		change func(*convert.Manifest)
		want   string
	}{
		{func(*convert.Manifest) {}, ""},
		{func(m *convert.Manifest) { m.Features[0].Columns, m.Features[4].Categories = []string{"d"}, nil }, ""},
		{func(m *convert.Manifest) { m.Features[0].Categories = []string{"blue", "red"} },
			`feature colour: category 0 is "red" there and "blue" here; convert the data with these categories in the schema: red,blue`},
		{func(m *convert.Manifest) { m.Features[0].Categories = []string{"red"} },
			"feature colour: category has 2 names there and 1 here; convert data with the names red, blue"},
		{func(m *convert.Manifest) { m.Features[0].Unknown = true },
			"feature colour has a category of all others either there or here; convert the data with the run's schema"},
		{func(m *convert.Manifest) { m.Labels[0], m.Features[3].Categories = "c", []string{"c", "b"} },
			`feature sort: category 0 is "a" there and "c" here; convert data with the names a, b`},
		{func(m *convert.Manifest) { m.Features[1].Columns = []string{"y", "x"} },
			"feature sizes has the columns x, y there and y, x here; convert the data with the run's schema"},
		{func(m *convert.Manifest) { m.Features[1].Missing = &one },
			"an empty cell of feature sizes is 0 there and 1 here; convert the data with the run's schema"},
		{func(m *convert.Manifest) { m.Features[1].Kind = convert.KindCategory },
			"feature sizes is of kind number there and category here; convert the data with the run's schema"},
		{func(m *convert.Manifest) { m.Vocab.Lowercase, m.Vocab.StripAccents = false, true },
			"the tokenizer's lowercase is true there and false here; convert the data without --cased"},
		{func(m *convert.Manifest) { m.Vocab.LiteralSpecials = true },
			"the tokenizer's literal_specials is false there and true here; convert the data without --literal-specials"},
		{func(m *convert.Manifest) { m.Chat = &chat.Format{Template: "x"} },
			"conversations have another chat template there than here; convert the data with the chat template of the run's"},
		{func(m *convert.Manifest) { m.Columns.Chat, m.Chat = "", &chat.Format{Template: "x"} }, ""},
	} {
		here := made()
		test.change(here)
		var got []string
		for _, d := range prepare.Differences(prepare.Meaning{Manifest: made()}, prepare.Meaning{Manifest: here}, contract) {
			got = append(got, fmt.Sprintf("%s; %s", d.What, d.Mend))
		}
		if strings.Join(got, "\n") != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

// TestClassWeightsOfContracts reads class weights for labels of all kinds.
func TestClassWeightsOfContracts(t *testing.T) {
	feature := func(name, dtype, role string, below int64, shape ...int64) graphs.Feature {
		f := graphs.Feature{Name: name, DType: dtype, Role: role, Shape: append([]int64{-1}, shape...), Axes: []string{prepare.AxisExamples}}
		for range shape {
			f.Axes = append(f.Axes, "width")
		}
		if below > 0 {
			f.Below = &below
		}
		return f
	}
	label, weight := feature("kind", "int64", graphs.RoleLabel, 3), feature("w", "float32", graphs.RoleWeight, 0)
	hot := feature("hot", "float32", graphs.RoleLabel, 0, 3)
	hot.Make = "multi_hot"
	offset := feature("start", "int32", graphs.RoleLabel, 0)
	offset.Make = "offset"
	texts := &convert.Manifest{Labels: []string{"bad", "so so", "1"}, Splits: map[string]*convert.Split{"train": {Records: 12, LabelCounts: []int64{6, 0, 2}}}}
	rows := &convert.Manifest{Features: []convert.Feature{{Name: "sort", Categories: []string{"a", "b", "c"}}},
		Splits: map[string]*convert.Split{"train": {Features: map[string]*convert.Statistics{"sort": {Counts: []int64{1, 1, 2}}}}}}
	for _, c := range []struct {
		name     string
		features []graphs.Feature
		manifest *convert.Manifest
		given    string
		want     string // numbers, or a part of an error
	}{
		{"none", nil, nil, "none", "<nil>"},
		{"balanced", []graphs.Feature{label, weight}, texts, "balanced", "kind w [0.6666666666666666 1 2]"},
		{"balanced, of a schema", []graphs.Feature{label, weight}, rows, "balanced", "kind w [1.3333333333333333 1.3333333333333333 0.6666666666666666]"},
		{"names", []graphs.Feature{label, weight}, texts, "{so so: 2, bad: 0.5}", "kind w [0.5 2 1]"},
		{"names come before numbers", []graphs.Feature{label, weight}, texts, "{1: 4, 0: 2}", "kind w [2 1 4]"},
		{"numbers", []graphs.Feature{label, weight}, nil, "{2: 4}", "kind w [1 1 4]"},
		{"without a limit", []graphs.Feature{feature("kind", "int32", graphs.RoleLabel, 0), weight}, nil, "{2: 4}", "kind w [1 1 4]"},
		{"column", []graphs.Feature{feature("kind", "int32", graphs.RoleLabel, 3, 1), weight}, nil, "{2: 4}", "kind w [1 1 4]"},
		{"twice", []graphs.Feature{label, weight}, texts, "{bad: 4, 0: 2}", "0 and bad are the same class"},
		{"unknown name", []graphs.Feature{label, weight}, texts, "{good: 4}", `there is no class "good"; expected one of bad, so so, 1, or 0 to 2`},
		{"name without names", []graphs.Feature{label, weight}, nil, "{good: 4}", `there is no class "good"; expected 0 to 2, because the data do not name the classes`},
		{"number out of range", []graphs.Feature{label, weight}, nil, "{3: 4}", `there is no class "3"; expected 0 to 2`},
		{"balanced without counts", []graphs.Feature{label, weight}, nil, "balanced", "balanced needs the number of examples of each class"},
		{"float", []graphs.Feature{feature("degrees", "float32", graphs.RoleLabel, 0), weight}, nil, "{0: 2}", "label degrees of the graph is float32 on the axes examples; expected one integer for each example"},
		{"several labels", []graphs.Feature{hot, weight}, nil, "{0: 2}", "label hot of the graph is float32 on the axes examples, width, made as multi_hot"},
		{"a class for each token", []graphs.Feature{feature("tags", "int32", graphs.RoleLabel, 3, -1), weight}, nil, "{0: 2}", "label tags of the graph is int32 on the axes examples, width"},
		{"two labels", []graphs.Feature{offset, label, weight}, nil, "{0: 2}", "the graph has 2 labels (start, kind)"},
		{"an offset", []graphs.Feature{offset, weight}, nil, "{0: 2}", "made as offset; expected one integer"},
		{"no label", []graphs.Feature{weight}, nil, "{0: 2}", "the graph has 0 labels"},
		{"no weight", []graphs.Feature{label}, nil, "{0: 2}", "no feature with a weight for each example"},
	} {
		p := params.Defaults()
		p.Data.Features["kind"] = "sort"
		if err := p.Set("data.class_weights=" + c.given); err != nil {
			t.Fatal(err)
		}
		w, err := prepare.ClassWeightsOf(p, &graphs.Contract{Features: c.features}, c.manifest)
		got := "<nil>"
		if w != nil {
			got = fmt.Sprint(w.Label, " ", w.Weight, " ", w.Of)
		}
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.HasPrefix(got, "params: data.class_weights: ") || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %s, expected %q", c.name, got, c.want)
		}
	}
}
