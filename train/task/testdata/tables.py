"""Writes tables.json: tables of classes as scikit-learn and seqeval report them.

Run from this folder with Python that has scikit-learn and seqeval:

    sk/bin/python tables.py
"""

import json
import pathlib

import numpy as np
from seqeval.metrics import classification_report as entity_report
from seqeval.scheme import IOB2
from sklearn.metrics import classification_report

AVERAGES = ("micro avg", "macro avg", "weighted avg")


def case(name: str, names: list[str], counts: list, report: dict) -> dict:
    """One table: counts are the right, predicted and true weights of each class."""
    return {
        "name": name,
        "names": names,
        "counts": np.asarray(counts, float).tolist(),
        "want": {
            k: {
                "precision": float(v["precision"]),
                "recall": float(v["recall"]),
                "f1": float(v["f1-score"]),
                "support": float(v["support"]),
            }
            for k, v in report.items()
            if k in names or k in AVERAGES
        },
    }


def single(name: str, labels, predictions, classes: int, weights=None) -> dict:
    """One label for each example. Averages are over the classes that occur."""
    labels, predictions = np.asarray(labels), np.asarray(predictions)
    w = np.ones(len(labels)) if weights is None else weights
    names = [f"class {i}" for i in range(classes)]
    counts = [
        [
            w[(labels == k) & (predictions == k)].sum(),
            w[predictions == k].sum(),
            w[labels == k].sum(),
        ]
        for k in range(classes)
    ]
    report = classification_report(
        [names[i] for i in labels],
        [names[i] for i in predictions],
        sample_weight=w,
        output_dict=True,
        zero_division=0,
    )
    if "accuracy" in report:  # scikit-learn's name for the same number
        micro = report["accuracy"]
        report["micro avg"] = {
            "precision": micro,
            "recall": micro,
            "f1-score": micro,
            "support": w.sum(),
        }
    return case(name, names, counts, report)


def several(name: str, labels, predictions, weights) -> dict:
    """Any number of labels for each example."""
    names = [f"label {i}" for i in range(labels.shape[1])]
    w = weights[:, None]
    counts = np.stack(
        [
            (w * labels * predictions).sum(0),
            (w * predictions).sum(0),
            (w * labels).sum(0),
        ],
        1,
    )
    report = classification_report(
        labels,
        predictions,
        sample_weight=weights,
        target_names=names,
        output_dict=True,
        zero_division=0,
    )
    return case(name, names, counts, report)


def entities(name: str, labels, predictions) -> dict:
    """Types of entities in tagged words, by seqeval in its default mode."""

    def spans(all_tags):
        out = set()
        for i, tags in enumerate(all_tags):
            start, kind = None, None
            for j, tag in enumerate([*tags, "O"]):
                if start is not None and not (tag.startswith("I-") and tag[2:] == kind):
                    out.add((i, start, j, kind))
                    start = None
                if tag.startswith("B-"):
                    start, kind = j, tag[2:]
        return out

    true, predicted = spans(labels), spans(predictions)
    names = sorted({s[3] for s in true | predicted})
    counts = [
        [sum(s[3] == k for s in group) for group in (true & predicted, predicted, true)]
        for k in names
    ]
    report = entity_report(
        labels, predictions, scheme=IOB2, output_dict=True, zero_division=0
    )
    return case(name, names, counts, report)


def main() -> None:
    rng = np.random.default_rng(11)
    cases = []
    for classes in (2, 3, 7):
        labels = rng.integers(0, classes, 300)
        predictions = np.where(
            rng.random(300) < 0.7, labels, rng.integers(0, classes, 300)
        )
        cases.append(single(f"{classes} classes", labels, predictions, classes))
        cases.append(
            single(f"{classes} weighted", labels, predictions, classes, rng.random(300))
        )
    cases.append(single("never predicted", [0, 1, 2, 2], [0, 1, 1, 1], 3))
    cases.append(single("predicted, never true", [0, 0, 1], [0, 2, 1], 3))
    labels = (rng.random((200, 5)) < [0.5, 0.2, 0.05, 0.9, 0.3]).astype(int)
    wrong = (rng.random((200, 5)) < 0.2).astype(int)
    cases.append(several("several labels", labels, labels ^ wrong, np.ones(200)))
    cases.append(
        several("several labels weighted", labels, labels ^ wrong, rng.random(200))
    )
    tags = ["O", "O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG"]

    def sentence() -> list[str]:
        out = ["O"]
        for _ in range(11):
            tag = tags[rng.integers(len(tags))]
            if tag.startswith("I-") and out[-1][2:] != tag[2:]:
                tag = "B" + tag[1:]
            out.append(tag)
        return out

    true = [sentence() for _ in range(40)]
    predicted = [t if rng.random() < 0.6 else sentence() for t in true]
    cases.append(entities("entities", true, predicted))
    path = pathlib.Path(__file__).with_name("tables.json")
    path.write_text(json.dumps(cases, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
