"""JAX: a BERT classifier written by hand as its guides write models, compiled by jit."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from harness import lines, plan
from peers.base import Variant, Worker

WINDOW = 50
"""Batches among which examples are grouped by length, as Hugging Face's sampler does."""
EPSILON = 1e-12
"""Of BERT's layer normalization."""


class Jax(Worker):
    """A jitted step that is given its parameters' memory.

    XLA compiles a step for every length of rows, so that there are few of them: they are
    compiled before the first step.
    """

    name = "jax"
    venv = "jax"
    variants = (
        Variant("padded", "JAX, padded to 128", on=("cpu",)),
        Variant("grouped", "JAX, grouped by length, padded to multiples of 32", on=("cpu",)),
    )

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Trains, a mark per step with the tokens of its batch."""
        import jax

        # The generator of random bits that JAX names as the fastest.
        jax.config.update("jax_default_prng_impl", "unsafe_rbg")
        report.info(jax=jax.__version__)
        state = start(job)
        step = jax.jit(stepping(job), donate_argnums=0)
        every = int(job.options.get("losses", 0))
        batches = list(taken(job))
        compiled: dict[int, Any] = {}
        for batch in batches:
            if (width := batch["input_ids"].shape[1]) not in compiled:
                compiled[width] = step.lower(state, batch).compile()
        for number, batch in enumerate(batches, 1):
            state, loss = compiled[batch["input_ids"].shape[1]](state, batch)
            jax.block_until_ready(loss)
            if every and number % every == 0:
                report.info(**{f"loss_{number}": float(loss)})
            report.step(number, int(batch["attention_mask"].sum()))


def taken(job: plan.Job) -> Iterator[dict[str, Any]]:
    """Yields the batches of a job as arrays."""
    import numpy as np

    with open(os.path.join(job.data, "examples.json")) as file:
        columns = json.load(file)
    lengths = np.array([len(ids) for ids in columns["input_ids"]])
    random, groups = np.random.default_rng(42), []
    while len(groups) < job.total_steps:
        order = random.permutation(len(lengths))
        for at in range(0, len(order), WINDOW * job.batch):
            window = order[at : at + WINDOW * job.batch]
            if job.variant == "grouped":
                window = window[np.argsort(-lengths[window], kind="stable")]
            whole = len(window) // job.batch * job.batch
            some = window[:whole].reshape(-1, job.batch)
            groups += list(random.permutation(some))
    for group in groups[: job.total_steps]:
        longest = int(lengths[group].max())
        width = -(-longest // 32) * 32 if job.variant == "grouped" else plan.LENGTH
        batch = {"labels": np.array([columns["labels"][at] for at in group], np.int32)}
        for name in ("input_ids", "token_type_ids", "attention_mask"):
            batch[name] = np.zeros((job.batch, width), np.int32)
            for row, at in enumerate(group):
                batch[name][row, : lengths[at]] = columns[name][at]
        yield batch


def start(job: plan.Job) -> dict[str, Any]:
    """Returns parameters, moments, the number of steps done and the key of dropout."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    shape, random = job.shape, np.random.default_rng(1)
    hidden, inner = shape.hidden, shape.inner

    def kernel(*size: int) -> Any:
        return jnp.asarray(random.normal(0, 0.02, size).astype(np.float32))

    def dense(rows: int, columns: int) -> dict[str, Any]:
        return {"kernel": kernel(rows, columns), "bias": jnp.zeros(columns)}

    def norm() -> dict[str, Any]:
        return {"scale": jnp.ones(hidden), "bias": jnp.zeros(hidden)}

    def layer() -> dict[str, Any]:
        return {
            **{"qkv": dense(hidden, 3 * hidden), "out": dense(hidden, hidden)},
            **{"up": dense(hidden, inner), "down": dense(inner, hidden)},
            **{"after_attention": norm(), "after_inner": norm()},
        }

    params = {
        **{"words": kernel(plan.VOCAB, hidden), "types": kernel(2, hidden)},
        **{"positions": kernel(plan.POSITIONS, hidden), "norm": norm()},
        **{"layers": [layer() for _ in range(shape.layers)]},
        **{"pooler": dense(hidden, hidden), "classifier": dense(hidden, 2)},
    }

    def zeros() -> Any:
        return jax.tree.map(jnp.zeros_like, params)

    key = jax.random.key(7)
    return {"params": params, "mean": zeros(), "square": zeros(), "step": jnp.int32(0), "key": key}


def stepping(job: plan.Job) -> Any:
    """Returns a function from a state and a batch to the next state and the loss."""
    import jax
    import jax.numpy as jnp

    shape, total, warm = job.shape, job.total_steps, job.warmup_steps
    rate = float(job.options.get("learning_rate", plan.LEARNING_RATE))

    def dense(p: Any, x: Any) -> Any:
        return x @ p["kernel"] + p["bias"]

    def norm(p: Any, x: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        spread = jnp.square(x - mean).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(spread + EPSILON) * p["scale"] + p["bias"]

    def loss(params: Any, batch: Any, key: Any) -> Any:
        keys = iter(jax.random.split(key, 3 * shape.layers + 2))

        def drop(x: Any) -> Any:
            kept = jax.random.bernoulli(next(keys), 1 - plan.DROPOUT, x.shape)
            return jnp.where(kept, x / (1 - plan.DROPOUT), 0)

        ids = batch["input_ids"]
        rows, width = ids.shape
        x = params["words"][ids] + params["types"][batch["token_type_ids"]]
        x = drop(norm(params["norm"], x + params["positions"][:width]))
        hidden = jnp.where(batch["attention_mask"][:, None, None, :] > 0, 0.0, -1e9)
        depth = shape.hidden // shape.heads
        for p in params["layers"]:
            qkv = dense(p["qkv"], x).reshape(rows, width, 3, shape.heads, depth)
            q, k, v = (qkv[:, :, at] for at in range(3))
            scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / depth**0.5
            weights = drop(jax.nn.softmax(scores + hidden))
            mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(rows, width, -1)
            x = norm(p["after_attention"], x + drop(dense(p["out"], mixed)))
            up = jax.nn.gelu(dense(p["up"], x), approximate=False)
            x = norm(p["after_inner"], x + drop(dense(p["down"], up)))
        pooled = drop(jnp.tanh(dense(params["pooler"], x[:, 0])))
        logits = jax.nn.log_softmax(dense(params["classifier"], pooled))
        return -jnp.take_along_axis(logits, batch["labels"][:, None], 1).mean()

    def step(state: Any, batch: Any) -> Any:
        key, drawn = jax.random.split(state["key"])
        lost, gradients = jax.value_and_grad(loss)(state["params"], batch, drawn)
        done = state["step"] + 1
        squares = sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(gradients))
        clip = jnp.minimum(1.0, plan.CLIP_NORM / jnp.sqrt(squares))
        now = rate * jnp.minimum(done / warm, jnp.maximum(0.0, (total - done + 1) / (total - warm)))

        def updated(p: Any, g: Any, m: Any, s: Any) -> Any:
            g = g * clip
            m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * jnp.square(g)
            change = (m / (1 - 0.9**done)) / (jnp.sqrt(s / (1 - 0.999**done)) + 1e-8)
            decay = plan.WEIGHT_DECAY if p.ndim > 1 else 0.0
            return p - now * (change + decay * p), m, s

        new = jax.tree.map(updated, state["params"], gradients, state["mean"], state["square"])
        params, mean, square = jax.tree.transpose(
            jax.tree.structure(gradients), jax.tree.structure((0, 0, 0)), new
        )
        kept = {"params": params, "mean": mean, "square": square, "step": done, "key": key}
        return kept, lost

    return step
