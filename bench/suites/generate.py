"""Models that make texts: each part is a file of its own, with a table of its own."""

from __future__ import annotations

from suites import base, smollm, textscores, texttrain, translate

PARTS = {
    **{"smollm": smollm, "translate": translate},
    **{"gpt2": texttrain.gpt2, "t5": texttrain.t5, "evaluate": textscores},
}


def run(options: base.Options) -> None:
    """Measures the chosen parts."""
    for name in options.parts or PARTS:
        PARTS[name].run(options)


def parts(options: base.Options) -> list[base.Part]:
    """Returns the chosen parts."""
    return [base.Part(PARTS[name].NAME) for name in options.parts or PARTS]
