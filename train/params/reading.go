package params

import (
	"fmt"
	"slices"
	"strings"
)

// reading lists the params, or prefixes of their names, that affect how a run is evaluated or
// predicts. The others are for training.
var reading = []string{"graph", "data.dir", "data.eval", "data.features", "data.resize", "data.crop_to_aspect_ratio", "data.row_length", "data.rows", "data.row_examples", "data.buckets", "data.truncate", "data.packing", "data.on_corrupt", "data.readers",
	"eval.", "summary.enabled", "strategy.name", "strategy.devices", "strategy.workers", "strategy.worker_timeout", "strategy.tpu", "runtime."}

// CheckReading returns a *Error for the first setting, of the form "section.name=value", of a
// param that has no effect on a run that is only read.
func CheckReading(settings []string) error {
	known := Defaults().Flat()
	for _, setting := range settings {
		name, _, _ := strings.Cut(setting, "=")
		_, ok := known[name]
		if !ok && !strings.HasPrefix(name, "optimizer.hyperparameters") && name != "optimizer.groups" && !strings.HasPrefix(name, "data.features") {
			continue // a section, or an error that Load reports
		}
		if !slices.ContainsFunc(reading, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			expected := strings.ReplaceAll(strings.Join(reading, ", ")+",", ".,", ".*,")
			return &Error{fmt.Errorf("%s has an effect only in gorbit train; leave it out; expected one of %s", name, strings.TrimSuffix(expected, ","))}
		}
	}
	return nil
}
