"""Keras 3: fit on keras-hub's BertTextClassifier, TensorFlow as its backend."""

from __future__ import annotations

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
        shape, total, warm = job.shape, job.total_steps, job.warmup_steps

        def arrange(parsed: dict[str, Any]) -> tuple[dict[str, Any], Any]:
            features = {
                "token_ids": parsed["input_ids"],
                "segment_ids": parsed["segment_ids"],
                "padding_mask": parsed["input_mask"],
            }
            return features, parsed["label_ids"]

        data = tfdata.batched(job, arrange)
        model = keras_hub.models.BertTextClassifier(
            backbone=keras_hub.models.BertBackbone(
                vocabulary_size=plan.VOCAB,
                num_layers=shape.layers,
                num_heads=shape.heads,
                hidden_dim=shape.hidden,
                intermediate_dim=shape.inner,
                dropout=plan.DROPOUT,
                max_sequence_length=plan.POSITIONS,
                num_segments=2,
            ),
            num_classes=2,
            preprocessor=None,
            dropout=plan.DROPOUT,
        )

        class WarmedLinear(keras.optimizers.schedules.LearningRateSchedule):
            """Linear warmup, then linear decay to zero."""

            def __call__(self, step: Any) -> Any:
                step = keras.ops.cast(step, "float32")
                rising = (step + 1) / warm
                falling = keras.ops.maximum(0.0, (total - step) / (total - warm))
                return plan.LEARNING_RATE * keras.ops.minimum(rising, falling)

        optimizer = keras.optimizers.AdamW(
            WarmedLinear(), weight_decay=plan.WEIGHT_DECAY, global_clipnorm=plan.CLIP_NORM
        )
        optimizer.exclude_from_weight_decay(var_names=["bias", "beta", "gamma"])
        model.compile(
            optimizer=optimizer,
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            jit_compile=False if job.variant == "plain" else "auto",
        )

        class Clock(keras.callbacks.Callback):
            """Reports the end of every step."""

            def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
                device.tensorflow_done(job, batch + 1)
                report.step(batch + 1)

        model.fit(data, steps_per_epoch=total, epochs=1, verbose=0, callbacks=[Clock()])
