package params

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/words"
)

// Meant is what was most likely meant by a name that no param has.
type Meant struct {
	// Params are ours for it; none if there is none.
	Params []string
	// Value is what they must be, if that is known.
	Value string
	// Option is the option of gorbit train for what is no param, such as run.
	Option string
	// Note says how it differs from ours, or where it is decided instead.
	Note string
	// ByPeer means that another trainer calls it so; otherwise the name is spelled like one of ours.
	ByPeer bool
}

// peers has the names of Hugging Face's TrainingArguments and of its callbacks and scripts, of
// Accelerate, Keras, Orbit and the TensorFlow Model Garden, and what they are here. Names that mean
// different things there have the meaning of TrainingArguments, or are left out. A name with a section
// is one only there.
var peers = []struct {
	names string
	ours  Meant
}{
	// What to train, and where it goes.
	{"output_dir model_dir", Meant{Option: "run", Note: "the folder of the run is no param"}},
	{"overwrite_output_dir", Meant{Option: "overwrite", Note: "starting from scratch is no param"}},
	{"resume_from_checkpoint", Meant{Option: "resume-from", Note: "the checkpoint to continue from is no param"}},
	{"config_file", Meant{Option: "params", Note: "a params file names no other"}},
	{"disable_tqdm", Meant{Option: "progress off", Note: "the progress bar is no param"}},
	{"model_name_or_path init_checkpoint pretrained_model_name_or_path", Meant{Params: []string{"init"}}},
	{"data_seed random_seed", Meant{Params: []string{"seed"}}},
	{"eval_dataset validation_data", Meant{Params: []string{"data.eval"}, Note: "the name of a split, or a list of names, such as [dev, test]"}},
	{"max_train_samples train_samples", Meant{Params: []string{"data.train_examples"}, Note: "which are chosen by a shuffle by seed"}},
	{"max_eval_samples max_val_samples", Meant{Params: []string{"eval.examples"}, Note: "which are chosen by a shuffle by seed"}},
	{"data_dir", Meant{Params: []string{"data.dir"}}},
	{"bf16 fp16 bf16_full_eval fp16_full_eval mixed_precision mixed_precision_dtype half_precision_backend", Meant{Note: "the precision is that of the export"}},
	{"jit_compile enable_xla torch_compile", Meant{Note: "whether XLA compiles the graph is part of the export"}},
	{"optim optimizer.name optimizer.type optimizer_type", Meant{Note: "the optimizer is that of the export"}},
	{"loss", Meant{Note: "the loss is that of the export"}},
	// Batches.
	{"per_device_train_batch_size per_gpu_train_batch_size", Meant{Params: []string{"train.batch_size"}, Note: "of all devices and micro-batches together"}},
	{"global_batch_size train_batch_size train_data.global_batch_size", Meant{Params: []string{"train.batch_size"}}},
	{"rampup_batch_size", Meant{Params: []string{"train.batch_warmup"}, Note: "whose sizes are by steps"}},
	{"per_device_eval_batch_size per_gpu_eval_batch_size", Meant{Params: []string{"eval.batch_size"}, Note: "of all devices together"}},
	{"eval_batch_size validation_batch_size validation_data.global_batch_size", Meant{Params: []string{"eval.batch_size"}}},
	{"gradient_accumulation_steps", Meant{Params: []string{"strategy.accumulate"}, Note: "which divides train.batch_size"}},
	{"max_target_length", Meant{Params: []string{"data.target_row_length"}, Note: "with data.truncate=true to shorten longer targets"}},
	{"max_source_length", Meant{Params: []string{"data.row_length"}, Note: "with data.truncate=true to shorten longer examples"}},
	{"max_seq_length max_length", Meant{Params: []string{"data.row_length"}, Note: "with data.truncate=true to shorten longer examples"}},
	{"dataloader_num_workers", Meant{Params: []string{"data.readers"}}},
	{"dataloader_drop_last drop_last", Meant{Params: []string{"data.drop_remainder"}}},
	{"shuffle_buffer_size", Meant{Params: []string{"data.buffer"}}},
	{"mlm_probability", Meant{Params: []string{"data.mask_probability"}}},
	{"class_weight", Meant{Params: []string{"data.class_weights"}}},
	// How long, and what happens on the way.
	{"num_train_epochs num_epochs train_epochs", Meant{Params: []string{"train.epochs"}}},
	{"max_steps num_train_steps num_steps train_steps max_train_steps", Meant{Params: []string{"train.steps"}}},
	{"logging_steps log_steps", Meant{Params: []string{"train.steps_per_loop"}}},
	{"logging_strategy log", Meant{Params: []string{"train.steps_per_loop"}, Note: "a number of steps, or 0 for every epoch"}},
	{"logging_first_step", Meant{Params: []string{"train.log_first_step"}}},
	{"steps_per_execution", Meant{Params: []string{"train.steps_per_call"}}},
	{"eval_steps validation_interval eval.interval", Meant{Params: []string{"train.eval_interval"}}},
	{"eval_strategy evaluation_strategy", Meant{Params: []string{"train.eval_interval"}, Note: "a number of steps, 0 for every epoch or -2 for none"}},
	{"validation_freq", Meant{Params: []string{"train.eval_interval"}, Note: "in steps, or 0 for every epoch"}},
	{"eval_on_start", Meant{Params: []string{"eval.at_start"}}},
	{"validation_steps", Meant{Params: []string{"eval.steps"}}},
	{"predict_with_generate", Meant{Params: []string{"eval.generate.metrics"}, Note: "the scores to compute, such as bleu,rougeL"}},
	{"generation_max_length", Meant{Params: []string{"eval.generate.max_new_tokens"}, Note: "which does not count the prompt"}},
	{"generation_num_beams", Meant{Params: []string{"eval.generate.num_beams"}}},
	{"early_stopping_patience", Meant{Params: []string{"train.patience"}}},
	{"early_stopping_threshold", Meant{Params: []string{"train.min_delta"}}},
	{"save_steps checkpoint_interval save_freq", Meant{Params: []string{"checkpoint.interval"}}},
	{"save_strategy save", Meant{Params: []string{"checkpoint.interval"}, Note: "a number of steps, 0 to save with every evaluation, or -1 for the end alone, with checkpoint.best empty"}},
	{"save_total_limit", Meant{Params: []string{"checkpoint.max_to_keep"}}},
	{"metric_for_best_model best_checkpoint_eval_metric monitor", Meant{Params: []string{"checkpoint.best"}}},
	{"greater_is_better best_checkpoint_metric_comp", Meant{Params: []string{"checkpoint.best_mode"}, Note: "which is max or min"}},
	{"summary_interval", Meant{Params: []string{"summary.interval"}}},
	// The optimizer.
	{"lr initial_learning_rate", Meant{Params: []string{"optimizer.learning_rate"}}},
	{"lr_scheduler_type lr_scheduler lr_schedule learning_rate_schedule scheduler", Meant{Params: []string{"optimizer.schedule"}}},
	{"reduce_lr_on_plateau reducelronplateau", Meant{Params: []string{"optimizer.schedule"}, Value: "plateau"}},
	{"lr_scheduler_kwargs", Meant{Note: "each setting of a schedule is a param of its own, such as optimizer.power and optimizer.plateau.factor"}},
	{"min_lr lr_end min_learning_rate", Meant{Params: []string{"optimizer.end_learning_rate"}}},
	{"warmup num_warmup_steps", Meant{Params: []string{"optimizer.warmup_steps"}}},
	{"num_decay_steps", Meant{Params: []string{"optimizer.decay_steps"}}},
	{"decay_type", Meant{Params: []string{"optimizer.decay_shape"}}},
	{"warmup_proportion", Meant{Params: []string{"optimizer.warmup_ratio"}}},
	{"wd weight_decay_rate", Meant{Params: []string{"optimizer.weight_decay"}}},
	{"max_grad_norm gradient_clipping gradient_clip_norm global_clipnorm", Meant{Params: []string{"optimizer.clip_norm"}}},
	{"clipnorm", Meant{Params: []string{"optimizer.clip_norm"}, Note: "the norm of all gradients together"}},
	{"betas", Meant{Params: []string{"optimizer.hyperparameters.beta_1", "optimizer.hyperparameters.beta_2"}}},
	{"adam_beta1 beta1 beta_1", Meant{Params: []string{"optimizer.hyperparameters.beta_1"}}},
	{"adam_beta2 beta2 beta_2", Meant{Params: []string{"optimizer.hyperparameters.beta_2"}}},
	{"adam_epsilon epsilon eps", Meant{Params: []string{"optimizer.hyperparameters.epsilon"}}},
	{"label_smoothing_factor label_smoothing", Meant{Params: []string{"optimizer.hyperparameters.label_smoothing"}}},
	{"hidden_dropout_prob hidden_dropout", Meant{Params: []string{"optimizer.hyperparameters.hidden_dropout"}}},
	{"attention_probs_dropout_prob attention_dropout", Meant{Params: []string{"optimizer.hyperparameters.attention_dropout"}}},
	{"classifier_dropout", Meant{Params: []string{"optimizer.hyperparameters.classifier_dropout"}}},
	{"ema_momentum average_decay", Meant{Params: []string{"optimizer.ema"}}},
	{"swa swa_start swa_epoch_start", Meant{Params: []string{"optimizer.swa"}, Note: "the step from which on variables are averaged"}},
	{"use_ema", Meant{Params: []string{"optimizer.ema"}, Note: "the decay of the averages, such as 0.999"}},
	{"layerwise_lr_decay", Meant{Params: []string{"optimizer.layer_decay"}}},
	// Where.
	{"num_gpus n_gpu", Meant{Params: []string{"strategy.devices"}, Value: "gpu:NUMBER"}},
	{"use_cpu no_cuda", Meant{Params: []string{"strategy.devices"}, Value: "cpu"}},
	{"distribution_strategy", Meant{Params: []string{"strategy.name"}}},
}

// common are names that say nothing without their section.
var common = []string{"name", "dir", "train", "eval", "input", "enabled", "best", "interval", "steps", "power", "device"}

// MeantBy returns what was most likely meant by a name that no param has. It is what another trainer
// calls so, or else the param that is spelled so but for two letters, or that has the name in another
// section.
func MeantBy(name string) Meant {
	plain := strings.ReplaceAll(strings.ToLower(name), "-", "_")
	section, last := split(plain)
	for rest, more := plain, true; more; _, rest, more = strings.Cut(rest, ".") {
		for _, peer := range peers {
			if slices.Contains(strings.Fields(peer.names), rest) {
				peer.ours.ByPeer = true
				return peer.ours
			}
		}
	}
	for _, fits := range []func(of, own string) bool{
		func(of, _ string) bool { return section != "" && words.Closest(section, []string{of}) != "" },
		func(_, own string) bool { return !slices.Contains(common, own) && (section == "" || own == last) },
	} {
		named := make(map[string][]string)
		for _, p := range table {
			if of, own := split(p.Name); fits(of, own) {
				named[own] = append(named[own], p.Name)
			}
		}
		if found := named[words.Closest(last, slices.Sorted(maps.Keys(named)))]; len(found) == 1 {
			return Meant{Params: found}
		}
	}
	return Meant{}
}

// split returns the section of a name, if it has one, and the rest.
func split(name string) (section, last string) {
	i := strings.LastIndexByte(name, '.')
	return name[:max(i, 0)], name[i+1:]
}

// Unknown returns the error for a name that no param has, with what was most likely meant.
func Unknown(name string) error {
	return fmt.Errorf("there is no param %s%s", name, MeantBy(name).Hint(func(param, value string) string {
		if value == "" {
			return param
		}
		return param + "=" + value
	}))
}

// Hint returns the end of an error about the name, such as "; did you mean train.epochs?", or "" if
// nothing is known. say returns a param as it would be typed with a value, if there is one.
func (m Meant) Hint(say func(param, value string) string) string {
	switch {
	case len(m.Params) > 0:
		var said []string
		for _, param := range m.Params {
			said = append(said, say(param, m.Value))
		}
		ours := strings.Join(said, " and ")
		if m.Note != "" {
			ours += ", " + m.Note
		}
		return "; did you mean " + ours + "?"
	case m.Note != "":
		return "; " + m.Note
	}
	return ""
}
