"""Optimizers: the update of one variable of any shape. A new one is one file."""

from gorbit_export.optimizers.adafactor import Adafactor
from gorbit_export.optimizers.adamw import AdamW
from gorbit_export.optimizers.base import Constrained, Optimizer, Rule, clip_scale, correction
from gorbit_export.optimizers.lamb import LAMB
from gorbit_export.optimizers.lion import Lion
from gorbit_export.optimizers.muon import Muon
from gorbit_export.optimizers.sgd import SGD

OPTIMIZERS: dict[str, type[Optimizer]] = {
    o.name: o for o in (AdamW, SGD, Lion, LAMB, Adafactor, Muon)
}
"""Optimizers by their names on the command line."""

__all__ = [
    "LAMB",
    "OPTIMIZERS",
    "SGD",
    "Adafactor",
    "AdamW",
    "Constrained",
    "Lion",
    "Muon",
    "Optimizer",
    "Rule",
    "clip_scale",
    "correction",
]
