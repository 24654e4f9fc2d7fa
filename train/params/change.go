package params

import (
	"cmp"
	"fmt"

	"github.com/gorbit-ml/gorbit/internal/exec/devices"
)

// Keep sets the params that a run, whose params.yaml is at path, keeps from its beginning: those that affect how
// sums are rounded (runtime.onednn, runtime.kernels and runtime.lanes), and the row length and fixed
// rows if the params leave them to the data. It returns a description of each value that it replaced.
//
// Train calls it, too. A program calls it first because TensorFlow reads the setting of oneDNN only
// once.
func (p *Params) Keep(path string) []string {
	before, err := Read(path)
	if err != nil {
		return nil
	}
	var kept []string
	keep := func(name string, asked bool, was, is any) {
		if asked && was != is {
			kept = append(kept, fmt.Sprintf("%s is %v, not %v", name, was, is))
		}
	}
	was, is := before.Runtime, &p.Runtime
	p.Data.RowLength = cmp.Or(p.Data.RowLength, before.Data.RowLength)
	p.Data.Rows = cmp.Or(p.Data.Rows, before.Data.Rows)
	p.Data.RowExamples = cmp.Or(p.Data.RowExamples, before.Data.RowExamples)
	p.Data.Buckets = cmp.Or(p.Data.Buckets, before.Data.Buckets)
	keep("runtime.onednn", true, was.OneDNN, is.OneDNN)
	is.OneDNN = was.OneDNN
	if p.Strategy.Kind() == devices.TPU {
		// It has neither kernels nor lanes, and rounds in its own way.
		return kept
	}
	keep("runtime.kernels", true, was.Kernels, is.Kernels)
	is.Kernels = was.Kernels
	if was.Lanes > 0 {
		keep("runtime.lanes", is.Lanes > 0, was.Lanes, is.Lanes)
		is.Lanes = was.Lanes
	}
	return kept
}

// Irrelevant lists params, or prefixes of their names, that affect neither the variables nor the
// evaluations of a run: where it runs, and what it logs and keeps. Params that affect rounding are
// kept from the beginning anyway.
var Irrelevant = []string{"strategy.", "runtime.", "summary.", "data.readers", "train.steps_per_loop", "train.log_first_step", "train.steps_per_call",
	"checkpoint.max_to_keep", "checkpoint.keep_every_hours"}

// FromStart lists the params that a run cannot change after its first step, however long it is made:
// its weights come from a checkpoint, and its position in the data depends on the others.
var FromStart = []string{"seed", "init", "strict", "init_partial", "init_values", "data.train", "data.features", "data.resize", "data.crop_to_aspect_ratio", "data.row_length", "data.rows", "data.row_examples", "data.buckets", "data.truncate", "data.mask_probability", "data.whole_words", "data.packing",
	"data.shuffle", "data.buffer", "data.class_weights", "data.sampling", "data.drop_remainder", "train.batch_size"}
