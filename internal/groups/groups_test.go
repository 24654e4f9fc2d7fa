package groups

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/strategy"
)

// contract has the variables of an encoder of so many layers.
func contract(layers int) *graphs.Contract {
	c := new(graphs.Contract)
	add := func(name string, shape ...int64) {
		c.Variables = append(c.Variables, graphs.Variable{Name: name, Shape: shape, LearningRate: 1, Decay: 1})
	}
	add("model/encoder/embeddings/word/table", 30, 8)
	add("model/encoder/embeddings/norm/scale", 8)
	for i := range layers {
		add(fmt.Sprintf("model/encoder/layers/%d/attention/key/kernel", i), 8, 8)
		add(fmt.Sprintf("model/encoder/layers/%d/attention/key/bias", i), 8)
	}
	add("model/classifier/kernel", 8, 3)
	c.States = []graphs.State{{Name: "model/encoder/layers/0/moving_mean", Updated: true}, {Name: "model/encoder/layers/1/table"}}
	return c
}

func TestDivide(t *testing.T) {
	d, err := Divide(contract(3), []Group{
		{Match: `model/encoder/embeddings/.*`, LearningRateScale: 1, WeightDecayScale: 1, Frozen: true},
		{Match: `model/encoder/layers/0/.*`, LearningRateScale: 1, WeightDecayScale: 1, Frozen: true},
		{Match: `.*/bias`, LearningRateScale: 2, WeightDecayScale: 0},
		{Match: `model/encoder/.*|nothing`, LearningRateScale: 0.5, WeightDecayScale: 3},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range d.Parts {
		got = append(got, fmt.Sprintf("%q %d %d %d", p.Match, p.Variables, p.Parameters, p.Earlier))
	}
	want := []string{`"model/encoder/embeddings/.*" 2 248 0`, `"model/encoder/layers/0/.*" 2 72 0`, `".*/bias" 2 16 1`, `"model/encoder/.*|nothing" 2 128 6`, `"" 1 24 0`}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for name, want := range map[string]strategy.Factor{
		"model/encoder/layers/0/attention/key/bias":   {LearningRate: 1, WeightDecay: 1, Frozen: true},
		"model/encoder/layers/1/attention/key/bias":   {LearningRate: 2},
		"model/encoder/layers/2/attention/key/kernel": {LearningRate: 0.5, WeightDecay: 3},
	} {
		if d.Factors[name] != want {
			t.Errorf("%s has %v; expected %v", name, d.Factors[name], want)
		}
	}
	if _, ok := d.Factors["model/classifier/kernel"]; ok || len(d.Factors) != 8 {
		t.Errorf("%d factors; expected 8, none of the classifier", len(d.Factors))
	}
	if want := []string{"model/encoder/layers/0/moving_mean"}; !slices.Equal(d.States, want) {
		t.Errorf("states %v; expected %v", d.States, want)
	}
	if len(d.Frozen()) != 4 || d.Parts[4].Match != "" {
		t.Errorf("frozen %v", d.Frozen())
	}
}

func TestNoGroups(t *testing.T) {
	d, err := Divide(contract(1), nil)
	if d != nil || err != nil || d.Frozen() != nil {
		t.Error(d, err)
	}
}

func TestDivideRefuses(t *testing.T) {
	group := func(match string) Group { return Group{Match: match, LearningRateScale: 1, WeightDecayScale: 1} }
	frozen := func(match string) Group { return Group{match, 1, 1, true} }
	for _, c := range []struct {
		name, want string
		groups     []Group
	}{
		{"empty", "optimizer.groups[0].match is empty", []Group{group("")}},
		{"syntax", "optimizer.groups[0].match is \"model/(\": error parsing regexp: missing closing )", []Group{group("model/(")}},
		{"lookahead, which RE2 lacks", "invalid or unsupported Perl syntax", []Group{group("(?!model).*")}},
		{"an alternative ends the group", "unexpected )", []Group{group("a)|(?:b")}},
		{"part of a name", "matches no trained variable; expected a regular expression for whole names, of which the nearest are " +
			"model/encoder/layers/0/attention/key/bias, model/encoder/layers/0/attention/key/kernel, model/encoder/layers/1/attention/key/bias", []Group{group("model/encoder/layers/")}},
		{"another name", "optimizer.groups[1].match is \"model/encoder/layer/[0-5]/.*\", which matches no trained variable", []Group{group(".*/bias"), group("model/encoder/layer/[0-5]/.*")}},
		{"a state", "matches no trained variable", []Group{group("model/encoder/layers/1/table")}},
		{"all taken", "optimizer.groups[1].match is \".*/0/.*bias\", and earlier groups have all 1 variables that it matches", []Group{group(".*/bias"), group(".*/0/.*bias")}},
		{"all frozen", "all 7 variables are frozen; expected at least one to train", []Group{frozen(".*/bias"), frozen(".*")}},
		{"learning rate of 0", "learning_rate_scale is 0; expected more than 0; to leave variables as they are, set frozen: true", []Group{{".*", 0, 1, false}}},
		{"weight decay", "weight_decay_scale is -1; expected 0 or more", []Group{{".*", 1, -1, false}}},
		{"frozen with a scale", "learning_rate_scale is 0.5 and frozen is true", []Group{{".*", 0.5, 1, true}}},
		{"frozen with a decay", "weight_decay_scale is 0.5 and frozen is true", []Group{{".*", 1, 0.5, true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Divide(contract(2), c.groups); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; expected %q", err, c.want)
			}
		})
	}
}
