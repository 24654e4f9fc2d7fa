"""Hugging Face: the Trainer, the pipeline, and a plain forward pass."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from harness import lines, plan
from peers import device
from peers.base import Variant, Worker


class Trainer(Worker):
    """transformers.Trainer, batches padded to their longest example."""

    name = "hf"
    venv = "hf"
    variants = (
        Variant("longest", "Hugging Face Trainer, padded to the longest"),
        Variant("grouped", "Hugging Face Trainer, group_by_length"),
    )

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Trains, a mark per step with the tokens of its batch."""
        import datasets
        import torch
        import transformers

        device.torch(job)
        report.info(torch=torch.__version__, transformers=transformers.__version__)
        transformers.logging.set_verbosity_error()
        datasets.disable_progress_bars()
        with open(os.path.join(job.data, self.examples)) as file:
            data = datasets.Dataset.from_dict(json.load(file))
        tokenizer, pad, model = self.parts(job)
        tokens: list[int] = []

        def collate(features: list[dict[str, Any]]) -> dict[str, Any]:
            batch = pad(features)
            tokens.append(int(batch["attention_mask"].sum()))
            return batch

        class Clock(transformers.TrainerCallback):
            """Reports the end of every step."""

            def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
                device.torch_done(job, state.global_step)
                # The loader may have made batches ahead.
                report.step(state.global_step, tokens[state.global_step - 1])

            def on_log(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
                if "loss" in (told := rest["logs"]):
                    report.info(**{f"loss_{state.global_step}": float(told["loss"])})

        every = int(job.options.get("losses", 0))
        grouped = job.variant != "longest"

        class Timed(transformers.Trainer):
            """The Trainer; what is timed of grouped batches is spread over their lengths."""

            def _get_train_sampler(self, *args: Any, **kwargs: Any) -> Any:
                sampler = super()._get_train_sampler(*args, **kwargs)
                if not grouped:
                    return sampler
                return Spread(sampler, job.steps, len(data), job.warm_steps)

        arguments = transformers.TrainingArguments(
            output_dir=os.path.join(job.scratch, "out"),
            use_cpu=not job.gpu,
            per_device_train_batch_size=job.batch,
            max_steps=job.total_steps,
            learning_rate=float(job.options.get("learning_rate", plan.LEARNING_RATE)),
            weight_decay=plan.WEIGHT_DECAY,
            max_grad_norm=plan.CLIP_NORM,
            warmup_steps=job.warmup_steps,
            lr_scheduler_type="linear",
            logging_strategy="steps" if every else "no",
            logging_steps=every or 500,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            train_sampling_strategy="group_by_length" if grouped else "random",
            bf16="bf16" in job.variant,
            torch_compile="compiled" in job.variant,
            seed=42,
        )
        trainer = Timed(
            model=model,
            args=arguments,
            train_dataset=data,
            data_collator=collate,
            processing_class=tokenizer,
            callbacks=[Clock()],
        )
        trainer.train()

    examples = "examples.json"

    def parts(self, job: plan.Job) -> tuple[Any, Any, Any]:
        """Returns the tokenizer, the collator and the model."""
        import transformers

        tokenizer = _tokenizer(job.scratch)
        model = transformers.BertForSequenceClassification(_config(job))
        return tokenizer, transformers.DataCollatorWithPadding(tokenizer), model


class Settings(Trainer):
    """transformers.Trainer by torch.compile, whose inductor writes C++ here, and in bf16."""

    name = "hf-settings"
    variants = (
        Variant("compiled", "Hugging Face Trainer, group_by_length, compiled", on=("cpu",)),
        Variant("bf16", "Hugging Face Trainer, group_by_length, bf16", on=("cpu",)),
        Variant(
            "compiled-bf16", "Hugging Face Trainer, group_by_length, compiled, bf16", on=("cpu",)
        ),
    )


class MaskedTrainer(Trainer):
    """transformers.Trainer on blocks of text, with its collator of masked tokens."""

    name = "hf-mlm"
    variants = (Variant("longest", "Hugging Face Trainer"),)
    examples = "blocks.json"

    def parts(self, job: plan.Job) -> tuple[Any, Any, Any]:
        """Returns the tokenizer, the collator, and the model, with weights if the job has some."""
        import transformers

        transformers.set_seed(1)
        tokenizer = transformers.BertTokenizerFast(job.options["vocab"])
        masked = transformers.DataCollatorForLanguageModeling(
            tokenizer, mlm_probability=plan.MASKED
        )
        made = transformers.BertForMaskedLM
        if weights := job.options.get("weights"):
            return tokenizer, masked, made.from_pretrained(weights)
        return tokenizer, masked, made(_config(job))


class Spread:
    """Takes batches at even distances out of a sampler that sorts by length.

    Such a sampler deals with some 30 to 50 batches at a time and begins with the longest
    examples. A few steps from its start would be the longest there are, and their
    neighbours in length no measure of how well the others go together.
    """

    def __init__(
        self, sampler: Any, timed: int, examples: int, warm: int, batch: int = plan.BATCH
    ) -> None:
        """Wraps a sampler of transformers' LengthGroupedSampler."""
        self._sampler, self._timed, self._warm, self._batch = sampler, timed, warm, batch
        # The sampler's own rule for how many batches it sorts together.
        self._group = max(1, min(examples // (batch * 4), 50))

    def __len__(self) -> int:
        """As many examples as the sampler has."""
        return len(self._sampler)

    def __iter__(self) -> Iterator[int]:
        """Yields the indices of examples."""
        if self._timed >= self._group:
            return iter(self._sampler)
        order = list(self._sampler)
        size = self._batch
        batches = [order[i : i + size] for i in range(0, len(order), size)]
        chosen = list(spread(self._group, self._timed))
        first = chosen[: self._warm] or [0]
        warm = list(itertools.islice(itertools.cycle(first), self._warm))
        picked = [batches[i] for i in (*warm, *chosen)]
        rest = [b for i, b in enumerate(batches) if i not in chosen]
        return itertools.chain.from_iterable(picked + rest)


def spread(group: int, count: int) -> Iterator[int]:
    """Yields `count` numbers below `group` at even distances."""
    for i in range(count):
        yield (2 * i + 1) * group // (2 * count)


class Predict(Worker):
    """Classifies pairs of texts with the weights that gorbit has."""

    name = "hf-predict"
    venv = "hf"
    variants = (
        Variant("single", "Hugging Face pipeline, one at a time, its default"),
        Variant("pipeline", "Hugging Face pipeline, batches of 32"),
        Variant("forward", "Hugging Face tokenizer and model, batches of 32"),
    )

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Answers every pair and reports the mean of the scores."""
        import torch
        import transformers

        where = device.torch(job)
        report.info(torch=torch.__version__, transformers=transformers.__version__)
        with open(job.options["pairs"], encoding="utf-8") as file:
            pairs = [tuple(line.rstrip("\n").split("\t")) for line in file]
        tokenizer = transformers.BertTokenizerFast(job.options["vocab"], model_max_length=128)
        model = transformers.BertForSequenceClassification.from_pretrained(job.options["weights"])
        model.eval().to(where)
        scores: list[float] = []
        if job.variant != "forward":
            size = 1 if job.variant == "single" else plan.BATCH
            pipe = transformers.pipeline(
                "text-classification", model=model, tokenizer=tokenizer, device=where
            )
            asked = ({"text": a, "text_pair": b} for a, b in pairs)
            scores += [answer["score"] for answer in pipe(asked, batch_size=size, truncation=True)]
        else:
            with torch.inference_mode():
                for i in range(0, len(pairs), plan.BATCH):
                    first, second = zip(*pairs[i : i + plan.BATCH])
                    batch = tokenizer(
                        list(first),
                        list(second),
                        truncation=True,
                        padding=True,
                        return_tensors="pt",
                    ).to(where)
                    scores += model(**batch).logits.softmax(-1).max(-1).values.tolist()
        report.info(**lines.answers(scores).values)


class Quality(Worker):
    """Fine-tunes pretrained weights with the Trainer and reports accuracy and F1."""

    name = "hf-quality"
    venv = "hf"
    variants = (Variant("quality", ""),)

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Trains on data/train.json and evaluates on data/dev.json."""
        import datasets
        import transformers

        datasets.disable_progress_bars()
        asked = job.options
        train, dev = (
            datasets.Dataset.from_dict(
                json.loads(pathlib.Path(job.data, f"{split}.json").read_text())
            )
            for split in ("train", "dev")
        )
        transformers.set_seed(int(asked["seed"]))
        task = asked.get("task", "")
        made = transformers.BertForSequenceClassification
        pad, score = transformers.DataCollatorWithPadding, classes
        if task == "tokens":
            made = transformers.BertForTokenClassification
            pad, score = transformers.DataCollatorForTokenClassification, tokens
        elif task == "regression":
            score = correlation
        model = made.from_pretrained(asked["weights"], num_labels=int(asked.get("labels", 2)))
        tokenizer = _tokenizer(job.scratch)
        steps = -(-len(train) // plan.BATCH) * int(asked["epochs"])
        trainer = transformers.Trainer(
            model=model,
            args=transformers.TrainingArguments(
                output_dir=os.path.join(job.scratch, "out"),
                use_cpu=True,
                per_device_train_batch_size=plan.BATCH,
                num_train_epochs=int(asked["epochs"]),
                learning_rate=float(asked["learning_rate"]),
                weight_decay=plan.WEIGHT_DECAY,
                max_grad_norm=plan.CLIP_NORM,
                warmup_steps=max(1, round(steps * plan.WARMUP_RATIO)),
                lr_scheduler_type="linear",
                eval_strategy="epoch",
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                disable_tqdm=True,
                seed=int(asked["seed"]),
            ),
            train_dataset=train,
            eval_dataset=dev,
            data_collator=pad(tokenizer),
            processing_class=tokenizer,
            compute_metrics=score,
        )
        speed = trainer.train().metrics["train_samples_per_second"]
        told = trainer.state.log_history
        last = next(entry for entry in reversed(told) if "eval_loss" in entry)
        names = ("eval_accuracy", "eval_f1", "eval_pearson", "eval_spearman")
        found = {name.removeprefix("eval_"): last[name] for name in names if name in last}
        report.info(**found, examples_per_s=speed)


def classes(told: Any) -> dict[str, float]:
    """The scores of a classifier."""
    return scores(told.predictions.argmax(-1).tolist(), told.label_ids.tolist())


def tokens(told: Any) -> dict[str, float]:
    """The accuracy of the tokens that count."""
    right = told.predictions.argmax(-1) == told.label_ids
    return {"accuracy": float(right[told.label_ids >= 0].mean())}


def correlation(told: Any) -> dict[str, float]:
    """Pearson's and Spearman's correlation."""
    import scipy.stats

    pair = told.predictions.reshape(-1), told.label_ids.reshape(-1)
    pearson, spearman = scipy.stats.pearsonr(*pair), scipy.stats.spearmanr(*pair)
    return {"pearson": float(pearson.statistic), "spearman": float(spearman.statistic)}


def scores(answers: Sequence[int], labels: Sequence[int]) -> dict[str, float]:
    """Accuracy, and F1 of label 1."""
    pairs = list(zip(answers, labels, strict=True))
    hits = pairs.count((1, 1))
    wrong = pairs.count((0, 1)) + pairs.count((1, 0))
    return {
        "accuracy": sum(a == b for a, b in pairs) / len(pairs),
        "f1": 2 * hits / (2 * hits + wrong) if hits else 0.0,
    }


class Pretrain(Worker):
    """Pretrains a BERT of a configuration with the Trainer, and saves it with its first weights.

    The job's data are blocks.json and dev.json. A mark is a step; an info after each evaluation has
    the step, the seconds since the process began without those of evaluations, and the loss.
    """

    name = "hf-pretrain"
    venv = "hf"
    variants = (Variant("pretrain", ""),)

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Trains for the job's steps, or saves the first weights if there are none."""
        import time

        begun = time.monotonic()
        import datasets
        import transformers

        datasets.disable_progress_bars()
        transformers.logging.set_verbosity_error()
        asked = job.options
        if not job.steps:
            transformers.set_seed(int(asked["seed"]))
            config = transformers.BertConfig.from_pretrained(asked["config"])
            transformers.BertForMaskedLM(config).save_pretrained(asked["weights"])
            return
        blocks, dev = (
            datasets.Dataset.from_dict(json.loads(pathlib.Path(job.data, name).read_text()))
            for name in ("blocks.json", "dev.json")
        )
        transformers.set_seed(int(asked["seed"]))
        tokenizer = transformers.BertTokenizerFast(asked["vocab"])
        masked = transformers.DataCollatorForLanguageModeling(
            tokenizer, mlm_probability=plan.MASKED
        )
        evaluating = 0.0

        class Clock(transformers.TrainerCallback):
            """Tells of steps and evaluations."""

            def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
                self.ended = time.monotonic()
                report.step(state.global_step)

            def on_evaluate(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
                nonlocal evaluating
                seconds = self.ended - begun - evaluating
                evaluating += time.monotonic() - self.ended
                loss = float(rest["metrics"]["eval_loss"])
                report.info(step=state.global_step, seconds=seconds, loss=loss)

        every = int(asked["every"])
        trainer = transformers.Trainer(
            model=transformers.BertForMaskedLM.from_pretrained(asked["weights"]),
            args=transformers.TrainingArguments(
                output_dir=os.path.join(job.scratch, "out"),
                use_cpu=True,
                per_device_train_batch_size=job.batch,
                max_steps=job.steps,
                learning_rate=float(asked["learning_rate"]),
                weight_decay=plan.WEIGHT_DECAY,
                max_grad_norm=plan.CLIP_NORM,
                warmup_steps=max(1, round(job.steps * plan.WARMUP_RATIO)),
                lr_scheduler_type="linear",
                eval_strategy="steps" if every else "no",
                eval_steps=every or None,
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                disable_tqdm=True,
                seed=int(asked["seed"]),
            ),
            train_dataset=blocks,
            eval_dataset=dev,
            data_collator=masked,
            processing_class=tokenizer,
            callbacks=[Clock()],
        )
        trainer.train()
        if into := asked.get("into"):
            trainer.model.save_pretrained(into)


class Weights(Worker):
    """Writes a model with random weights, for gorbit and Hugging Face to begin with."""

    name = "hf-weights"
    venv = "hf"
    variants = (Variant("weights", ""),)

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Saves config.json and model.safetensors into the folder `weights`."""
        import torch
        import transformers

        torch.manual_seed(0)
        model = transformers.BertForSequenceClassification(_config(job))
        model.save_pretrained(job.options["weights"])


def _config(job: plan.Job) -> Any:
    import transformers

    return transformers.BertConfig(
        vocab_size=plan.VOCAB,
        hidden_size=job.shape.hidden,
        num_hidden_layers=job.shape.layers,
        num_attention_heads=job.shape.heads,
        intermediate_size=job.shape.inner,
        hidden_dropout_prob=plan.DROPOUT,
        attention_probs_dropout_prob=plan.DROPOUT,
        max_position_embeddings=plan.POSITIONS,
        num_labels=2,
    )


def _tokenizer(scratch: str) -> Any:
    """A tokenizer that can only pad."""
    import transformers

    path = os.path.join(scratch, "vocab.txt")
    with open(path, "w") as file:
        file.write("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    return transformers.BertTokenizerFast(path)
