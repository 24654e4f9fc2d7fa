package loop

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/layout"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
)

const (
	// ReleaseConfig is the file next to Hugging Face's weights that describes their model.
	ReleaseConfig = "config.json"
	// maxReleaseConfig limits its size, as a model of many labels has their names in it.
	maxReleaseConfig = 16 << 20
)

// CheckForm returns an error if weights were made for a model that is computed in another way than
// the graph's, even if names and shapes agree. Numbers of such a model would be wrong in silence.
// partial accepts a table of positions that does not fit.
func CheckForm(source checkpoint.Source, report *checkpoint.LoadReport, c *graphs.Contract, partial bool) error {
	w := c.Model.Weights
	if w == nil {
		return nil
	}
	for _, other := range w.Others {
		if report.Prefix == other || strings.HasSuffix(report.Prefix, "."+other) || strings.HasSuffix(report.Prefix, "/"+other) {
			return fault.Usagef("%s: names of tensors begin with %q; expected weights of model %s (%q), as the graph's; export the graph with --config and the config.json of these weights", source.Path(), report.Prefix, w.ModelType, w.Prefix)
		}
	}
	for _, m := range report.Mismatched {
		if !partial && slices.Contains(w.Fit, m.Want.Name) {
			return fault.Usagef("%s: tensor %s is %v; expected %v for %s, without which the other weights are of little use; export the graph with --config and the config.json of these weights, or keep the export's values with --set init_partial=true", source.Path(), m.Source.Name, m.Source.Shape, m.Want.Shape, m.Want.Name)
		}
	}
	switch s := source.(type) {
	case *checkpoint.Safetensors:
		return checkReleaseConfig(filepath.Join(filepath.Dir(s.Path()), ReleaseConfig), w)
	case *checkpoint.GGUF:
		return checkGGUF(s, report, c, partial)
	}
	return checkOwnForm(filepath.Dir(filepath.Dir(source.Path())), w)
}

// checkGGUF compares what a file of GGUF says of its model with the graph's model. It says all of it, so
// sizes must agree, too, and every tensor has a place; partial accepts other ones.
func checkGGUF(source *checkpoint.GGUF, report *checkpoint.LoadReport, c *graphs.Contract, partial bool) error {
	there, err := source.Config()
	if err != nil {
		return err
	}
	w := c.Model.Weights
	if there["model_type"] == "llama" && w.ModelType == "mistral" {
		there["model_type"] = w.ModelType // GGUF has one name for both
	}
	frequencies, err := source.Frequencies()
	if err != nil {
		return err
	}
	scaling, _ := w.Config["rope_scaling"].(map[string]any)
	if _, scaled := there["rope_scaling"]; !scaled {
		switch kind := scaling["rope_type"]; {
		case kind == "llama3" && frequencies != nil:
			if err := sameFrequencies(frequencies, there, scaling); err != nil {
				return fault.Usagef("%s: tensor %w; export the graph with --config and the config.json of these weights", source.Path(), err)
			}
			there["rope_scaling"] = scaling
		case kind == "dynamic": // begins after the positions that a file has, and so says nothing there
			there["rope_scaling"] = scaling
		}
	}
	if err := sameForm(there, w); err != nil {
		return fault.Usagef("%s: %w; export the graph with --config and the config.json of these weights", source.Path(), err)
	}
	if form := c.Model.HuggingFace; form != nil && !partial {
		sizes := &graphs.Weights{ModelType: w.ModelType, Config: make(map[string]any)}
		for name, value := range form.Config {
			number, ok := there[name].(float64)
			mine, isNumber := value.(float64)
			if ok && isNumber && !(strings.Contains(name, "position") && number > mine) { // more positions do no harm
				sizes.Config[name] = value
			}
		}
		if err := sameForm(there, sizes); err != nil {
			return fault.Usagef("%s: %w; export the graph with --config and the config.json of these weights", source.Path(), err)
		}
	}
	for _, e := range report.Unused {
		turns := frequencies != nil && e.Name == checkpoint.GGUFFrequencies && scaling["rope_type"] == "llama3"
		if !source.Repeats(e) && !turns && !partial {
			return fault.Usagef("%s: tensor %s has no place in the graph's model, which would compute something else; export the graph with --config and the config.json of these weights", source.Path(), e)
		}
	}
	return nil
}

// sameFrequencies returns an error if turns are not divided by the numbers that llama.cpp keeps of the graph's
// scaling, which is that of Llama 3.
func sameFrequencies(got []float32, there, scaling map[string]any) error {
	value := func(of map[string]any, name string) float64 {
		v, _ := of[name].(float64)
		return v
	}
	width := value(there, "head_dim")
	if width == 0 {
		width = value(there, "hidden_size") / value(there, "num_attention_heads")
	}
	if float64(2*len(got)) != width {
		return fmt.Errorf("%s has %d numbers; expected %v, half the width of a head", checkpoint.GGUFFrequencies, len(got), width/2)
	}
	factor, low, high := value(scaling, "factor"), value(scaling, "low_freq_factor"), value(scaling, "high_freq_factor")
	for i, number := range got {
		frequency := math.Pow(value(there, "rope_theta"), -2*float64(i)/width)
		turns := value(scaling, "original_max_position_embeddings") * frequency / (2 * math.Pi)
		smooth := min(max((turns-low)/(high-low), 0), 1)
		if want := 1 / ((1-smooth)/factor + smooth); !(math.Abs(float64(number)-want) <= 1e-4*want) {
			return fmt.Errorf("%s has %.6g at %d; expected %.6g by rope_scaling of the graph", checkpoint.GGUFFrequencies, number, i, want)
		}
	}
	return nil
}

// checkReleaseConfig compares the config.json of weights, if there is one, with the graph's model.
func checkReleaseConfig(path string, w *graphs.Weights) error {
	data, err := vfs.ReadBounded(path, maxReleaseConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	there := make(map[string]any)
	if err := json.Unmarshal(data, &there); err != nil {
		return fault.Usagef("%s: not a JSON object (%v); expected the configuration of the weights next to it", path, err)
	}
	meant := maps.Clone(w.Defaults)
	if meant == nil {
		meant = make(map[string]any)
	}
	maps.Copy(meant, there)
	if err := sameForm(meant, w); err != nil {
		var other *otherForm
		if errors.As(err, &other) {
			if _, written := plainForm(there, 0)[other.name]; !written {
				return fault.Usagef("%s: %s is not there, which means %s in transformers; expected %s, as in the graph; export the graph with --config %s", path, other.name, quoted(other.got), quoted(other.want), path)
			}
		}
		return fault.Usagef("%s: %w; export the graph with --config %s", path, err, path)
	}
	return nil
}

// checkOwnForm compares what the folder of a run, an export or an exported model says of its model,
// if it does, with the graph's model. Names and shapes of a run's variables can be those of another
// kind of model.
func checkOwnForm(folder string, w *graphs.Weights) error {
	for _, name := range []string{filepath.Join(runfolder.GraphFolder, graphs.ContractFile), graphs.ContractFile, layout.DescriptionFile} {
		path := filepath.Join(folder, name)
		data, err := vfs.ReadBounded(path, maxReleaseConfig)
		if err != nil {
			continue // there is none, or the weights alone can be read
		}
		var there struct {
			Model struct{ Weights *graphs.Weights }
		}
		if err := json.Unmarshal(data, &there); err != nil || there.Model.Weights == nil {
			continue
		}
		if err := sameForm(formOf(there.Model.Weights), w); err != nil {
			return fault.Usagef("%s: %w; give weights of such a model, or an export of the model that these weights are of", path, err)
		}
	}
	return nil
}

// formOf returns what weights must say of their model.
func formOf(w *graphs.Weights) map[string]any {
	form := maps.Clone(w.Config)
	if form == nil {
		form = make(map[string]any)
	}
	form["model_type"] = w.ModelType
	return form
}

// otherForm is a value of a configuration that is not as in the graph.
type otherForm struct {
	name      string
	got, want any
}

func (o *otherForm) Error() string {
	return fmt.Sprintf("%s is %s; expected %s, as in the graph", o.name, quoted(o.got), quoted(o.want))
}

// sameForm returns an *otherForm for the first value of a configuration that is not as in the graph.
func sameForm(there map[string]any, w *graphs.Weights) error {
	want := formOf(w)
	longest, _ := want["positions"].(float64)
	delete(want, "positions")
	there = plainForm(there, longest)
	same := plainForm(want, longest)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got, ok := there[name]; ok && !reflect.DeepEqual(got, same[name]) {
			return &otherForm{name, got, want[name]}
		}
	}
	return nil
}

// plainForm returns a configuration in the one form in which the exporter says how turns of positions are
// scaled, and which window layers have: releases of transformers write the same in several. A window of
// longest positions and more is none.
func plainForm(config map[string]any, longest float64) map[string]any {
	out := maps.Clone(config)
	if rope, ok := config["rope_parameters"].(map[string]any); ok {
		delete(out, "rope_parameters")
		if local, ok := rope["sliding_attention"].(map[string]any); ok { // one for each kind of layers
			out["rope_local_base_freq"] = local["rope_theta"]
			rope, _ = rope["full_attention"].(map[string]any)
		}
		out["rope_scaling"] = rope
		if theta, ok := rope["rope_theta"]; ok {
			out["rope_theta"] = theta
		}
	}
	scaling, ok := out["rope_scaling"].(map[string]any)
	if !ok {
		out["rope_scaling"] = nil // also where it is not written
	} else {
		plain := make(map[string]any)
		for name, value := range scaling {
			switch {
			case name == "type":
				plain["rope_type"] = value
			case name != "rope_theta" && value != nil:
				plain[name] = value
			}
		}
		switch plain["rope_type"] {
		case nil, "default":
			out["rope_scaling"] = nil
		case "yarn":
			out["rope_scaling"] = plainYarn(plain)
		default:
			out["rope_scaling"] = plain
		}
	}
	if window, ok := out["sliding_window"].(float64); ok && (longest > 0 && window >= longest || out["use_sliding_window"] == false) {
		out["sliding_window"] = nil
	}
	return out
}

// plainYarn returns a scaling by YaRN in one form: without values that are those of a field that is left out, and
// with the factor of attention in the place of the two numbers that can say it.
func plainYarn(scaling map[string]any) map[string]any {
	out := maps.Clone(scaling)
	number := func(name string) float64 {
		v, _ := out[name].(float64)
		return v
	}
	longer := func(scale float64) float64 { return 0.1*scale*math.Log(number("factor")) + 1 }
	attention := longer(1)
	if given, ok := out["attention_factor"].(float64); ok {
		attention = given
	} else if out["mscale"] != nil && out["mscale_all_dim"] != nil {
		attention = longer(number("mscale")) / longer(number("mscale_all_dim"))
	}
	for _, name := range []string{"mscale", "mscale_all_dim", "attention_factor"} {
		delete(out, name)
	}
	if float32(attention) != float32(longer(1)) {
		out["attention_factor"] = float64(float32(attention)) // as files of GGUF have it, and as it is computed
	}
	for name, usual := range map[string]any{"beta_fast": 32.0, "beta_slow": 1.0, "truncate": true} {
		if out[name] == usual {
			delete(out, name)
		}
	}
	return out
}

// quoted writes a value of a JSON file, cut if it is long.
func quoted(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return fmt.Sprintf("%.64s", data)
}
