"""Trains with the program gorbit from Python: thin callers of its commands, for notebooks.

No Python runs in the training. The program is a process of its own, whose keyword arguments are the
flags of its command: batch_size=32 is --batch-size 32. See docs/guide/python.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable, Union

from gorbit.errors import Error
from gorbit.process import STOP, STOPPED, Callback, Process, flags

__all__ = ["STOP", "Error", "Run", "Study", "evaluate", "predict", "runs", "train", "tune"]

Path = Union[str, "os.PathLike[str]"]
Row = dict[str, Any]
Table = Any
"""A data frame of pandas if that is installed, else a list of dicts."""


class Run:
    """The folder of a run.

    Attributes:
        folder: its path.
        stopped: whether the training was told to stop before its end. The same call continues it.
    """

    def __init__(self, folder: Path, stopped: bool = False) -> None:
        """Makes a run of its folder, which need not be there yet."""
        self.folder = os.fspath(folder)
        self.stopped = stopped

    def __fspath__(self) -> str:
        """Returns the folder, so that a run can be given wherever a path can."""
        return self.folder

    def __repr__(self) -> str:
        """Names the folder."""
        return f"gorbit.Run({self.folder!r}{', stopped=True' if self.stopped else ''})"

    @property
    def metrics(self) -> Table:
        """The metrics by phase and step, from the first step of the run on."""
        path = pathlib.Path(self.folder) / "metrics.jsonl"
        if "://" in self.folder:
            raise Error(f"{self.folder} is in a bucket; expected a folder of this machine: copy it")
        rows = []
        try:
            with path.open(encoding="utf-8") as lines:
                for number, line in enumerate(lines, 1):
                    if not line.endswith("\n"):
                        break  # it is being written
                    rows.append(_metrics(f"{path}:{number}", line))
        except OSError as err:
            raise Error(f"{path}: {(err.strerror or str(err)).lower()}; expected a run") from err
        return _table(rows)


class Study:
    """The folder of a study of tune.

    Attributes:
        folder: its path.
        stopped: whether the study was told to stop. The same call continues it.
    """

    def __init__(self, folder: Path, stopped: bool = False) -> None:
        """Makes a study of its folder."""
        self.folder = os.fspath(folder)
        self.stopped = stopped

    def __repr__(self) -> str:
        """Names the folder."""
        return f"gorbit.Study({self.folder!r}{', stopped=True' if self.stopped else ''})"

    @property
    def trials(self) -> Table:
        """The runs of the trials, the best first, as of runs."""
        return runs(pathlib.Path(self.folder) / "trials", sort="best")

    @property
    def best(self) -> str:
        """The file with the params of the best trial: train(..., params=study.best)."""
        path = pathlib.Path(self.folder) / "best.yaml"
        if not path.is_file():
            raise Error(f"{path} is missing; expected a study that has ended")
        return str(path)


def train(
    graph: Path | None = None,
    data: Path | None = None,
    run: Path | None = None,
    *,
    callbacks: Iterable[Callback] = (),
    progress: bool = True,
    **params: Any,
) -> Run:
    """Trains, or continues a run, as gorbit train does.

    Ctrl-C, or Interrupt in a notebook, saves and stops the training, and then raises
    KeyboardInterrupt; a second time, it stops at once. The same call continues the run.

    Args:
        graph: folder of an export.
        data: folder of a dataset.
        run: folder of the run.
        callbacks: functions that are called, here and not in the training, with each event: a dict
            with "event": "metrics", "phase": "train" or "eval", "step" and "metrics", after each
            loop and evaluation; or with "event": "save", "step" and "path", after each checkpoint.
            The training goes on meanwhile. STOP as the result has it save and stop, and so does an
            exception, which is then raised here.
        progress: whether a bar and the program's lines are shown.
        **params: other flags of gorbit train: epochs=3, learning_rate=2e-5, set={"seed": 2}.

    Raises:
        Error: what is wrong.
    """
    named = {"graph": graph, "data": data, "run": run, **params}
    args = ["train", *_common(named), *flags(named)]
    code = Process(args, callbacks, progress).run(show=True)
    return Run(run or "", stopped=code == STOPPED)


def evaluate(
    run: Path | None = None,
    *,
    compute_metrics: Callable[[list[Any], list[Any]], dict[str, float]] | None = None,
    progress: bool = True,
    **params: Any,
) -> Row:
    """Evaluates a checkpoint, as gorbit evaluate does.

    Args:
        run: folder of the run.
        compute_metrics: a function of the predictions and the labels of all examples, as lists of
            what gorbit evaluate --predictions writes, such as the names of classes. It returns
            metrics of its own, which are added to the result.
        progress: whether a bar and the program's messages are shown.
        **params: other flags of gorbit evaluate: checkpoint="best", split="test".

    Returns:
        The metrics by name, and "step".

    Raises:
        Error: what is wrong.
    """
    if params.get("follow"):
        raise Error("follow is given; leave it out: a function has one result", 2)
    with contextlib.ExitStack() as stack:
        if compute_metrics and not params.get("predictions"):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gorbit-"))
            params["predictions"] = os.path.join(folder, "predictions.jsonl")
        named = {"run": run, **params}
        process = Process(["evaluate", "--json", *_common(named), *flags(named)], (), progress)
        process.run(show=False)
        result = json.loads(process.output[-1])
        metrics = {"step": result["step"], **_numbers(result["outputs"])}
        if compute_metrics:
            rows = list(_rows(params["predictions"]))
            own = compute_metrics([r["prediction"] for r in rows], [r["label"] for r in rows])
            if twice := metrics.keys() & own.keys():
                raise Error(
                    f"compute_metrics returns {', '.join(sorted(twice))}, which the evaluation "
                    "has as well; expected other names",
                    2,
                )
            metrics.update(own)
    return metrics


def predict(
    run: Path | None = None,
    texts: Sequence[str] | None = None,
    pairs: Sequence[str] | None = None,
    *,
    progress: bool = True,
    **params: Any,
) -> Table:
    """Predicts with a checkpoint, as gorbit predict does.

    Args:
        run: folder of the run.
        texts: the texts to answer. Without them, file or split says what to answer.
        pairs: the second text of each, of a task of pairs.
        progress: whether the program's messages are shown.
        **params: other flags of gorbit predict: split="test", file="reviews.csv".

    Returns:
        An answer for each text, in their order.

    Raises:
        Error: what is wrong.
    """
    if params.get("out"):
        raise Error("out is given; leave it out: the answers are the result", 2)
    for name in ("file", "split", "text_column", "pair_column"):
        if texts is not None and params.get(name) is not None:
            raise Error(f"texts and {name} are both given; expected one of them", 2)
    with contextlib.ExitStack() as stack:
        if isinstance(texts, str) or isinstance(pairs, str):
            raise Error("a string is given; expected a list of strings", 2)
        texts = None if texts is None else list(texts)  # of pandas, too, with its own index
        pairs = None if pairs is None else list(pairs)
        if pairs is not None and len(pairs) != len(texts or ()):
            raise Error(f"{len(texts or ())} texts and {len(pairs)} pairs; expected as many", 2)
        if texts is not None:
            if not texts:
                return _table([])
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gorbit-"))
            params["file"] = os.path.join(folder, "texts.jsonl")
            params["text_column"] = "text"
            params["pair_column"] = "text_pair" if pairs is not None else None
            with open(params["file"], "w", encoding="utf-8") as file:
                for i, text in enumerate(texts):
                    row = {"text": text} if pairs is None else {"text": text, "text_pair": pairs[i]}
                    file.write(json.dumps(row) + "\n")
        named = {"run": run, "format": "json", **params}
        process = Process(["predict", *_common(named), *flags(named)], (), progress)
        process.run(show=False)
    return _table([json.loads(line) for line in process.output])


def tune(
    study: Path,
    graph: Path | None = None,
    data: Path | None = None,
    *,
    progress: bool = True,
    **params: Any,
) -> Study:
    """Searches over params, or continues a study, as gorbit tune does.

    Args:
        study: folder of the study.
        graph: folder of an export.
        data: folder of a dataset.
        progress: whether the program's lines are shown.
        **params: other flags of gorbit tune: search={"optimizer.learning_rate": "1e-5:1e-3:log"},
            trials=8, epochs=1.

    Raises:
        Error: what is wrong.
    """
    named = {"study": study, "graph": graph, "data": data, **params}
    code = Process(["tune", *_common(named), *flags(named)], (), progress).run(show=True)
    return Study(study, stopped=code == STOPPED)


def runs(folder: Path = ".", **params: Any) -> Table:
    """Lists the runs in a folder and below it, as gorbit runs does.

    Args:
        folder: the folder.
        **params: other flags of gorbit runs: sort="best".

    Raises:
        Error: what is wrong.
    """
    process = Process(["runs", "--json", *flags(params), "--", os.fspath(folder)], (), False)
    process.run(show=False)
    return _table(json.loads("\n".join(process.output)))


def _common(params: Row) -> list[str]:
    """Returns the flags that this package gives to the program, unless params have others."""
    if "progress" in params:
        raise Error("progress is given twice", 2)
    return ["--progress=events", *([] if "log_level" in params else ["--log-level=warn"])]


def _metrics(where: str, line: str) -> Row:
    """Returns a row of a line of metrics.jsonl."""
    try:
        parsed = json.loads(line)
        return {
            "phase": parsed["phase"],
            "step": parsed["step"],
            **_numbers(parsed["outputs"]),
        }
    except (ValueError, KeyError, TypeError) as err:
        raise Error(f"{where}: the line is damaged; gorbit report shows the others", 3) from err


def _numbers(values: Row) -> dict[str, float]:
    """Returns values in which NaN and infinities are numbers, and not strings."""
    return {name: float(value) for name, value in values.items()}


def _rows(path: Path) -> Iterator[Row]:
    """Reads a file of lines of JSON."""
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _table(rows: list[Row]) -> Table:
    """Returns a data frame of pandas if that is installed, else the rows."""
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows)
