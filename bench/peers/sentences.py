"""sentence-transformers."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

from harness import lines, plan
from peers.base import Variant, Worker

LENGTH = 128
"""Tokens of a text at most."""
NEAREST = 10


class Sentences(Worker):
    """Trains vectors of texts on pairs, with the other texts of the batch as wrong ones.

    The job's data are train.json and dev.json: two lists of texts that go together, `first` and
    `second`. A mark is a step.
    """

    name = "sentence-transformers"
    venv = "st"
    variants = (Variant("train", ""), Variant("score", ""))

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Trains and saves, or scores the models in `models`, a folder each."""
        import sentence_transformers as st
        import transformers

        transformers.logging.set_verbosity_error()
        report.info(version=st.__version__)
        if job.variant == "score":
            pairs = json.loads(pathlib.Path(job.data, "dev.json").read_text())
            for name, folder in json.loads(job.options["models"]).items():
                model = st.SentenceTransformer(folder, device="cpu")
                report.info(model=name, recall=self._score(model, pairs))
            return
        self._train(job, report)

    def _train(self, job: plan.Job, report: lines.Reporter) -> None:
        import datasets
        import sentence_transformers as st
        import transformers
        from sentence_transformers.sentence_transformer import losses

        class Clock(transformers.TrainerCallback):
            """Tells of steps."""

            def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
                report.step(state.global_step)

        asked, out = job.options, os.path.join(job.scratch, "out")
        datasets.disable_progress_bars()
        transformers.set_seed(int(asked["seed"]))
        model = self.model(asked["weights"], job.scratch)
        if not job.steps:
            model.save(asked["into"])
            return
        arguments = st.SentenceTransformerTrainingArguments(
            output_dir=out,
            use_cpu=True,
            per_device_train_batch_size=job.batch,
            max_steps=job.steps,
            learning_rate=float(asked["learning_rate"]),
            weight_decay=plan.WEIGHT_DECAY,
            max_grad_norm=plan.CLIP_NORM,
            warmup_steps=max(1, round(job.steps * plan.WARMUP_RATIO)),
            lr_scheduler_type="linear",
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=int(asked["seed"]),
        )
        pairs = json.loads(pathlib.Path(job.data, "train.json").read_text())
        trainer = st.SentenceTransformerTrainer(
            model=model,
            args=arguments,
            train_dataset=datasets.Dataset.from_dict(pairs),
            loss=losses.MultipleNegativesRankingLoss(model),
            callbacks=[Clock()],
        )
        trainer.train()
        model.save(asked["into"])

    def model(self, weights: str, scratch: str) -> Any:
        """Returns the encoder of a folder of config.json, model.safetensors and vocab.txt."""
        import sentence_transformers as st
        import transformers
        from sentence_transformers.sentence_transformer import modules

        first = os.path.join(scratch, "first")
        transformers.AutoModel.from_pretrained(weights).save_pretrained(first)
        transformers.BertTokenizerFast(os.path.join(weights, "vocab.txt")).save_pretrained(first)
        encoder = modules.Transformer(first, max_seq_length=LENGTH)
        mean = modules.Pooling(encoder.get_embedding_dimension(), pooling_mode="mean")
        return st.SentenceTransformer(modules=[encoder, mean, modules.Normalize()], device="cpu")

    def _score(self, model: Any, pairs: dict[str, list[str]]) -> float:
        texts = sorted(set(pairs["second"]))
        at = {text: i for i, text in enumerate(texts)}
        vectors = (
            model.encode(which, batch_size=32, normalize_embeddings=True, show_progress_bar=False)
            for which in (pairs["first"], texts)
        )
        return recall(*vectors, [at[text] for text in pairs["second"]])


def recall(queries: Any, texts: Any, answers: list[int], nearest: int = NEAREST) -> float:
    """Returns the share of queries whose answer is among the nearest texts.

    Args:
        queries: a vector of length 1 each.
        texts: the same, of different texts.
        answers: the number of the text of each query.
        nearest: how many texts count; of two at the same distance, the answer is the farther one.
    """
    import numpy as np

    scores = np.asarray(queries) @ np.asarray(texts).T
    own = scores[np.arange(len(answers)), answers]
    nearer = (scores >= own[:, None]).sum(axis=1)  # with itself
    return float((nearer <= nearest).mean())
