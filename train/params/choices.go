package params

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/data/pixels"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// choice is a param that takes one of a few values, or, if empty is set, "" for its default.
type choice struct {
	param string
	of    []string
	empty bool
}

// choices returns the params that take one of a few values, in the order in which they are checked.
func choices() []choice {
	return []choice{
		{"train.on_non_finite", []string{"fail", "skip", "rollback"}, false},
		{"checkpoint.best_mode", []string{ModeAuto, ModeMax, ModeMin}, true},
		{"runtime.onednn", []string{"on", "off"}, false},
		{"runtime.kernels", []string{"on", "off"}, false},
		{"strategy.name", append(devices.Strategies(), devices.TPU), false},
		{"strategy.input", []string{InputChief, InputLocal}, false},
		{"data.on_corrupt", []string{tfrecord.Fail.String(), tfrecord.Skip.String()}, false},
		{"data.resize", pixels.Resizes, true},
		{"data.packing", []string{string(packed.PackBestFit), string(packed.PackFirstFit), string(packed.PackNone)}, true},
		{"data.shuffle", []string{string(dataset.ShuffleFull), string(dataset.ShuffleBuffer), string(dataset.ShuffleNone)}, true},
		{"optimizer.schedule", runner.Schedules(), false},
	}
}

// Choices returns the values of a param that takes one of a few, or nil for other params.
func Choices(param string) []string {
	for _, c := range choices() {
		if c.param == param {
			return c.of
		}
	}
	return nil
}

// checkChoices returns an error for the first param that has none of its values. Values are given by
// the param's name.
func checkChoices(value func(param string) string) error {
	for _, c := range choices() {
		if v := value(c.param); !slices.Contains(c.of, v) && !(c.empty && v == "") {
			return fmt.Errorf("%s is %q; %s", c.param, v, words.OneOf(v, c.of))
		}
	}
	return nil
}

// meantAmong returns the param among names that was most likely meant by a name that no param has, or
// else by the part of it after the section; "" if none is like it.
func meantAmong(name string, names []string) string {
	if best := words.Closest(name, names); best != "" {
		return best
	}
	last := func(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }
	var short []string
	for _, n := range names {
		short = append(short, last(n))
	}
	best := words.Closest(last(name), short)
	if i := slices.Index(short, best); i >= 0 && !slices.Contains(short[i+1:], best) {
		return names[i]
	}
	return ""
}
