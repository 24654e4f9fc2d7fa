package groups

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/params"
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

// TestDividePhases refuses groups that freeze all variables of a phase, and no others.
func TestDividePhases(t *testing.T) {
	c := contract(2)
	c.Phases = []graphs.Phase{{Name: "encoder", Every: 1}, {Name: "classifier", Every: 2}}
	for i := range c.Variables {
		c.Variables[i].Phase = "encoder"
	}
	c.Variables[len(c.Variables)-1].Phase = "classifier"
	freeze := func(match string) error {
		_, err := Divide(c, []params.Group{{Match: match, LearningRateScale: 1, WeightDecayScale: 1, Frozen: true}}, 1)
		return err
	}
	if err := freeze(".*/layers/.*"); err != nil {
		t.Error(err)
	}
	for match, want := range map[string]string{
		"model/encoder/.*":    "optimizer.groups: they freeze all of the phase encoder (6 variables); expected at least one variable to train",
		"model/classifier/.*": "optimizer.groups: they freeze all of the phase classifier (1 variable); expected at least one variable to train",
	} {
		if err := freeze(match); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v; expected %s", match, err, want)
		}
	}
}

func TestDivide(t *testing.T) {
	d, err := Divide(contract(3), []params.Group{
		{Match: `model/encoder/embeddings/.*`, LearningRateScale: 1, WeightDecayScale: 1, Frozen: true},
		{Match: `model/encoder/layers/0/.*`, LearningRateScale: 1, WeightDecayScale: 1, Frozen: true},
		{Match: `.*/bias`, LearningRateScale: 2, WeightDecayScale: 0},
		{Match: `model/encoder/.*|nothing`, LearningRateScale: 0.5, WeightDecayScale: 3},
	}, 1)
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
	d, err := Divide(contract(1), nil, 1)
	if d != nil || err != nil || d.Frozen() != nil {
		t.Error(d, err)
	}
}

func TestDivideRefuses(t *testing.T) {
	group := func(match string) params.Group {
		return params.Group{Match: match, LearningRateScale: 1, WeightDecayScale: 1}
	}
	frozen := func(match string) params.Group {
		return params.Group{Match: match, LearningRateScale: 1, WeightDecayScale: 1, Frozen: true}
	}
	for _, c := range []struct {
		name, want string
		groups     []params.Group
	}{
		{"empty", "optimizer.groups[0].match is empty", []params.Group{group("")}},
		{"syntax", "optimizer.groups[0].match is \"model/(\": error parsing regexp: missing closing )", []params.Group{group("model/(")}},
		{"lookahead, which RE2 lacks", "invalid or unsupported Perl syntax", []params.Group{group("(?!model).*")}},
		{"an alternative ends the group", "unexpected )", []params.Group{group("a)|(?:b")}},
		{"part of a name", "matches no trained variable; expected a regular expression for whole names, of which the nearest are " +
			"model/encoder/layers/0/attention/key/bias, model/encoder/layers/0/attention/key/kernel, model/encoder/layers/1/attention/key/bias", []params.Group{group("model/encoder/layers/")}},
		{"another name", "optimizer.groups[1].match is \"model/encoder/layer/[0-5]/.*\", which matches no trained variable", []params.Group{group(".*/bias"), group("model/encoder/layer/[0-5]/.*")}},
		{"a state", "matches no trained variable", []params.Group{group("model/encoder/layers/1/table")}},
		{"all taken", "optimizer.groups[1].match is \".*/0/.*bias\", and earlier groups have all 1 variables that it matches", []params.Group{group(".*/bias"), group(".*/0/.*bias")}},
		{"all frozen", "all 7 variables are frozen; expected at least one to train", []params.Group{frozen(".*/bias"), frozen(".*")}},
		{"learning rate of 0", "learning_rate_scale is 0; expected more than 0; to leave variables as they are, set frozen: true", []params.Group{{Match: ".*", LearningRateScale: 0, WeightDecayScale: 1, Frozen: false}}},
		{"weight decay", "weight_decay_scale is -1; expected 0 or more", []params.Group{{Match: ".*", LearningRateScale: 1, WeightDecayScale: -1, Frozen: false}}},
		{"frozen with a scale", "learning_rate_scale is 0.5 and frozen is true", []params.Group{{Match: ".*", LearningRateScale: 0.5, WeightDecayScale: 1, Frozen: true}}},
		{"frozen with a decay", "weight_decay_scale is 0.5 and frozen is true", []params.Group{{Match: ".*", LearningRateScale: 1, WeightDecayScale: 0.5, Frozen: true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Divide(contract(2), c.groups, 1); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; expected %q", err, c.want)
			}
		})
	}
}

// TestLayerDecay gives the factors of BEiT's get_layer_id_for_vit and LayerDecayValueAssigner: decay to
// the power of layers + 1 - id, where the embeddings have id 0, layer i has i + 1, and the head has
// layers + 1.
func TestLayerDecay(t *testing.T) {
	c := contract(12)
	d, err := Divide(c, nil, 0.75)
	if err != nil {
		t.Fatal(err)
	}
	id := func(name string) int {
		switch {
		case strings.Contains(name, "embeddings"):
			return 0
		case strings.Contains(name, "classifier"):
			return 13
		}
		n, _, _ := strings.Cut(strings.TrimPrefix(name, "model/encoder/layers/"), "/")
		i, err := strconv.Atoi(n)
		if err != nil {
			t.Fatal(err)
		}
		return i + 1
	}
	for _, v := range c.Variables {
		if got, want := d.Factors[v.Name], math.Pow(0.75, float64(13-id(v.Name))); math.Abs(got.LearningRate-want) > 1e-15 || got.WeightDecay != 1 || got.Frozen {
			t.Errorf("%s has %v; expected a learning rate of %v", v.Name, got, want)
		}
	}
	want := Layers{Decay: 0.75, Layers: 12, Embeddings: 2, Within: 24, Head: 1, Lowest: math.Pow(0.75, 13)}
	if *d.Layers != want || len(d.Parts) != 0 {
		t.Errorf("%+v, parts %v", *d.Layers, d.Parts)
	}
}

func TestLayerDecayAndGroups(t *testing.T) {
	d, err := Divide(contract(2), []params.Group{
		{Match: ".*/1/.*kernel", LearningRateScale: 0.5, WeightDecayScale: 2},
		{Match: ".*embeddings.*", LearningRateScale: 1, WeightDecayScale: 1, Frozen: true},
	}, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]strategy.Factor{
		"model/encoder/layers/1/attention/key/kernel": {LearningRate: 0.25, WeightDecay: 2},
		"model/encoder/layers/0/attention/key/kernel": {LearningRate: 0.25, WeightDecay: 1},
		"model/classifier/kernel":                     {LearningRate: 1, WeightDecay: 1},
	} {
		if d.Factors[name] != want {
			t.Errorf("%s has %v; expected %v", name, d.Factors[name], want)
		}
	}
	if len(d.Frozen()) != 2 {
		t.Errorf("frozen %v", d.Frozen())
	}
}

func TestLayerDecayOfNames(t *testing.T) {
	for _, c := range []struct {
		names []string
		want  string
	}{
		{[]string{"model/layers/0/kernel", "model/layers/2/kernel", "model/layers/4/kernel"}, "0.25 0.5 1"}, // no head
		{[]string{"layers/0/kernel", "head"}, "0.5 1"},
		{[]string{"model/pos_embed", "model/layers/0/sub/layers/3/kernel", "model/layers/1/sub/layers/0/kernel", "model/norm"}, "0.125 0.25 0.5 1"},
		{[]string{"model/kernel", "model/players/0/kernel"}, "error: no trained variable has layers/NUMBER/ in its name"},
		{[]string{"model/encoder/layers/0/kernel", "model/decoder/layers/0/kernel"}, "error: several stacks of layers, in model/decoder, model/encoder"},
		{[]string{"layers/99999999999999999999/kernel"}, "error: number of the layer"},
	} {
		contract := new(graphs.Contract)
		for _, name := range c.names {
			contract.Variables = append(contract.Variables, graphs.Variable{Name: name})
		}
		d, err := Divide(contract, nil, 0.5)
		if want, fails := strings.CutPrefix(c.want, "error: "); fails {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v; expected %q", c.names, err, want)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range c.names {
			got = append(got, fmt.Sprint(d.Factors[name].LearningRate))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%v: %v; expected %v", c.names, got, c.want)
		}
	}
	for _, decay := range []float64{0, -1, 1.01, math.NaN()} {
		if _, err := Divide(contract(1), nil, decay); err == nil || !strings.Contains(err.Error(), "expected more than 0 and at most 1 (off)") {
			t.Errorf("decay of %v: %v", decay, err)
		}
	}
}
