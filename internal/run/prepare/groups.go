package prepare

import (
	"log/slog"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/run/groups"
)

// AnnounceGroups logs what each group has of the variables.
func AnnounceGroups(d *groups.Division, log *slog.Logger) {
	if d == nil {
		return
	}
	for _, p := range d.Parts {
		match := p.Match
		if match == "" {
			match = "(the others)"
		}
		line := []any{"match", match, "variables", p.Variables, "parameters", p.Parameters}
		if p.Earlier > 0 {
			line = append(line, "in_earlier_groups", p.Earlier)
		}
		if p.Frozen {
			line = append(line, "frozen", true)
		} else {
			line = append(line, "learning_rate_scale", p.LearningRateScale, "weight_decay_scale", p.WeightDecayScale)
		}
		log.Info("optimizer group", line...)
	}
	if l := d.Layers; l != nil {
		log.Info("layer decay", "decay", l.Decay, "layers", l.Layers, "variables_in_layers", l.Within, "in_embeddings", l.Embeddings, "in_head", l.Head, "lowest_learning_rate_scale", words.Rounded(l.Lowest, 6))
	}
	if len(d.States) > 0 {
		log.Warn("states that a frozen group matches are updated all the same, as moving statistics are by every pass in training; to keep them, make their layers not trainable in Python and export again",
			"states", strings.Join(d.States, ","))
	}
}
