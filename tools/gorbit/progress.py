"""Shows how far a program is: bars of tqdm in a notebook or a terminal, and lines elsewhere."""

from __future__ import annotations

import sys
from typing import Any


class Progress:
    """Shows lines of a program and, where there is something to draw on, a bar for each phase."""

    def __init__(self, show: bool) -> None:
        """Makes a display. Without show it shows nothing."""
        self.show = show
        self._tqdm = _bars() if show else None
        self._open: list[Any] = []  # the innermost phase last

    def line(self, text: str, error: bool = False) -> None:
        """Shows a line of the program, above the bars."""
        if not self.show:
            return
        out = sys.stderr if error else sys.stdout
        if self._tqdm and self._open:
            self._tqdm.write(text, file=out)
        else:
            print(text, file=out, flush=True)

    def event(self, event: dict[str, Any]) -> None:
        """Draws an event of --progress events; others than those of phases are not drawn."""
        if not self._tqdm:
            return
        kind = event["event"]
        if kind == "begin":
            total = event["total"] if event["total"] >= 0 else None
            self._open.append(
                self._tqdm(
                    desc=event["phase"],
                    total=total,
                    initial=event["step"],
                    unit="step",
                    leave=not self._open,
                )
            )
        elif kind == "step" and self._open:
            bar = self._open[-1]
            loss = event["loss"]
            bar.set_postfix(
                {"loss": loss if isinstance(loss, str) else f"{loss:.4g}"}, refresh=False
            )
            bar.update(event["step"] - bar.n)  # below 0 after going back to a checkpoint
        elif kind == "finish" and self._open:
            self._open.pop().close()

    def close(self) -> None:
        """Ends all bars, as where the program has ended in the middle of a phase."""
        while self._open:
            self._open.pop().close()


def _bars() -> Any:
    """Returns tqdm's class, or None if it is not installed or there is nothing to draw on."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    notebook = type(shell).__name__ == "ZMQInteractiveShell"
    if not notebook and not sys.stderr.isatty():
        return None
    try:
        if notebook:
            from tqdm.auto import tqdm
        else:
            from tqdm import tqdm
    except ImportError:
        return None
    return tqdm
