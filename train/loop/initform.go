package loop

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
		if !source.Repeats(e) && !partial {
			return fault.Usagef("%s: tensor %s has no place in the graph's model, which would compute something else; export the graph with --config and the config.json of these weights", source.Path(), e)
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
	if err := sameForm(there, w); err != nil {
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

// sameForm returns an error for the first value of a configuration that is not as in the graph.
func sameForm(there map[string]any, w *graphs.Weights) error {
	want := formOf(w)
	longest, _ := want["positions"].(float64)
	delete(want, "positions")
	there = plainForm(there, longest)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got, ok := there[name]; ok && !reflect.DeepEqual(got, want[name]) {
			return fmt.Errorf("%s is %s; expected %s, as in the graph", name, quoted(got), quoted(want[name]))
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
		if out["rope_scaling"] = any(plain); plain["rope_type"] == nil || plain["rope_type"] == "default" {
			out["rope_scaling"] = nil
		}
	}
	if window, ok := out["sliding_window"].(float64); ok && (longest > 0 && window >= longest || out["use_sliding_window"] == false) {
		out["sliding_window"] = nil
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
