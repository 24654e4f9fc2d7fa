"""Frequencies of rotary positions, and how they are scaled for longer texts (rope_scaling)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

# NumPy comes with TensorFlow: without both, the command is to say that TensorFlow is missing.
if TYPE_CHECKING:
    import numpy as np

from gorbit_export.config import is_number

_REQUIRED = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    ),
    "yarn": ("factor", "original_max_position_embeddings"),
}
_OPTIONAL = {
    "yarn": ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate")
}


def checked(scaling: Any) -> dict[str, Any] | None:
    """Returns a rope_scaling of config.json in one form: its kind is rope_type, nothing is null.

    None is no scaling.

    Raises:
        ValueError: if it is no scaling that `frequencies` knows; the message names the field.
    """
    if scaling is None:
        return None
    if not isinstance(scaling, dict):
        raise ValueError(f"rope_scaling is {scaling!r}; expected an object, or null")
    values = {name: value for name, value in scaling.items() if value is not None}
    kind = values.pop("type", None)
    if values.setdefault("rope_type", kind) != (kind or values["rope_type"]):
        raise ValueError(
            f"rope_scaling has the type {kind!r} and the rope_type as well; expected one"
        )
    kind = values["rope_type"]
    if kind == "default":
        left = sorted(set(values) - {"rope_type"})
        if left:
            raise ValueError(f"rope_scaling has {left[0]}, and rope_type 'default' has none")
        return None
    if not isinstance(kind, str) or kind not in _REQUIRED:
        known = ", ".join(_REQUIRED)
        raise ValueError(f"rope_type is {kind!r}; expected one of default, {known}")
    known = (*_REQUIRED[kind], *_OPTIONAL.get(kind, ()))
    for name in sorted(set(values) - {"rope_type"} - set(known)):
        raise ValueError(f"rope_scaling has {name}, which is not known of rope_type {kind!r}")
    for name in _REQUIRED[kind]:
        if name not in values:
            raise ValueError(f"rope_scaling has no {name}, which rope_type {kind!r} needs")
    for name, value in values.items():
        if name == "truncate":
            if not isinstance(value, bool):
                raise ValueError(f"truncate of rope_scaling is {value!r}; expected true or false")
        elif name != "rope_type" and not (is_number(value) and value > 0):
            raise ValueError(f"{name} of rope_scaling is {value!r}; expected a positive number")
    if values["factor"] < 1:
        raise ValueError(f"factor of rope_scaling is {values['factor']!r}; expected 1 or more")
    for low, high in (("low_freq_factor", "high_freq_factor"), ("beta_slow", "beta_fast")):
        bounds = {"beta_slow": 1, "beta_fast": 32, **values}
        if low in bounds and not bounds[low] < bounds[high]:
            raise ValueError(
                f"{low} of rope_scaling is {bounds[low]!r}; expected less than {high} "
                f"({bounds[high]!r})"
            )
    return values


def frequencies(
    width: int, theta: float, scaling: dict[str, Any] | None = None
) -> tuple[np.ndarray, float]:
    """Returns by how much each position turns the pairs of a head.

    Args:
        width: that of a head, even.
        theta: the base of the frequencies.
        scaling: what `checked` returns. `dynamic` (NTK) changes nothing, because it begins after
            max_position_embeddings, where the positions of an export end.

    Returns:
        float32 [width / 2], and what cosines and sines are multiplied by.
    """
    import numpy as np

    # In float32, as the models were trained with: at position 8,191 rounding shows.
    one = np.float32(1)
    exponents = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    plain = one / np.power(np.float32(theta), exponents)
    kind = scaling["rope_type"] if scaling else "dynamic"
    if kind == "dynamic":
        return plain, 1.0
    factor = np.float32(scaling["factor"])
    if kind == "linear":
        return plain / factor, 1.0
    if kind == "llama3":
        return _llama3(plain, factor, scaling), 1.0
    return _yarn(plain, width, theta, scaling), _yarn_factor(scaling)


def _llama3(plain: np.ndarray, factor: np.float32, scaling: dict[str, Any]) -> np.ndarray:
    """Llama 3.1's: what turns seldom is slowed down, and what turns often is not."""
    import numpy as np

    low, high = (np.float32(scaling[f"{name}_freq_factor"]) for name in ("low", "high"))
    longest = np.float32(scaling["original_max_position_embeddings"])
    turns = longest / (np.float32(2 * math.pi) / plain)
    smooth = (turns - low) / (high - low)
    between = (np.float32(1) - smooth) * plain / factor + smooth * plain
    return np.where(turns < low, plain / factor, np.where(turns > high, plain, between))


def _yarn(plain: np.ndarray, width: int, theta: float, scaling: dict[str, Any]) -> np.ndarray:
    """YaRN's (Peng et al. 2023): a ramp between what is slowed down and what is not."""
    import numpy as np

    def pair(turns: float) -> float:
        """Which pair turns so often within the first length; not whole."""
        longest = scaling["original_max_position_embeddings"]
        return width * math.log(longest / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair(scaling.get("beta_fast", 32)), pair(scaling.get("beta_slow", 1))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    span = high - low or 0.001
    places = np.arange(width // 2, dtype=np.float32)
    ramp = np.clip((places - np.float32(low)) / np.float32(span), 0, 1, dtype=np.float32)
    return plain / np.float32(scaling["factor"]) * ramp + plain * (1 - ramp)


def _yarn_factor(scaling: dict[str, Any]) -> float:
    """What YaRN multiplies cosines and sines by."""

    def longer(scale: float) -> float:
        return 0.1 * scale * math.log(scaling["factor"]) + 1.0

    if "attention_factor" in scaling:
        return float(scaling["attention_factor"])
    if "mscale" in scaling and "mscale_all_dim" in scaling:
        return longer(scaling["mscale"]) / longer(scaling["mscale_all_dim"])
    return longer(1.0)
