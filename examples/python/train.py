"""Trains, evaluates and predicts with the package gorbit: train.py GRAPH DATA RUN."""

import sys

import gorbit

graph, data, folder = sys.argv[1:]


def watch(event: dict) -> object:
    """Prints evaluations, and stops the training where the accuracy is high enough."""
    if event["event"] == "metrics" and event["phase"] == "eval":
        print(f"step {event['step']}: accuracy {event['metrics']['accuracy']:.3f}")
        if event["metrics"]["accuracy"] > 0.99:
            return gorbit.STOP
    return None


def share_of_good(predictions: list, labels: list) -> dict:
    """Returns a metric of its own, of all examples of an evaluation."""
    return {"share_of_good": predictions.count("good") / len(labels)}


run = gorbit.train(
    graph, data, folder, callbacks=[watch], steps=5, batch_size=8, eval_interval=5,
    set={"checkpoint.interval": 2},
)  # fmt: skip
print(run.metrics)
print(gorbit.evaluate(run, compute_metrics=share_of_good))
print(gorbit.predict(run, ["the film was good", "the film was bad"]))
try:
    gorbit.train(graph, data, folder, bach_size=16)
except gorbit.Error as err:
    print(err, err.code)
