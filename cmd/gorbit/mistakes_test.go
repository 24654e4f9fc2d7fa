package main

import (
	"io"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// TestMeantFlag asks for flags that commands do not have, as other trainers name them or as one mistypes
// them. What the command cannot do is not suggested.
func TestMeantFlag(t *testing.T) {
	for _, tt := range []struct{ command, flag, want string }{
		{"train", "eval_steps", "; did you mean --eval-interval?"},
		{"train", "validation_steps", "; did you mean --set eval.steps=VALUE?"},
		{"train", "lr", "; did you mean --learning-rate?"},
		{"train", "betas", "; did you mean --set optimizer.hyperparameters.beta_1=VALUE and --set optimizer.hyperparameters.beta_2=VALUE?"},
		{"train", "per_device_train_batch_size", "; did you mean --batch-size, of all devices and micro-batches together?"},
		{"train", "gradient_accumulation_steps", "; did you mean --accumulate, which divides train.batch_size?"},
		{"train", "num_gpus", "; did you mean --devices gpu:NUMBER?"},
		{"train", "output_dir", "; did you mean --run?"},
		{"train", "disable_tqdm", "; did you mean --progress off?"},
		{"train", "bf16", "; the precision is that of the export"},
		{"train", "max-grad-norm", "; did you mean --set optimizer.clip_norm=VALUE?"},
		{"train", "warmup", "; did you mean --warmup-steps?"},
		{"train", "epoch", "; did you mean --epochs?"},
		{"train", "weight-decay", "; did you mean --set optimizer.weight_decay=VALUE?"},
		{"train", "learn", ""},
		{"train", "train", ""},
		{"tune", "num_train_epochs", "; did you mean --epochs?"},
		{"tune", "output_dir", "; the folder of the run is no param"},
		{"evaluate", "per_device_eval_batch_size", "; did you mean --set eval.batch_size=VALUE, of all devices together?"},
		{"evaluate", "lr", ""},
		{"evaluate", "weight-decay", ""},
		{"evaluate", "output_dir", "; did you mean --run?"},
		{"inspect", "lr", ""},
	} {
		cmd, _, err := newRoot().Find([]string{tt.command})
		if err != nil {
			t.Fatal(err)
		}
		if got := meantFlag(cmd, tt.flag); got != tt.want {
			t.Errorf("%s --%s: %q; expected %q", tt.command, tt.flag, got, tt.want)
		}
	}
}

// TestFlagsWithoutGraph gives flags of --graph beside the folder of an argument.
func TestFlagsWithoutGraph(t *testing.T) {
	for _, args := range [][]string{
		{"serve", "runs/x", "--init", "W"},
		{"serve", "runs/x", "--allow-untrained"},
		{"push", "model", "--repo", "a/b", "--data", "D"},
		{"evaluate", "--init", "W"},
	} {
		root := newRoot()
		root.SetArgs(append(args, "--progress", "off"))
		root.SetOut(io.Discard)
		if err := root.ExecuteContext(t.Context()); exitCode(err) != fault.ExitUsage || !strings.Contains(err.Error(), "is given without --graph; expected the folder of an export") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
