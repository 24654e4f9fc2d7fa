"""Several optimizers of Keras, each for some of the variables."""

from __future__ import annotations

import re
from typing import Any

from gorbit_export import optimizers
from gorbit_export.models import Refusal
from gorbit_export.models import optimizer as keras_optimizers


def by_pattern(pairs: Any, holders: dict[str, Any]) -> SplitOptimizer:
    """Makes one optimizer of pairs of a regular expression and an optimizer; later pairs win.

    Raises:
        Refusal: if a variable has none, or an optimizer has no variable.
    """
    chosen: dict[str, str] = {}
    parts: dict[str, Any] = {}
    for i, (pattern, optimizer) in enumerate(pairs):
        parts[f"optimizer_{i}"] = optimizer
        for path in holders:
            if re.search(pattern, path):
                chosen[path] = f"optimizer_{i}"
    if missing := [path for path in holders if path not in chosen]:
        raise Refusal(
            f"no pattern of optimizer= is found in {missing[0]}; expected a pair for it, such as "
            "('', keras.optimizers.Adam()) first, which is for all"
        )
    for i, (pattern, _) in enumerate(pairs):
        if f"optimizer_{i}" not in chosen.values():
            raise Refusal(
                f"the optimizer of {pattern!r} updates no variable; expected a pattern that is "
                "found in the names of some, and not of later pairs"
            )
    return SplitOptimizer(parts, chosen, holders)


class SplitOptimizer(keras_optimizers.KerasOptimizer):
    """Optimizers of Keras by label, and the label of each variable.

    A run has one learning rate and one weight decay: the largest of all. The others' are factors of
    their variables.
    """

    def __init__(
        self, given: dict[str, Any], chosen: dict[str, str], holders: dict[str, Any]
    ) -> None:
        """Takes optimizers or their names by label, labels by path, and variables by path.

        Raises:
            Refusal: if the optimizers cannot be in one run.
        """
        self._chosen = chosen
        self._parts: dict[str, keras_optimizers.KerasOptimizer] = {}
        for label, optimizer in given.items():
            own = {path: holder for path, holder in holders.items() if chosen[path] == label}
            part = keras_optimizers.make(optimizer, own)
            if not isinstance(part, keras_optimizers.KerasOptimizer):
                raise Refusal(
                    f"the optimizer {part.name} is one of several; expected each to be one of "
                    "keras.optimizers"
                )
            self._parts[label] = part
        parts = list(self._parts.values())
        self.name = "+".join(dict.fromkeys(part.name for part in parts))
        self.slots, self.hyperparameters = (), []
        self.scheduled = parts[0].scheduled
        if any(part.scheduled != self.scheduled for part in parts):
            raise Refusal(
                "one optimizer has a schedule of its learning rate and another has a number; "
                "expected schedules of all or of none"
            )
        self._clip = parts[0].defaults["clip_norm"]
        if any(part.defaults["clip_norm"] != self._clip for part in parts):
            raise Refusal("the optimizers have several global_clipnorm; expected one of all")
        # As numbers: inside of a graph no variable can be read.
        self._rates = {
            label: float(part.defaults["learning_rate"]) for label, part in self._parts.items()
        }
        self._renamed: set[int] = set()

    @property
    def decaying(self) -> bool:
        """Whether any variable decays, which the updates must know before they are traced."""
        return any(part.decaying for part in self._parts.values())

    @decaying.setter
    def decaying(self, value: bool) -> None:
        for part in self._parts.values():
            part.decaying = value

    def _of(self, path: str) -> keras_optimizers.KerasOptimizer:
        return self._parts[self._chosen[path]]

    def rule(self, path: str, shape: tuple[int, ...]) -> optimizers.Rule:
        """See Optimizer."""
        rule = self._of(path).rule(path, shape)
        if id(rule) not in self._renamed:
            self._renamed.add(id(rule))
            rule.function = f"{self._chosen[path]}_{rule.function}"
        return rule

    def rate(self, path: str) -> float:
        """Factor of the learning rate for a variable."""
        own, most = self._rates[self._chosen[path]], max(self._rates.values())
        return own / most if own != most else 1.0

    @property
    def defaults(self) -> dict[str, float | str]:
        """See Optimizer."""
        found: dict[str, float | str] = {
            "learning_rate": max(self._rates.values()),
            "schedule": "constant",
            "warmup_ratio": 0.0,
            "clip_norm": self._clip,
        }
        if self.decay or not self.decaying:
            found["weight_decay"] = self.decay
        return found

    @property
    def decay(self) -> float:
        """The largest weight decay of a variable."""
        return max(part.decay for part in self._parts.values())

    def decays(self, path: str) -> bool | float:
        """Whether Keras decays a variable, or by which part of the weight decay."""
        part = self._of(path)
        own = float(part.decays(path)) * part.decay
        return own / self.decay if 0 < own < self.decay else own > 0

    def takes_slices(self, path: str) -> bool:
        """See KerasOptimizer."""
        return self._of(path).takes_slices(path)

    def moves_by_nothing(self, path: str) -> bool:
        """See KerasOptimizer."""
        return self._of(path).moves_by_nothing(path)
