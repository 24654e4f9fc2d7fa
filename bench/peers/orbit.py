"""Orbit with the Model Garden's BERT: its model, loss, loader and optimizer."""

from __future__ import annotations

from typing import Any

from harness import lines, plan
from peers import device, tfdata
from peers.base import ONEDNN, Variant, Worker

STEPS_PER_LOOP = 20


class Orbit(Worker):
    """An orbit.Controller that trains SentencePredictionTask, loops in the graph."""

    name = "orbit"
    venv = "tfm"
    variants = (
        Variant("default", "Orbit, Model Garden"),
        Variant("onednn", "Orbit, Model Garden, oneDNN on", ONEDNN, on=("cpu",)),
    )

    def strategy(self, job: plan.Job) -> Any:
        """Where the replicas live; the first that is asked of TensorFlow."""
        from official.common import distribute_utils

        return distribute_utils.get_distribution_strategy("one_device", num_gpus=int(job.gpu))

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Trains, a mark per loop."""
        import orbit
        import tensorflow as tf
        import tf_keras
        from official.modeling import optimization
        from official.nlp.configs import bert, encoders
        from official.nlp.tasks import sentence_prediction

        _ = bert
        device.tensorflow(job)
        strategy = self.strategy(job)
        report.info(tensorflow=tf.__version__, tf_keras=tf_keras.__version__)
        shape = job.shape
        encoder = encoders.BertEncoderConfig(
            vocab_size=plan.VOCAB,
            hidden_size=shape.hidden,
            num_layers=shape.layers,
            num_attention_heads=shape.heads,
            intermediate_size=shape.inner,
            hidden_activation="gelu",
            type_vocab_size=2,
            dropout_rate=plan.DROPOUT,
            attention_dropout_rate=plan.DROPOUT,
            max_position_embeddings=plan.POSITIONS,
        )
        config = sentence_prediction.SentencePredictionConfig(
            model=sentence_prediction.ModelConfig(
                num_classes=2,
                use_encoder_pooler=True,
                encoder=encoders.EncoderConfig(type="bert", bert=encoder),
            ),
            train_data=tfdata.garden(job),
        )
        optimizing = optimization.OptimizationConfig(
            {
                "optimizer": {
                    "type": "adamw",
                    "adamw": {
                        "weight_decay_rate": plan.WEIGHT_DECAY,
                        "gradient_clip_norm": plan.CLIP_NORM,
                        "exclude_from_weight_decay": ["LayerNorm", "layer_norm", "bias"],
                    },
                },
                "learning_rate": {
                    "type": "polynomial",
                    "polynomial": {
                        "initial_learning_rate": plan.LEARNING_RATE,
                        "end_learning_rate": 0.0,
                        "decay_steps": job.total_steps,
                    },
                },
                "warmup": {
                    "type": "polynomial",
                    "polynomial": {"power": 1, "warmup_steps": job.warmup_steps},
                },
            }
        )

        class Trainer(orbit.StandardTrainer):
            """The usual trainer of a Model Garden task."""

            def __init__(self) -> None:
                self.task = sentence_prediction.SentencePredictionTask(config)
                with strategy.scope():
                    self.model = self.task.build_model()
                    factory = optimization.OptimizerFactory(optimizing)
                    self.optimizer = factory.build_optimizer(factory.build_learning_rate())
                    self.metrics = self.task.build_metrics()
                    self.loss = tf_keras.metrics.Mean("training_loss")
                data = orbit.utils.make_distributed_dataset(
                    strategy, self.task.build_inputs, config.train_data
                )
                super().__init__(
                    data,
                    options=orbit.StandardTrainerOptions(
                        use_tf_function=True, use_tf_while_loop=True
                    ),
                )

            def train_loop_begin(self) -> None:
                for metric in (self.loss, *self.metrics):
                    metric.reset_states()

            def train_step(self, iterator: object) -> None:
                def step(inputs: object) -> None:
                    logs = self.task.train_step(
                        inputs, self.model, self.optimizer, metrics=self.metrics
                    )
                    self.loss.update_state(logs[self.task.loss])

                strategy.run(step, args=(next(iterator),))

            def train_loop_end(self) -> dict[str, float]:
                loss = float(self.loss.result())
                done = int(self.optimizer.iterations.numpy())
                device.tensorflow_done(job, done)
                report.step(done)
                return {"training_loss": loss}

        trainer = Trainer()
        controller = orbit.Controller(
            trainer=trainer,
            strategy=strategy,
            global_step=trainer.optimizer.iterations,
            steps_per_loop=STEPS_PER_LOOP,
        )
        # The first step alone, then the rest of the warm-up: loops of any length
        # share one trace.
        for until in (1, job.warm_steps, job.total_steps):
            controller.train(steps=until, checkpoint_at_completion=False)
