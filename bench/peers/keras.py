"""Keras 3: fit on keras-hub's BertTextClassifier, TensorFlow as its backend."""

from __future__ import annotations

import json
import math
import os
from typing import Any

from harness import lines, plan
from peers import device, tfdata
from peers.base import ONEDNN, Variant, Worker


class Fit(Worker):
    """model.fit with a tf.data pipeline that parses whole batches."""

    name = "keras"
    venv = "keras"
    variants = (
        Variant("default", "Keras 3 fit", on=("cpu",)),
        Variant("onednn", "Keras 3 fit, oneDNN on", ONEDNN, on=("cpu",)),
        # What "auto", the default, comes to where there is a GPU.
        Variant("xla", "Keras 3 fit, with XLA as by default", on=("gpu",)),
        Variant("plain", "Keras 3 fit, without XLA", on=("gpu",)),
    )

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Trains, a mark per step."""
        import keras
        import keras_hub
        import tensorflow as tf

        device.tensorflow(job)
        report.info(
            tensorflow=tf.__version__, keras=keras.__version__, keras_hub=keras_hub.__version__
        )
        total, warm = job.total_steps, job.warmup_steps
        rate = float(job.options.get("learning_rate", plan.LEARNING_RATE))
        every = int(job.options.get("losses", 0))
        data, model, metrics = self.parts(job)

        class WarmedLinear(keras.optimizers.schedules.LearningRateSchedule):
            """Linear warmup, then linear decay to zero."""

            def __call__(self, step: Any) -> Any:
                step = keras.ops.cast(step, "float32")
                rising = (step + 1) / warm
                falling = keras.ops.maximum(0.0, (total - step) / (total - warm))
                return rate * keras.ops.minimum(rising, falling)

        optimizer = keras.optimizers.AdamW(
            WarmedLinear(), weight_decay=plan.WEIGHT_DECAY, global_clipnorm=plan.CLIP_NORM
        )
        optimizer.exclude_from_weight_decay(var_names=["bias", "beta", "gamma"])
        model.compile(
            optimizer=optimizer,
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            weighted_metrics=metrics,
            jit_compile=False if job.variant == "plain" else "auto",
        )

        class Clock(keras.callbacks.Callback):
            """Reports the end of every step."""

            def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
                device.tensorflow_done(job, batch + 1)
                report.step(batch + 1)
                if every and (batch + 1) % every == 0:
                    report.info(**{f"loss_{batch + 1}": float(logs["loss"])})
                    self.model.reset_metrics()

        model.fit(data, steps_per_epoch=total, epochs=1, verbose=0, callbacks=[Clock()])

    def parts(self, job: plan.Job) -> tuple[Any, Any, list[str]]:
        """Returns batches, the model, and the names of its metrics."""
        import keras_hub

        def arrange(parsed: dict[str, Any]) -> tuple[dict[str, Any], Any]:
            features = {
                "token_ids": parsed["input_ids"],
                "segment_ids": parsed["segment_ids"],
                "padding_mask": parsed["input_mask"],
            }
            return features, parsed["label_ids"]

        model = keras_hub.models.BertTextClassifier(
            backbone=backbone(job), num_classes=2, preprocessor=None, dropout=plan.DROPOUT
        )
        return tfdata.batched(job, arrange), model, ["accuracy"]


class MaskedFit(Fit):
    """model.fit on keras-hub's BertMaskedLM, whose layer draws the masks in the pipeline."""

    name = "keras-mlm"
    variants = tuple(
        Variant(v.name, v.title, v.env, v.on) for v in Fit.variants if v.on == ("cpu",)
    )

    def parts(self, job: plan.Job) -> tuple[Any, Any, list[str]]:
        """Returns batches, the model, and no metrics, which would need the head a second time."""
        import keras_hub
        import tensorflow as tf

        masker = keras_hub.layers.MaskedLMMaskGenerator(
            plan.VOCAB,
            mask_selection_rate=plan.MASKED,
            mask_token_id=103,
            mask_selection_length=math.ceil(plan.MASKED * plan.LENGTH),
            unselectable_token_ids=[0, 101, 102],
        )
        with open(os.path.join(job.data, "blocks.json")) as file:
            columns = json.load(file)

        def arrange(blocks: dict[str, Any]) -> tuple[dict[str, Any], Any, Any]:
            masked = masker(blocks["input_ids"])
            features = {
                "token_ids": masked["token_ids"],
                "mask_positions": masked["mask_positions"],
                "segment_ids": blocks["token_type_ids"],
                "padding_mask": blocks["attention_mask"],
            }
            return features, masked["mask_ids"], masked["mask_weights"]

        data = (
            tf.data.Dataset.from_tensor_slices(columns)
            .repeat()
            .shuffle(1000, seed=1)
            .batch(job.batch, drop_remainder=True)
            .map(arrange, num_parallel_calls=tf.data.AUTOTUNE)
            .prefetch(tf.data.AUTOTUNE)
        )
        model = keras_hub.models.BertMaskedLM(backbone(job), preprocessor=None)
        return data, model, []


def backbone(job: plan.Job) -> Any:
    """Returns the encoder of a job's size."""
    import keras_hub

    shape = job.shape
    return keras_hub.models.BertBackbone(
        vocabulary_size=plan.VOCAB,
        num_layers=shape.layers,
        num_heads=shape.heads,
        hidden_dim=shape.hidden,
        intermediate_dim=shape.inner,
        dropout=plan.DROPOUT,
        max_sequence_length=plan.POSITIONS,
        num_segments=2,
    )
