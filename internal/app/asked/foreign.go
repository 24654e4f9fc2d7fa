package asked

import (
	"fmt"
	"strings"
)

// foreign are the arguments of generate in transformers for which there is no flag, with what there is in their
// place; "" is nothing.
var foreign = map[string]string{
	"assistant_confidence_threshold": "", "assistant_early_exit": "", "assistant_lookbehind": "",
	"bad_words_ids":                    "the model's generation_config.json is asked for them when it is exported",
	"begin_suppress_tokens":            "",
	"cache_implementation":             "caches are made in advance, see --cache-tokens",
	"constraints":                      "",
	"decoder_start_token_id":           "the model's config.json says it when it is exported",
	"diversity_penalty":                "--num-beams and --temperature",
	"dola_layers":                      "",
	"encoder_no_repeat_ngram_size":     "--no-repeat-ngram-size, which does not see the source",
	"encoder_repetition_penalty":       "--repetition-penalty, which does not see the source",
	"eos_token_id":                     "--eos-token",
	"epsilon_cutoff":                   "--min-p",
	"eta_cutoff":                       "--min-p or --typical-p",
	"exponential_decay_length_penalty": "--length-penalty and --max-new-tokens",
	"force_words_ids":                  "",
	"forced_bos_token_id":              "the model's generation_config.json is asked for it when it is exported",
	"forced_decoder_ids":               "",
	"forced_eos_token_id":              "the model's generation_config.json is asked for it when it is exported",
	"generation_config":                "flags of the same names",
	"guidance_scale":                   "",
	"max_time":                         "--max-new-tokens",
	"num_beam_groups":                  "--num-beams",
	"penalty_alpha":                    "--repetition-penalty and --no-repeat-ngram-size",
	"prompt_lookup_num_tokens":         "",
	"remove_invalid_values":            "logits that are no numbers are an error",
	"renormalize_logits":               "",
	"sequence_bias":                    "",
	"stop_strings":                     "--stop",
	"suppress_tokens":                  "",
	"token_healing":                    "",
	"top_h":                            "--min-p or --typical-p",
	"use_cache":                        "caches are always used",
	"watermarking_config":              "",
}

// Foreign returns what to add to an error about an unknown flag that is an argument of generate in transformers;
// "" if it is none.
func Foreign(flag string) string {
	name := strings.ReplaceAll(flag, "-", "_")
	instead, ok := foreign[name]
	switch {
	case !ok:
		return ""
	case instead == "":
		return fmt.Sprintf("; gorbit has no %s of transformers", name)
	}
	return fmt.Sprintf("; gorbit has no %s of transformers, but this: %s", name, instead)
}
