"""A user's model as a Task."""

from __future__ import annotations

import contextlib
import dataclasses
import keyword
import re
from collections.abc import Iterator
from typing import Any, Callable

import keras
import numpy as np
import tensorflow as tf

from gorbit_export import export, layers, ops, optimizers, task
from gorbit_export.models import (
    Feature,
    Model,
    Refusal,
    calls,
    compiled,
    contrast,
    example,
    flops,
    initializers,
    losses,
    metrics,
    names,
    overrides,
    phases,
    probe,
    recording,
    rules,
    split,
)
from gorbit_export.models import optimizer as keras_optimizers

Tensor = tf.Tensor

_FACTORS = ("weight_decay", "learning_rate")
_TAKEN = ("seed", "learning_rate", "weight_decay", "clip_norm", "loss_scale")
_MADE = ("mask", "length")
MAX_CLASSES = 1_000
"""A model of more classes has no confusion matrix, which has their square of numbers."""
_ZERO_OR_ONE = (
    "binary_crossentropy",
    "binary_focal_crossentropy",
    "categorical_crossentropy",
    "categorical_focal_crossentropy",
)
"""Losses whose labels are 0 and 1 where they are whole numbers."""
_PRECISIONS = {"float16": "fp16", "bfloat16": "bf16"}


class ModelTask(task.Task):
    """What an export needs to know about a user's model.

    Attributes:
        notes: what the user should know of the export, a sentence each.
    """

    def __init__(
        self,
        user: Model,
        settings: dict[str, Any] | None = None,
        drawn: initializers.Record | None = None,
    ) -> None:
        """Names the variables, and tries the model on an example batch.

        Args:
            user: what `build()` returned.
            settings: its arguments, for people.
            drawn: how its variables were drawn.

        Raises:
            Refusal: if the model breaks a rule.
        """
        user, self.notes = compiled.take(user)
        self.user = user
        self.name, self.across = user.task, user.across_examples
        self.features = features(user.features)
        self.hyperparameters: list[task.Hyperparameter] = []
        self._settings, self._drawn = settings or {}, drawn
        self._unreached: set[str] = set()
        self._fit = "tf_keras" if names.is_legacy(user.model) else ""
        if isinstance(user.model, keras.layers.Layer):
            self._fit = "keras"
        rules.check(user)
        self._weights = next(f for f in self.features if f.role == "weight")
        self._inputs = [f.name for f in self.features if f.role == "input"]
        self._bound_by_tables()
        self.example = example.Example(user, self.features)
        self._build()
        self.named = names.of(user.model)
        rules.check_variables(self.named)
        self._caller = calls.caller(user.model, self.named, self._inputs)
        self.model = export.Tree()
        for path, leaf in self.named.variables.items():
            self.model.set(path.removeprefix(f"{names.ROOT}/"), leaf.value)
        self.precision = _precision(user.model)
        self.phases = phases.resolve(user.phases, self.named)
        self.optimizer = self._optimizer()
        self._groups = _groups(user.groups, self.named)
        self._foreign = _foreign(user.foreign, self.named)
        if isinstance(self.optimizer, keras_optimizers.KerasOptimizer):
            trained = (path for path, leaf in self.named.variables.items() if leaf.trained)
            self.optimizer.decaying = any(self.decays(path) for path in trained)
            settings = (f"{k}={v}" for k, v in self.optimizer.defaults.items())
            self._note(f"runs have {' '.join(settings)} as in fit, unless they are given others")
            if self.optimizer.scheduled:
                self._note(
                    "the schedule of the learning rate is part of the export; runs have none of "
                    "their own, and learning_rate is a factor of it"
                )
        if overrides.is_own(user.model, "trainable_weights"):
            count = sum(leaf.trained for leaf in self.named.variables.values())
            self._note(
                f"{type(user.model).__name__} trains what its own trainable_weights lists: "
                f"{count} of {len(self.named.variables)} variables"
            )
        if overrides.is_own(user.model, "train_step"):
            self._note(
                f"the train_step of {type(user.model).__name__} is not called; its phases take its "
                "place"
            )
        self._try()

    def _optimizer(self) -> optimizers.Optimizer:
        """Makes the optimizer of the run: the user's, or one of those of the phases."""
        holders = {p: v.holder for p, v in self.named.variables.items() if v.trained}
        if not self.phases:
            return keras_optimizers.make(self.user.optimizer, holders)
        chosen = {path: phase.name for phase in self.phases for path in phase.paths}
        given = {phase.name: phase.optimizer for phase in self.user.phases}
        return split.SplitOptimizer(given, chosen, holders)

    def _build(self) -> None:
        """Calls a model that was never called, so that its layers make their variables."""
        model = self.user.model
        if rules.unbuilt(model):
            batch = {name: tf.constant(v) for name, v in self.example.batch(2).items()}
            invoke = calls.invocation(model, self._inputs)
            with _explained("the model fails on a batch of its features"):
                invoke(batch, False)
        elif isinstance(model, tf.Module) and not isinstance(model, keras.layers.Layer):
            self._build_module(model)
        self._unbuilt = rules.unbuilt(model)

    def _build_module(self, model: tf.Module) -> None:
        """Calls a tf.Module, which may make variables then; what it assigns is undone."""
        if names.is_legacy(model):
            return
        batch = {name: tf.constant(v) for name, v in self.example.batch(2).items()}
        before = [(v, v.numpy()) for v in model.variables if isinstance(v, tf.Variable)]
        with _explained("the model fails on a batch of its features"):
            calls.invocation(model, self._inputs)(batch, False)
        for variable, value in before:
            variable.assign(value)

    def _try(self) -> None:
        """Runs the model once, outside of a graph, to see what its outputs and metrics are."""
        batch = {name: tf.constant(v) for name, v in self.example.batch(5).items()}
        states = {p: v.value.numpy() for p, v in self.named.variables.items() if not v.trained}
        with _explained("the model fails on a batch of its features"):
            first, second = (self._caller(batch, False, calls.fixed(i)) for i in (0, 1))
        y, again = first.y, second.y
        for path, leaf in self.named.variables.items():
            value = states.get(path, leaf.value)
            if path in first.states or not np.array_equal(leaf.value, value, equal_nan=True):
                raise Refusal(
                    f"evaluation assigns {path}; expected that in training only, as __call__ "
                    "knows by a parameter `training`"
                )
        for one, other in zip(tf.nest.flatten(y), tf.nest.flatten(again)):
            if not np.array_equal(one, other, equal_nan=True):
                raise Refusal(
                    "evaluation draws random numbers; expected them in training only, from a "
                    "keras.random.SeedGenerator of the layer"
                )
        self._try_phases(batch)
        terms = self._terms(batch, y)
        self._refuse_pairs()
        found = []
        for term in terms:
            with _explained(f"the loss of {term.name} fails"):
                found.append(losses.of_examples(term))
            values = found[-1][0]
            if values.shape[0] != 5:
                raise Refusal(
                    f"the loss of {term.name} has the shape {values.shape.as_list()} for 5 "
                    "examples; expected [examples] or [examples, ...]"
                )
            if (reduction := getattr(term.loss, "reduction", "mean")) in ("sum", None, "none"):
                self._note(
                    f"the reduction {reduction!r} of the loss of {term.name} is not heeded; the "
                    "loss is divided by the sum of the weights"
                )
        if masked := [terms[i].name for i in losses.per_example(found)]:
            self._note(
                f"of several losses, that of {_listed(masked)} is the mean of the examples' means "
                "over their tokens; fit takes the mean over all tokens of the batch, in which "
                "longer examples count more"
            )
        pairs = losses.paired(
            y, self._output_names(), metrics=self._metrics_by_output(y), labels=self.user.labels
        )
        labels = [self._label(batch, pair["labels"]) for pair in pairs]
        self._measured = metrics.resolve(
            [pair["metrics"] for pair in pairs], labels, [pair["y"] for pair in pairs]
        )
        self.metrics = metrics.described(self._measured)
        self.results_of = tuple(name for m in self._measured for name in m.variables)
        self.best = _best(self.user.best, (*self.metrics, *self._evaluated(batch)))
        self._kinds = {t.name: losses.kind(t) for t in terms if tf.is_tensor(t.y)}
        for term in terms:
            self._doubt(term)
        self._infer_classes(terms)
        self.outputs = self._outputs(self._answers(y), terms)
        self._flops = self._count()

    def _try_phases(self, batch: dict[str, Tensor]) -> None:
        """Runs the losses of phases once, outside of a graph, to see what they give."""
        for phase in self.user.phases:
            self._own_values(f"the loss of phase {phase.name}", phase.loss, batch, True)
        if self.phases and self.precision == "fp16":
            raise Refusal(
                "layers compute in float16, and there are phases, whose losses gorbit does not "
                "scale; expected the policy float32 or mixed_bfloat16"
            )

    def _evaluated(self, batch: dict[str, Tensor]) -> list[task.Metric]:
        """Runs the function evaluate of the user's, and returns its metrics."""
        if self.user.evaluate is None:
            return []
        values = self._own_values("evaluate", self.user.evaluate, batch, False)
        again = self._own_values("evaluate", self.user.evaluate, batch, False, seed=1)
        for name, value in values.items():
            if not np.array_equal(value, again[name], equal_nan=True):
                raise Refusal(
                    f"evaluate draws random numbers for {name}; expected them in training only, "
                    "and what it needs as a feature"
                )
        return [task.Metric(name) for name in values if name != "loss"]

    def _own_values(
        self, what: str, loss: Any, batch: dict[str, Tensor], training: bool, seed: int = 0
    ) -> dict[str, Tensor]:
        """Runs a loss function of the user's on five examples."""
        with _explained(f"{what} fails"):
            given = self._caller(batch, training, calls.fixed(seed), phases.body(loss))
            values = phases.values(what, given.y)
        for name, value in values.items():
            if value.shape[0] != 5:
                raise Refusal(
                    f"{what} gives {value.shape[0]} numbers as {name} for 5 examples; expected one "
                    "of each"
                )
        if given.losses:
            self._note(
                "regularizers and add_loss() of the layers count where the loss of a phase or "
                "evaluate adds model.losses, and nowhere else"
            )
        return values

    def _refuse_pairs(self) -> None:
        """Refuses outputs and losses that have a number for each pair of examples."""
        shapes: dict[str, list[list[int]]] = {}
        for count in (5, 6):
            batch = {name: tf.constant(v) for name, v in self.example.batch(count).items()}
            with _explained("the model fails on batches of other sizes"):
                y = self._caller(batch, False, calls.fixed()).y
            for pair in losses.paired(y, self._output_names()):
                shapes.setdefault(f"output {pair['name']}", []).append(pair["y"].shape.as_list())
            for term in self._terms(batch, y):
                with _explained(f"the loss of {term.name} fails"):
                    values = losses.check(term)
                shapes.setdefault(f"the loss of {term.name}", []).append(values.shape.as_list())
        for what, (five, six) in shapes.items():
            if five[:2] == [5, 5] and six[:2] == [6, 6]:
                raise Refusal(
                    f"{what} has a number for each pair of examples of a batch, so that the parts "
                    "of a batch do not add up to it; expected [examples] or [examples, ...], of "
                    "each example by itself"
                )

    def _doubt(self, term: losses.Term) -> None:
        """Notes a loss that takes logits where there are probabilities, or the other way round."""
        kind, logits = self._kinds.get(term.name, ("", False))
        if not kind.endswith("crossentropy"):
            return
        y = np.asarray(tf.cast(term.y, tf.float32))
        inside = bool(((y >= 0) & (y <= 1)).all())
        sums_up = "categorical" in kind and np.allclose(y.sum(-1), 1, atol=1e-2)
        if not logits and not inside:
            self._note(
                f"the loss of {term.name} takes probabilities, and the outputs are not between 0 "
                "and 1; if they are logits, the loss needs from_logits=True"
            )
        elif logits and inside and sums_up:
            self._note(
                f"the loss of {term.name} takes logits, and the outputs add up to 1; if they are "
                "probabilities, the loss needs from_logits=False"
            )

    def _count(self) -> dict[str, int]:
        """Counts the forward pass's operations; empty if they are not known."""

        def length(batch: dict[str, np.ndarray]) -> int | None:
            for feature in self.features:
                for axis, size in enumerate(feature.shape[1:], 1):
                    if size is None:
                        return batch[feature.name].shape[axis]
            return None

        try:
            return flops.count(
                lambda batch: self._caller(batch, False, calls.fixed()), self.example.batch, length
            )
        except Exception as err:  # the model's: a function that cannot run as its operations, say
            self._note(f"floating point operations are not counted: {rules.sentence(err)}")
            return {}

    def _output_names(self) -> list[str]:
        return list(getattr(self.user.model, "output_names", None) or [])

    def _metrics_by_output(self, y: Any) -> Any:
        """Returns the metrics as a list or dict like the outputs, or for the one output."""
        given = self.user.metrics
        several = isinstance(y, (dict, list, tuple)) and len(y) > 1
        if isinstance(given, dict) or not given:
            return given or None
        if several and not any(isinstance(m, (list, tuple)) for m in given):
            raise Refusal(
                "the model has several outputs; expected metrics as a dict of lists, one for "
                "each output's name"
            )
        return list(given)

    def _label(self, batch: dict[str, Tensor], wanted: Any) -> Any:
        """Returns the feature of a name, or a structure of features."""
        if wanted is None:
            return None
        if isinstance(wanted, str):
            if wanted not in batch:
                raise Refusal(f"labels are {wanted!r}; the features are {', '.join(batch)}")
            return batch[wanted]
        return tf.nest.map_structure(lambda name: self._label(batch, name), wanted)

    def _terms(self, batch: dict[str, Tensor], y: Any) -> list[losses.Term]:
        user = self.user
        if user.loss is None:
            return []
        if losses.is_function(user.loss) and isinstance(y, (dict, list, tuple)):
            # One function of all outputs.
            label = self._label(batch, user.labels)
            return [losses.Term(user.loss, y, label, 1.0, "all outputs", self._fit)]
        pairs = losses.paired(
            y, self._output_names(), loss=user.loss, labels=user.labels, weights=user.loss_weights
        )
        return [
            losses.Term(
                pair["loss"],
                pair["y"],
                self._label(batch, pair["labels"]),
                1.0 if pair["weights"] is None else float(pair["weights"]),
                pair["name"],
                self._fit,
            )
            for pair in pairs
            if pair["loss"] is not None
        ]

    def _sums(self, features: dict[str, Tensor], outcome: calls.Outcome) -> dict[str, Tensor]:
        terms = self._terms(features, outcome.y)
        weights = features[self._weights.name]
        sums = losses.sums(terms, outcome.losses, weights)
        pairs = losses.paired(outcome.y, self._output_names(), labels=self.user.labels)
        by_output = {term.name: term for term in terms}
        for measured in self._measured:
            pair = pairs[measured.output]
            label, y, spread = self._label(features, pair["labels"]), pair["y"], weights
            if pair["name"] in by_output:
                label, y, spread = losses.weighed(
                    by_output[pair["name"]], weights, measured.of_tokens
                )
            if measured.rank and spread.shape.rank > measured.rank:
                spread = weights  # the function takes means over tokens itself
            sums.update(measured.sums(label, y, spread))
        return sums

    def train_sums(
        self, features: dict[str, Tensor], hyperparameters: dict[str, Tensor], random: ops.Random
    ) -> dict[str, Tensor]:
        """See Task."""
        with _explained("the training pass fails"):
            outcome = self._caller(features, True, calls.drawn(random))
            sums = self._sums(features, outcome)
        if self.user.loss is None and not outcome.losses:
            raise Refusal(
                "the model has no loss; expected loss= in build(), compile(loss=) or add_loss()"
            )
        return sums | self._changes(outcome)

    def phase_sums(
        self,
        phase: task.Phase,
        features: dict[str, Tensor],
        hyperparameters: dict[str, Tensor],
        random: ops.Random,
    ) -> dict[str, Tensor]:
        """See Task."""
        loss = next(p.loss for p in self.user.phases if p.name == phase.name)
        what = f"the loss of phase {phase.name}"
        with _explained(f"{what} fails"):
            outcome = self._caller(features, True, calls.drawn(random), phases.body(loss))
            sums = phases.sums(what, outcome.y, features[self._weights.name])
        if assigned := [p for p in outcome.states if self.named.variables[p].trained]:
            raise Refusal(
                f"{what} assigns the trained variable {assigned[0]}, as SpectralNormalization "
                "does; expected no phases of such layers"
            )
        return sums | self._changes(outcome)

    def _changes(self, outcome: calls.Outcome) -> dict[str, Tensor]:
        """Returns the new values of states that a pass in training assigns."""
        rules.check_built(self._unbuilt)
        sums = {}
        for path, value in outcome.states.items():
            state = self.named.variables[path].value
            if state.dtype != tf.float32:
                raise Refusal(
                    f"{path} is {state.dtype.name} and is assigned in training; expected float32"
                )
            sums[export.STATE_PREFIX + path] = value
        return sums

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def evaluate_sums(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task. "confusion" is as a classifier's, if the model assigns one label."""
        if (own := self.user.evaluate) is not None:
            with _explained("evaluate fails"):
                given = self._caller(features, False, calls.fixed(), phases.body(own))
                return phases.sums("evaluate", given.y, features[self._weights.name])
        outcome = self._caller(features, False, calls.fixed())
        return self._sums(features, outcome) | self._confusion(features, self._answers(outcome.y))

    def _confusion(
        self, features: dict[str, Tensor], answers: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """The weights by label (row) and prediction (column) of the first label; empty without."""
        first = next((f for f in self.features if f.role == "label"), None)
        if first is None or first.dtype.is_floating or first.minimum:
            return {}
        label = features[first.name]
        if label.shape[1:].num_elements() != 1:
            return {}
        for output in self.outputs:
            value = answers[output.name]
            if output.of == first.name and output.axes == ("examples", "classes"):
                classes, guesses = value.shape[1], tf.argmax(value, -1)
            elif output.name == "probability" and value.shape.rank == 1:  # as _by_loss calls it
                classes, guesses = 2, tf.cast(value > 0.5, tf.int64)
            else:
                continue
            if first.below != classes or not 2 <= classes <= MAX_CLASSES:
                continue
            label, weights = tf.reshape(label, [-1]), features[self._weights.name]
            return {"confusion": task.confusion(label, guesses, weights, classes)}
        return {}

    def predict(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task."""
        return self._answers(self._caller(features, False, calls.fixed()).y)

    def _answers(self, y: Any) -> dict[str, Tensor]:
        user = self.user
        if user.outputs is not None:
            answers = user.outputs(y)
            if not isinstance(answers, dict):
                raise Refusal(
                    f"outputs() gives a {type(answers).__name__}; expected a dict of tensors"
                )
        else:
            pairs = losses.paired(y, self._output_names())
            answers = {}
            for pair in pairs:
                prefix = f"{pair['name']}_" if len(pairs) > 1 else ""
                for name, value in _by_loss(self._kinds, pair["y"], pair["name"]).items():
                    answers[prefix + name if name != pair["name"] else name] = value
        plain = {name: tf.convert_to_tensor(value) for name, value in answers.items()}
        return {
            name: tf.cast(v, tf.float32) if v.dtype.is_floating else v for name, v in plain.items()
        }

    def _bound_by_tables(self) -> None:
        """Bounds the numbers that look up rows of an Embedding."""
        for layer in rules.layers(self.user.model):
            if not isinstance(layer, keras.layers.Embedding):
                continue
            for node in layer._inbound_nodes:
                source = node.input_tensors[0]._keras_history.operation
                if not isinstance(source, keras.layers.InputLayer):
                    continue
                name = self._inputs[0] if len(self._inputs) == 1 else source.name
                for i, feature in enumerate(self.features):
                    if feature.name == name and feature.below is None:
                        self.features[i] = dataclasses.replace(feature, below=layer.input_dim)

    def _infer_classes(self, terms: list[losses.Term]) -> None:
        """Bounds whole numbers that are labels of a cross entropy: classes, or 0 and 1."""
        for term in terms:
            kind = self._kinds.get(term.name, ("",))[0]
            if kind == "sparse_categorical_crossentropy":
                ignored = losses.ignored_class(term.loss)
                low, below = min(0, ignored), max(int(term.y.shape[-1]), ignored + 1)
            elif kind in _ZERO_OR_ONE:
                low, below = 0, 2
            else:
                continue
            for i, feature in enumerate(self.features):
                given = feature.below is not None or feature.role == "input"
                if given or feature.dtype.is_floating or feature.dtype == tf.bool:
                    continue
                if self._is_label(feature.name, term):
                    low = min(low, feature.minimum or 0)
                    self.features[i] = dataclasses.replace(
                        feature, minimum=low or feature.minimum, below=below
                    )

    def _is_label(self, name: str, term: losses.Term) -> bool:
        labels = self.user.labels
        wanted = labels.get(term.name) if isinstance(labels, dict) else labels
        if isinstance(wanted, (list, tuple)):
            position = self._output_names().index(term.name)
            wanted = wanted[position]
        return wanted == name

    def _outputs(
        self, answers: dict[str, Tensor], terms: list[losses.Term]
    ) -> tuple[task.Output, ...]:
        labels = [f.name for f in self.features if f.role == "label"]
        open_axis = next((a for f in self.features for a in _open_axes(f)), None)
        found = []
        for name, value in answers.items():
            rank = value.shape.rank
            kind = self.user.kinds.get(name) or _kind(name, rank)
            axes = ["examples", *(f"{name}_{i}" for i in range(1, rank))]
            classes = kind in ("probabilities", "logits", "tokens")
            if classes and rank > 1:
                axes[-1] = "classes"
            if rank > 1 and open_axis and value.shape[1] == example.LENGTH:
                axes[1] = open_axis
            of = labels[0] if len(labels) == 1 and classes else ""
            for term in terms:
                if classes and name.startswith(f"{term.name}_"):
                    of = next((f for f in labels if self._is_label(f, term)), "")
            found.append(task.Output(name, tuple(axes), kind, of))
        return tuple(found)

    def inspect(self, module: Any) -> None:
        """See Task: checks the passes, and tries whether parts of a batch add up."""
        known = [leaf.value for leaf in self.named.variables.values()]
        for name in (*module.gradient_functions, "evaluate", "predict"):
            concrete = getattr(module, name).get_concrete_function()
            rules.check_function(name, concrete, known, self.user.model)
        self._check_constraints(module)
        self._compare_gradients(module.unreached, module.sliced)
        if self._measured:
            module.results.get_concrete_function()
        paths = {rule.function: path for path, rule in module.rules_by_path.items()}
        for function, path in paths.items():
            with _explained(f"the update of {path} fails"):
                concrete = getattr(module, function).get_concrete_function()
            rules.check_update(path, concrete, type(self.user.optimizer).__name__)
        self._try_parts(module)
        self._check_weights(module)

    def _try_parts(self, module: Any) -> None:
        """Tries whether parts of a batch add up."""
        generators = list(self.named.generators.values())
        draws = generators or isinstance(self._caller, calls.ModuleCaller)
        train = module.train_pass(again=draws)

        def run_train(batch: probe.Batch) -> probe.Sums:
            return self._run(module, train, batch, seed=np.array([1, 2]))

        def evaluate(batch: probe.Batch) -> probe.Sums:
            return self._run(module, module.evaluate, batch)

        def predict(batch: probe.Batch) -> probe.Sums:
            return self._run(module, module.predict, {n: batch[n] for n in self._inputs})

        with contextlib.ExitStack() as stack:
            stack.enter_context(_explained("the model fails on batches of other sizes"))
            if draws:
                stack.enter_context(probe.still(generators))
            finding = probe.probe(
                run_train,
                evaluate,
                predict,
                lambda extra: self.example.batch(probe.COUNT, extra),
                self._weights.name,
                self.precision,
            )
            _refuse(finding, self.across)
            batch, known = self.example.batch(probe.COUNT), self.user.example is not None
            varied = contrast.vary(self.features, batch, known)
            name = contrast.dependent(evaluate, predict, varied, self.precision)
            if name and not (self.across and name == "loss_sum"):
                what = "the loss" if name == "loss_sum" else f"the prediction {name}"
                raise Refusal(
                    f"{what} of an example depends on the other examples of its batch where they "
                    "are of another scale, as by the batch's largest number; expected one of each "
                    "example by itself"
                )
            training = finding.training and contrast.adds_up(run_train, varied, self.precision)
        self.additive = training and finding.padding
        if self.across and training and not finding.evaluation and not name:
            self._note(
                "the loss of a batch is the sum of its parts'; without across_examples, several "
                "devices could share a batch"
            )
        if not training and not self.across:
            self._note(
                "training depends on which examples share a batch (batch normalization and means "
                "over a batch in add_loss do so); replicas and micro-batches change it a little, "
                "and such a mean counts the examples of weight 0 that fill a batch of fixed size, "
                "as in the last batch of an evaluation on a TPU"
            )
        if not finding.padding:
            self._note(
                "padding changes the results; give the model a mask, for instance "
                "Embedding(mask_zero=True), or features of a fixed length"
            )

    def _compare_gradients(self, unreached: list[str], sliced: list[str]) -> None:
        """Tells where the optimizer gets gradients that it does not get in fit."""
        ours = self.optimizer
        if not isinstance(ours, keras_optimizers.KerasOptimizer):
            sliced = []
        elif moved := next((path for path in unreached if ours.moves_by_nothing(path)), ""):
            raise Refusal(
                f"the loss does not reach {moved}, which fit then leaves as it is, and {ours.name} "
                "moves a variable whose gradient is 0; expected trainable=False of its layer"
            )
        self._unreached = set(unreached)
        if unreached:
            self._note(f"the loss does not reach {_listed(unreached)}: no update moves them")
        if sliced := [path for path in sliced if not ours.takes_slices(path)]:
            self._note(
                f"fit gives the optimizer the gradient of {_listed(sliced)} in slices, one for "
                "each token, of which it may square each by itself; here it gets their sum, "
                "which moves rows that a batch has several times otherwise"
            )

    def _check_weights(self, module: Any) -> None:
        """Refuses a metric that counts the examples of weight 0, which fill batches."""
        batch, kept = self.example.batch(probe.COUNT), probe.COUNT // 2
        weights = batch[self._weights.name].copy()
        weights[kept:] = 0
        filled = self._run(module, module.evaluate, {**batch, self._weights.name: weights})
        few = self._run(module, module.evaluate, {name: v[:kept] for name, v in batch.items()})
        for measured in self._measured:
            for name in measured.variables:
                if not np.allclose(filled[name], few[name], rtol=2e-2, equal_nan=True):
                    raise Refusal(
                        f"metric {measured.name} counts examples of weight 0, which fill batches; "
                        "expected an update_state() that heeds its sample_weight"
                    )

    def _check_constraints(self, module: Any) -> None:
        for path, rule in module.rules_by_path.items():
            if not isinstance(rule, optimizers.Constrained):
                continue
            if path in module.unreached:
                raise Refusal(
                    f"the loss does not reach {path}, so that Keras leaves it as it is and its "
                    "constraint out; expected none"
                )
            if getattr(module, rule.function).get_concrete_function().captured_inputs:
                raise Refusal(
                    f"the constraint of {path} reads another variable or a table; expected a "
                    "function of the variable alone"
                )

    def _run(
        self, module: Any, function: Any, batch: dict[str, np.ndarray], **more: Any
    ) -> dict[str, np.ndarray]:
        scalars = {h.name: tf.constant(h.default) for h in module.hyperparameters} if more else {}
        arrays = {name: tf.constant(value) for name, value in {**batch, **more}.items()}
        return {name: v.numpy() for name, v in function(**arrays, **scalars).items()}

    def results(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task."""
        return {m.name: m.result({n: sums[n] for n in m.variables}) for m in self._measured}

    def description(self) -> dict[str, Any]:
        """See Task."""
        model = self.user.model
        kind = "tf_keras" if names.is_legacy(model) else "keras"
        if not isinstance(model, keras.layers.Layer) and kind == "keras":
            kind = "module"
        return {
            "architecture": kind,
            **({"flops": self._flops} if self._flops else {}),
            "config": {"class": type(model).__name__, **self._settings},
        }

    def serving(self) -> tuple[list[tf.TensorSpec], Callable[..., dict[str, Tensor]]]:
        """See Task. The signature is that of the model's inputs."""
        specs = [f.spec() for f in self.features if f.role == "input"]

        def serve(*tensors: Tensor) -> dict[str, Tensor]:
            return self.predict(dict(zip(self._inputs, tensors)))

        return specs, serve

    def trains(self, path: str, variable: tf.Variable) -> bool:
        """See Task."""
        return self.named.variables[path].trained

    def decays(self, path: str) -> bool | float:
        """See Task. A Keras optimizer decays what Keras would."""
        if path in self._unreached:
            return False
        if (factor := self._groups[path].get("weight_decay")) is not None:
            return factor
        if isinstance(self.optimizer, keras_optimizers.KerasOptimizer):
            return self.optimizer.decays(path)
        return super().decays(path) and path.split("/")[-1] not in ("gamma", "beta")

    def learning_rate(self, path: str) -> float:
        """See Task. Of several optimizers each has a rate of its own."""
        factor = self._groups[path].get("learning_rate", 1.0)
        own = isinstance(self.optimizer, split.SplitOptimizer)
        return factor * self.optimizer.rate(path) if own else factor

    def constraint(self, path: str) -> Callable[[Tensor], Tensor] | None:
        """See Task. Keras applies those of variables."""
        constraint = getattr(self.named.variables[path].holder, "constraint", None)
        if constraint is None:
            return None

        def constrained(value: Tensor) -> Tensor:
            with recording.constants(), _explained(f"the constraint of {path} fails"):
                return tf.ensure_shape(tf.cast(constraint(value), tf.float32), value.shape)

        return constrained

    def initializer(self, path: str) -> layers.Initializer | None:
        """See Task. Only the initializers of Keras' variables are known."""
        return self._drawn.of(self.named.variables[path].holder) if self._drawn else None

    def foreign(self, path: str) -> list[str | dict[str, Any]]:
        """See Task: what the user's file says."""
        return self._foreign.get(path, [])


def _refuse(finding: probe.Finding, across: bool) -> None:
    """Raises Refusal for a model whose evaluation depends on which examples share a batch.

    Where losses are declared to be across examples, predictions alone must not depend on it.
    """
    if not finding.finite:
        raise Refusal(
            "the loss is not a finite number on drawn features; expected example= in build(), "
            "which gives a batch that the model can learn from"
        )
    if finding.evaluation and not across:
        raise Refusal(
            f"the evaluation's {finding.evaluation} of a batch is not the sum of its parts'; "
            "expected a loss and metrics of each example by itself, or across_examples=True of "
            "the Model for a loss that compares the examples of a batch"
        )
    if finding.prediction:
        raise Refusal(
            f"the prediction {finding.prediction} of an example depends on the other examples "
            "of its batch; expected one of each example by itself"
        )


def _listed(paths: list[str]) -> str:
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turns what the user's code raises into a Refusal."""
    try:
        yield
    except Refusal:
        raise
    except Exception as err:
        raise Refusal(f"{what}: {rules.sentence(err)}") from err


def features(given: Any) -> list[task.Feature]:
    """Turns the user's features into those of a batch, and adds weights of examples.

    Raises:
        Refusal: if one cannot be in a batch.
    """
    found: list[task.Feature] = []
    for feature in given:
        try:
            found.append(_feature(feature))
        except (ValueError, TypeError) as err:
            raise Refusal(str(err)) from err
    names_ = [f.name for f in found]
    if twice := {name for name in names_ if names_.count(name) > 1}:
        raise Refusal(f"two features are called {sorted(twice)[0]}")
    if not any(f.role == "input" for f in found):
        raise Refusal("the model has no feature with the role input")
    axes = sorted({axis for f in found for axis in _open_axes(f)})
    if len(axes) > 1:
        raise Refusal(
            f"axes {' and '.join(axes)} are open; expected at most one name of open axes beside "
            "the examples: give the features of the others a length, to which the records are "
            "padded"
        )
    weights = [f for f in found if f.role == "weight"]
    if len(weights) > 1:
        raise Refusal(f"{weights[0].name} and {weights[1].name} are weights; expected one feature")
    if not weights:
        found.append(task.Feature(task.WEIGHTS, tf.float32, ("examples",)))
    return found


def _open_axes(feature: task.Feature) -> list[str]:
    pairs = list(zip(feature.axes, feature.shape))[1:]
    return [axis for axis, length in pairs if length is None]


def _feature(feature: Feature) -> task.Feature:
    name, shape = feature.name, tuple(feature.shape)
    known = {dtype.name: dtype for dtype in task.DTYPES}
    if str(feature.dtype) not in known:
        texts = "; gorbit convert makes numbers of texts" * (str(feature.dtype) == "string")
        raise Refusal(
            f"feature {name} is {feature.dtype}; expected one of {', '.join(known)}{texts}"
        )
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name):
        raise Refusal(
            f"feature {name!r} cannot be the name of an argument; expected letters, digits and _, "
            "and no word of Python (records may have another name: data.features of the run)"
        )
    if name in _TAKEN:
        raise Refusal(f"feature {name} has the name of another argument; expected another name")
    if not shape or shape[0] is not None:
        raise Refusal(
            f"feature {name} has the shape {shape}; expected None, the examples, as its first axis"
        )
    if feature.make and feature.make not in _MADE:
        raise Refusal(f"feature {name} is made as {feature.make!r}; expected mask or length")
    if len([length for length in shape[1:] if length is None]) > 1:
        raise Refusal(
            f"feature {name} has the shape {shape}; expected at most one open axis beside the "
            "examples: give the others a length, to which the records are padded"
        )
    axes = feature.axes or (
        "examples",
        *("length" if n is None else f"{name}_{i}" for i, n in enumerate(shape[1:], 1)),
    )
    return task.Feature(
        name,
        known[str(feature.dtype)],
        tuple(axes),
        feature.label,
        feature.role,
        shape,
        feature.make,
        feature.minimum,
        feature.below,
        feature.pad,
    )


def _precision(model: Any) -> str:
    """Tells the precision from the policies of the layers."""
    layers = getattr(model, "_flatten_layers", None)
    found = (
        {_PRECISIONS.get(getattr(layer, "compute_dtype", "")) for layer in layers()}
        if layers
        else set()
    )
    found.discard(None)
    if len(found) > 1:
        raise Refusal("layers compute in float16 and in bfloat16; expected one of them")
    return found.pop() if found else "float32"


def _groups(given: Any, named: names.Names) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {path: {} for path in named.variables}
    for pattern, factors in given:
        if unknown := set(factors) - set(_FACTORS):
            raise Refusal(
                f"group {pattern!r} sets {', '.join(sorted(unknown))}; expected "
                f"{' or '.join(_FACTORS)}"
            )
        if any(not 0 <= float(value) < float("inf") for value in factors.values()):
            raise Refusal(f"group {pattern!r} has a factor below 0; expected 0 or more")
        paths = [path for path in named.variables if re.search(pattern, path)]
        if not paths:
            raise Refusal(f"group {pattern!r} is found in no variable's name")
        for path in paths:
            found[path].update({name: float(value) for name, value in factors.items()})
    return found


def _foreign(given: Any, named: names.Names) -> dict[str, list[str | dict[str, Any]]]:
    """Checks the names of variables in other releases, and makes lists of them."""
    found: dict[str, list[str | dict[str, Any]]] = {}
    for path, value in dict(given).items():
        if path not in named.variables:
            raise Refusal(
                f"foreign has {path}, which is no variable; expected some of "
                f"{', '.join(sorted(named.variables)[:3])} and so on"
            )
        rank = named.variables[path].value.shape.rank
        found[path] = [value] if isinstance(value, (str, dict)) else list(value)
        for name in found[path]:
            plain = {"name": name} if isinstance(name, str) else name
            if not isinstance(plain, dict) or not isinstance(plain.get("name"), str):
                raise Refusal(f"foreign has {name!r} for {path}; expected a name, or a dict of it")
            if unknown := set(plain) - {"name", "transpose", "reshape"}:
                raise Refusal(
                    f"foreign has {sorted(unknown)[0]} for {path}; expected name, transpose and "
                    "reshape"
                )
            if plain.get("transpose") and rank != 2:
                raise Refusal(f"foreign transposes {path} of {rank} axes; expected a matrix")
    return found


def _best(wanted: str | tuple[str, str] | None, known: tuple[task.Metric, ...]) -> tuple[str, str]:
    directions = {"loss": "lower", **{m.name: m.better for m in known}}
    if wanted is None:
        chosen = next((m.name for m in known if m.better), "loss")
        return chosen, directions[chosen]
    name, better = (wanted, directions.get(wanted)) if isinstance(wanted, str) else wanted
    if name not in directions:
        raise Refusal(f"best is {name!r}; expected one of {', '.join(directions)}")
    if better not in ("higher", "lower"):
        raise Refusal(f"best is {name!r}; say ({name!r}, 'higher') or ({name!r}, 'lower')")
    return name, better


def _by_loss(kinds: dict[str, tuple[str, bool]], y: Tensor, name: str) -> dict[str, Tensor]:
    """Names an output by its loss: classes have probabilities."""
    kind, logits = kinds.get(name, ("", False))
    if kind == "binary_crossentropy" and y.shape.rank == 2 and y.shape[1] == 1:
        y = tf.cast(y, tf.float32)[:, 0]
        return {"probability": tf.sigmoid(y) if logits else y}
    if kind not in ("categorical_crossentropy", "sparse_categorical_crossentropy"):
        return {name: y}
    y = tf.cast(y, tf.float32)
    return {"logits": y, "probabilities": tf.nn.softmax(y)} if logits else {"probabilities": y}


def _kind(name: str, rank: int) -> str:
    for kind in ("probabilities", "logits"):
        if name == kind or name.endswith(f"_{kind}"):
            return kind if rank == 2 else "tokens"
    return "value" if rank == 1 else "values"
