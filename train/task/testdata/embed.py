"""Writes embed.json: searches of random vectors, and what sentence-transformers measures of them.

st/bin/python train/task/testdata/embed.py

in an environment with sentence-transformers.
"""

import json
import pathlib

import numpy as np
from sentence_transformers.evaluation import InformationRetrievalEvaluator

METRICS = {"recall_1": "recall@k", "recall_10": "recall@k", "mrr_10": "mrr@k", "ndcg_10": "ndcg@k"}


def case(rng: np.random.Generator, examples: int, texts: int, distinct: int) -> dict:
    """A search of examples of some texts, which are the same again and again."""
    width = 4
    vectors = rng.normal(size=(distinct, width)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    numbers = rng.integers(0, distinct, (examples, texts))
    queries = {str(n): str(n) for n in numbers[:, 0]}
    corpus = {str(n): str(n) for n in numbers[:, 1:].ravel()}
    relevant = {}
    for own in numbers:
        relevant.setdefault(str(own[0]), set()).add(str(own[1]))
    evaluator = InformationRetrievalEvaluator(
        queries, corpus, relevant, mrr_at_k=[10], ndcg_at_k=[10], precision_recall_at_k=[1, 10]
    )
    found = []
    for query in evaluator.queries_ids:
        scores = vectors[[int(d) for d in corpus]] @ vectors[int(query)]
        hits = [{"corpus_id": d, "score": float(s)} for d, s in zip(corpus, scores)]
        found.append(sorted(hits, key=lambda hit: -hit["score"]))
    measured = evaluator.compute_metrics(found)
    return {
        "texts": numbers.tolist(),
        "vectors": vectors.tolist(),
        "metrics": {n: float(measured[of][int(n.split("_")[1])]) for n, of in METRICS.items()},
    }


def main() -> None:
    """Writes the file."""
    rng = np.random.default_rng(11)
    sizes = ((1, 2, 5), (30, 2, 400), (40, 2, 25), (30, 3, 40))
    cases = [case(rng, *size) for size in sizes]
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(cases) + "\n")


main()
