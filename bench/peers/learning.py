"""Hugging Face's Trainer and Seq2SeqTrainer on models that make texts, with gorbit's records."""

from __future__ import annotations

import glob
import json
import os
import pathlib
import time
from typing import Any

from harness import lines, plan
from peers.base import Variant, Worker
from peers.hf import Spread

IGNORED = -100
"""The label that has no loss."""


class Columns(Worker):
    """Writes gorbit's records as columns for the Trainer: DATA/SPLIT.json for each split.

    A target of an encoder-decoder model is the labels. A block of a causal one has none.
    """

    name = "columns"
    venv = ""
    variants = (Variant("columns", ""),)

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Reads the folder `records` and writes into job.data; reports tokens of each split."""
        import tensorflow as tf

        records = job.options["records"]
        for split in job.options["splits"].split(","):
            files = sorted(glob.glob(os.path.join(records, f"{split}-*.tfrecord")))
            if not files:
                raise ValueError(f"{records} has no files of the split {split}")
            columns: dict[str, list[list[int]]] = {}
            for record in tf.data.TFRecordDataset(files).as_numpy_iterator():
                feature = tf.train.Example.FromString(record).features.feature
                for name, column in (("input_ids", "input_ids"), ("target_ids", "labels")):
                    if name in feature:
                        values = list(feature[name].int64_list.value)
                        columns.setdefault(column, []).append(values)
            rows = columns["input_ids"]
            columns["attention_mask"] = [[1] * len(row) for row in rows]
            pathlib.Path(job.data, f"{split}.json").write_text(json.dumps(columns))
            counts = {
                name: sum(map(len, columns.get(name, []))) for name in ("input_ids", "labels")
            }
            about = {"examples": len(rows), "sources": counts["input_ids"]}
            about["targets"] = counts["labels"]
            pathlib.Path(job.data, f"{split}.about.json").write_text(json.dumps(about))


class First(Worker):
    """Writes the first weights of a configuration, for both libraries to begin with."""

    name = "first-weights"
    venv = "hf"
    variants = (Variant("weights", ""),)

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Saves the model of the file `config` into the folder `weights`."""
        import transformers

        transformers.set_seed(int(job.options.get("seed", 1)))
        made(job.options["config"]).save_pretrained(job.options["weights"])


def made(config: str) -> Any:
    """Returns the model of a config.json, with random weights."""
    import transformers

    about = transformers.AutoConfig.from_pretrained(config)
    kind = (
        transformers.AutoModelForSeq2SeqLM
        if about.is_encoder_decoder
        else transformers.AutoModelForCausalLM
    )
    return kind.from_config(about)


class Learn(Worker):
    """Trains, a mark per step with the tokens of its batch.

    The option `weights` is a folder of first weights, `into` one for the last, and `evaluate` how
    many examples of the split `split` to generate texts for at the end, by predict_with_generate.
    """

    name = "hf-learn"
    venv = "hf"
    variants = (
        Variant("longest", "Hugging Face, padded to the longest", on=("cpu",)),
        Variant("grouped", "Hugging Face, group_by_length", on=("cpu",)),
    )

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Trains for the job's steps."""
        import datasets
        import torch
        import transformers

        report.info(torch=torch.__version__, transformers=transformers.__version__)
        transformers.logging.set_verbosity_error()
        datasets.disable_progress_bars()
        asked, grouped = job.options, job.variant == "grouped"
        data = read(job, "train")
        weights = asked["weights"]
        config = transformers.AutoConfig.from_pretrained(weights)
        # A causal model need not name its padding, which nothing sees.
        seq2seq, pad = config.is_encoder_decoder, getattr(config, "pad_token_id", None) or 0
        kind = transformers.AutoModelForSeq2SeqLM if seq2seq else transformers.AutoModelForCausalLM
        model = kind.from_pretrained(weights)
        tokens: list[int] = []

        def collate(features: list[dict[str, Any]]) -> dict[str, Any]:
            batch = padded(features, pad)
            if seq2seq:
                batch["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(
                    labels=batch["labels"]
                )
                counted = batch["attention_mask"].sum() + (batch["labels"] != IGNORED).sum()
            else:
                counted = batch["attention_mask"].sum()
            tokens.append(int(counted))
            return batch

        class Clock(transformers.TrainerCallback):
            """Reports the end of every step."""

            def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
                report.step(state.global_step, tokens[state.global_step - 1])

        base = transformers.Seq2SeqTrainer if seq2seq else transformers.Trainer
        timed = bool(asked.get("timed"))

        class Timed(base):
            """The Trainer; what is timed of grouped batches is spread over their lengths."""

            def _get_train_sampler(self, *args: Any, **kwargs: Any) -> Any:
                sampler = super()._get_train_sampler(*args, **kwargs)
                if not (grouped and timed):
                    return sampler
                return Spread(sampler, job.steps, len(data), job.warm_steps, job.batch)

        total = job.total_steps if timed else job.steps
        common = {
            "output_dir": os.path.join(job.scratch, "out"),
            "use_cpu": True,
            "per_device_train_batch_size": job.batch,
            "per_device_eval_batch_size": int(asked.get("eval_batch", job.batch)),
            "max_steps": max(1, total),
            "learning_rate": float(asked.get("learning_rate", plan.LEARNING_RATE)),
            "weight_decay": plan.WEIGHT_DECAY,
            "max_grad_norm": plan.CLIP_NORM,
            "warmup_steps": max(1, round(total * plan.WARMUP_RATIO)),
            "lr_scheduler_type": "linear",
            "logging_strategy": "no",
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "train_sampling_strategy": "group_by_length" if grouped else "random",
            "seed": int(asked.get("seed", 1)),
        }
        if seq2seq:
            common |= {"predict_with_generate": True}
            arguments = transformers.Seq2SeqTrainingArguments(**common)
        else:
            arguments = transformers.TrainingArguments(**common)
        trainer = Timed(
            model=model,
            args=arguments,
            train_dataset=data,
            data_collator=collate,
            callbacks=[Clock()],
        )
        if total:
            trainer.train()
        if into := asked.get("into"):
            model.save_pretrained(into)
        if "evaluate" in asked:
            self.evaluate(job, report, trainer)

    def evaluate(self, job: plan.Job, report: lines.Reporter, trainer: Any) -> None:
        """Evaluates by generation and reports the seconds and the number of texts."""
        asked = job.options
        data = read(job, asked["split"])
        some = data.select(range(min(int(asked["evaluate"]), len(data))))
        new, beams = int(asked["max_new_tokens"]), int(asked["beams"])
        began = time.perf_counter()
        told = trainer.predict(some, max_new_tokens=new, num_beams=beams)
        report.info(answers=len(told.predictions), evaluating_s=time.perf_counter() - began)


class Scores(Learn):
    """An evaluation without a training before it."""

    name = "hf-scores"
    variants = (
        Variant("longest", "Hugging Face Seq2SeqTrainer, predict_with_generate", on=("cpu",)),
    )


def read(job: plan.Job, split: str) -> Any:
    """Returns the examples of a split as a dataset."""
    import datasets

    with open(os.path.join(job.data, f"{split}.json")) as file:
        return datasets.Dataset.from_dict(json.load(file))


def padded(features: list[dict[str, Any]], pad: int) -> dict[str, Any]:
    """Returns a batch padded to the longest; padding has no loss.

    Without labels they are the tokens themselves, as of a causal language model.
    """
    import torch

    labels = "labels" if "labels" in features[0] else "input_ids"
    wanted = (("input_ids", "input_ids", pad), ("attention_mask", "attention_mask", 0))
    wanted += (("labels", labels, IGNORED),)
    return {name: torch.tensor(column(features, of, filler)) for name, of, filler in wanted}


def column(features: list[dict[str, Any]], name: str, filler: int) -> list[list[int]]:
    """Returns a column of examples, filled up to the longest."""
    longest = max(len(feature[name]) for feature in features)
    return [feature[name] + [filler] * (longest - len(feature[name])) for feature in features]
