"""Computes the tables of docs/measurements/scaling.md: bytes sent, memory and step times in theory.

Usage: python tools/docs/scaling.py [DOCUMENT] replaces the tables in the document
(default: docs/measurements/scaling.md). Nothing is measured or read. The document explains the
formulas.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))  # the models' sizes and how tables are written
from harness import plan, tables  # noqa: E402

Row = tuple[str, Callable[[int], str]]
"""A row's name, and the function from a number of replicas to its cell."""

REPLICAS = (8, 64, 1024)
ACCUMULATE = (1, 4, 16)
FLOAT = 4
"""Bytes of a float32."""
SLOTS = 2
"""Number of slots that AdamW keeps for a variable."""
BUCKET = 25e6
EFFICIENT = 0.8
"""The share of a step's time that must go to computing for a mode to count as scaling."""
MOST = 1 << 14
"""Limits are searched up to this number of replicas."""

MODELS = {"BERT-base": plan.SIZES["base"], "BERT-large": plan.Size(24, 1024, 16, 4096)}

# Composed graphs, see the document: a fixed part, and what each variable or layer adds.
NODES, NODES_PER_VARIABLE = 42, 24.63
BYTES_PER_VARIABLE = 5810
INLINED, INLINED_PER_LAYER = 1089, 1506.5
LARGEST_GRAPH = 2**31

POSITION_BYTES, EXAMPLE_BYTES = 16, 12
"""Bytes of features: four int32 per position; first position, label and weight per example."""
READ = 2_314_000
"""Examples per second that one process reads and packs with two readers on two cores: the rate
measured in docs/measurements/benchmarks.md. A test compares the two."""
MICRO_BATCH = 32
TOKENS = 128
EXAMPLE = POSITION_BYTES * TOKENS + EXAMPLE_BYTES
"""Bytes of an example that fills its positions."""


@dataclasses.dataclass(frozen=True)
class Hardware:
    """A replica's speed and its link.

    Attributes:
        name: its name in the tables.
        flops: operations per second of the model's dense products, all overheads included.
        hop: seconds that even the shortest message takes.
        bandwidth: bytes per second, in each direction.
        wire: bytes of one number of a gradient on the wire.
    """

    name: str
    flops: float
    hop: float
    bandwidth: float
    wire: int = FLOAT


HARDWARE = (
    Hardware("2 CPU cores, 10 Gbit/s", 254.6e9, 100e-6, 1.25e9),
    Hardware("GPU in float32, 100 Gbit/s", 60e12, 100e-6, 12.5e9),
    Hardware("GPU in bf16, 100 Gbit/s", 200e12, 100e-6, 12.5e9),
    Hardware("GPU in bf16, gradients too", 200e12, 100e-6, 12.5e9, 2),
)


def variables(size: plan.Size) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of a two-label classifier with BERT's pooler, as exported."""
    h, inner = size.hidden, size.inner

    def dense(name: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
        return {f"{name}/kernel": (rows, columns), f"{name}/bias": (columns,)}

    def norm(name: str) -> dict[str, tuple[int, ...]]:
        return {f"{name}/scale": (h,), f"{name}/bias": (h,)}

    shapes: dict[str, tuple[int, ...]] = {
        "embeddings/word/table": (plan.VOCAB, h),
        "embeddings/position/table": (plan.POSITIONS, h),
        "embeddings/type/table": (2, h),
        **norm("embeddings/norm"),
    }
    for i in range(size.layers):
        attention, feed = f"layers/{i}/attention", f"layers/{i}/feed_forward"
        for name in ("query", "key", "value", "output"):
            shapes |= dense(f"{attention}/{name}", h, h)
        shapes |= norm(f"{attention}/norm")
        shapes |= dense(f"{feed}/intermediate", h, inner) | dense(f"{feed}/output", inner, h)
        shapes |= norm(f"{feed}/norm")
    return shapes | dense("pooler", h, h) | dense("classifier", h, 2)


def numbers(size: plan.Size) -> list[int]:
    """Returns the number of elements of each variable."""
    return [math.prod(shape) for shape in variables(size).values()]


def owners(shapes: Iterable[tuple[int, ...]], replicas: int) -> list[list[int]]:
    """Returns what each replica owns: the numbers of each variable, or of its part of one.

    Variables of more than an eighth of an equal share are divided by rows, if they have enough. The
    others are assigned whole, the largest first, always to the least loaded replica.
    """
    shapes = list(shapes)
    total = sum(map(math.prod, shapes))
    owned: list[list[int]] = [[] for _ in range(replicas)]
    whole = []
    for rows, *rest in shapes:
        row = math.prod(rest)
        if 8 * replicas * rows * row <= total or rows < replicas:
            whole.append(rows * row)
            continue
        for i in range(replicas):
            owned[i].append(((i + 1) * rows // replicas - i * rows // replicas) * row)
    loads = [(sum(some), i) for i, some in enumerate(owned)]
    heapq.heapify(loads)
    for size in sorted(whole, reverse=True):
        load, least = loads[0]
        owned[least].append(size)
        heapq.heapreplace(loads, (load + size, least))
    return owned


def buckets(sizes: Sequence[int], limit: float) -> list[int]:
    """Returns the bytes of the buckets of whole gradients, in the order of the backward pass."""
    made, filled = [], 0
    for size in reversed(sizes):
        filled += size * FLOAT
        if filled >= limit:
            made.append(filled)
            filled = 0
    return [*made, filled] if filled else made


def ring_bytes(total: float, replicas: int) -> float:
    """Returns the bytes that a replica sends, and receives, in a ring all-reduce of `total`."""
    return 2 * (replicas - 1) / replicas * total


def ring_seconds(made: Sequence[float], replicas: int, hardware: Hardware) -> float:
    """Returns the time of ring all-reduces of buckets, one after the other."""
    hops = 2 * (replicas - 1) * len(made) * hardware.hop
    share = hardware.wire / FLOAT
    return hops + ring_bytes(sum(made) * share, replicas) / hardware.bandwidth


def owner_bytes(owned: Sequence[Sequence[int]], total: int) -> list[int]:
    """Returns the bytes that each replica sends if gradients go to owners and values come back."""
    loads = [sum(some) for some in owned]
    return [FLOAT * (total - load + (len(owned) - 1) * load) for load in loads]


def owner_seconds(owned: Sequence[Sequence[int]], hardware: Hardware) -> float:
    """Returns the time to reduce to owners and send values, which the busiest owner determines.

    It receives all gradients of its variables and sends the new values to every replica, one
    message each. The fixed time of a message counts as the owner's own.
    """
    others = len(owned) - 1

    def busy(load: int, messages: int) -> float:
        received = others * load * hardware.wire / hardware.bandwidth
        sent = others * load * FLOAT / hardware.bandwidth
        return received + sent + 2 * others * messages * hardware.hop

    return max(busy(*load) for load in {(sum(some), len(some)) for some in owned})


def compute_seconds(size: plan.Size, hardware: Hardware) -> float:
    """Returns the time of one micro-batch."""
    return MICRO_BATCH * TOKENS * size.train_flop_per_token / hardware.flops


def ring_step(size: plan.Size, hardware: Hardware, replicas: int, accumulate: int) -> float:
    """Returns the share of a step spent computing, with the better of two ways to all-reduce.

    Either in buckets during the backward pass of the last micro-batch, which takes two thirds
    of its time; the step always waits for the last bucket. Or all at once, after that pass.
    """
    compute = compute_seconds(size, hardware)
    made = buckets(numbers(size), BUCKET)
    in_buckets = ring_seconds(made, replicas, hardware)
    last = ring_seconds(made[-1:], replicas, hardware)
    waited = max(last, in_buckets - compute * 2 / 3)
    waited = min(waited, ring_seconds([sum(made)], replicas, hardware))
    return accumulate * compute / (accumulate * compute + waited)


@functools.cache
def owned_variables(size: plan.Size, replicas: int) -> list[list[int]]:
    """Returns the owners of a model's variables."""
    return owners(variables(size).values(), replicas)


def owner_step(size: plan.Size, hardware: Hardware, replicas: int, accumulate: int) -> float:
    """Like ring_step with owners, without overlap with the backward pass."""
    owned = owned_variables(size, replicas)
    compute = accumulate * compute_seconds(size, hardware)
    return compute / (compute + owner_seconds(owned, hardware))


def largest(holds: Callable[[int], bool]) -> int:
    """Returns the largest number for which `holds` is true, if it is true for all smaller ones."""
    low, high = 1, MOST
    if holds(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def model_table() -> str:
    """Makes the table of the models' variables."""
    rows = []
    for name, size in MODELS.items():
        sizes = numbers(size)
        total, (second, first) = sum(sizes), sorted(sizes)[-2:]
        rows.append(
            [
                name,
                str(len(sizes)),
                f"{total:,}",
                mega(FLOAT * total),
                f"{mega(FLOAT * first)} ({first / total:.1%})",
                f"{mega(FLOAT * second)} ({second / total:.1%})",
                str(len(buckets(sizes, BUCKET))),
                f"{size.train_flop_per_token / 1e6:,.0f}",
            ]
        )
    header = (
        "",
        "variables, V",
        "numbers, P",
        "4P, MB",
        "word embedding, MB",
        "next largest, MB",
        "buckets",
        "MFLOP per token",
    )
    return tables.markdown(header, rows)


def by_replicas(title: str, rows: Callable[[plan.Size], Sequence[Row]]) -> str:
    """Makes a table with a column for each number of replicas."""
    return tables.markdown(
        (title, *map(str, REPLICAS)),
        [
            [f"{name}, {text}", *map(cell, REPLICAS)]
            for name, size in MODELS.items()
            for text, cell in rows(size)
        ],
    )


def wire_rows(size: plan.Size) -> list[Row]:
    """Returns the rows of the bytes that a replica sends in a step."""
    sizes = numbers(size)
    total = sum(sizes)

    def ring(n: int, wire: float = FLOAT) -> str:
        return mega(ring_bytes(wire * total, n))

    def sharded(n: int) -> str:
        each = owner_bytes(owned_variables(size, n), total)
        return f"{mega(sum(each) / n)}; {mega(max(each))}"

    return [
        ("all-reduce", ring),
        *(
            (f"per micro-batch of {k}", functools.partial(ring, wire=FLOAT / k))
            for k in ACCUMULATE[1:]
        ),
        ("all-reduce, gradients in bf16", functools.partial(ring, wire=2)),
        ("sharded: mean; busiest owner", sharded),
    ]


def memory_rows(size: plan.Size) -> list[Row]:
    """Returns the rows of a replica's memory, without activations."""
    total = sum(numbers(size))

    def shard(n: int) -> int:
        return max(map(sum, owned_variables(size, n)))

    def sharded(n: int) -> str:
        return mega(FLOAT * (2 * total + SLOTS * shard(n)))

    def arriving(n: int) -> str:
        return mega(FLOAT * (n - 1) * shard(n))

    whole = FLOAT * (2 + SLOTS) * total
    return [
        ("all-reduce", lambda n: mega(whole)),
        ("accumulating 4 or 16", lambda n: mega(whole + FLOAT * total)),
        ("computing in bf16", lambda n: mega(whole + 2 * total)),
        ("sharded", sharded),
        ("arriving at the busiest owner", arriving),
    ]


def time_table() -> str:
    """Makes the table of the seconds spent computing and all-reducing."""
    rows = []
    for name, size in MODELS.items():
        sizes = numbers(size)
        for hardware in HARDWARE:
            ways = buckets(sizes, BUCKET), [FLOAT * sum(sizes)]
            rows.append(
                [
                    f"{name}, {hardware.name}",
                    seconds(compute_seconds(size, hardware)),
                    *(
                        "; ".join(seconds(ring_seconds(way, n, hardware)) for way in ways)
                        for n in REPLICAS
                    ),
                ]
            )
    return tables.markdown(("seconds", "a micro-batch", *map(str, REPLICAS)), rows)


def efficiency_table() -> str:
    """Makes the table of computing's share of a step, and how far each mode scales."""
    rows = []
    for name, size in MODELS.items():
        for hardware in HARDWARE:
            for k in ACCUMULATE:
                modes = [
                    functools.partial(ring_step, size, hardware, accumulate=k),
                    functools.partial(owner_step, size, hardware, accumulate=k),
                ]
                rows.append(
                    [
                        f"{name}, {hardware.name}, {k}",
                        *(" / ".join(f"{mode(n):.0%}" for n in REPLICAS) for mode in modes),
                        " / ".join(
                            atmost(largest(lambda n, mode=mode: mode(n) >= EFFICIENT))
                            for mode in modes
                        ),
                    ]
                )
    told = " / ".join(map(str, REPLICAS))
    header = (
        f"computing's share at {told}",
        "all-reduce",
        "sharded",
        f"replicas up to which it is {EFFICIENT:.0%}",
    )
    return tables.markdown(header, rows)


def input_table() -> str:
    """Makes the table of the chief's input: what it sends, and how many replicas it can feed."""
    rows = []
    for name, size in MODELS.items():
        for hardware in HARDWARE[:3]:
            rate = MICRO_BATCH / compute_seconds(size, hardware)
            rows.append(
                [
                    f"{name}, {hardware.name}",
                    tables.number(rate),
                    *(f"{tables.number(n * rate * EXAMPLE / 1e6)}" for n in REPLICAS),
                    f"{hardware.bandwidth / (rate * EXAMPLE):,.0f}",
                    f"{READ / rate:,.0f}",
                ]
            )
    header = (
        "the chief's input",
        "examples/s of a replica",
        *(f"MB/s at {n}" for n in REPLICAS),
        "replicas that its link feeds",
        "replicas that its reader feeds",
    )
    return tables.markdown(header, rows)


def session_table() -> str:
    """Makes the table of the size of a session's graph."""
    rows = []
    for name, size in MODELS.items():
        count = len(variables(size))
        nodes, size_bytes = NODES + NODES_PER_VARIABLE * count, BYTES_PER_VARIABLE * count
        inlined = INLINED + INLINED_PER_LAYER * size.layers
        for title, each in (
            ("nodes", nodes),
            ("nodes, functions inlined", inlined),
            ("MB", size_bytes / 1e6),
        ):
            rows.append(
                [
                    f"{name}, {title}",
                    tables.number(each),
                    *(tables.number(n * each) for n in REPLICAS),
                    f"{LARGEST_GRAPH / size_bytes:,.0f}" if title == "MB" else "",
                ]
            )
    header = ("", "a replica", *map(str, REPLICAS), "replicas in 2 GiB")
    return tables.markdown(header, rows)


def connection_table() -> str:
    """Makes the table of connections between worker processes."""
    rows = []
    for devices in (1, 8):
        workers = [n // devices for n in REPLICAS]
        rows += [
            [f"workers, {devices} a process", *map(str, workers)],
            ["of a worker, all-reduce: ring", *(str(min(2, n - 1)) for n in workers)],
            ["of the chief's server and of the group's leader", *(f"{n - 1:,}" for n in workers)],
            ["of a worker, sharded", *(f"{2 * (n - 1):,}" for n in workers)],
            ["in all, sharded", *(f"{n * (n - 1):,}" for n in workers)],
        ]
    return tables.markdown(("replicas", *map(str, REPLICAS)), rows)


def mega(count: float) -> str:
    """Formats bytes in MB."""
    return tables.number(count / 1e6) if count else "0"


def seconds(value: float) -> str:
    """Formats a time with three significant digits."""
    return f"{value:.3g}"


def atmost(count: int) -> str:
    """Formats a limit, or that none was found."""
    return f"over {MOST:,}" if count == MOST else f"{count:,}"


TABLES: dict[str, Callable[[], str]] = {
    "models": model_table,
    "wire": lambda: by_replicas("MB sent by a replica in a step", wire_rows),
    "memory": lambda: by_replicas("MB in a replica", memory_rows),
    "time": time_table,
    "efficiency": efficiency_table,
    "input": input_table,
    "session": session_table,
    "connections": connection_table,
}


def main(argv: Sequence[str]) -> None:
    """Replaces the tables of a document."""
    document = argv[0] if argv else os.path.join(ROOT, "docs", "measurements", "scaling.md")
    for name, table in TABLES.items():
        tables.write(document, f"scaling-{name}", table(), name)


if __name__ == "__main__":
    main(sys.argv[1:])
