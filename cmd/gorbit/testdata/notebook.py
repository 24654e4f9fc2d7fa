"""Drives a kernel of Jupyter as a notebook does: notebook.py GRAPH DATA.

Needs jupyter_client, ipykernel, ipywidgets, tqdm and pandas.
"""

from __future__ import annotations

import pathlib
import sys
import threading
import time

from jupyter_client.manager import KernelManager

WIDGET, TABLE = "application/vnd.jupyter.widget-view+json", "text/html"


class Notebook:
    """A kernel, and what the last cell showed."""

    def __init__(self) -> None:
        """Starts the kernel."""
        self.manager = KernelManager()
        self.manager.start_kernel()
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=300)
        self.shown: list[str] = []
        self.text = ""

    def run(self, cell: str) -> str:
        """Runs a cell to its end, and returns the name of the exception that it ended with, or ''."""
        self.shown, self.text = [], ""

        def take(message: dict) -> None:
            content = message["content"]
            self.shown += content.get("data", {})
            self.text += content.get("text", "") + content.get("data", {}).get(
                "text/plain", ""
            )

        reply = self.client.execute_interactive(cell, output_hook=take, timeout=600)
        return reply["content"].get("ename", "")

    def interrupt_after(self, path: pathlib.Path) -> None:
        """Interrupts the kernel when a file is there."""

        def wait() -> None:
            while not path.exists():
                time.sleep(0.01)
            self.manager.interrupt_kernel()

        threading.Thread(target=wait, daemon=True).start()

    def close(self) -> None:
        """Ends the kernel."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def expect(what: bool, message: str) -> None:
    """Ends the program unless something holds."""
    if not what:
        sys.exit(message)


def main(graph: str, data: str) -> None:
    """Trains, interrupts a training, and continues it."""
    notebook = Notebook()
    try:
        train = f"gorbit.train({graph!r}, {data!r}, 'whole', steps=6, batch_size=8, eval_interval=3)"
        failed = notebook.run(f"import gorbit\nrun = {train}\nrun.metrics")
        expect(failed == "", f"the training fails with {failed}: {notebook.text}")
        expect(
            notebook.shown.count(WIDGET) >= 1, f"no bar is shown, but {notebook.shown}"
        )
        expect(
            TABLE in notebook.shown,
            f"no table of metrics is shown, but {notebook.shown}",
        )

        saved = pathlib.Path("stopped/checkpoints")
        notebook.interrupt_after(saved / "ckpt-2.index")
        train = f"gorbit.train({graph!r}, {data!r}, 'stopped', batch_size=8"
        failed = notebook.run(
            f"{train}, steps=1000000, set={{'checkpoint.interval': 2}})"
        )
        expect(
            failed == "KeyboardInterrupt",
            f"an interrupted training ends with {failed!r}",
        )
        steps = max(int(path.stem.split("-")[1]) for path in saved.glob("ckpt-*.index"))
        failed = notebook.run("gorbit.evaluate('stopped', progress=False)['step']")
        expect(
            (failed, notebook.text) == ("", f"{steps}"), f"{failed}: {notebook.text}"
        )
        # The kernel is as before, and the same call continues.
        failed = notebook.run(
            f"run = {train}, steps={steps + 2})\nprint(run.metrics.step.max())"
        )
        expect(
            failed == "" and notebook.text.endswith(f"{steps + 2}\n"),
            f"{failed}: {notebook.text}",
        )
        print("a training was interrupted, and continued")
    finally:
        notebook.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
