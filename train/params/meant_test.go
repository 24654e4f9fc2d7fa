package params

import (
	"strings"
	"testing"
)

// TestMeant asks for names of other trainers, and for mistyped ones. Names that mean something else are
// answered with nothing rather than with what is spelled so.
func TestMeant(t *testing.T) {
	for name, want := range map[string]string{
		// Spelled otherwise, or in another section.
		"train.stps":             "did you mean train.steps?",
		"epochs":                 "did you mean train.epochs?",
		"train.learning_rate":    "did you mean optimizer.learning_rate?",
		"learning-rate":          "did you mean optimizer.learning_rate?",
		"optimizer.learing_rate": "did you mean optimizer.learning_rate?",
		"optimiser.weight_decay": "did you mean optimizer.weight_decay?",
		"eval.step":              "did you mean eval.steps?",
		"see":                    "did you mean seed?",
		"steps":                  "", // of two sections
		"nonsense":               "",
		"model.name":             "", // not that of the strategy
		"data.path":              "",
		"optimizer.tau":          "", // not ema
		"learn":                  "", // not by its beginning
		"eval.stop":              "",
		"train.warm":             "",
		// What other trainers call so.
		"eval_steps":                             "did you mean train.eval_interval?",
		"eval.interval":                          "did you mean train.eval_interval?",
		"train.eval_steps":                       "did you mean train.eval_interval?",
		"validation_steps":                       "did you mean eval.steps?",
		"optimizer.lr":                           "did you mean optimizer.learning_rate?",
		"optimizer.eps":                          "did you mean optimizer.hyperparameters.epsilon?",
		"warmup":                                 "did you mean optimizer.warmup_steps?",
		"betas":                                  "did you mean optimizer.hyperparameters.beta_1 and optimizer.hyperparameters.beta_2?",
		"optimizer.betas":                        "did you mean optimizer.hyperparameters.beta_1 and optimizer.hyperparameters.beta_2?",
		"per-device-train-batch-size":            "did you mean train.batch_size, of all devices and micro-batches together?",
		"task.validation_data.global_batch_size": "did you mean eval.batch_size?",
		"task.train_data.global_batch_size":      "did you mean train.batch_size?",
		"logging_strategy":                       "did you mean train.steps_per_loop, a number of steps, or 0 for every epoch?",
		"save_strategy":                          "did you mean checkpoint.interval, a number of steps, 0 to save with every evaluation, or -1 for the end alone, with checkpoint.best empty?",
		"save":                                   "did you mean checkpoint.interval, a number of steps, 0 to save with every evaluation, or -1 for the end alone, with checkpoint.best empty?",
		"reducelronplateau":                      "did you mean optimizer.schedule=plateau?",
		"optimizer.min_lr":                       "did you mean optimizer.end_learning_rate?",
		"no_cuda":                                "did you mean strategy.devices=cpu?",
		"output_dir":                             "the folder of the run is no param",
		"fp16":                                   "the precision is that of the export",
		"optimizer.name":                         "the optimizer is that of the export",
	} {
		text, hint, _ := strings.Cut(Unknown(name).Error(), "; ")
		if hint != want || text != "there is no param "+name {
			t.Errorf("%s: %s; %s; expected %q", name, text, hint, want)
		}
	}
}

// TestPeers wants each name of another trainer once, to be none of ours, and to stand for params that
// there are.
func TestPeers(t *testing.T) {
	seen := make(map[string]bool)
	for _, peer := range peers {
		for _, name := range strings.Fields(peer.names) {
			if _, ours := Lookup(name); ours || seen[name] || strings.ToLower(name) != name {
				t.Errorf("%s is a param of ours, or there twice, or not in lower case", name)
			}
			seen[name] = true
		}
		if len(peer.ours.Params) == 0 && peer.ours.Note == "" {
			t.Errorf("%s: neither params nor a note", peer.names)
		}
		for _, param := range peer.ours.Params {
			if _, ok := Lookup(param); !ok {
				t.Errorf("%s: there is no param %s", peer.names, param)
			}
		}
	}
}
