"""Reads images, numbers and tokens from TFRecords in batches of 32, without a model."""

from __future__ import annotations

import os
import pathlib

import peers
from harness import plan, runs, stats
from peers import dense as making
from suites import base, reading


def run(options: base.Options) -> None:
    """Measures the readers and writes their table."""
    lines = measured(options) if options.settings.rounds else base.earlier(options, "dense")
    note = (
        "The same records for both, shuffled, decoded, made into batches of 32; gorbit with two "
        "readers, tf.data with AUTOTUNE."
    )
    title = "Reading images, numbers and tokens"
    reading.publish(options, "dense", title, note, peers.DENSE, lines)


def parts(options: base.Options) -> list[base.Part]:
    """Returns the only part."""
    del options
    return [base.Part("dense")]


def measured(options: base.Options) -> list[stats.Line]:
    """Runs all rounds and returns their lines."""
    folder = records(options)
    test = base.go_test(options, "dataset/dense")
    entries = [
        runs.Entry(
            peer,
            variant,
            plan.Job(variant.name, data=folder, options={"dense_test": test}),
            stats.told,
        )
        for kind in making.KINDS
        for peer in peers.DENSE
        for variant in peer.variants
        if variant.name == kind
    ]
    options.settings.say(f"dense: {options.settings.rounds} rounds")
    return runs.everything(options.settings, entries)


def records(options: base.Options) -> str:
    """Returns the folder of the records, made if needed."""
    recipe = pathlib.Path(making.__file__).read_bytes()
    folder = os.path.join(options.settings.work, "data", f"dense-{base.digest(recipe)}")
    if not all(os.path.exists(os.path.join(folder, f"{kind}.tfrecord")) for kind in making.KINDS):
        options.settings.say("making records of images, numbers and tokens")
        base.work(options, peers.DENSE_DATA, plan.Job("data", data=folder))
    return folder
